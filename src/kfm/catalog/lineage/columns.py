"""Where the columns of a table come from, as the plan, the mapping and the release rules of its run
say: which were taken over, renamed, computed, generalised, and which were dropped.

Nothing is guessed from values. What code made is told as computed by that code.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from kfm.catalog.lineage.record import Used, entry_of
from kfm.model import Column, DatasetEntry, Json, Release
from kfm.model.labels import explains

__all__ = ["ColumnLineage", "Origin", "columns_of"]

How = Literal["same", "renamed", "computed", "generalised", "collected", "dropped"]
_PLACE = ("longitude", "latitude", "geometry", "source_crs", "source_x", "source_y")


class Origin(msgspec.Struct, frozen=True, order=True):
    """A column of an input; where nobody may know its name, a commitment stands for it."""

    uri: str
    column: str


class ColumnLineage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One column of a version, or one that did not become one."""

    name: str  # where nobody may know it, a commitment
    how: How
    of: tuple[Origin, ...] = ()  # empty: of no column in particular
    by: str = ""  # what was done, in a few words


def columns_of(
    spec: Json | None,
    schema: Sequence[Column],
    inputs: Sequence[Used],
    behind: Mapping[str, Sequence[str]],
    hidden: Callable[[str], str],
) -> tuple[ColumnLineage, ...]:
    """Every column of a table in its order, then those that were dropped.

    `behind` are the columns of the datasets it was joined from, by the address of each; `hidden`
    gives what stands for a name that nobody may know. Empty where the spec does not say.
    """
    entry = entry_of(spec)
    if entry is None or spec is None:
        return ()
    names = [c.name for c in schema]
    before = {c.name: c for c in _read(entry, spec, names, inputs, behind)}
    if entry.release is None:
        made = [before.get(n) or _computed(n, entry, spec, inputs) for n in names]
        gone = [c for c in before.values() if c.how == "dropped"]
        return (*made, *gone)
    told = _Released(entry, entry.release, before, hidden)
    return (*(told.shown(n) for n in names), *told.gone(names))


# ---- what is read --------------------------------------------------------------------------------
def _read(
    entry: DatasetEntry,
    spec: Json,
    names: Sequence[str],
    inputs: Sequence[Used],
    behind: Mapping[str, Sequence[str]],
) -> Iterator[ColumnLineage]:
    """The columns of the table before any release."""
    if entry.source.kind == "join":
        yield from _joined(entry, inputs, behind)
    elif spec.get("mapping"):
        yield from _mapped(spec, names, inputs)
    else:
        for name in dict.fromkeys([*_stated(entry), *names]):
            yield _computed(name, entry, spec, inputs)


def _stated(entry: DatasetEntry) -> list[str]:
    """The columns that an entry speaks of, whether they are shown or not."""
    release, place = entry.release, entry.location
    if release is None:
        return []
    found = [c.name for c in entry.schema]
    found += [*(release.show or ()), *release.withhold, *entry.business_key]
    return found + ([place.latitude, place.longitude] if place is not None else [])


def _computed(name: str, entry: DatasetEntry, spec: Json, inputs: Sequence[Used]) -> ColumnLineage:
    """Taken over under its name where the format alone says how it is read; else made by code."""
    if spec.get("connector"):
        return ColumnLineage(name=name, how="computed", by=f"connector {spec['connector']}")
    if entry.source.kind != "http_file":
        return ColumnLineage(name=name, how="computed", by=f"the reader of {entry.source.kind}")
    return ColumnLineage(name=name, how="same", of=_each(inputs, name))


def _each(inputs: Sequence[Used], *names: str) -> tuple[Origin, ...]:
    return tuple(Origin(uri, n) for uri in dict.fromkeys(i.uri for i in inputs) for n in names)


def _joined(
    entry: DatasetEntry, inputs: Sequence[Used], behind: Mapping[str, Sequence[str]]
) -> Iterator[ColumnLineage]:
    """As `connectors/table/join.py` names them: keys once, a name that is taken with its dataset
    before it.
    """
    taken: set[str] = set()
    shapes = False
    for used in inputs:
        dataset_id = used.uri.rpartition("/")[2]
        for name in behind.get(used.uri, ()):
            if name in entry.source.join_on:
                if name not in taken:
                    of = tuple(Origin(i.uri, name) for i in inputs)
                    yield ColumnLineage(name=name, how="same", of=of, by="joined on it")
            elif name == "geometry" and shapes:
                gone = f"{dataset_id}_geometry"
                yield ColumnLineage(
                    name=gone, how="dropped", of=(Origin(used.uri, name),), by="a table has one"
                )
            else:
                new = f"{dataset_id}_{name}" if name in taken else name
                how: How = "same" if new == name else "renamed"
                yield ColumnLineage(name=new, how=how, of=(Origin(used.uri, name),))
            shapes |= name == "geometry"
            taken.add(name)


def _mapped(spec: Json, names: Sequence[str], inputs: Sequence[Used]) -> Iterator[ColumnLineage]:
    mapping: Json = spec["mapping"]
    then = f", then connector {spec['connector']}" if spec.get("connector") else ""
    for column in mapping["columns"]:
        yield _mapped_column(column, inputs, then)
    places = [_where(mapping[k]) for k in ("x", "y") if mapping.get(k) is not None]
    for name in _PLACE if places else ():
        if name in names:
            by = f"{mapping['crs']} to WGS 84" if not name.startswith("source_") else "as it came"
            yield ColumnLineage(name=name, how="computed", of=_each(inputs, *places), by=by + then)
    listed = {c["to"] for c in mapping["columns"]} | {*_PLACE}
    for name in names:
        if name not in listed:  # `unlisted: keep`
            by = "not listed in the mapping, kept by its name in snake case"
            yield ColumnLineage(name=name, how="renamed", by=by + then)


def _mapped_column(column: Json, inputs: Sequence[Used], then: str) -> ColumnLineage:
    source, to = _where(column["from"]), str(column["to"])
    how: How = "same" if source == to else "renamed"
    by = ""
    if column.get("source_unit"):
        how, by = "computed", f"{column['source_unit']} to {column.get('unit')}"
    return ColumnLineage(name=to, how=how, of=_each(inputs, source), by=(by + then).lstrip(", "))


def _where(source: str | int) -> str:
    """A header, or the column by its number."""
    return source if isinstance(source, str) else f"#{source}"


# ---- what is released ----------------------------------------------------------------------------
class _Released:
    """The columns of a table that a release lets out, and those it does not."""

    def __init__(
        self,
        entry: DatasetEntry,
        release: Release,
        before: Mapping[str, ColumnLineage],
        hidden: Callable[[str], str],
    ) -> None:
        self._entry, self._release, self._before = entry, release, before
        self._hidden = hidden
        groups = release.aggregate
        self._collected = groups.collect if groups is not None else ()

    def shown(self, name: str) -> ColumnLineage:
        release, k = self._release, self._release.min_records
        if name in ("h3_cell", "geometry") and release.h3_resolution is not None:
            by = f"H3 resolution {release.h3_resolution}, at least {k} records"
            return ColumnLineage(name=name, how="generalised", of=self._places(), by=by)
        if name == "records" and release.aggregate is not None:
            return ColumnLineage(
                name=name, how="computed", by=f"how many there are, at least {k}, in bands"
            )
        found = self._before.get(name) or ColumnLineage(name=name, how="computed")
        if name in self._collected:
            return msgspec.structs.replace(found, how="collected", by="the values of a group")
        if explains(release):
            return msgspec.structs.replace(found, by=f"where at least {k} records share it")
        return found

    def gone(self, names: Sequence[str]) -> Iterator[ColumnLineage]:
        """Those that did not become a column; what was generalised has become another."""
        public = self._release.show or ()
        for name, found in self._before.items():
            if name in public and name not in names:
                yield msgspec.structs.replace(found, how="dropped", by="no part of a group")
            elif name not in names:
                of = tuple(sorted(Origin(o.uri, self._hidden(o.column)) for o in found.of))
                by = "withheld by the release"
                yield ColumnLineage(name=self._hidden(name), how="dropped", of=of, by=by)

    def _places(self) -> tuple[Origin, ...]:
        place = self._entry.location
        names = (place.latitude, place.longitude) if place is not None else ("geometry",)
        of = (o for n in names if n in self._before for o in self._before[n].of)
        return tuple(sorted({Origin(o.uri, self._hidden(o.column)) for o in of}))
