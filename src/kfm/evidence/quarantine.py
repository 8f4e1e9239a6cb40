"""Quarantine: what was refused is kept, with the reasons, and reaches a version only as a person
decided.
"""

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from kfm.connectors.base import CaptureRefused, Refusal, TransformResult
from kfm.evidence.receipts import pretty
from kfm.evidence.run_files import read_run_file
from kfm.keys.commitments import SEALED, Vaults
from kfm.model import (
    UNCHANGED,
    Column,
    Denied,
    Generation,
    IntegrityError,
    Json,
    LedgerRow,
    Mark,
    NoopRow,
    Place,
    Replays,
    StepFailed,
    UsageError,
    canonical,
    ids,
    rfc3339,
)
from kfm.model.paths import capture_folder, quarantine_folder, quarantine_path
from kfm.world.target import Again, Target
from kfm.world.world import World
from kfm.zones.base import Zone, lines_of

__all__ = [
    "CONFLICT",
    "OVERRULED",
    "Decision",
    "Desk",
    "Item",
    "Row",
    "check_added",
    "check_base",
    "corrections",
    "decide",
    "is_lifted",
    "keep_capture",
    "keep_rows",
    "runs_with_quarantine",
]

# the refusals of a whole capture that a person may overrule
OVERRULED = ("quarantine.share", "document.shrunk")
CONFLICT = "key.conflict"  # records that share a key and differ
State = Literal["open", "fixed", "accepted", "replayed"]
_WHOLE_RECORD = 4096  # bytes; a longer one is not kept whole beside its rule


# ---- keeping -------------------------------------------------------------------------------------
def keep_capture(
    world: World, target: Target, run_id: str, capture_id: str, error: Exception
) -> str:
    """Write the report on a capture that was refused whole; its bytes lie in raw, untouched."""
    report = {
        "run_id": run_id,
        "dataset_id": target.dataset_id,
        "capture": capture_folder(target.dataset_id, capture_id),
        "code": getattr(error, "code", "refused"),
        "happened": getattr(error, "happened", str(error)),
        "expected": getattr(error, "expected", ""),
        "remedy": getattr(error, "remedy", ""),
        "detail": getattr(error, "detail", {}),
        **world.marks,
    }
    stack = getattr(error, "stack", "")
    path = quarantine_path(target.dataset_id, run_id, "report.json")
    return _keep(world, target, path, pretty(report | ({"stack": stack} if stack else {})))


def keep_rows(world: World, target: Target, run_id: str, rows: Path) -> str:
    """Keep the refused rows of a capture, whether or not it was good enough as a whole."""
    return _keep(world, target, quarantine_path(target.dataset_id, run_id, "rows.jsonl"), rows)


def _keep(world: World, target: Target, path: str, content: bytes | Path) -> str:
    """Write a file of the quarantine; of a private dataset sealed."""
    if isinstance(content, bytes):
        world.keep(path, content)
        return world.lies(path)
    if world.vaults is None or not world.is_private(target.dataset_id):
        world.data.create(path, content)
        return path
    world.require_key(target.dataset_id)
    with world.data.scratch() as scratch:
        world.vaults.seal(target.dataset_id, content, scratch / "sealed")
        world.data.create(path + SEALED, scratch / "sealed")
    return path + SEALED


# ---- decisions -----------------------------------------------------------------------------------
class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/quarantine/<run_id>/decisions/<number>.json`: what a person decided; never
    changed, only followed by another.
    """

    number: int
    dataset_id: str
    run_id: str
    verdict: Literal["fix", "accept"]
    by: str
    at: str
    reason: str
    # accept: the capture is taken although too many of its records are unusable
    capture: bool = False
    rows: tuple[int, ...] = ()  # numbers in rows.jsonl
    # digests of those records as they came; of a private dataset none
    records: tuple[str, ...] = ()
    sets: dict[str, str | None] = {}  # fix: column -> the text that is right


def _decisions(
    zone: Zone, dataset_id: str, read: Callable[[str], bytes] | None = None
) -> list[Decision]:
    """Every decision on a dataset, oldest first; `read` opens those that are sealed, and without it
    they are left out.
    """
    found: list[tuple[str, Decision]] = []
    at = run = ""
    for path in zone.names(quarantine_folder(dataset_id)):
        if "/decisions/" not in path or (path.endswith(SEALED) and read is None):
            continue
        try:
            raw = read(path.removesuffix(SEALED)) if read is not None else zone.read(path)
            decision = msgspec.json.decode(raw, type=Decision)
        except Denied:
            continue  # its key is missing, and with it everything it could be about
        except msgspec.MsgspecError as error:
            raise IntegrityError(
                f"{path} is damaged.",
                expected="a person's decision",
                remedy="Restore it from a backup.",
            ) from error
        # a clock that went back reorders nothing
        at = max(at, decision.at) if run == decision.run_id else decision.at
        run = decision.run_id
        found.append((at, decision))
    return [d for _, d in sorted(found, key=lambda f: (f[0], f[1].run_id, f[1].number))]


def corrections(zone: Zone, dataset_id: str) -> dict[str, dict[str, str | None]]:
    """What people corrected and nobody took back: digest of a record -> column -> text."""
    found: dict[str, dict[str, str | None]] = {}
    for decision in _decisions(zone, dataset_id):
        for record in decision.records:
            if decision.verdict == "fix":
                found[record] = decision.sets
            else:
                found.pop(record, None)
    return found


def is_lifted(world: World, target: Target, input_hash: str) -> bool:
    """Whether a person took exactly this input in spite of the share of its unusable records, or of
    what it lost.
    """
    runs = {d.run_id for d in _decisions(world.data, target.dataset_id, world.kept) if d.capture}
    rows = [world.store.read(lambda tx: tx.runs.get(run)) for run in sorted(runs)]
    return any(r is not None and r.input_hash == input_hash for r in rows)


def decide(
    world: World,
    row: LedgerRow,
    verdict: Literal["fix", "accept"],
    rows: Iterable["Row"],
    *,
    by: str,
    reason: str,
    sets: Mapping[str, str | None] | None = None,
    capture: bool = False,
) -> tuple[Decision, bool]:
    """Write a decision down, and whether it is a new one: the same word on the same rows is not
    written twice.
    """
    chosen, private = list(rows), is_hidden(world, row.dataset_id)
    wanted = Decision(
        number=0,
        dataset_id=row.dataset_id,
        run_id=row.run_id,
        verdict=verdict,
        by=by,
        at=rfc3339(world.clock.now()),
        reason=reason,
        capture=capture,
        rows=tuple(r.n for r in chosen),
        records=() if private else tuple(dict.fromkeys(r.digest for r in chosen)),
        sets=dict(sets or {}),
    )
    while True:
        before = [
            d for d in _decisions(world.data, row.dataset_id, world.kept) if d.run_id == row.run_id
        ]
        about = [d for d in before if (d.capture if capture else set(d.rows) & set(wanted.rows))]
        if about and _said(about[-1]) == _said(wanted):
            return about[-1], False
        number = 1 + max((d.number for d in before), default=0)
        made = msgspec.structs.replace(wanted, number=number)
        path = quarantine_path(row.dataset_id, row.run_id, f"decisions/{number:04}.json")
        if world.keep(path, msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n"):
            return made, True  # else another person was faster: theirs comes first


def _said(decision: Decision) -> tuple[object, ...]:
    return decision.verdict, decision.capture, decision.rows, decision.sets


# ---- looking -------------------------------------------------------------------------------------
class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One record that was set aside."""

    source_id: str
    line: int
    rule: str
    reason: str
    record: str
    n: int = 0
    digest: str = ""  # of the record as it came
    before: str | None = None
    after: str | None = None
    blank: tuple[str, ...] = ()  # nothing of it could be read: the columns it would have
    # connector code has not seen it: the columns of its source, with their types
    columns: dict[str, str] = {}


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """What one run set aside, and what became of it."""

    dataset_id: str
    run_id: str
    kind: Literal["rows", "capture"]
    state: State
    current: bool  # no later run has brought newer content
    since: str
    count: int | None  # None: sealed, and the key is not here
    undecided: int
    rules: dict[str, int] = {}
    code: str = ""  # capture: why it was refused
    happened: str = ""
    private: bool = False


def is_hidden(world: World, dataset_id: str) -> bool:
    """Whether nothing of its records may be shown; of a dataset nobody registered nothing is known,
    so nothing is shown.
    """
    return world.registry(dataset_id) is None or world.is_private(dataset_id)


def runs_with_quarantine(world: World, dataset_id: str) -> list[str]:
    """The runs of a dataset that set something aside, newest first; last those the ledger does not
    know.
    """
    names = {p.split("/")[3] for p in world.data.names(quarantine_folder(dataset_id))}
    rows = {name: world.store.read(lambda tx: tx.runs.get(name)) for name in names}
    known = sorted((row for row in rows.values() if row is not None), key=_when, reverse=True)
    return [row.run_id for row in known] + sorted(name for name, row in rows.items() if row is None)


@contextmanager
def _opened(data: Zone, vaults: Vaults | None, dataset_id: str, path: str) -> Iterator[Path | None]:
    """A file of the quarantine, unsealed into scratch where it is sealed; None when it is not there
    or its key is not.
    """
    if data.exists(path):
        yield data.local(path)
    elif vaults is None or not data.exists(path + SEALED) or not vaults.has_key(dataset_id):
        yield None
    else:
        with data.scratch() as scratch:
            vaults.unseal(dataset_id, data.local(path + SEALED), scratch / "plain")
            yield scratch / "plain"


class _Made(msgspec.Struct, frozen=True):
    """What is official for a partition and window: the mark of its content, and the run that
    brought it.
    """

    mark: Mark | None
    row: LedgerRow | None
    record: Json

    @property
    def input_hash(self) -> str:
        return self.mark.input_hash if self.mark is not None else ""

    @property
    def corrections(self) -> Json:
        found: Json = (self.record.get("spec") or {}).get("corrections", {})
        return found


# digest of a record -> the record, and what is right
_Fixed = dict[str, tuple[Row, dict[str, str | None]]]


class Desk:
    """What one dataset has in quarantine, seen against what is official and what people decided."""

    def __init__(self, world: World, dataset_id: str) -> None:
        self.world, self.id = world, dataset_id
        self.private = is_hidden(world, dataset_id)
        self._decisions = _decisions(world.data, dataset_id, world.kept)
        self._official: dict[Place, _Made] = {}

    @cached_property
    def _ledger(self) -> dict[str, LedgerRow]:
        return {
            r.run_id: r for r in self.world.store.read(lambda tx: tx.runs.recent(self.id, 100_000))
        }

    @cached_property
    def _noops(self) -> list[NoopRow]:
        found: list[NoopRow] = self.world.store.read(lambda tx: tx.looks.noops(self.id, 1000))
        return found

    @cached_property
    def _head(self) -> Generation:
        found: Generation = self.world.store.transaction(
            lambda tx: self.world.channel(self.id).head(tx)
        )
        return found

    def rows(self, run_id: str) -> Iterator[Row]:
        """The records a run set aside, in order."""
        with _opened(
            self.world.data,
            self.world.vaults,
            self.id,
            quarantine_path(self.id, run_id, "rows.jsonl"),
        ) as path:
            for number, line in enumerate(lines_of(path) if path is not None else (), 1):
                yield _row(line, number, run_id)

    def decision(self, run_id: str, row: Row) -> Decision | None:
        """The last word on a row: one about this run, or one that leaves the very same record
        out.
        """
        for decision in reversed(self._decisions):
            here = decision.run_id == run_id and (
                row.n in decision.rows or row.digest in decision.records
            )
            if here or (decision.verdict == "accept" and row.digest in decision.records):
                return decision
        return None

    def made(self, row: LedgerRow) -> _Made:
        """What is official where `row` would have its place."""
        if row.place not in self._official:
            self._official[row.place] = self._made(row.place, self._head.mark_at(row.place))
        return self._official[row.place]

    def _made(self, place: Place, mark: Mark | None) -> _Made:
        rows = [r for r in self._ledger.values() if r.state == "COMMITTED" and r.place == place]
        maker = max((r for r in rows if r.mark == mark), key=_when, default=None)
        raw = (
            read_run_file(self.world.data, self.id, maker.run_id, "run_record.json")
            if maker is not None
            else None
        )
        return _Made(mark, maker, msgspec.json.decode(raw) if raw is not None else {})

    def _overtaken(self, row: LedgerRow) -> bool:
        """Whether upstream was seen with other content after this run."""
        other = self.made(row).input_hash != row.input_hash
        seen = [n for n in self._noops if other and n.code == UNCHANGED and _after(n, row)]
        return bool(seen) or any(r.input_hash != row.input_hash for r in self._followers(row))

    def _followers(self, row: LedgerRow) -> list[LedgerRow]:
        """Runs that became official in its place, later."""
        return [r for r in self._ledger.values() if r.state == "COMMITTED" and _after(r, row)]

    def item(self, run_id: str) -> Item | None:
        """What a run left in quarantine; None when it left nothing, or the ledger does not know
        it.
        """
        row = self._ledger.get(run_id)
        report = self._report(run_id)
        names = {
            p.split("/")[4].removesuffix(SEALED)
            for p in self.world.data.names(quarantine_path(self.id, run_id))
        }
        if row is None or not names & {"rows.jsonl", "report.json"}:
            return None
        rules: Counter[str] = Counter()
        words: Counter[str] = Counter()
        fixed: _Fixed = {}
        for one in self.rows(run_id):
            said = self.decision(run_id, one)
            rules[one.rule] += 1
            words[said.verdict if said else "open"] += 1
            if said is not None and said.verdict == "fix":
                fixed[one.digest] = one, said.sets
        kind: Literal["rows", "capture"] = "capture" if "report.json" in names else "rows"
        known = bool(report or rules)
        found = Counter(report.get("detail", {}).get("rules", {})) or rules
        return Item(
            dataset_id=self.id,
            run_id=run_id,
            kind=kind,
            state=self._state(row, kind, words, fixed),
            current=not self._followers(row) and not self._overtaken(row),
            since=row.timestamp,
            count=found.total() if known else None,
            undecided=words["open"],
            rules=dict(found.most_common()),
            code=report.get("code", ""),
            happened="" if self.private else report.get("happened", ""),
            private=self.private,
        )

    def _report(self, run_id: str) -> Json:
        with _opened(
            self.world.data,
            self.world.vaults,
            self.id,
            quarantine_path(self.id, run_id, "report.json"),
        ) as path:
            found: Json = msgspec.json.decode(path.read_bytes()) if path is not None else {}
            return found

    def _state(self, row: LedgerRow, kind: str, words: Counter[str], fixed: _Fixed) -> State:
        accepted = any(d.capture and d.run_id == row.run_id for d in self._decisions)
        if kind == "capture" and not accepted and not fixed:
            return "open"
        if kind == "rows" and (words["open"] or not words):
            return "open"
        if kind == "rows" and not fixed:
            return "accepted"
        if self._replayed(row, fixed):
            return "replayed"
        return "fixed" if fixed else "accepted"

    def _replayed(self, row: LedgerRow, fixed: _Fixed) -> bool:
        """Whether what was decided is in what is official: the corrections were applied, and
        helped.
        """
        made = self.made(row)
        if not fixed:
            return row.state != "COMMITTED" and made.input_hash == row.input_hash
        return all(
            made.corrections.get(digest) == sets for digest, (_, sets) in fixed.items()
        ) and not self._in_vain(made, fixed)

    def _in_vain(self, made: _Made, fixed: _Fixed) -> list[Row]:
        return (
            self.aside_again((one for one, _ in fixed.values()), made.row.run_id)
            if made.row is not None
            else []
        )

    def aside_again(self, rows: Iterable[Row], run_id: str) -> list[Row]:
        """Those of some rows that a later run set aside once more; connector code may have made
        another record of one.
        """
        texts, places = set(), set()
        for one in self.rows(run_id):
            texts.add(one.digest)
            places.add((one.source_id, one.line))
        return [
            r for r in rows if r.digest in texts or (r.columns and (r.source_id, r.line) in places)
        ]

    # ---- working the capture again ---------------------------------------------------------------
    def again(self, target: Target, run_id: str) -> tuple[Target | None, str]:
        """The target that replays what a run set aside, and why the whole capture is worked where
        it is; None: all is official already.

        Raises `UsageError` while nothing is decided that could help, `Denied` when upstream was
        seen with other content since.
        """
        row = self._ledger[run_id]
        rows = [(r, self.decision(run_id, r)) for r in self.rows(run_id)]
        fixed = {r.digest: (r, d.sets) for r, d in rows if d is not None and d.verdict == "fix"}
        if not fixed and not any(d.capture and d.run_id == run_id for d in self._decisions):
            raise UsageError(
                f"Nothing of run {run_id} is decided that a replay could bring in.",
                expected="a correction, or a capture that was accepted",
                remedy=f"`kfm quarantine show {run_id}` says what can be done.",
            )
        made = self.made(row)
        if made.input_hash == row.input_hash and self._replayed(row, fixed):
            return None, ""
        if made.input_hash != row.input_hash and self._overtaken(row):
            raise Denied(
                f"Upstream was seen with other content after run {run_id}: bringing its capture"
                " back would undo that.",
                expected="the newest capture",
                remedy=(
                    f"`kfm run {self.id}`: corrections are applied wherever the same record turns"
                    " up again."
                ),
            )
        vain = self._in_vain(made, fixed)
        if vain and made.row is not None and made.mark == target.mark(row.input_hash):
            raise UsageError(
                f"Run {made.row.run_id} applied what was decided, and set {len(vain)} of the"
                " corrected records aside again.",
                expected="corrections that make a record usable",
                remedy=(
                    f"`kfm quarantine show {made.row.run_id}` says what is still wrong; correct row"
                    f" {vain[0].n} otherwise."
                ),
            )
        torn = any(r.rule == CONFLICT for r, _ in fixed.values())
        whole = _why_whole(target, row, made) or (
            "a record in conflict is settled beside all of its key" if torn else ""
        )
        target = replace(target, trigger="quarantine")
        if whole:
            return replace(target, again=Again(row)), whole
        # alone it would take another's place
        wanted = [r for r, d in rows if r.rule != CONFLICT and (d is None or d.verdict == "fix")]
        still = (
            {r.digest for r in self.aside_again(wanted, made.row.run_id)}
            if made.row is not None
            else set()
        )
        only = tuple(
            (r.source_id, r.line)
            for r in wanted
            if r.digest not in made.corrections or r.digest in still
        )
        schema = () if target.entry.schema else self._columns(made)
        return (
            replace(
                target, again=Again(row, only, str(made.mark or ""), schema), max_quarantined=1.0
            ),
            "",
        )

    def _columns(self, made: _Made) -> tuple[Column, ...]:
        return self.columns(made.row) if made.row is not None else ()

    def columns(self, row: LedgerRow) -> tuple[Column, ...]:
        """The columns a run found or was told; empty when it got no further than its capture."""
        raw = read_run_file(self.world.data, self.id, row.run_id, "validation_report.json")
        found = (
            msgspec.json.decode(raw)["sections"]["schema"][0]["value"] if raw is not None else ()
        )
        return msgspec.convert(found, tuple[Column, ...])


def _when(row: LedgerRow | NoopRow) -> tuple[dt.datetime, str]:
    """When a run began: its id may have been chosen, and says nothing about it."""
    return dt.datetime.fromisoformat(row.timestamp), row.run_id


def _after(later: LedgerRow | NoopRow, row: LedgerRow) -> bool:
    return _when(later) > _when(row) and (later.partition, later.win) == (row.partition, row.win)


def _why_whole(target: Target, row: LedgerRow, made: _Made) -> str:
    """Why its records alone will not do; empty when they can be merged into what is official, which
    is the rest of their capture.
    """
    if made.input_hash != row.input_hash or made.row is None:
        return "nothing of this capture is official"
    if target.connector is not None:
        return "connector code sees whole captures"
    then, now = (
        canonical.dumps(
            {k: v for k, v in spec.items() if k not in ("corrections", "policy_digest")}
        )
        for spec in (made.record.get("spec") or {}, target.spec)
    )
    if then != now:
        return "the registry entry has changed since"
    if any(target.fixes.get(digest) != sets for digest, sets in made.corrections.items()):
        return "an earlier correction was replaced"
    return ""


def _row(line: bytes, number: int, run_id: str) -> Row:
    try:
        row = msgspec.json.decode(line, type=Row)
    except msgspec.MsgspecError as error:
        raise IntegrityError(
            f"Row {number} of what run {run_id} set aside is damaged.",
            expected="the row as it was kept",
            remedy="Restore it from a backup.",
        ) from error
    raw = row.record.encode()
    # kept before rows had digests of their own
    digest = row.digest or (ids.digest(raw) if len(raw) < _WHOLE_RECORD - 4 else "")
    return msgspec.structs.replace(row, n=number, digest=digest)


def check_base(target: Target, partial: Replays | None, head: Generation) -> None:
    """A few records may be merged only into the rest of their own capture."""
    if partial is not None and head.contents.get(str(target.place)) != partial.onto:
        raise StepFailed(
            f"What is official of {target.dataset_id} changed while records were replayed.",
            expected="the version they were set aside from",
            remedy=f"`kfm quarantine replay {partial.run_id}` looks again.",
        )


def check_added(target: Target, base_rows: int, part_rows: int, merged: TransformResult) -> None:
    """A corrected record is a record of its own: it may repeat one that is there, never take its
    place.

    Where captures are merged by key, the one that is there may be of an earlier capture, which any
    newer record updates.
    """
    conflicts = base_rows + part_rows - merged.rows - merged.books.unchanged
    if conflicts > 0 and target.entry.merge != "upsert":
        raise CaptureRefused(
            Refusal(
                code="key.conflict",
                happened=(
                    f"{conflicts} corrected records of {target.dataset_id} have the business key of"
                    " another record."
                ),
                expected=f"one record per ({', '.join(target.entry.business_key)})",
                remedy=(
                    "Correct them otherwise with `kfm quarantine fix`, or leave them out with `kfm"
                    " quarantine accept`."
                ),
            )
        )
