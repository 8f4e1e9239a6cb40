"""desk: what one dataset has in quarantine, and the target that works it again."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Literal

import msgspec

from kfm.evidence.run_files import read_run_file
from kfm.keys.commitments import SEALED
from kfm.model import (
    UNCHANGED,
    Column,
    Denied,
    Generation,
    Json,
    LedgerRow,
    Mark,
    NoopRow,
    Place,
    UsageError,
    canonical,
)
from kfm.model.paths import quarantine_path
from kfm.quarantine.decisions import Decision, decisions, is_hidden
from kfm.quarantine.refused import Row, opened, read_row, runs_with_quarantine, when
from kfm.world.target import Again, Target
from kfm.world.world import World
from kfm.zones.base import lines_of

__all__ = ["CONFLICT", "OVERRULED", "Desk", "Item", "set_aside", "waiting"]

# the refusals of a whole capture that a person may overrule
OVERRULED = ("quarantine.share", "document.shrunk")
CONFLICT = "key.conflict"  # records that share a key and differ
State = Literal["open", "fixed", "accepted", "replayed"]


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

    @property
    def is_open(self) -> bool:
        """Whether somebody has to decide on it, or to bring in what was decided."""
        return self.state == "open" or self.is_settled

    @property
    def is_settled(self) -> bool:
        """Whether all is decided, and can be brought in."""
        return self.state == "fixed" or (self.state == "accepted" and self.kind == "capture")

    @property
    def next(self) -> str:
        """The command that comes next."""
        return f"kfm quarantine {'replay' if self.is_settled else 'show'} {self.run_id}"

    @property
    def waits(self) -> str:
        """What it waits for, in words."""
        if self.is_settled:
            return "what was decided of its rows waits to be replayed"
        if self.count is None:
            return "sealed rows, in no version until somebody decides"
        rows = "1 row" if self.undecided == 1 else f"{self.undecided:,} rows"
        if self.undecided < self.count:
            return f"{rows} of {self.count:,}, in no version until somebody decides"
        rules = ", ".join(f"{rule} {count:,}" for rule, count in self.rules.items())
        return f"{rows}, in no version until somebody decides: {rules}"


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
        self._decisions = decisions(world.data, dataset_id, world.kept)
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
        with opened(
            self.world.data,
            self.world.vaults,
            self.id,
            quarantine_path(self.id, run_id, "rows.jsonl"),
        ) as path:
            for number, line in enumerate(lines_of(path) if path is not None else (), 1):
                yield read_row(line, number, run_id)

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
        maker = max((r for r in rows if r.mark == mark), key=when, default=None)
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
        with opened(
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
        target = msgspec.structs.replace(target, trigger="quarantine")
        if whole:
            return msgspec.structs.replace(target, again=Again(row)), whole
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
            msgspec.structs.replace(
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


def set_aside(world: World, dataset_id: str) -> list[Item]:
    """What the runs of a dataset set aside, newest first."""
    runs = runs_with_quarantine(world, dataset_id)
    if not runs:
        return []
    desk = Desk(world, dataset_id)
    return [item for run_id in runs if (item := desk.item(run_id)) is not None]


def waiting(world: World, dataset_id: str) -> list[Item]:
    """What of it somebody has to decide on, or to bring in."""
    return [item for item in set_aside(world, dataset_id) if item.current and item.is_open]


def _after(later: LedgerRow | NoopRow, row: LedgerRow) -> bool:
    return when(later) > when(row) and (later.partition, later.win) == (row.partition, row.win)


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
