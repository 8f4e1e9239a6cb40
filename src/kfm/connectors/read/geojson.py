"""GeoJSON and JSON records as rows; properties and geometry decode straight into structs, a block
at a time.
"""

import json
from collections.abc import Callable, Iterator
from operator import attrgetter
from types import GenericAlias
from typing import Any, Literal

import msgspec

from kfm.connectors.base import RECORD_BYTES, InputFile, Refused
from kfm.connectors.read.geometry import Geometry, Problem
from kfm.connectors.read.json_text import refuse_depth
from kfm.connectors.read.records import Decoder, Items, Records, Slab
from kfm.connectors.read.repeated_members import Twice, count_members, decode_once
from kfm.connectors.read.rows import Batch, Loose, Row, batch_of
from kfm.connectors.read.text import utf8_blocks
from kfm.model import Json

__all__ = ["FEATURE_ID", "GEOMETRY", "GeoJsonReader", "JsonReader", "duplicate"]

FEATURE_ID, GEOMETRY = "feature_id", "geometry"
_MISSES = 8  # blocks in which a record lacks a member, until none is expected to be whole
_WGS84 = ("CRS84", "EPSG:4326", "EPSG::4326", "CRS84H")


class JsonReader:
    """One JSON document: an array of objects, an object holding one, or an object per line."""

    record_limit = RECORD_BYTES

    def __init__(self, source: InputFile, encoding: str | None, records: str | None) -> None:
        self._source, self._encoding = source, encoding
        self._path = tuple(records.split(".")) if records else None
        self.source_id = source.source_id
        self.warnings: set[str] = set()

    def _open(self) -> Records:
        return Records(
            utf8_blocks(self._source, "json", self._encoding, self.warnings),
            self.source_id,
            self._path,
            limit=self.record_limit,
        )

    def _finish(self, records: Records) -> None:
        """Look at what stood beside the records."""

    def loose(self) -> Iterator[list[Loose]]:
        """Records as dicts."""
        records, line = self._open(), 1
        for slab in records.split(_DICTS):
            rows = self._loosen(records, slab, line)
            yield rows
            line += len(rows)
        self._finish(records)

    def _loosen(self, records: Records, slab: Slab, line: int) -> list[Loose]:
        if slab.items is not None:
            return [
                self._row(item, line + i, _text_of(slab, i)) for i, item in enumerate(slab.items)
            ]
        return [self._record(records, text, line + i) for i, text in enumerate(slab.texts)]

    def _record(self, records: Records, text: bytes, line: int) -> Loose:
        def raw() -> str:
            return text.decode("utf-8", "replace")

        try:
            item = decode_once(text)
        except RecursionError:
            refuse_depth(self.source_id)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Loose(line, raw, None, self._misread(records, text, str(error)))
        except Twice as twice:
            return Loose(line, raw, None, duplicate(twice))
        return self._row(item, line, raw)

    def _misread(self, records: Records, text: bytes, why: str) -> Problem:
        """The row rule for a record msgspec refuses but Python reads; otherwise the document is no
        JSON.
        """
        odd: list[str] = []

        def number(token: str) -> float:
            value = float(token)
            if value in (float("inf"), float("-inf")):
                odd.append(token)
            return value

        try:
            json.loads(text, parse_constant=odd.append, parse_float=number)
        except RecursionError:
            refuse_depth(self.source_id)
        except json.JSONDecodeError as error:
            records.fail_record(text, len(error.doc[: error.pos].encode()), error.msg)
        except ValueError:  # an integer of thousands of digits
            pass
        return ("number.nonfinite", f"the record holds {odd[0]}") if odd else ("json.value", why)

    def _row(self, item: object, line: int, raw: Callable[[], str]) -> Loose:
        if not isinstance(item, dict):
            return Loose(
                line, raw, None, ("json.record", f"expected an object, got {type(item).__name__}")
            )
        return Loose(line, raw, item)

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Records as columns; a block that does not decode into the known columns is read
        loosely.
        """
        shape, getters = _struct_of(names)
        records, line = self._open(), 1
        for slab in records.split(
            _whole_first(
                _struct_of(names, whole=True)[0], shape, lambda items: len(items) * len(names)
            )
        ):
            if slab.items is not None:
                columns = {name: list(map(get, slab.items)) for name, get in getters.items()}
                batch = self._batch(slab, columns, len(slab.items), line)
            else:
                batch = self._loose_batch(records, slab, names, line)
            yield batch
            line += batch.size
        self._finish(records)

    def _batch(self, slab: Slab, columns: dict[str, Items], size: int, line: int) -> Batch:
        return Batch(
            self.source_id,
            size,
            columns,
            lambda i: line + i,
            lambda i: slab.text(i).decode("utf-8", "replace"),
            {},
        )

    def _loose_batch(
        self,
        records: Records,
        slab: Slab,
        names: tuple[str, ...],
        line: int,
        ignored: frozenset[str] = frozenset(),
    ) -> Batch:
        return batch_of(self.source_id, self._loosen(records, slab, line), names, ignored=ignored)


class GeoJsonReader(JsonReader):
    """One FeatureCollection, or a Feature per line."""

    def __init__(self, source: InputFile, encoding: str | None, geometry: str = GEOMETRY) -> None:
        super().__init__(source, encoding, None)
        self._geometry = geometry

    def _open(self) -> Records:
        return Records(
            utf8_blocks(self._source, "geojson", self._encoding, self.warnings),
            self.source_id,
            None,
            only="features",
            limit=self.record_limit,
        )

    def _finish(self, records: Records) -> None:
        kind, crs = (
            records.members.get("type", b'"FeatureCollection"'),
            records.members.get("crs", b"null"),
        )
        if kind != b'"FeatureCollection"':
            raise Refused(
                "geojson.features",
                f"Source {self.source_id} is of type {kind[:80].decode('utf-8', 'replace')}.",
                expected="a FeatureCollection",
                remedy=(
                    "Look at the captured bytes; correct `source.format` if it is another kind of"
                    " JSON."
                ),
                source_id=self.source_id,
            )
        if crs == b"null":
            return
        value = records.member("crs")
        held = value.get("properties") if isinstance(value, dict) else None
        name = str(held.get("name", "")) if isinstance(held, dict) else ""
        if not name.upper().endswith(_WGS84):
            raise Refused(
                "geojson.crs",
                f"Source {self.source_id} declares the coordinate system"
                f" {name or crs[:80].decode('utf-8', 'replace')!r}.",
                expected=(
                    "longitude and latitude on WGS 84 (CRS84 or EPSG:4326), as RFC 7946 demands"
                ),
                remedy=(
                    "Ask upstream for WGS 84 (often a parameter such as outSR=4326), or reproject"
                    " in a connector."
                ),
                source_id=self.source_id,
            )

    def _row(self, item: object, line: int, raw: Callable[[], str]) -> Loose:
        if not isinstance(item, dict) or item.get("type") != "Feature":
            return Loose(
                line, raw, None, ("geojson.feature", 'expected an object of type "Feature"')
            )
        properties = item.get("properties")
        if properties is not None and not isinstance(properties, dict):
            return Loose(
                line, raw, None, ("geojson.feature", "expected properties to be an object or null")
            )
        row: Row = {} if item.get("id") is None else {FEATURE_ID: item["id"]}
        row |= properties or {}  # a property of that name wins
        if self._geometry in row:
            raise Refused(
                "schema.collision",
                f"A feature of source {self.source_id} has a property named {self._geometry!r}, the"
                " name of the geometry column.",
                expected="distinct column names",
                remedy=(
                    "Rename the property in a connector, or name the geometry column differently in"
                    " the schema."
                ),
                source_id=self.source_id,
            )
        if not isinstance(item.get("geometry"), dict | None):
            return Loose(line, raw, None, ("geometry", "expected geometry to be an object or null"))
        return Loose(line, raw, row | {self._geometry: item.get("geometry")})

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Features as columns; ids and geometry that the schema does not name are left out with a
        warning.
        """
        properties = tuple(n for n in names if n not in (FEATURE_ID, self._geometry))
        shape, getters = _struct_of(properties)
        whole = _feature_of(_struct_of(properties, whole=True)[0], whole=True)
        width = len(properties) + 6  # type, id, properties, geometry and its type and coordinates

        def members(features: Items) -> int:
            return len(features) * width - [f.id for f in features].count(None)

        ignored = frozenset((FEATURE_ID, self._geometry))
        records, line, empty = self._open(), 1, shape()
        for slab in records.split(_whole_first(whole, _feature_of(shape), members)):
            if slab.items is not None:
                rows = [f.properties or empty for f in slab.items]
                columns: dict[str, Items] = {
                    name: list(map(get, rows)) for name, get in getters.items()
                }
                columns[FEATURE_ID] = [f.id for f in slab.items]
                columns[self._geometry] = [f.geometry for f in slab.items]
                self._warn_left_out(columns, names)
                batch = self._batch(slab, columns, len(rows), line)
            else:
                batch = self._loose_batch(records, slab, names, line, ignored)
            yield batch
            line += batch.size
        self._finish(records)

    def _warn_left_out(self, columns: dict[str, Items], names: tuple[str, ...]) -> None:
        for name in (FEATURE_ID, self._geometry):
            if name not in names and (held := columns.pop(name)).count(None) < len(held):
                self.warnings.add(
                    f"{name} of the features in {self.source_id} is not in the schema and is left"
                    " out."
                )


def duplicate(twice: Twice) -> Problem:
    """The row rule for a record in which a member is there twice."""
    return "json.duplicate", f"the member {str(twice)[:80]!r} is there twice"


_DICTS = Decoder(msgspec.json.Decoder(list[Json]).decode, count_members)


def _whole_first(
    whole: type[msgspec.Struct], shape: type[msgspec.Struct], members: Callable[[Items], int]
) -> Decoder:
    """Decodes into `whole`, which lacks no member, so that their number is known; into `shape`
    where a record does lack one.
    """
    strict: Callable[[bytes], Items] = msgspec.json.Decoder(GenericAlias(list, whole)).decode
    lenient: Callable[[bytes], Items] = msgspec.json.Decoder(GenericAlias(list, shape)).decode
    misses = 0

    def decode(data: bytes) -> Items:
        nonlocal misses
        if misses < _MISSES:
            try:
                return strict(data)
            except msgspec.ValidationError:
                misses += 1
        return lenient(data)

    return Decoder(decode, lambda items: members(items) if items and type(items[0]) is whole else 0)


def _text_of(slab: Slab, index: int) -> Callable[[], str]:
    return lambda: slab.text(index).decode("utf-8", "replace")


def _struct_of(
    names: tuple[str, ...], *, whole: bool = False
) -> tuple[type[msgspec.Struct], dict[str, Callable[[msgspec.Struct], object]]]:
    """A struct with one field per column, whatever characters the name holds; a name it does not
    know fails the block.

    `whole`: so does a field that is not there.
    """
    fields = {f"f{i}": name for i, name in enumerate(names)}
    shape = msgspec.defstruct(
        "Record",
        [(f, Any) if whole else (f, Any, None) for f in fields],
        rename=fields,
        forbid_unknown_fields=True,
        gc=False,
    )
    return shape, {name: attrgetter(f) for f, name in fields.items()}


def _feature_of(shape: type[msgspec.Struct], *, whole: bool = False) -> type[msgspec.Struct]:
    """A feature; `whole`: one with properties and a geometry."""
    rest = (
        [("properties", shape), ("geometry", Geometry)]
        if whole
        else [("properties", shape | None, None), ("geometry", Geometry | None, None)]
    )
    id_ = ("id", str | int | float | None, None)
    return msgspec.defstruct(
        "Feature", [("type", Literal["Feature"]), id_, *rest], kw_only=True, gc=False
    )
