"""The STAC API: core, collections, features, item search, children."""

import re
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from kfm.model import Json
from kfm.reader.door import Asking, BadQuestion
from kfm.reader.kinds import (
    BBOX,
    CATALOG,
    COLLECTION,
    CRS84,
    GEOJSON,
    ITEM,
    ITEMS,
    JSON,
    SCHEMA,
    SEARCH,
    TIMES,
    TOKEN,
    Answers,
    collected,
    named,
)
from kfm.reader.route import not_asked, reads
from kfm.reader.stac_items import collection, collections, item, link
from kfm.reader.stac_search import Search, read_get, read_post, searched

__all__ = ["CONFORMS", "ROUTES"]

_STAC, _OGC = "https://api.stacspec.org/v1.0.0", "http://www.opengis.net/spec"
CONFORMS = [
    f"{_STAC}/core",
    f"{_STAC}/collections",
    f"{_STAC}/ogcapi-features",
    f"{_STAC}/item-search",
    *(f"{_STAC}/item-search#{name}" for name in ("fields", "sort")),
    *(f"{_STAC}/ogcapi-features#{name}" for name in ("fields", "sort")),
    f"{_STAC}-rc.2/item-search#filter",
    f"{_STAC}-rc.2/children",
    f"{_OGC}/ogcapi-features-1/1.0/conf/core",
    f"{_OGC}/ogcapi-features-1/1.0/conf/geojson",
    f"{_OGC}/ogcapi-features-3/1.0/conf/filter",
    f"{_OGC}/ogcapi-features-3/1.0/conf/features-filter",
    *(
        f"{_OGC}/cql2/1.0/conf/{name}"
        for name in ("cql2-text", "cql2-json", "basic-cql2", "advanced-comparison-operators")
    ),
]
_OPENAPI = "application/vnd.oai.openapi+json;version=3.1"
_PROPERTIES: Json = {
    "id": {"type": "string"},
    "collection": {"type": "string"},
    "datetime": {"type": "string", "format": "date-time"},
    "created": {"type": "string", "format": "date-time"},
    "title": {"type": "string"},
    "license": {"type": "string"},
    "version": {"type": "string"},
}
FilterLang = Annotated[str | None, named("filter-lang")]
FilterCrs = Annotated[str | None, named("filter-crs", pattern=f"^$|^{re.escape(CRS84)}$")]
Limit = Annotated[str | None, named(pattern="^$|^[0-9]*[1-9][0-9]*$", maxLength=9)]
Bbox = Annotated[str | None, named(pattern=f"^$|{BBOX}", description="west,south,east,north")]
Times = Annotated[str | None, named(pattern=f"^$|{TIMES['pattern']}")]
Token = Annotated[str | None, named(pattern=f"^$|{TOKEN}")]


@reads("/stac", page="stac", answers=Answers(kinds={JSON: CATALOG}))
def landing(asking: Asking) -> Json:
    """The catalog that STAC clients begin with."""
    found = list(collections(asking))
    return {
        "type": "Catalog",
        "stac_version": "1.0.0",
        "id": "kfm",
        "title": "What is published here",
        "description": "Datasets that may be shown to you; an item is a version.",
        "conformsTo": CONFORMS,
        "links": [
            link(asking, "self", ""),
            link(asking, "root", ""),
            link(asking, "conformance", "/conformance"),
            link(asking, "data", "/collections"),
            link(asking, "children", "/children"),
            link(asking, "search", "/search", GEOJSON, method="GET"),
            link(asking, "search", "/search", GEOJSON, method="POST"),
            link(asking, f"{_OGC.removesuffix('spec')}def/rel/ogc/1.0/queryables", "/queryables", SCHEMA),
            {"rel": "service-desc", "href": f"{asking.address}/openapi.json", "type": _OPENAPI},
            {"rel": "service-doc", "href": f"{asking.address}/openapi.html", "type": "text/html"},
            *(
                link(asking, "child", f"/collections/{each['id']}", title=each["title"])
                for each in found
            ),
        ],
    }  # fmt: skip


@reads("/stac/conformance")
def conformance(asking: Asking) -> Json:
    """What is kept to."""
    return {"conformsTo": CONFORMS}


@reads("/stac/collections", answers=Answers(kinds={JSON: collected("collections")}))
def all_collections(asking: Asking) -> Json:
    """Every dataset with a place."""
    found = list(collections(asking))
    links = [link(asking, "self", "/collections"), link(asking, "root", "")]
    return {"collections": found, "links": links, "numberMatched": len(found)}


@reads("/stac/children", answers=Answers(kinds={JSON: collected("children")}))
def children(asking: Asking) -> Json:
    """The same, as children of the catalog."""
    links = [link(asking, "self", "/children"), link(asking, "root", "")]
    return {"children": list(collections(asking)), "links": links}


@reads("/stac/collections/{dataset_id:str}", answers=Answers(kinds={JSON: COLLECTION}))
def one_collection(asking: Asking, dataset_id: str) -> Json:
    """One dataset as a collection."""
    return collection(asking, dataset_id)


@reads(["/stac/queryables", "/stac/collections/{dataset_id:str}/queryables"], media=SCHEMA)
def queryables(asking: Asking, dataset_id: str | None = None) -> Json:
    """What a filter may ask for."""
    if dataset_id is not None:
        collection(asking, dataset_id)
    where = f"/collections/{dataset_id}" if dataset_id is not None else ""
    return {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$id": f"{asking.address}/stac{where}/queryables",
        "type": "object",
        "title": "What a filter may ask for",
        "properties": _PROPERTIES,
        "additionalProperties": True,
    }


@reads(
    "/stac/collections/{dataset_id:str}/items",
    media=GEOJSON,
    answers=Answers(kinds={GEOJSON: ITEMS}),
    strict=True,
)
def features(
    asking: Asking,
    dataset_id: str,
    limit: Limit = None,
    bbox: Bbox = None,
    datetime: Times = None,
    filter: str | None = None,
    filter_lang: FilterLang = None,
    filter_crs: FilterCrs = None,
    sortby: str | None = None,
    fields: str | None = None,
    token: Token = None,
) -> Json:
    """The versions of a dataset as items."""
    given = {"limit": limit, "bbox": bbox, "datetime": datetime, "sortby": sortby, "token": token}
    given |= {"filter": filter, "filter_lang": filter_lang, "filter_crs": filter_crs}
    given |= {"fields": fields}
    collection(asking, dataset_id)
    search = msgspec.structs.replace(read_get(given), collections=(dataset_id,))
    return _answer(asking, search, f"/collections/{dataset_id}/items", given)


@reads(
    "/stac/collections/{dataset_id:str}/items/{item_id:str}",
    media=GEOJSON,
    answers=Answers(kinds={GEOJSON: ITEM}),
)
def feature(asking: Asking, dataset_id: str, item_id: str) -> Json:
    """One version as an item."""
    return item(asking, dataset_id, item_id)  # type: ignore[return-value]  # its bytes


@reads("/stac/search", media=GEOJSON, answers=Answers(kinds={GEOJSON: ITEMS}), strict=True)
def search_get(
    asking: Asking,
    collections: str | None = None,
    ids: str | None = None,
    limit: Limit = None,
    bbox: Bbox = None,
    intersects: str | None = None,
    datetime: Times = None,
    filter: str | None = None,
    filter_lang: FilterLang = None,
    filter_crs: FilterCrs = None,
    sortby: str | None = None,
    fields: str | None = None,
    token: Token = None,
) -> Json:
    """Items of every dataset that may be shown."""
    given = {"collections": collections, "ids": ids, "limit": limit, "bbox": bbox, "token": token}
    given |= {"intersects": intersects, "datetime": datetime, "filter": filter, "sortby": sortby}
    given |= {"filter_lang": filter_lang, "filter_crs": filter_crs, "fields": fields}
    return _answer(asking, read_get(given), "/search", given)


@reads(
    "/stac/search",
    method="post",
    media=GEOJSON,
    answers=Answers(kinds={GEOJSON: ITEMS}, body=SEARCH),
)
def search_post(asking: Asking, data: JSONBody[Json]) -> Json:
    """The same, asked with a body."""
    known = SEARCH["properties"]
    if (unknown := next((word for word in data if word not in known), None)) is not None:
        raise BadQuestion(not_asked(unknown, known), unknown[:60])
    search = read_post(data)
    return _answer(asking, search, "/search", None, data)


def _answer(
    asking: Asking,
    search: Search,
    path: str,
    given: dict[str, str | None] | None,
    body: Json | None = None,
) -> Json:
    found = searched(asking, search)
    links = [link(asking, "self", path, GEOJSON), link(asking, "root", "")]
    if found.next is not None:
        links.append(_next(asking, path, found.next, given, body))
    told: Json = {
        "type": "FeatureCollection",
        "features": found.items,
        "links": links,
        "numberReturned": len(found.items),
    }
    return told if found.matched is None else told | {"numberMatched": found.matched}


def _next(
    asking: Asking, path: str, token: str, given: dict[str, str | None] | None, body: Json | None
) -> Json:
    if given is None:
        more = {"method": "POST", "body": {**(body or {}), "token": token}}
        return link(asking, "next", path, GEOJSON, **more)
    said = {n.replace("_", "-"): v for n, v in given.items() if v is not None} | {"token": token}
    return link(asking, "next", f"{path}?{urlencode(said)}", GEOJSON, method="GET")


ROUTES: tuple[HTTPRouteHandler, ...] = (
    landing, conformance, all_collections, children, one_collection, queryables, features, feature,
    search_get, search_post,
)  # fmt: skip
