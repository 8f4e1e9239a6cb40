"""Who gave a cell its value: the generation, the run, the capture and the line of its source, found
by looking back through every version this reader may have.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kfm.access.boundary import Opened, Reader, facts_of, located
from kfm.channel.generations import pinned_parts
from kfm.connectors.operations import Trace
from kfm.evidence.append_times import appended_at
from kfm.evidence.receipts import find_receipt
from kfm.evidence.run_files import read_run_file
from kfm.model import (
    Denied,
    Generation,
    IntegrityError,
    Json,
    KfmError,
    LedgerRow,
    UsageError,
    VersionFacts,
    canonical,
    is_assembly,
)
from kfm.model.did_you_mean import told as near
from kfm.model.paths import capture_folder, part_folder
from kfm.release.transform_inputs import read_job
from kfm.upkeep.rebuild import captured_inputs
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import room

__all__ = ["Blame", "Cell", "Origin", "Was", "blame", "key_of"]

Row = dict[str, object]
OWN = "kfm://dataset/"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell, and what made it what it is."""

    column: str
    value: object
    generation: int  # since which the value is official without a break
    given_by: int  # the promotion whose run wrote it; another one where a rollback brought it back
    run_id: str
    version_id: str
    at: str | None
    certain: bool  # False: the version before may not be looked at, so it may be older


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run had it from. What is empty is not known, or not told: `note` says why."""

    run_id: str
    receipt: str
    capture: str
    file: str  # below the workspace
    digest: str
    lines: tuple[int, ...]
    note: str
    next: tuple[str, ...] = ()  # where to ask on


class Was(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a cell had before, newest first; `there` False: the row was not there."""

    generation: int
    kind: str
    at: str | None
    there: bool
    value: object


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """`kfm blame REF --key K [--column C] --json`."""

    dataset_id: str
    ref: str
    key: dict[str, str]
    there: bool  # whether the version has the row
    cells: tuple[Cell, ...]
    origin: Origin | None  # of the newest of the cells
    was: tuple[Was, ...]  # of one column, over all versions
    last_seen: int | None  # of a row that is not there: the last generation that had it
    gone_by: int | None  # and the one that has it no more
    not_shown: tuple[int, ...]  # generations whose content may not be looked at


def blame(
    world: World,
    text: str,
    given: Sequence[str],
    column: str | None,
    reader: Reader,
    target_of: Callable[[Json], Target] | None,
) -> Blame:
    """Look back from the version that a reference means. `target_of` gives what a run record asked
    for; without it nobody looks for the origin in what upstream gave. Raises `Denied` where this reader may not have the version.
    """
    opened, facts = located(world, text, reader), facts_of(world, text, reader)
    key = key_of(given, opened.business_key, facts)
    _check_column(column, facts)
    past = _Past(world, opened, key, reader)
    now = past.row(int(opened.generation or 0))
    if now is None or isinstance(now, str):
        return past.absent()
    past = past.by_business_key(now)
    columns = [column] if column else [name for name in now if name not in key]
    cells = tuple(past.cell(name, now[name]) for name in columns)
    newest = max(cells, key=lambda cell: cell.given_by, default=None)
    origin = None
    if newest is not None and target_of is not None:
        origin = _Sources(world, opened.dataset_id, past.key, facts, target_of).origin(
            newest.run_id
        )
    return Blame(
        dataset_id=opened.dataset_id,
        ref=opened.label,
        key=key,
        there=True,
        cells=cells,
        origin=origin,
        was=past.was(column) if column else (),
        last_seen=None,
        gone_by=None,
        not_shown=tuple(sorted(past.hidden)),
    )


def key_of(
    given: Sequence[str], business_key: Sequence[str], facts: VersionFacts
) -> dict[str, str]:
    """`column=value` of each part of a key; the value alone where the key is one column."""
    names = [column.name for column in facts.schema]
    usual = [name for name in business_key if name in names]
    if not given:
        raise UsageError(
            "Which row is not said.",
            expected="COLUMN=VALUE, of a column that names rows",
            remedy=f"`kfm show {facts.dataset_id}` shows some rows.",
        )
    found: dict[str, str] = {}
    for part in given:
        name, equals, value = part.partition("=")
        if equals and name in found:
            raise UsageError(
                f"The key names {name} twice.",
                expected="each column once",
                remedy="Leave one of them out.",
            )
        if equals and name in names:
            found[name] = value
        elif equals and name.isidentifier():  # a value that begins so is given with its column
            _check_column(name, facts)
        elif len(usual) == 1 and not found:
            found[usual[0]] = part
        else:
            raise UsageError(
                f"{part!r} names no row.",
                expected=f"COLUMN=VALUE, of {', '.join(usual or names)}",
                remedy="Give each column of the key with its value.",
            )
    return found


def _check_column(column: str | None, facts: VersionFacts) -> None:
    names = [c.name for c in facts.schema]
    if column is not None and column not in names:
        raise UsageError(
            f"{facts.dataset_id} has no column {column}.",
            expected="one of its columns",
            remedy=near("Columns are", column, names).strip(),
        )


class _Past:
    """The row with one key in every generation; each version is opened once, through the
    boundary.
    """

    def __init__(self, world: World, opened: Opened, key: dict[str, str], reader: Reader) -> None:
        self.world, self.opened, self.key, self.reader = world, opened, key, reader
        rows: list[Generation] = world.store.read(
            lambda tx: tx.index.generations(opened.dataset_id)
        )
        self.rows = [g for g in rows if g.generation <= int(opened.generation or 0)]
        self._known: dict[str, Row | None] = {}  # by version
        self._files: dict[str, Row | None] = {}  # by digest of a table
        self.hidden: set[int] = set()

    def by_business_key(self, row: Row) -> "_Past":
        """The same row, known by what it is known by in every version: other columns may name
        another one there.
        """
        names = [name for name in self.opened.business_key if row.get(name) is not None]
        if not names or len(names) < len(self.opened.business_key) or {*names} == {*self.key}:
            return self
        key = {name: _as_text(row[name]) for name in names}
        found = _Past(self.world, self.opened, key, self.reader)
        return found if found.row(int(self.opened.generation or 0)) == row else self

    def row(self, number: int) -> Row | str | None:
        """The row in a generation; None: it is not there; a text: why that is not known."""
        made = self.rows[number - 1]
        if made.version_id is None:
            return None
        if made.version_id not in self._known:
            try:
                opened = located(self.world, f"{made.dataset_id}@{number}", self.reader)
            except (Denied, IntegrityError, UsageError) as error:
                self.hidden.add(number)
                return error.happened
            self._known[made.version_id] = self._in(opened)
        return self._known[made.version_id]

    def _in(self, opened: Opened) -> Row | None:
        for name, path in sorted(opened.files.items()):
            if not name.endswith(".parquet"):
                continue
            digest = opened.digests[name]
            if digest not in self._files:
                from kfm.story.rows import row_of  # what reads Parquet may be left out

                self._files[digest] = row_of(path, self.key)
            if self._files[digest] is not None:
                return self._files[digest]
        return None

    def cell(self, column: str, value: object) -> Cell:
        since, certain = self._since(column, value, len(self.rows))
        given_by, sure = since, certain
        while self.rows[given_by - 1].kind != "promote":
            earlier = self._promoted(given_by)
            if earlier is None:
                break
            given_by, sure = self._since(column, value, earlier)
        made = self.rows[given_by - 1]
        return Cell(
            column=column,
            value=value,
            generation=since,
            given_by=given_by,
            run_id=made.run_id,
            version_id=str(made.version_id),
            at=appended_at(self.world, made),
            certain=sure,
        )

    def _since(self, column: str, value: object, start: int) -> tuple[int, bool]:
        """The first generation of the unbroken stretch up to `start` in which a cell has a value;
        and whether what lies before is known.
        """
        number = start
        while number > 1:
            before = self.row(number - 1)
            if isinstance(before, str):
                return number, False
            if before is None or column not in before or before[column] != value:
                break
            number -= 1
        return number, True

    def _promoted(self, number: int) -> int | None:
        """The promotion that the version of a generation came with."""
        version = self.rows[number - 1].version_id
        named = [g.generation for g in self.rows[: number - 1] if g.version_id == version]
        promoted = [n for n in named if self.rows[n - 1].kind == "promote"]
        return promoted[-1] if promoted else None

    def was(self, column: str) -> tuple[Was, ...]:
        """Every value a cell had, newest first."""
        found: list[Was] = []
        for made in reversed(self.rows):
            row = self.row(made.generation)
            if isinstance(row, str):
                continue
            there = row is not None and column in row
            value = row[column] if row is not None and column in row else None
            now = Was(
                generation=made.generation,
                kind=made.kind,
                at=appended_at(self.world, made),
                there=there,
                value=value,
            )
            if found and (found[-1].there, found[-1].value) == (now.there, now.value):
                found[-1] = now
            else:
                found.append(now)
        return tuple(found)

    def absent(self) -> Blame:
        """A row that is not there: when it last was."""
        last = next(
            (g.generation for g in reversed(self.rows) if isinstance(self.row(g.generation), dict)),
            None,
        )
        return Blame(
            dataset_id=self.opened.dataset_id,
            ref=self.opened.label,
            key=self.key,
            there=False,
            cells=(),
            origin=None,
            was=(),
            last_seen=last,
            gone_by=last + 1 if last is not None else None,
            not_shown=tuple(sorted(self.hidden)),
        )


def _as_text(value: object) -> str:
    """A value as a key says it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class _Sources:
    """Where a run had a row from."""

    def __init__(
        self,
        world: World,
        dataset_id: str,
        key: dict[str, str],
        facts: VersionFacts,
        target_of: Callable[[Json], Target],
    ) -> None:
        self.world, self.id, self.key, self.target_of = world, dataset_id, key, target_of
        self.types = {column.name: column for column in facts.schema}

    def origin(self, run_id: str) -> Origin:
        receipt = find_receipt(self.world.root, run_id) or ""
        if not run_id or not receipt:
            return _unknown(run_id, receipt, "No run made it: it is what a withdrawal left.")
        if self.world.is_withheld(self.id):
            return _unknown(
                run_id, receipt, "Its records are not public: where a row comes from stays inside."
            )
        row: LedgerRow | None = self.world.store.read(lambda tx: tx.runs.get(run_id))
        staged = self._staged(row) if row is not None and is_assembly(row) else run_id
        raw = read_run_file(self.world.data, self.id, staged, "run_record.json") if staged else None
        if raw is None:
            return _unknown(run_id, receipt, "The record of the run is not here any more.")
        record: Json = canonical.loads(raw)
        own = [s["source_url"] for s in record["sources"] if s["source_url"].startswith(OWN)]
        if own:
            names = [url.removeprefix(OWN) for url in own]
            return msgspec.structs.replace(
                _unknown(run_id, receipt, f"It is made from other datasets: {', '.join(names)}."),
                next=tuple(f"kfm blame {name} --key …" for name in names),
            )
        return self._traced(run_id, receipt, record)

    def _staged(self, row: LedgerRow) -> str:
        """Of parts that were assembled, the run of the last one that holds the row."""
        from kfm.story.rows import row_of  # what reads Parquet may be left out

        for part in reversed(pinned_parts(self.world.data, row) or ()):
            path = f"{part_folder(self.id, part.part)}/{part.artifact}"
            if self.world.data.exists(path) and row_of(self.world.data.local(path), self.key):
                return part.run_id
        return ""

    def _traced(self, run_id: str, receipt: str, record: Json) -> Origin:
        try:
            target = self.target_of(record)
            with self.world.data.scratch() as scratch:
                inputs, capture = captured_inputs(self.world, record, target, room(scratch, "in"))
                lines = self._lines(target, inputs, room(scratch, "out"))
        except (KfmError, KeyError, TypeError, OSError) as error:
            why = getattr(error, "happened", "")
            return _unknown(
                run_id, receipt, f"The line cannot be told: {why or 'it cannot be read again'}"
            )
        found = lines[0]["source_id"] if lines else next(iter(inputs))
        path, digest = inputs[found]
        note = ""
        if not lines:
            note = "No line of the capture holds this key as it stands; the dataset's own code or its rules made it."
        elif target.connector is not None:
            note = "The dataset's own code made the row; its key stands in these lines."
        elif target.fixes:
            note = "People corrected records of this capture; what they said counts, not the line."
        return Origin(
            run_id=run_id,
            receipt=receipt,
            capture=capture,
            file=f"data/{capture_folder(self.id, capture)}/{path.name}",
            digest=digest,
            lines=tuple(line["line"] for line in lines if line["source_id"] == found),
            note=note,
        )

    def _lines(
        self, target: Target, inputs: dict[str, tuple[Path, str]], scratch: Path
    ) -> list[Json]:
        """The lines of the capture that hold the key, found in the child."""
        told: list[Json] = []

        def hear(event: Json) -> None:
            if event.get("op") == "traced":
                told.extend(event["lines"])

        job = msgspec.structs.asdict(
            read_job(msgspec.structs.replace(target, connector=None), inputs)
        )
        wanted = tuple(self.types[name] for name in self.key)
        asked = Trace(
            **{**job, "connector": None, "wanted": wanted, "texts": tuple(self.key.values())}
        )
        self.world.transform(asked, scratch, hear)
        return told


def _unknown(run_id: str, receipt: str, why: str) -> Origin:
    return Origin(
        run_id=run_id, receipt=receipt, capture="", file="", digest="", lines=(), note=why
    )
