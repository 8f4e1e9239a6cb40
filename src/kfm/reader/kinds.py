"""What answers are, as `/openapi.json` tells it: their media types, and the schema of each that no
struct of ours describes.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from litestar.params import PathParameter, QueryParameter

from kfm.catalog.prov import ELEMENTS, RELATIONS
from kfm.model import Json
from kfm.model.ids import DATASET_ID_PATTERN

__all__ = [
    "ANY", "APPROVALS", "ATOM", "BBOX", "CATALOG", "COLLECTION", "CRS84", "CSL", "CSV", "DCAT", "ENVELOPE", "FACTS",
    "FEATURE", "FEATURES", "FILES", "GEOJSON", "ITEM", "ITEMS", "JSON", "LD", "OPENLINEAGE",
    "OPTIONS", "PLAIN", "PMTILES", "PROV", "RECEIPT", "RECORD", "SCHEMA", "SEARCH", "TEXT", "TIMES", "TOKEN",
    "WHICH", "Answers", "collected", "kind_of", "named", "part",
]  # fmt: skip

JSON, GEOJSON, LD = "application/json", "application/geo+json", "application/ld+json"
CSV, ATOM = "text/csv", "application/atom+xml"
CSL = "application/vnd.citationstyles.csl+json"
PMTILES = "application/vnd.pmtiles"
SCHEMA = "application/schema+json"
# files of a version, by how their name ends
FILES = {
    ".parquet": "application/vnd.apache.parquet",
    ".json": JSON,
    ".geojson": GEOJSON,
    ".csv": CSV,
    ".pmtiles": PMTILES,
    ".tif": "image/tiff",
    ".txt": "text/plain",
    ".pdf": "application/pdf",
}
ANY = "application/octet-stream"  # any other
WHICH = r"^(latest|[0-9]{1,9}|v[0-9a-f]{8,32})$"
_PLAIN = r"^[^\x00-\x1f\x7f\\]+$"  # what may stand in an address
_PARTS: dict[str, Json] = {
    "dataset_id": {"pattern": f"^{DATASET_ID_PATTERN}$"},
    "which": {"pattern": WHICH},
}


class Answers(NamedTuple):
    """What `/openapi.json` tells of a route beside what Litestar finds out."""

    kinds: Mapping[str, Json | None] = {}  # media type -> schema; None: bytes
    alone: bool = False  # nothing but these
    page: str = ""  # the HTML that is had, too, where pages are
    parts: bool = False  # a Range is heeded
    body: Json | None = None  # what is sent
    form: Json | None = None  # the same, as the fields of a form
    also: Mapping[int, str] = {}  # other answers, without a body


PLAIN = Answers()  # what Litestar finds out is all there is to tell
OPTIONS = "kfm.answers"  # where a route keeps them


def part(name: str, **schema: object) -> PathParameter:
    """A part of an address. Told only: what is none of these is not there, and answered so."""
    return PathParameter(schema_extra=schema or _PARTS.get(name, {"pattern": _PLAIN}))


def named(name: str | None = None, **schema: object) -> QueryParameter:
    """A part of a question, with what is told of it; whoever answers looks at it, and says more
    than that it is wrong.
    """
    return QueryParameter(name=name, schema_extra=schema)


def kind_of(name: str) -> str:
    """The media type that a file of this name is sent as."""
    return FILES.get(PurePosixPath(name).suffix.lower(), ANY)


# ---- schemas -------------------------------------------------------------------------------------
def _object(*required: str, **properties: Json) -> Json:
    return {"type": "object", "required": list(required), "properties": properties}


def _titled(title: str, schema: Json) -> Json:
    return {"title": title} | schema


def _list(of: Json, **more: object) -> Json:
    return {"type": "array", "items": of, **more}


_STRING: Json = {"type": "string"}
_ANY: Json = {"type": "object"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_LINKS = _list(_object("rel", "href", rel=_STRING, href=_STRING, type=_STRING))
TEXT: Json = _STRING
RECORD: Json = _ANY

FEATURE = _object(
    "type", "geometry", "properties",
    type={"const": "Feature"},
    geometry={"anyOf": [_object("type", type=_STRING), {"type": "null"}]},
    properties={"type": ["object", "null"]},
)  # fmt: skip
FEATURES = _object(
    "type", "features",
    type={"const": "FeatureCollection"},
    features=_list(FEATURE),
    numberReturned=_COUNT,
    links=_LINKS,
)  # fmt: skip
# what is left of an item whose members were chosen
ITEM = _object(
    "type", "id",
    type={"const": "Feature"}, id=_STRING, stac_version=_STRING, collection=_STRING, links=_LINKS,
)  # fmt: skip
ITEMS = _object(
    "type", "features", "links", "numberReturned",
    type={"const": "FeatureCollection"},
    features=_list(ITEM),
    links=_LINKS,
    numberReturned=_COUNT,
    numberMatched=_COUNT,
)  # fmt: skip
CATALOG = _object(
    "type", "stac_version", "id", "description", "conformsTo", "links",
    type={"const": "Catalog"},
    conformsTo=_list(_STRING),
    links=_LINKS,
)  # fmt: skip
COLLECTION = _object(
    "type", "stac_version", "id", "description", "license", "extent", "links",
    type={"const": "Collection"},
    id=_STRING,
    extent=_object("spatial", "temporal"),
    links=_LINKS,
)  # fmt: skip


def collected(name: str) -> Json:
    """Collections, as the member `name` of a document."""
    return _object(name, "links", **{name: _list(COLLECTION), "links": _LINKS})


PROV = _titled(
    "PROV-JSON",
    _object("prefix", "entity", "agent", **dict.fromkeys(("prefix", *ELEMENTS, *RELATIONS), _ANY)),
)
OPENLINEAGE = _titled(
    "OpenLineage RunEvent",
    _object(
        "eventTime", "eventType", "run", "job", "producer", "schemaURL",
        eventTime={"type": "string", "format": "date-time"},
        eventType={"enum": ["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER"]},
        run=_object("runId", runId={"type": "string", "format": "uuid"}),
        job=_object("namespace", "name", namespace=_STRING, name=_STRING),
        inputs=_list(_object("namespace", "name")),
        outputs=_list(_object("namespace", "name")),
        producer=_STRING,
        schemaURL=_STRING,
    ),
)  # fmt: skip
ENVELOPE = _titled(
    "DSSE envelope",
    _object(
        "payload", "payloadType", "signatures",
        payload={"type": "string", "contentEncoding": "base64"},
        payloadType=_STRING,
        signatures=_list(_object("keyid", "sig", keyid=_STRING, sig=_STRING)),
    ),
)  # fmt: skip
APPROVALS = _titled(
    "Approvals",
    _object(
        "approvals", "dataset_id", "generation",
        approvals={"type": "array"}, dataset_id=_STRING, generation=_COUNT,
    ),
)  # fmt: skip
RECEIPT = _titled("Receipt", _object("run_id", "dataset_id", "status", status=_STRING))
# what a version says of itself
FACTS = _titled("Version", _object("dataset_id", "artifacts", dataset_id=_STRING, artifacts=_ANY))
DCAT = _titled("DCAT 3", _object("@context", "@id", "@type"))

# ---- what a search for items is asked by ---------------------------------------------------------
_RFC3339 = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
_ENDS = rf"({_RFC3339}|\.\.)?"
TIMES: Json = {"type": "string", "pattern": f"^({_RFC3339}|{_RFC3339}/{_ENDS}|{_ENDS}/{_RFC3339})$"}
_NUMBER = r"-?[0-9]{1,9}(\.[0-9]{1,15})?"
BBOX = rf"^{_NUMBER}(,{_NUMBER}){{3}}((,{_NUMBER}){{2}})?$"
_DEGREES: Json = {"type": "number", "minimum": -1e9, "maximum": 1e9}
_STRINGS = _list(_STRING)
CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
_STRINGS_OR_NULL: Json = {"anyOf": [_STRINGS, {"type": "null"}]}
TOKEN = r"^([0-9]{1,9}|-?[0-9]{1,18}~[A-Za-z0-9]{1,80}~[a-z0-9_]{1,200})$"
_SHAPES = [
    "Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon",
    "GeometryCollection",
]  # fmt: skip
_GEOMETRY = _object("type", type={"enum": _SHAPES}, coordinates={"type": "array"})
_ASKED: dict[str, Json] = {
    "collections": _STRINGS | {"maxItems": 1000},
    "ids": _STRINGS | {"maxItems": 1000},
    "bbox": {
        "anyOf": [
            _list(_DEGREES, minItems=many, maxItems=many, description="South before north.")
            for many in (4, 6)
        ]
    },
    "intersects": _GEOMETRY | {"description": "A geometry of GeoJSON."},
    "datetime": TIMES,
    "limit": {"type": "integer", "minimum": 1, "maximum": 10**9 - 1},
    "filter": {"type": ["object", "string"], "description": "CQL2, as JSON or as text."},
    "filter-lang": _STRING,
    "filter-crs": {"const": CRS84},
    "sortby": _list(_object("field", field=_STRING, direction=_STRING), maxItems=8),
    "fields": {
        "type": "object",
        "properties": {"include": _STRINGS_OR_NULL, "exclude": _STRINGS_OR_NULL},
    },
    "token": {"type": ["string", "integer"], "pattern": TOKEN, "minimum": 0, "maximum": 10**9 - 1},
}
_GIVEN: Json = {"not": {"type": "null"}}
SEARCH: Json = {
    "type": "object",
    "additionalProperties": False,
    "not": _object("bbox", "intersects", bbox=_GIVEN, intersects=_GIVEN),
    "properties": {
        name: {"anyOf": [schema, {"type": "null", "title": "Left out"}]}
        for name, schema in _ASKED.items()
    },
}
