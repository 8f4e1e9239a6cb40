"""A layer of an ArcGIS server: asked for page by page with proof that nothing is missing, its
shapes brought to WGS 84.
"""

import datetime as dt
import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn
from urllib.parse import quote

import msgspec
import numpy as np
import shapely

from kfm.connectors.base import InputFile, Refused
from kfm.connectors.kind import Ask, RowReader, options_of
from kfm.connectors.mapping import column_names
from kfm.connectors.operations import Read
from kfm.connectors.read.crs import Bounds, ToWgs84, fits, to_wgs84
from kfm.connectors.read.geojson import duplicate
from kfm.connectors.read.geometry import (
    LineString,
    MultiLineString,
    MultiPoint,
    MultiPolygon,
    Point,
    Polygon,
    Problem,
)
from kfm.connectors.read.repeated_members import Twice, decode_once, twice_around
from kfm.connectors.read.rows import Loose
from kfm.connectors.table.sanity import Sane
from kfm.model import Column, Json

__all__ = ["Options", "acquire", "columns", "key", "readers", "sanity"]

_MAX_PAGE = 64 << 20  # a page is decoded whole
_UNSTATED = 500  # records asked for at once when the layer names no most
_LONGEST_ERROR = 1 << 16
_FINAL = (401, 403, 404, 498, 499)  # errors that fewer records do not cure: not allowed, not there
_TYPES = {
    **dict.fromkeys(("OID", "Integer", "SmallInteger", "BigInteger"), "integer"),
    **dict.fromkeys(("Double", "Single"), "number"),
    **dict.fromkeys(("String", "GlobalID", "GUID", "XML", "TimeOnly"), "string"),
    **dict.fromkeys(("Date", "TimestampOffset"), "timestamp"),
    "DateOnly": "date",
}
_SHAPES = {
    "esriGeometryPoint",
    "esriGeometryMultipoint",
    "esriGeometryPolyline",
    "esriGeometryPolygon",
}
_SLACK = 0.5  # degrees by which features may stick out of what a layer says of itself
_PLAIN = "*',()"  # not escaped in a query
_TEXT_DATE = "%m/%d/%Y %I:%M:%S %p"
Ring = list[list[float]]


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be registered for a layer."""

    where: str = "1=1"  # which records, as the server's SQL
    out_fields: str = "*"  # or names with commas between them; the object id must be among them
    # never more than the layer's maxRecordCount
    page_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    # keep: points stay numbers in their own coordinate system, and there is no geometry
    positions: Literal["move", "keep"] = "move"


# -- asking


class _PageFailed(Exception):
    """The server answered the question for a page with an error, or with more than can be read;
    fewer records may help.
    """

    def __init__(self, rule: str, why: str, expected: str, code: object = None) -> None:
        super().__init__(why)
        self.rule, self.why, self.expected, self.code = rule, why, expected, code


class _Layer:
    """The layer while it is asked: what it says of itself, what was counted, which ids have
    come.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask, self._options = ask, options_of(ask.options, Options)
        if len(ask.urls) != 1 or "?" in ask.urls[0]:
            _refuse(
                "layer",
                "its address is not that of one layer",
                "one address such as …/FeatureServer/0, without a question mark",
            )
        self._url = ask.urls[0].rstrip("/")
        self.about = _document(ask.get(f"{self._url}?f=json", "layer"))
        self.oid = _object_id(self.about)
        most = max(1, _whole(self.about.get("maxRecordCount") or _UNSTATED, "maxRecordCount"))
        self.size = min(self._options.page_size or most, most)
        self.count = _whole(self._query("count", returnCountOnly="true").get("count"), "count")
        self.seen: set[int] = set()
        self._pages, self._asked_first = 0, self.size

    def _query(self, name: str, *, where: str | None = None, **fields: object) -> Json:
        return _document(self._get(name, where, fields))

    def _get(self, name: str, where: str | None, fields: Json) -> Path:
        parts = {"where": where or self._options.where, **fields, "f": "json"}
        asked = "&".join(f"{k}={quote(str(v), safe=_PLAIN)}" for k, v in parts.items())
        return self._ask.get(f"{self._url}/query?{asked}", name)

    def shrink(self, failed: _PageFailed) -> None:
        """Ask for half as many records from now on; refused when one alone is too many."""
        if self.size == 1 or failed.code in _FINAL:
            less = (
                ""
                if failed.code in _FINAL or self._asked_first == 1
                else ", even for one record at a time"
            )
            _refuse(failed.rule, failed.why + less, failed.expected, error=failed.code)
        self.size //= 2
        self._ask.log("page.smaller", records=self.size, why=failed.why)

    def page(
        self, prefix: str, *, where: str | None = None, **fields: object
    ) -> tuple[list[int], bool]:
        """(ids of one page, whether the server says there is more). Raises `_PageFailed`."""
        self._pages += 1
        if self._pages > 2 * self.count // self.size + 100:
            _refuse(
                "pages",
                f"after {self._pages - 1} pages there is still more",
                f"about {self.count // self.size + 1} pages",
            )
        found = _answer(
            self._get(
                f"{prefix}-{self._pages:04}",
                where,
                {"outFields": self._options.out_fields, **fields},
            )
        )
        features = found.get("features")
        if not isinstance(features, list):
            _refuse("page", "the answer to a query has no features", "a list of features")
        return [_whole(_attributes(f).get(self.oid), self.oid) for f in features], found.get(
            "exceededTransferLimit"
        ) is True

    def narrowed(self, condition: str) -> str:
        """The registered condition and one more."""
        return (
            condition
            if self._options.where == "1=1"
            else f"({self._options.where}) AND {condition}"
        )

    def take(self, ids: list[int]) -> None:
        """Note what has come; nothing may come twice, unless the registry says what becomes of such
        records.
        """
        again = self.seen.intersection(ids)
        if self._ask.conflicts == "refuse" and (again or len(set(ids)) != len(ids)):
            _refuse(
                "duplicate",
                f"object id {min(again, default=ids[0])} came twice",
                f"each {self.oid} once",
            )
        self.seen.update(ids)

    def ids(self) -> list[int] | None:
        """Every object id in order, or None when the server sends something else."""
        found = self._query("ids", returnIdsOnly="true")
        listed = found.get("objectIds", ...) or []
        return sorted(_whole(i, "object id") for i in listed) if isinstance(listed, list) else None


def acquire(ask: Ask) -> None:
    """The layer's description, its count, then every record; refused unless as many distinct ones
    came as were counted.
    """
    layer = _Layer(ask)
    capable = _dict(layer.about.get("advancedQueryCapabilities"))
    version = layer.about.get("currentVersion")
    pages = capable.get("supportsPagination", isinstance(version, int | float) and version >= 10.3)
    if not (pages and _by_offset(layer)):
        _by_ids(layer)
    if len(layer.seen) != layer.count:
        _refuse_count(layer, len(layer.seen))


def _by_offset(layer: _Layer) -> bool:
    """Page by page; False when the server sends the first page again and again, as those before
    10.3 do.
    """
    offset, more = 0, True
    while more:
        try:
            ids, limited = layer.page(
                "page", orderByFields=layer.oid, resultOffset=offset, resultRecordCount=layer.size
            )
        except _PageFailed as failed:
            layer.shrink(failed)
            continue
        if ids and layer.seen.issuperset(ids):
            layer.seen.clear()
            return False
        layer.take(ids)
        offset += len(ids) or layer.size
        # A short page proves nothing; an empty one may still say that there is more.
        more = limited or (bool(ids) and len(layer.seen) < layer.count)
    return True


def _by_ids(layer: _Layer) -> None:
    ids = layer.ids()
    if ids is None:
        return _by_last_id(layer)
    if len(ids) != layer.count or len(set(ids)) != len(ids):
        _refuse_count(layer, len(set(ids)), "object ids are listed")
    at = 0
    while batch := ids[at : at + layer.size]:
        low, high = batch[0], batch[-1]
        try:
            layer.take(
                layer.page(
                    "part", where=layer.narrowed(f"{layer.oid}>={low} AND {layer.oid}<={high}")
                )[0]
            )
        except _PageFailed as failed:
            layer.shrink(failed)
            continue
        at += len(batch)
    return None


def _by_last_id(layer: _Layer) -> None:
    """For a server that will not list ids: what comes after the greatest so far. The order is a
    hope, the count is the proof.
    """
    last = -1
    fewer: Json = {}
    while len(layer.seen) < layer.count:
        try:
            ids, _ = layer.page("part", where=layer.narrowed(f"{layer.oid}>{last}"), **fewer)
        except _PageFailed as failed:
            layer.shrink(failed)
            fewer = {"orderByFields": layer.oid, "resultRecordCount": layer.size}
            continue
        if not ids:
            return
        layer.take(ids)
        last = max(layer.seen)


def _refuse(rule: str, why: str, expected: str, **detail: object) -> NoReturn:
    raise Refused(
        f"arcgis.{rule}",
        f"The layer was not taken: {why}.",
        expected=expected,
        remedy=(
            "Nothing is published from it; look at what the server sends, and run again when it is"
            " well."
        ),
        **detail,
    )


def _refuse_count(layer: _Layer, found: int, what: str = "records came") -> NoReturn:
    _refuse(
        "count",
        f"the server counts {layer.count} records, {found} {what}",
        "as many as it counts",
        count=layer.count,
        found=found,
    )


def _document(path: Path) -> Json:
    """One answer of the server; an error comes with status 200 too."""
    try:
        return _answer(path)
    except _PageFailed as failed:
        _refuse(
            failed.rule,
            failed.why,
            failed.expected,
            **({"error": failed.code} if failed.rule == "error" else {}),
        )


def _answer(path: Path) -> Json:
    """One answer that is no error. Raises `_PageFailed` where asking for fewer records may help."""
    size = path.stat().st_size
    if size > _MAX_PAGE:
        raise _PageFailed(
            "size",
            f"an answer is {size} bytes long",
            f"at most {_MAX_PAGE}; a smaller page_size helps",
        )
    data = path.read_bytes()
    try:
        found = decode_once(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse("json", f"an answer is not JSON: {error}", "JSON")
    except Twice:
        found = _once_but_for_features(data)
    if not isinstance(found, dict):
        _refuse("json", f"an answer is a {type(found).__name__}", "a JSON object")
    if wrong := found.get("error"):
        said = wrong if isinstance(wrong, dict) else {"message": wrong}
        details = said.get("details") or []
        text = " ".join(
            map(
                str,
                [
                    said.get("message") or "no message",
                    *(details if isinstance(details, list) else [details]),
                ],
            )
        )
        raise _PageFailed(
            "error",
            f"the server answers with error {said.get('code')}: {text[:300]}",
            "no error",
            said.get("code"),
        )
    return found


class _Page(msgspec.Struct):
    features: list[msgspec.Raw] = []


class _Spoilt(Json):
    """A feature in which a member is there twice: set aside when it is read."""

    def __init__(self, text: bytes, twice: Twice) -> None:
        super().__init__(_dict(msgspec.json.decode(text)))
        self.text, self.problem = text, duplicate(twice)


def _once_but_for_features(text: bytes) -> Json:
    """An answer with a member that is there twice. In a feature that is the feature's own fault;
    elsewhere the answer cannot be read.
    """
    page = msgspec.json.decode(text)
    try:
        raws = msgspec.json.decode(text, type=_Page).features
    except msgspec.ValidationError:
        raws = []
    features: list[object] = []
    for raw in map(bytes, raws):
        try:
            features.append(decode_once(raw))
        except Twice as twice:
            features.append(_Spoilt(raw, twice))
    if (name := twice_around(text, map(bytes, raws))) is not None:
        _refuse("json", f"in an answer the member {name[:80]!r} is there twice", "each member once")
    return {**page, "features": features}


def _object_id(about: Json) -> str:
    names = [f.get("name") for f in _fields(about) if f.get("type") == "esriFieldTypeOID"]
    name = about.get("objectIdField") or (names[0] if names else None)
    if not isinstance(name, str) or not name.replace("_", "").replace(".", "").isalnum():
        _refuse(
            "layer",
            "it names no object id, so nothing can prove that every record came once",
            "a field of type esriFieldTypeOID",
        )
    return name


def _fields(about: Json) -> list[Json]:
    fields = about.get("fields")
    if not isinstance(fields, list) or not all(
        isinstance(_dict(f).get("name"), str) for f in fields
    ):
        _refuse(
            "layer",
            "its description lists no fields",
            "the address of a layer or table, such as …/FeatureServer/0",
        )
    return fields


def _dict(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _attributes(feature: object) -> Json:
    found = _dict(feature).get("attributes")
    if not isinstance(found, dict):
        _refuse("page", "a feature has no attributes", "features with attributes")
    return found


def _whole(value: object, what: str) -> int:
    """A whole number; some servers write ids as 64579816.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        value = int(value)
    if type(value) is not int:
        _refuse("page", f"{what} is {value!r}", "a whole number")
    return value


# -- reading


class _Shape(NamedTuple):
    """What pages say of their features, beside the fields."""

    layer: Json
    kind: str | None
    to: ToWgs84 | None
    kept: str = ""  # the coordinate system of points that stay where they are
    # degrees: where the layer says its features are, when it says so in another system than the
    # pages
    within: Bounds | None = None


def columns(job: Read) -> tuple[Column, ...]:
    """The layer's fields, then the shape with what it was before."""
    shape = _shape(job)
    fields = _kept(job, shape.layer)
    named = _names(fields)
    found: list[Column] = []
    for field in fields:
        found.append(Column(name=named[field["name"]], type=_type(field)))
        if _domain(field):
            found.append(Column(name=named[_label(field["name"])], type="string"))
    if shape.kept:
        found += [
            Column(name="source_crs", type="string"),
            *(Column(name=n, type="number") for n in ("source_x", "source_y")),
        ]
    if shape.to is not None:
        if not shape.to.same:
            found.append(Column(name="source_crs", type="string"))
            if shape.kind == "esriGeometryPoint":
                found += [
                    Column(name="source_x", type="number"),
                    Column(name="source_y", type="number"),
                ]
        found.append(Column(name="geometry", type="geometry"))
    return tuple(found)


def sanity(job: Read) -> tuple[Sane, ...]:
    """A layer does not say what its dates mean; but they are whole minutes, and one of early 1970
    that is none was sent in seconds.
    """
    return tuple(Sane(c.name, seconds="minute") for c in job.schema if c.type == "timestamp")


def key(job: Read) -> tuple[str, ...]:
    """The object id."""
    layer = _document(_path(job, "layer"))
    return (_names(_kept(job, layer)).get(_object_id(layer), ""),)


def readers(job: Read) -> list["_PageReader"]:
    """One reader per page."""
    shape = _shape(job)
    found = [_PageReader(page, job, shape) for page in _pages(job)]
    if not found:
        _refuse("empty", "it has no records", "at least one record")
    if said := str(shape.layer.get("copyrightText") or "").strip():
        found[0].warnings.add(f"The layer says of its rights: {said[:300]}")
    return found


def _path(job: Read, name: str) -> Path:
    for source in job.inputs:
        if source.source_id == name:
            return Path(source.path)
    _refuse("layer", f"the capture has no file {name!r}", "layer, count and pages")


def _pages(job: Read) -> list[InputFile]:
    """The pages that count: parts by id replace offset pages, which were a mistake then, and
    smaller pages those that failed.
    """
    for prefix in ("part-", "page-"):
        if found := [
            i
            for i in job.inputs
            if i.source_id.startswith(prefix) and not _has_failed(Path(i.path))
        ]:
            return found
    return []


def _has_failed(path: Path) -> bool:
    """Whether smaller pages were asked for after this one; nobody writes a long error."""
    size = path.stat().st_size
    if size > _LONGEST_ERROR:
        return size > _MAX_PAGE
    try:
        return bool(_dict(msgspec.json.decode(path.read_bytes())).get("error"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False  # whoever reads it refuses it


def _shape(job: Read) -> _Shape:
    layer, pages = _document(_path(job, "layer")), _pages(job)
    kind = layer.get("geometryType")
    if kind is None or not pages:
        return _Shape(layer, None, None)
    if not isinstance(kind, str) or kind not in _SHAPES:
        _refuse(
            "geometry", f"its features are of type {str(kind)[:80]}", "points, lines or polygons"
        )
    extent = _dict(layer.get("extent"))
    declared = _document(Path(pages[0].path)).get("spatialReference") or extent.get(
        "spatialReference"
    )
    if options_of(job.options, Options).positions == "keep":
        if kind != "esriGeometryPoint":
            _refuse(
                "geometry",
                "only points can stay as numbers",
                "a layer of points, or `positions: move`",
            )
        return _Shape(layer, kind, None, _code(_dict(declared)))
    to = _system(_dict(declared), extent)
    return _Shape(layer, kind, to, within=_stated_extent(to, extent))


def _reference(said: Json) -> Any:
    return (
        said.get("latestWkid")
        or said.get("wkid")
        or said.get("wkt2")
        or said.get("wkt")
        or "none stated"
    )


def _code(said: Json) -> str:
    found = _reference(said)
    return f"EPSG:{found}" if isinstance(found, int) else str(found)


def _system(reference: Json, extent: Json) -> ToWgs84:
    crs = _reference(reference)
    corners = [extent.get(k) for k in ("xmin", "ymin", "xmax", "ymax")]
    known = extent.get("spatialReference") == reference and all(_is_number(c) for c in corners)
    return _to_wgs84(crs if isinstance(crs, int) else str(crs), tuple(corners) if known else None)


def _stated_extent(to: ToWgs84, extent: Json) -> Bounds | None:
    """Nothing was asked for in another system, so a page in one is held against what the layer says
    of itself.
    """
    corners = [extent.get(k) for k in ("xmin", "ymin", "xmax", "ymax")]
    try:
        own = (
            _system(_dict(extent.get("spatialReference")), extent)
            if all(_is_number(c) for c in corners)
            else to
        )
    except Refused:  # a system nobody can work with says nothing
        return None
    if own.name == to.name:
        return None
    lon, lat = own([corners[0], corners[2]] * 2, [corners[1], corners[1], corners[3], corners[3]])
    if np.isnan(lon).any():
        return None
    return (
        float(lon.min()) - _SLACK,
        float(lat.min()) - _SLACK,
        float(lon.max()) + _SLACK,
        float(lat.max()) + _SLACK,
    )


@lru_cache(maxsize=8)
def _to_wgs84(crs: str | int, bounds: Bounds | None) -> ToWgs84:
    return to_wgs84(crs, bounds)


def _kept(job: Read, layer: Json) -> list[Json]:
    wanted = options_of(job.options, Options).out_fields
    names = {n.strip().casefold() for n in wanted.split(",")}
    return [
        f
        for f in _fields(layer)
        if _kind(f) in _TYPES and (wanted == "*" or str(f.get("name")).casefold() in names)
    ]


def _names(fields: list[Json]) -> dict[str, str]:
    return column_names(
        n for f in fields for n in ((f["name"], _label(f["name"])) if _domain(f) else (f["name"],))
    )


def _label(name: str) -> str:
    return f"{name} label"


def _kind(field: Json) -> str:
    return str(field.get("type")).removeprefix("esriFieldType")


def _type(field: Json) -> Any:
    return _TYPES[_kind(field)]


def _domain(field: Json) -> dict[Any, str]:
    """Codes and what they mean."""
    values = _dict(field.get("domain")).get("codedValues")
    pairs = [_dict(v) for v in values] if isinstance(values, list) else []
    return {
        v["code"]: str(v.get("name")) for v in pairs if isinstance(v.get("code"), str | int | float)
    }


class _PageReader(RowReader):
    """The features of one page."""

    def __init__(self, source: InputFile, job: Read, shape: _Shape) -> None:
        super().__init__(source)
        self._shape = shape
        fields = _kept(job, shape.layer)
        self._names = _names(fields)
        self._types = {f["name"]: _type(f) for f in fields}
        self._domains = {f["name"]: d for f in fields if (d := _domain(f))}

    def rows(self) -> Iterator[Loose]:
        page = _document(self.path)
        features, shape = page.get("features"), self._shape
        if not isinstance(features, list):
            _refuse("page", f"{self.source_id} has no features", "a list of features")
        declared = page.get("spatialReference")
        if (
            shape.to is not None
            and declared
            and _system(_dict(declared), _dict(shape.layer.get("extent"))).name != shape.to.name
        ):
            _refuse(
                "page",
                f"{self.source_id} is in another coordinate system than the first page",
                f"{shape.to.name} throughout",
            )
        placed = _placed([_dict(f).get("geometry") for f in features], shape)
        for line, (feature, (place, problem)) in enumerate(zip(features, placed), 1):
            raw = partial(_text, feature)
            if isinstance(feature, _Spoilt):
                yield Loose(
                    line, partial(feature.text.decode, "utf-8", "replace"), None, feature.problem
                )
                continue
            if problem is not None:
                yield Loose(line, raw, None, problem, self._row(_attributes(feature)))
                continue
            if shape.to is not None and place["geometry"] is None:
                self.warnings.add(f"Some features of {self.source_id} have no geometry.")
            yield Loose(line, raw, self._row(_attributes(feature)) | place)

    def _row(self, attributes: Json) -> Json:
        row: Json = {}
        for name, value in attributes.items():
            # a field the layer does not list is named to the engine, which refuses it
            column = self._names.get(name, name)
            row[column] = self._value(name, value)
            if name in self._domains:
                row[self._names[_label(name)]] = (
                    self._domains[name].get(value) if isinstance(value, str | int | float) else None
                )
        return row

    def _value(self, name: str, value: object) -> object:
        kind = self._types.get(name, "string")
        if isinstance(value, str) and (
            not value.strip() or (kind == "number" and value.strip().lower() == "nan")
        ):
            return None
        if kind == "timestamp":
            return self._moment(value)
        return value

    def _moment(self, value: object) -> object:
        """Milliseconds since 1970; old servers write a date in words."""
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str):
            try:
                found = dt.datetime.strptime(value, _TEXT_DATE).replace(tzinfo=dt.UTC)
            except ValueError:
                return value
            self.warnings.add(
                f"Times in {self.source_id} are written as text without a zone; they are read as"
                " UTC."
            )
            return found
        return value


def _text(feature: object) -> str:
    return msgspec.json.encode(feature).decode()


# -- shapes


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _placed(geometries: list[object], shape: _Shape) -> list[tuple[Json, Problem | None]]:
    """The columns that say where each feature is, all positions of a page moved at once."""
    if shape.kind is None or (shape.to is None and not shape.kept):
        return [({}, None) for _ in geometries]
    parts = [_parts(g, shape.kind) for g in geometries]
    if shape.to is None:
        return [({}, p) if isinstance(p, tuple) else _numbers(p, shape.kept) for p in parts]
    flat = [p for part in parts if isinstance(part, list) for line in part for p in line]
    lon, lat = shape.to([p[0] for p in flat], [p[1] for p in flat])
    moved = iter(zip(lon.tolist(), lat.tolist()))
    return [_place(part, moved, shape) for part in parts]


def _numbers(parts: list["Ring"], crs: str) -> tuple[Json, Problem | None]:
    x, y = parts[0][0] if parts else (None, None)
    if x is not None and y is not None and not _fits(crs, x, y):
        return {}, ("crs.range", f"a position cannot be in {crs}: {x}, {y}")
    return {"source_crs": crs, "source_x": x, "source_y": y}, None


def _fits(crs: str, x: float, y: float) -> bool:
    try:
        return bool(fits(crs, x, y))
    except Refused:  # it is kept because nobody can work with it
        return True


def _place(
    parts: "list[Ring] | Problem", moved: Iterator[tuple[float, float]], shape: _Shape
) -> tuple[Json, Problem | None]:
    assert shape.to is not None
    if isinstance(parts, tuple):
        return {}, parts
    lines = [[list(p) for p in islice(moved, len(line))] for line in parts]
    if any(math.isnan(p[0]) for line in lines for p in line):
        return {}, (
            "crs.range",
            f"a position cannot be in {shape.to.name}: {str(parts[0][0])[:80]}",
        )
    if shape.within is not None and not all(
        _inside(p, shape.within) for line in lines for p in line
    ):
        return {}, (
            "crs.contradiction",
            (
                f"in {shape.to.name}, as the page says, it lies outside the extent that the layer"
                " states"
            ),
        )
    columns: Json = {"geometry": _BUILD[str(shape.kind)](lines) if lines else None}
    if not shape.to.same:
        columns["source_crs"] = shape.to.name
        if shape.kind == "esriGeometryPoint":
            columns |= (
                {"source_x": parts[0][0][0], "source_y": parts[0][0][1]}
                if lines
                else {"source_x": None, "source_y": None}
            )
    return columns, None


def _inside(position: list[float], bounds: Bounds) -> bool:
    return bounds[0] <= position[0] <= bounds[2] and bounds[1] <= position[1] <= bounds[3]


def _parts(geometry: object, kind: str) -> "list[Ring] | Problem":
    """The positions of a geometry in lists of x and y; empty when there is none."""
    if geometry is None:
        return []
    if not isinstance(geometry, dict):
        return ("geometry", f"expected an object, got {type(geometry).__name__}")
    if "curvePaths" in geometry or "curveRings" in geometry:
        return ("geometry", "true curves are not read")
    if kind == "esriGeometryPoint":
        x, y = geometry.get("x"), geometry.get("y")
        lines: Any = [] if x is None or str(x).lower() == "nan" else [[[x, y]]]
    elif kind == "esriGeometryMultipoint":
        lines = [geometry.get("points")] if geometry.get("points") else []
    else:
        lines = geometry.get("paths" if kind == "esriGeometryPolyline" else "rings") or []
    try:
        found = [[[p[0], p[1]] for p in line] for line in lines]
    except (TypeError, IndexError, KeyError):
        return ("geometry", "positions are not lists of numbers")
    if not all(_is_number(v) for line in found for p in line for v in p):
        return ("geometry", "a coordinate is no finite number")
    least = {"esriGeometryPolyline": 2, "esriGeometryPolygon": 3}.get(kind, 1)
    if any(len(line) < least for line in found):
        return ("geometry", f"a part has fewer than {least} positions")
    return found


def _polygons(rings: list[Ring]) -> Polygon | MultiPolygon:
    """Clockwise rings are outlines, the others are holes in the smallest outline around them."""
    closed = [r if r[0] == r[-1] else [*r, r[0]] for r in rings]
    outlines = [r for r in closed if _area(r) <= 0] or closed
    holes = [r for r in closed if _area(r) > 0] if len(outlines) < len(closed) else []
    owned: list[list[Ring]] = [[r] for r in outlines]
    if holes:
        around = sorted(
            ((shapely.Polygon(r), i) for i, r in enumerate(outlines)), key=lambda pair: pair[0].area
        )
        for hole in holes:
            inside = shapely.Polygon(hole).representative_point()
            owner = next(
                (
                    i
                    for shape, i in around
                    if shape.contains(inside) and shape.area > abs(_area(hole))
                ),
                None,
            )
            owned.append([hole]) if owner is None else owned[owner].append(hole)
    found = [[_turned(ring, outline=at == 0) for at, ring in enumerate(rings)] for rings in owned]
    return Polygon(found[0]) if len(found) == 1 else MultiPolygon(found)


def _turned(ring: Ring, *, outline: bool) -> Ring:
    """As GeoJSON wants it: outlines against the clock, holes with it."""
    return ring if (_area(ring) > 0) == outline else ring[::-1]


def _area(ring: Ring) -> float:
    """Twice the area, positive against the clock; from the first corner, so that small rings far
    from zero keep their digits.
    """
    x0, y0 = ring[0]
    return sum((a[0] - x0) * (b[1] - y0) - (b[0] - x0) * (a[1] - y0) for a, b in pairwise(ring))


_BUILD: dict[str, Callable[[list[Ring]], Any]] = {
    "esriGeometryPoint": lambda lines: Point(lines[0][0]),
    "esriGeometryMultipoint": lambda lines: MultiPoint(lines[0]),
    "esriGeometryPolyline": lambda lines: (
        LineString(lines[0]) if len(lines) == 1 else MultiLineString(lines)
    ),
    "esriGeometryPolygon": _polygons,
}
