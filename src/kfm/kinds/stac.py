"""STAC items from an API or a static catalog: versions 1.0 and 1.1, one row per item, never a
signed address.
"""

import contextlib
import math
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import msgspec

from kfm.connectors.base import InputFile, Refused
from kfm.connectors.kind import Ask, RowReader, near, options_of
from kfm.connectors.operations import Read
from kfm.connectors.read.geojson import duplicate
from kfm.connectors.read.geometry import Geometry, Problem, encode
from kfm.connectors.read.json_text import refuse_depth
from kfm.connectors.read.repeated_members import Twice, decode_once, twice_around
from kfm.connectors.read.rows import Loose, Row
from kfm.connectors.read.text import utf8_blocks
from kfm.connectors.table.sanity import Sane
from kfm.connectors.table.values import moment
from kfm.model import Column, Json

__all__ = ["COLUMNS", "KEY", "SANITY", "Options", "acquire", "readers"]

COLUMNS = (
    Column(name="item_id", type="string", nullable=False),
    Column(name="collection", type="string", nullable=False),  # "" when the item is in none
    Column(name="stac_version", type="string", nullable=False),
    Column(name="datetime", type="timestamp"),
    Column(name="start_datetime", type="timestamp"),
    Column(name="end_datetime", type="timestamp"),
    Column(name="geometry", type="geometry"),
    Column(name="bbox", type="json", unit="deg"),
    Column(name="platform", type="string"),
    Column(name="instruments", type="json"),
    Column(name="gsd", type="number", unit="m"),
    Column(name="cloud_cover", type="number", unit="%"),
    Column(name="proj_code", type="string"),
    Column(name="created", type="timestamp"),
    Column(name="updated", type="timestamp"),
    Column(name="assets", type="json"),  # key -> {href, type, roles, checksum, bands, signed}
    Column(name="license", type="string"),
    Column(name="self_href", type="string"),
)
KEY = ("collection", "item_id")
REVISION = "updated"
SANITY = (
    # old maps, climate to come
    *(
        Sane(name, "1500-01-01", "2500-01-01")
        for name in ("datetime", "start_datetime", "end_datetime")
    ),
    *(Sane(name, "1990-01-01", "+1d") for name in ("created", "updated")),
    Sane("gsd", 0, 1e7),
    Sane("cloud_cover", 0, 100),
)

_WHOLE = 64 << 20  # a larger document is not decoded
_VERSION = re.compile(r"1\.[01]\.\d+")
_TIMES = ("datetime", "start_datetime", "end_datetime", "created", "updated")
# degrees, and share of its size, by which a shape may stick out of its bounding box: both are
# rounded by hand
_NEAR = 0.01
# fields beside `sig` in an Azure address
_SAS = re.compile(r"s(v|r|t|e|p|i|s|ip|pr|rt|dd|aoid|uoid|k(oid|tid|t|e|s|v))", re.IGNORECASE)
_SIGNING = re.compile(
    r"sig|signature|expires|policy|key-pair-id|awsaccesskeyid|googleaccessid|x-(amz|goog)-.*"
    r"|.*token|api_?key|key|subscription-key|authorization",
    re.IGNORECASE,
)
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`source.options` of a STAC source."""

    mode: Literal["api", "static", ""] = ""  # empty: by the document at the address
    method: Literal["POST", "GET"] = "POST"  # of the first search request
    collections: tuple[str, ...] = ()
    bbox: tuple[float, float, float, float] | None = None  # west, south, east, north
    intersects: Json | None = None  # GeoJSON geometry, instead of bbox
    datetime: str = ""  # when the run has no window of its own
    query: Json | None = None
    # items on a page; null: what the server likes
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = 100
    max_items: Positive | None = None  # stop on purpose after the page that reaches it
    max_documents: Positive = 2000  # pages, or documents of a static catalog; more are refused
    # of links below a registered document; 0: it alone
    max_depth: Annotated[int, msgspec.Meta(ge=0, le=32)] = 8


class _Link(msgspec.Struct):
    rel: str = ""
    href: str = ""
    method: str = "GET"
    body: Json = {}
    merge: bool = False
    headers: Json = {}


class _Document(msgspec.Struct):
    """What must be known of any STAC document to go on from it."""

    type: str = ""
    id: Any = None
    stac_version: Any = None
    license: Any = None
    links: Any = None
    features: list[msgspec.Raw] | None = None
    conforms_to: Any = msgspec.field(default=None, name="conformsTo")
    matched: Any = msgspec.field(default=None, name="numberMatched")
    code: Any = None
    description: Any = None

    def linked(self, *rels: str) -> list[_Link]:
        """The links of some relations, in order."""
        try:
            links = msgspec.convert(self.links or [], list[object])
            return msgspec.convert(
                [link for link in links if isinstance(link, dict) and link.get("rel") in rels],
                list[_Link],
            )
        except msgspec.ValidationError as error:
            _refuse(
                "stac.link",
                f"A {rels[0]} link of {str(self.id)[:80]} cannot be followed: {error}.",
                "a link object",
                "Look at it.",
            )


# -- asking


def acquire(ask: Ask) -> None:
    """Every page of a search, or every document of a static catalog."""
    walk = _Walk(ask, options_of(ask.options, Options))
    for url in ask.urls:
        walk.begin(url)


class _Walk:
    def __init__(self, ask: Ask, options: Options) -> None:
        self._ask, self._options = ask, options
        self._count = 0
        self._seen: set[str] = set()  # addresses of documents, requests for pages

    def begin(self, url: str) -> None:
        """What a registered address leads to."""
        mode = self._options.mode or (
            "api" if urlsplit(url).path.rstrip("/").endswith("/search") else ""
        )
        document = self._get(url) if mode != "api" else None
        search = document.linked("search") if document and document.conforms_to is not None else []
        if document is None:
            self._search(url)
        elif not mode and document.features is not None:
            self._pages(url, document, None)
        elif not mode and search:
            self._search(self._near(url, search[0].href))
        else:
            self._follow(url, document)

    def _get(self, url: str, body: Json | None = None, accept: str = "") -> _Document:
        if self._count >= self._options.max_documents:
            _refuse(
                "stac.budget",
                f"More than {self._count} documents would be needed.",
                "`max_documents` or fewer",
                "Narrow the search.",
            )
        self._count += 1
        name = f"stac-{self._count:05}"
        path = self._ask.get(
            url, name, accept=accept or "application/geo+json, application/json", body=body
        )
        return _document(InputFile(source_id=name, path=str(path), digest=""))[0]

    def _near(self, base: str, href: str) -> str:
        url = near(base, href)
        if url is None:
            what = f"{base} links to {href[:200]}, another host or none."
            _refuse(
                "stac.host", what, "links that stay on the host", "Register that address itself."
            )
        return url

    def _search(self, url: str) -> None:
        since, until = self._ask.since, self._ask.until
        window = f"{since or '..'}/{until or '..'}" if since or until else self._options.datetime
        wanted = {
            name: getattr(self._options, name)
            for name in ("collections", "bbox", "intersects", "query", "limit")
        }
        body = {k: v for k, v in (wanted | {"datetime": window}).items() if v}
        if self._options.method == "POST":
            self._pages(url, self._get(url, body), body)
            return
        parts = urlsplit(url)
        fields = dict(parse_qsl(parts.query, keep_blank_values=True)) | {
            k: _field(v) for k, v in body.items()
        }
        url = urlunsplit(parts._replace(query=urlencode(fields, safe=",/:")))
        self._pages(url, self._get(url), None)

    def _pages(self, url: str, page: _Document, body: Json | None) -> None:
        """Page after page until there is no next link or nothing on a page; a circle is refused
        unless every item is there.
        """
        found: set[bytes] = set()
        while True:
            if page.features is None:
                _refuse(
                    "stac.page",
                    f"{url} answered with {page.type or 'no type'}.",
                    "a FeatureCollection",
                    "Look at the captured bytes.",
                )
            ids = {_identity(raw) for raw in page.features}
            again, found = ids <= found, found | ids
            if ids and again:
                return self._whole(url, page.matched, len(found))
            link = next(iter(page.linked("next")), None)
            if link is None or not ids or len(found) >= (self._options.max_items or math.inf):
                return None
            url = self._near(url, link.href)
            body = (body or {}) | link.body if link.merge else link.body
            posted = link.method.upper() == "POST"
            request = (
                url + msgspec.json.encode(body if posted else {}, order="deterministic").decode()
            )
            if request in self._seen:
                return self._whole(url, page.matched, len(found))
            self._seen.add(request)
            page = self._get(url, body if posted else None, _accept(url, link.headers))

    def _whole(self, url: str, matched: object, found: int) -> None:
        self._ask.log("stac.circle", url=url, found=found)
        if not isinstance(matched, int) or matched > found:
            of = matched if isinstance(matched, int) else "an unknown number of"
            _refuse(
                "stac.incomplete",
                f"{url} repeats itself after {found} of {of} items.",
                "every item once",
                "Report it upstream.",
            )

    def _follow(self, url: str, document: _Document) -> None:
        """The documents below one, each once, in the order of their links."""
        waiting = [(url, document, 0)]
        self._seen.add(url)
        while waiting:
            base, document, depth = waiting.pop()
            below = []
            for link in document.linked("item", "child") if self._options.max_depth else ():
                if (place := self._near(base, link.href)) not in self._seen:
                    if depth == self._options.max_depth:
                        _refuse(
                            "stac.depth",
                            f"{place} lies more than {depth} links deep.",
                            "a shallower catalog",
                            "Raise `max_depth`.",
                        )
                    self._seen.add(place)
                    below.append((place, self._get(place), depth + 1))
            waiting += reversed(below)


def _identity(raw: msgspec.Raw) -> bytes:
    """Collection and id of an item, or its whole text where it is none."""
    try:
        item = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return bytes(raw)
    return (
        msgspec.json.encode([item.get("collection"), item.get("id")])
        if isinstance(item, dict)
        else bytes(raw)
    )


def _field(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(str(v) for v in value)
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else str(value)


def _accept(url: str, headers: Json) -> str:
    """The Accept header a next link asks for; another one cannot be sent."""
    given = {name.lower(): str(value) for name, value in headers.items()}
    if odd := set(given) - {"accept", "content-type"}:
        _refuse(
            "stac.headers",
            f"The next page at {url} asks for the header {min(odd)}.",
            "Accept only",
            "Search with method GET.",
        )
    return given.get("accept", "")


# -- reading


def _refuse(code: str, happened: str, expected: str, remedy: str, **detail: object) -> NoReturn:
    raise Refused(code, happened, expected=expected, remedy=remedy, **detail)


def _document(source: InputFile, warnings: set[str] | None = None) -> tuple[_Document, bytes]:
    """A whole document and its text; what is not STAC 1.0 or 1.1 is refused."""
    where, size = source.source_id, Path(source.path).stat().st_size
    if size > _WHOLE:
        _refuse(
            "stac.size",
            f"Source {where} has {size} bytes.",
            f"at most {_WHOLE} in a document",
            "Lower `limit`.",
            source_id=where,
        )
    text = b"".join(utf8_blocks(source, "json", None, warnings))
    try:
        found = msgspec.json.decode(text, type=_Document)
    except RecursionError:
        refuse_depth(where)
    except msgspec.ValidationError as error:
        _refuse(
            "stac.document",
            f"Source {where} is no STAC document: {error}.",
            "STAC 1.0 or 1.1",
            "Look at the bytes.",
            source_id=where,
        )
    except msgspec.DecodeError as error:
        _refuse(
            "json.syntax",
            f"Source {where}: {error}.",
            "one complete JSON document",
            "Fetch it again.",
            source_id=where,
        )
    if found.type not in ("FeatureCollection", "Feature", "Collection", "Catalog"):
        said = (
            f"says {str(found.description or found.code)[:200]!r}"
            if found.code or found.description
            else f"is of type {found.type!r}"
        )
        _refuse(
            "stac.document",
            f"Source {where} {said}.",
            "items, a collection or a catalog",
            "Look at the address.",
            source_id=where,
        )
    if found.type != "FeatureCollection" or found.stac_version is not None:
        _check_version(found.stac_version, where)
    if found.type == "FeatureCollection" and found.features is None:
        _refuse(
            "stac.document",
            f"Source {where} is a FeatureCollection without features.",
            "items",
            "Look at the bytes.",
            source_id=where,
        )
    items = [text] if found.type == "Feature" else found.features or []
    if (name := twice_around(text, map(bytes, items))) is not None:
        _refuse(
            "json.syntax",
            f"Source {where} has the member {name[:80]!r} twice.",
            "each member once",
            "Report it.",
            source_id=where,
        )
    return found, text


def _check_version(version: object, where: str) -> None:
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        _refuse(
            "stac.version",
            f"Source {where} is of STAC version {str(version)[:40]}.",
            "STAC 1.0 or 1.1: before, the same names meant other things",
            "Ask upstream for a current catalog; stactools or pystac can migrate an old one.",
            source_id=where,
        )


def readers(job: Read) -> list["StacReader"]:
    """One reader per document; collections among them lend their licence to items that state
    none.
    """
    licences: dict[str, str] = {}
    found = [StacReader(source, licences) for source in job.inputs]
    options_of(job.options, Options)
    for reader in found if len(found) > 1 else ():
        document = _document(reader.source)[0]
        if document.type == "Collection" and isinstance(document.license, str):
            licences[str(document.id)] = document.license
    return found


class StacReader(RowReader):
    """The items of one document; collections and catalogs hold none."""

    def __init__(self, source: InputFile, licences: dict[str, str]) -> None:
        super().__init__(source)
        self.source, self._licences = source, licences

    def rows(self) -> Iterator[Loose]:
        """Each item as a row."""
        document, text = _document(self.source, self.warnings)
        items = [msgspec.Raw(text)] if document.type == "Feature" else document.features or []
        for number, raw in enumerate(items, 1):
            yield self._loose(number, bytes(raw))

    def _loose(self, number: int, raw: bytes) -> Loose:
        shown = partial(raw.decode, "utf-8", "replace")
        try:
            item = decode_once(raw)
        except RecursionError:
            refuse_depth(self.source_id)
        except msgspec.DecodeError as error:
            return Loose(number, shown, None, ("json.value", str(error)))
        except Twice as twice:
            return Loose(number, shown, None, duplicate(twice))
        if not isinstance(item, dict) or item.get("type") != "Feature":
            return Loose(number, shown, None, ("stac.item", 'expected an object of type "Feature"'))
        if item.get("stac_version") is not None:
            _check_version(item["stac_version"], self.source_id)
        problem = _wrong(item)
        return (
            Loose(number, shown, None, problem)
            if problem
            else Loose(number, shown, _row(item, self._licences))
        )


def _wrong(item: Row) -> Problem | None:
    """The first rule an item breaks."""
    if not isinstance(item.get("id"), str) or not item["id"]:
        return "stac.id", "expected an id"
    if item.get("stac_version") is None:
        return "stac.version", "expected stac_version"
    if not isinstance(item.get("properties"), dict):
        return "stac.properties", "expected properties to be an object"
    if not isinstance(item.get("links"), list) or not all(
        isinstance(link, dict) for link in item["links"]
    ):
        return "stac.links", "expected a list of links"
    if not isinstance(item.get("assets"), dict) or not all(
        isinstance(asset, dict) for asset in item["assets"].values()
    ):
        return "stac.assets", "expected assets, each an object"
    if not isinstance(item.get("collection"), str | None):
        return "stac.collection", "expected the id of a collection"
    return _wrong_times(item["properties"]) or _wrong_place(item)


def _wrong_times(properties: Row) -> Problem | None:
    times: dict[str, int] = {}
    for name in _TIMES:
        try:
            if (value := properties.get(name)) is not None:
                if not isinstance(value, str):  # a number has a unit that nobody states
                    raise ValueError(f"expected a time as text, got {str(value)[:80]}")
                times[name] = moment(value)
        except (ValueError, TypeError) as error:
            return "stac.datetime", f"{name}: {error}"
    interval = "start_datetime" in times and "end_datetime" in times
    if "datetime" not in times and not interval:
        return "stac.datetime", "datetime is null, which needs start_datetime and end_datetime"
    if interval and times["start_datetime"] > times["end_datetime"]:
        return (
            "stac.datetime",
            (
                f"start_datetime {properties['start_datetime']} is after end_datetime"
                f" {properties['end_datetime']}"
            ),
        )
    return None


def _wrong_place(item: Row) -> Problem | None:
    geometry, bbox = item.get("geometry"), item.get("bbox")
    if "geometry" not in item:
        return "stac.geometry", "expected a geometry, or null for an item that has no place"
    if geometry is None:
        return ("stac.bbox", "a bbox without a geometry") if bbox is not None else None
    if (
        not isinstance(bbox, list)
        or len(bbox) not in (4, 6)
        or not all(type(v) in (int, float) and math.isfinite(v) for v in bbox)
    ):
        return "stac.bbox", f"expected four or six numbers, got {str(bbox)[:80]}"
    bad: dict[int, Problem] = {}
    shape = encode([geometry], "geometry", bad)
    if bad:
        return bad[0]
    half = len(bbox) // 2
    west, south, east, north = bbox[0], bbox[1], bbox[half], bbox[half + 1]
    for axis, low, high in ((0, west, east), (1, south, north)):
        if axis == 0 and low > high:
            continue  # across the antimeridian, where the shape may lie on either side
        near = _NEAR + _NEAR * (high - low)
        if low > high or shape.low[0, axis] < low - near or shape.high[0, axis] > high + near:
            got = f"{shape.low[0, axis]:g}..{shape.high[0, axis]:g}"
            return (
                "stac.bbox",
                (
                    f"the bbox says {'latitude' if axis else 'longitude'} {low:g}..{high:g}, the"
                    f" geometry {got}"
                ),
            )
    return None


def _row(item: Row, licences: dict[str, str]) -> Row:
    properties, assets = item["properties"], item["assets"]
    collection = item.get("collection") or ""
    own = next((link.get("href") for link in item["links"] if link.get("rel") == "self"), None)
    geometry = item["geometry"]
    return {
        "item_id": item["id"],
        "collection": collection,
        "stac_version": item["stac_version"],
        **{name: properties.get(name) for name in (*_TIMES, "platform", "instruments", "gsd")},
        "geometry": None if geometry is None else msgspec.convert(geometry, Geometry),
        "bbox": item.get("bbox"),
        "cloud_cover": properties.get("eo:cloud_cover"),
        "proj_code": _proj_code(properties, assets),
        "assets": {key: _asset(asset, own) for key, asset in assets.items()},
        "license": properties.get("license") or licences.get(collection),
        "self_href": _unsigned(own)[0] if isinstance(own, str) else None,
    }


def _proj_code(properties: Row, assets: dict[str, Row]) -> str | None:
    """`proj:code` of 1.1, or `proj:epsg` of 1.0; that of the assets where all that state one
    agree.
    """

    def code(held: Row) -> str | None:
        number = held.get("proj:epsg")
        return (
            str(held["proj:code"])
            if held.get("proj:code")
            else f"EPSG:{number}"
            if number
            else None
        )

    stated = {c for a in assets.values() if (c := code(a))}
    return code(properties) or (stated.pop() if len(stated) == 1 else None)


def _asset(asset: Row, base: object) -> Row:
    href = asset.get("href")
    if isinstance(href, str) and isinstance(base, str) and "://" not in href:
        with contextlib.suppress(ValueError):  # such as //[
            href = urljoin(base, href)
    clean, signed = _unsigned(href) if isinstance(href, str) else (None, False)
    bands = asset.get("bands") or asset.get("eo:bands")
    kept = {
        "href": clean,
        "type": asset.get("type"),
        "roles": asset.get("roles"),
        "checksum": asset.get("file:checksum") or asset.get("checksum:multihash"),
        "bands": (
            [b.get("name") for b in bands if isinstance(b, dict)]
            if isinstance(bands, list)
            else None
        ),
        "signed": signed or None,
    }
    return {k: v for k, v in kept.items() if v is not None}


def _unsigned(href: str) -> tuple[str, bool]:
    """An address without what a signature or a password adds to it, and whether there was any."""
    try:
        parts = urlsplit(href)
        fields = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return href.partition("?")[0], "?" in href
    azure = any(name.lower() == "sig" for name, _ in fields)
    kept = [
        f for f in fields if not _SIGNING.fullmatch(f[0]) and not (azure and _SAS.fullmatch(f[0]))
    ]
    place = parts.netloc.rpartition("@")[2] if parts.scheme in ("http", "https") else parts.netloc
    if len(kept) == len(fields) and place == parts.netloc:
        return href, False
    return urlunsplit(parts._replace(netloc=place, query=urlencode(kept))), True
