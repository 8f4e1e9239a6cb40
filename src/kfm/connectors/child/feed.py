"""What connector code is given, and the rows of all inputs: as readers make them, or as connector
code makes them of those.
"""

import importlib.util
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path

import msgspec

from kfm import connect
from kfm.connect import Context
from kfm.connectors.base import InputFile, Refused
from kfm.connectors.child.code import Code, Connector, read_code, run_code
from kfm.connectors.kind import HeadedReader, RowReader
from kfm.connectors.operations import Read
from kfm.connectors.read.geojson import GEOMETRY, GeoJsonReader, JsonReader
from kfm.connectors.read.rows import Batch, Emit, Loose, Reader, Row, Tally, batch_of
from kfm.connectors.read.tabular import CsvReader
from kfm.connectors.table.rejects import Fixes, corrected, picked, record_digest, types_of
from kfm.model import Json

__all__ = ["AskParent", "Context", "Emit", "Feed", "Hook", "Watch", "load_connector"]

AskParent = Callable[[Json], Json]


def load_connector(path: str) -> Connector:
    """The code a connector author wrote, run."""
    spec = importlib.util.spec_from_file_location("kfm_workspace_connector", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    file = Path(path)
    code = read_code(file.read_bytes(), file.name) if file.is_file() else Code(frozenset())
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling look a class's module up
    spec.loader.exec_module(module)
    return run_code(module, code)


Hook = Callable[[Context, Iterator[Row]], Iterable[Row]]
Parse = Callable[[Context, connect.File], Iterable[Row]]


class Parsed(RowReader):
    """A file that connector code reads."""

    cells = True

    def __init__(
        self, source: InputFile, parse: Parse, context: Context, *, web_page: bool
    ) -> None:
        super().__init__(source)
        self._parse, self._context, self._web_page = parse, context, web_page

    def rows(self) -> Iterator[Loose]:
        """What the code makes of the file, numbered from 1; an empty text is no value."""
        if not self._web_page:
            self._refuse_a_web_page()
        number = 0
        for row in self._parse(self._context, connect.File(self.source_id, self.path)) or ():
            if not isinstance(row, dict):
                raise TypeError(f"parse() must yield dicts, got {type(row).__name__}")
            yield from self._left(number)
            number += 1
            row = {name: None if value == "" else value for name, value in row.items()}
            yield Loose(number, partial(_shown, row), row)
        yield from self._left(number)

    def _left(self, number: int) -> Iterator[Loose]:
        for rule, row, reason in self._context.taken():
            yield Loose(number + 1, partial(_shown, row), None, (rule, reason), row)

    def _refuse_a_web_page(self) -> None:
        """Code would read nothing in it, or nonsense."""
        with self.path.open("rb") as file:
            head = file.read(512)
        if connect.looks_like_a_page(head):
            raise Refused(
                "html",
                f"Source {self.source_id} is a web page, probably an error page.",
                expected="what parse() can read; web pages are `source.format: html`",
                remedy="Open the address in a browser to see what upstream says, then run again.",
                source_id=self.source_id,
            )


class Watch:
    """The first records of a trial: as they were read, as connector code made them, and what it left
    out.
    """

    most = 1000  # records are read

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.before, self.after, self.left = list[Row](), list[Row](), list[Json]()
        self._columns: dict[str, None] = {}

    def read(self, row: Row | None) -> None:
        """One record as its reader gives it."""
        self._columns.update(dict.fromkeys(row or ()))
        if row is not None and len(self.before) < self._rows:
            self.before.append(dict(row))  # code may change the row it is given

    def made(self, row: Row) -> None:
        """One row of connector code."""
        if len(self.after) < self._rows:
            self.after.append(row)

    def left_out(self, row: Row, reason: str) -> None:
        """One row that connector code left out."""
        if len(self.left) < self._rows:
            self.left.append({"reason": reason, "row": _told(row)})

    def tell(self, emit: Emit) -> None:
        """Everything that was seen."""
        said = {"columns": list(self._columns), "left": self.left}
        rows = {"before": self.before, "after": self.after}
        told = {name: [_told(row) for row in found] for name, found in rows.items()}
        emit({"op": "tried", **said, **told})


class Feed:
    """All inputs of a job, readable any number of times."""

    def __init__(
        self,
        job: Read,
        hook: Hook | None,
        context: Context,
        readers: list[Reader] | None,
        parse: Parse | None = None,
        watch: Watch | None = None,
    ) -> None:
        if watch is not None and parse is None and hook is None:
            hook = _as_it_is  # so that they pass where it looks
        if parse is not None:
            page = job.format in ("html", "htm", "xhtml")
            readers = [Parsed(source, parse, context, web_page=page) for source in job.inputs]
            hook = hook or _as_it_is
        geometry = next((c.name for c in job.schema if c.type == "geometry"), GEOMETRY)
        self.geometry = geometry if job.format == "geojson" or readers is not None else None
        self.cells = (
            job.format == "csv"
            if readers is None
            else all(getattr(r, "cells", False) for r in readers)
        )
        self.headed = self.cells and all(isinstance(r, HeadedReader) for r in readers or ())
        self.readers = (
            [_reader(job, i, geometry) for i in range(len(job.inputs))]
            if readers is None
            else readers
        )
        for reader in self.readers:
            reader.record_limit = job.max_record_bytes
        # Inference reads the rows more than once, connector code must run once: its rows are
        # spooled then.
        self._hooked = (
            _Hooked(self.readers, hook, context, job.fixes, watch, spool=not job.schema)
            if hook
            else None
        )
        self._tally = Tally()
        self._only: dict[str, set[int]] = {}
        for source_id, line in job.only:
            self._only.setdefault(source_id, set()).add(line)

    @property
    def hooked(self) -> bool:
        return self._hooked is not None

    @property
    def tally(self) -> Tally:
        """The counts of the last whole pass."""
        return self._hooked.tally if self._hooked else self._tally

    def batches(self, names: tuple[str, ...]) -> Iterator[Batch]:
        """Every record as columns."""
        if self._hooked:
            for chunk in self._hooked.chunks():
                for source_id, rows in groupby(chunk, key=itemgetter(0)):
                    yield batch_of(source_id, [row for _, row in rows], names)
            return
        self._tally = Tally()
        for reader in self.readers:
            for batch in reader.batches(names):
                chosen = (
                    picked(batch, self._only.get(reader.source_id, set())) if self._only else batch
                )
                if chosen is not None:
                    self._tally.read += chosen.size
                    yield chosen

    def remove(self) -> None:
        """Delete what was spooled."""
        if self._hooked:
            self._hooked.remove()

    def loose(self) -> Iterator[list[Loose]]:
        """Every record as a dict, after connector code."""
        if self._hooked:
            for chunk in self._hooked.chunks():
                yield [row for _, row in chunk]
            return
        for reader in self.readers:
            yield from reader.loose()


class _Hooked:
    """The rows connector code makes of the inputs, with the source and line it had read last."""

    def __init__(
        self,
        readers: list[Reader],
        hook: Hook,
        context: Context,
        fixes: Fixes,
        watch: Watch | None,
        *,
        spool: bool,
    ) -> None:
        self._readers, self._hook, self._context, self._fixes = readers, hook, context, fixes
        self._watch = watch
        self._spool = context.scratch / ".rows.jsonl" if spool else None
        self._spooled = False
        self.tally = Tally()

    def chunks(self) -> Iterator[list[tuple[str, Loose]]]:
        """Some thousand rows at a time."""
        rows = self._live() if self._spool is None else self._from_spool(self._spool)
        while chunk := list(islice(rows, 8192)):
            yield chunk

    def _live(self) -> Iterator[tuple[str, Loose]]:
        self.tally = Tally()
        spoilt: deque[tuple[str, Loose]] = deque()
        at = [(self._readers[0].source_id, 0)]
        for row in self._hook(self._context, self._inward(at, spoilt)):
            if not isinstance(row, dict):
                raise TypeError(f"transform() must yield dicts, got {type(row).__name__}")
            while spoilt:
                yield spoilt.popleft()
            yield from self._left(at[0])
            self.tally.returned += 1
            if self._watch is not None:
                self._watch.made(row)
            yield at[0][0], Loose(at[0][1], partial(_shown, row), row)
        yield from spoilt
        yield from self._left(at[0])

    def _left(self, at: tuple[str, int]) -> Iterator[tuple[str, Loose]]:
        """The rows that connector code leaves out, each by its reason."""
        for rule, row, reason in self._context.taken():
            self.tally.returned += 1
            if self._watch is not None and rule.startswith("drop:"):  # others are set aside
                self._watch.left_out(row, reason)
            yield at[0], Loose(at[1], partial(_shown, row), None, (rule, reason), row)

    def _inward(self, at: list[tuple[str, int]], spoilt: deque[tuple[str, Loose]]) -> Iterator[Row]:
        for reader in self._readers:
            types = cache(partial(_types, reader))
            for before, record, after in _around(chain.from_iterable(reader.loose())):
                if self._watch is not None:
                    if self.tally.read >= self._watch.most:
                        return
                    self._watch.read(record.row)
                    if record.problem is not None and record.problem[0].startswith("drop:"):
                        self._watch.left_out(record.held or {}, record.problem[1])
                self.tally.read += 1
                at[0] = (reader.source_id, record.line)
                row = record.row
                if record.problem is not None and not record.problem[0].startswith("drop:"):
                    fix = self._fixes.get(record_digest(record.raw())) if self._fixes else None
                    row = corrected(record, fix, types()) if fix is not None else None
                    record = record._replace(
                        early=types(), near=(before and before.raw, after and after.raw)
                    )
                if row is None:
                    spoilt.append((reader.source_id, record))
                else:
                    self.tally.passed += 1
                    yield row

    def _from_spool(self, path: Path) -> Iterator[tuple[str, Loose]]:
        if not self._spooled:
            with path.open("wb") as out:
                for source_id, record in self._live():
                    raw = record.raw() if record.row is None else None
                    near = record.near and [text and text() for text in record.near]
                    out.write(
                        msgspec.json.encode((source_id, *record._replace(raw=raw, near=near)))  # type: ignore[arg-type]
                        + b"\n"
                    )
            self._spooled = True
        with path.open("rb") as lines:
            for line in lines:
                source_id, number, raw, row, problem, held, early, near = msgspec.json.decode(line)
                shown = partial(_shown, row) if raw is None else partial(str, raw)
                before, after = (
                    None if text is None else partial(str, text) for text in near or (None, None)
                )
                yield (
                    source_id,
                    Loose(
                        number,
                        shown,
                        row,
                        tuple(problem) if problem else None,
                        held,
                        early,
                        near and (before, after),
                    ),
                )

    def remove(self) -> None:
        """Delete the spool."""
        if self._spool is not None:
            self._spool.unlink(missing_ok=True)


def _as_it_is(_: Context, rows: Iterator[Row]) -> Iterator[Row]:
    return rows


def _around(records: Iterator[Loose]) -> Iterator[tuple[Loose | None, Loose, Loose | None]]:
    """Each record with the one before and the one after it."""
    before, record = None, next(records, None)
    while record is not None:
        after = next(records, None)
        yield before, record, after
        before, record = record, after


def _types(reader: Reader) -> dict[str, str]:
    """The columns of a source as its first readable records show them."""
    for block in reader.loose():
        if rows := [r.row or r.held or {} for r in block if r.row or r.held]:
            return types_of(rows)
    return {}


def _reader(job: Read, index: int, geometry: str) -> Reader:
    source = job.inputs[index]
    if job.format == "csv":
        return CsvReader(source, job.encoding)
    if job.format == "json":
        return JsonReader(source, job.encoding, job.records)
    return GeoJsonReader(source, job.encoding, geometry)


def _told(row: Row) -> Json:
    """A row as JSON can tell it."""
    return {str(name): _value(value) for name, value in row.items()}


def _value(value: object) -> object:
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except TypeError:
        return repr(value)


def _shown(row: Row) -> str:
    try:
        return msgspec.json.encode(row).decode()
    except (TypeError, UnicodeEncodeError):
        return repr(row)
