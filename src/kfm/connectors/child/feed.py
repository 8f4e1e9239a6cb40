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
from types import ModuleType

import msgspec

from kfm.connectors.child.code import check_module, hooks_in
from kfm.connectors.operations import Acquire, Discover, Read
from kfm.connectors.read.geojson import GEOMETRY, GeoJsonReader, JsonReader
from kfm.connectors.read.rows import Batch, Emit, Loose, Reader, Row, Tally, batch_of
from kfm.connectors.read.tabular import CsvReader
from kfm.connectors.table.rejects import Fixes, corrected, picked, record_digest, types_of
from kfm.model import Json

__all__ = ["AskParent", "Context", "Emit", "Feed", "Hook", "load_connector"]

AskParent = Callable[[Json], Json]


class Context:
    """What connector code is given: nothing in it can write outside `scratch` or reach a store."""

    def __init__(self, job: Read | Acquire | Discover, scratch: Path, emit: Emit) -> None:
        self.dataset_id = job.dataset_id
        self.window = (job.since, job.until)
        self.scratch = scratch
        self._emit = emit

    def log(self, event: str, **fields: object) -> None:
        """One event for the run's log."""
        self._emit(
            {"op": "log", "event": event, "fields": msgspec.to_builtins(fields, str_keys=True)}
        )


def load_connector(path: str) -> ModuleType:
    """The module a connector author wrote."""
    spec = importlib.util.spec_from_file_location("kfm_workspace_connector", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    hooks = hooks_in(Path(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling look a class's module up
    spec.loader.exec_module(module)
    check_module(module, hooks)
    return module


Hook = Callable[[Context, Iterator[Row]], Iterable[Row]]


class Feed:
    """All inputs of a job, readable any number of times."""

    def __init__(
        self, job: Read, hook: Hook | None, context: Context, readers: list[Reader] | None
    ) -> None:
        geometry = next((c.name for c in job.schema if c.type == "geometry"), GEOMETRY)
        self.geometry = geometry if job.format == "geojson" or readers is not None else None
        self.cells = job.format == "csv" and readers is None
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
            _Hooked(self.readers, hook, context, job.fixes, spool=not job.schema) if hook else None
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
        self, readers: list[Reader], hook: Hook, context: Context, fixes: Fixes, *, spool: bool
    ) -> None:
        self._readers, self._hook, self._context, self._fixes = readers, hook, context, fixes
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
            self.tally.returned += 1
            yield at[0][0], Loose(at[0][1], partial(_shown, row), row)
        yield from spoilt

    def _inward(self, at: list[tuple[str, int]], spoilt: deque[tuple[str, Loose]]) -> Iterator[Row]:
        for reader in self._readers:
            types = cache(partial(_types, reader))
            for before, record, after in _around(chain.from_iterable(reader.loose())):
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


def _shown(row: Row) -> str:
    try:
        return msgspec.json.encode(row).decode()
    except (TypeError, UnicodeEncodeError):
        return repr(row)
