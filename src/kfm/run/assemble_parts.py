"""assemble_parts: the parts of a backfill, durable and waiting, assembled into one version by one
run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from msgspec import UNSET

from kfm.channel.chain import kept_out
from kfm.connectors.base import Books, InputFile, TransformResult
from kfm.connectors.operations import Collect
from kfm.evidence.append_times import check_clock
from kfm.evidence.captures import render_raw
from kfm.evidence.journal import Journal, done_of
from kfm.evidence.run_end import close_runs
from kfm.evidence.run_files import read_run_file
from kfm.judge.release import open_table, store_table
from kfm.model import canonical, ids
from kfm.model.dataset import Column
from kfm.model.errors import IntegrityError, StepFailed, UsageError
from kfm.model.job import INGEST
from kfm.model.journal import AssemblyPlanned, PartDone, Pinned, Stored
from kfm.model.journal import Captured as CaptureKept
from kfm.model.ledger import Generation, LedgerRow, WalRecord
from kfm.model.paths import (
    channel_folder,
    part_folder,
    parts_folder,
    pins_path,
    proposals_folder,
    receipt_path,
    run_path,
    versions_folder,
)
from kfm.model.plan import Plan, SourceRef, Step
from kfm.model.staged import ASSEMBLE, Part, Pins, is_assembly
from kfm.run.assemble import propose
from kfm.run.claim import Answer, Claimed, LookAgain, Settle, check_switch, keep_plan, new_row
from kfm.run.look import Captured
from kfm.run.noop import Noop, approved, denied_before
from kfm.run.promote import promote
from kfm.run.tables import base_table, staged_tables
from kfm.run.work import MustSettle, Reached, Steps, Taken, Work, guarded
from kfm.store.base import Tx
from kfm.world.target import Target, specify
from kfm.world.world import PartsGone, World
from kfm.zones.base import room

__all__ = ["assemble_staged"]

_AGAIN = "`kfm backfill resume` makes the part again from its capture."


def assemble_staged(
    world: World, target: Target, backfill: str, run_ids: Sequence[str] = ()
) -> Steps:
    """One version from the parts of `backfill` that are STAGED: those of `run_ids`, or all of them;
    promote it like any proposal.

    `target` is any target of the dataset. The parts stay STAGED whatever happens, until the run is
    COMMITTED and they with it. What is overtaken or damaged is closed; of `run_ids` it then makes
    nothing (`PartsGone`): whoever asked decides whether the others suffice.
    """
    whole = replace(target, partition="", win="", staged="", again=None, trigger=ASSEMBLE)
    whole = specify(whole, world.policy_digest)
    work = _Assembly(world, whole, backfill, frozenset(run_ids))
    return (yield from guarded(work, work.steps()))


@dataclass(frozen=True)
class _Staged:
    """What the journal of a staged part says of it."""

    done: PartDone
    capture_id: str


class _Assembly(Work):
    """A work whose input is parts, under the lease of the dataset alone."""

    def __init__(
        self, world: World, target: Target, backfill: str, run_ids: frozenset[str]
    ) -> None:
        super().__init__(world, target, has_job=False)
        self.backfill, self.run_ids = backfill, run_ids

    def _lease(self, tx: Tx) -> Taken | None:
        check_switch(tx, self.target.dataset_id, INGEST)
        token = tx.leases.take(self.target.dataset_id, self.world.holder, self.world.lease_seconds)
        return Taken(token) if token is not None else None

    # ---- the work --------------------------------------------------------------------------------
    def steps(self) -> Steps:
        while self.take(self._lease) is None:
            yield Reached.WAIT
        yield Reached.ASSEMBLE_TAKEN
        while True:
            rows: list[LedgerRow] = self.world.store.read(
                lambda tx: tx.runs.staged_for(self.target.dataset_id, self.backfill)
            )
            rows = [r for r in rows if not self.run_ids or r.run_id in self.run_ids]
            if len(rows) < len(self.run_ids):
                self.release()
                found = self.outcome("NOOP", "some of its parts were overtaken, or are damaged")
                return PartsGone(**msgspec.structs.asdict(found))
            self._check(rows)
            staged, bad = self._read(rows)
            if bad:
                self._set_aside(bad)
                yield Reached.PARTS_CLOSED
                continue
            pins, raw = _pins(self.target.dataset_id, self.backfill, rows, staged)
            if rows:
                self.world.data.create(pins_path(self.target.dataset_id, ids.digest(raw)), raw)
                yield Reached.PINS_WRITTEN
            match self._decide(rows, ids.digest(raw)):
                case Settle(row):
                    self.release()
                    self.world.let_go(*self.tokens)
                    yield MustSettle(row.run_id)
                    yield from promote(self.world, self.target.dataset_id, row.run_id, wait=True)
                    while self.take(self._lease) is None:
                        yield Reached.WAIT
                case LookAgain():
                    continue
                case Noop(reason=reason, names=names, exit_code=code):
                    return self.outcome("NOOP", reason, names=names, exit_code=code)
                case Claimed(wal=wal, head=head) as claimed:
                    self.begin(claimed)
                    yield Reached.PINNED
                    return (yield from self._assembled(wal, head, pins, [s.done for s in staged]))

    def _check(self, rows: Sequence[LedgerRow]) -> None:
        entry = self.target.entry
        if entry.merge == "replace" and len(rows) > 1:
            raise UsageError(
                f"{entry.dataset_id} is replaced by every run, so one of its {len(rows)} parts"
                " would push out the others.",
                expected="merge: upsert or partition in the registry",
                remedy="Change it, or stage the whole window as one part.",
            )
        other = next((r for r in rows if r.transform_hash != self.target.transform_hash), None)
        if other is not None:
            raise StepFailed(
                f"The part of run {other.run_id} was made under another spec than that of now.",
                expected=f"transform {self.target.transform_hash[:12]}",
                remedy="`kfm backfill resume` makes such parts again.",
            )

    def _read(self, rows: Sequence[LedgerRow]) -> tuple[list[_Staged], list[tuple[LedgerRow, str]]]:
        """What the journals say of the parts; and those whose journal or bytes are not what the
        ledger says, with the path.
        """
        staged, bad = [], []
        for row in rows:
            try:
                staged.append(found := _staged_part(self.world, row))
            except IntegrityError:
                bad.append((row, ""))
                continue
            files = {
                f"{part_folder(row.dataset_id, found.done.part)}/{found.done.artifact}": (
                    found.done.part
                )
            }
            files |= {
                made["from"]: made["digest"] for made in (found.done.companions or {}).values()
            }
            bad += [
                (row, path)
                for path, digest in files.items()
                if not self.world.data.holds(path, digest)
            ]
        return staged, bad

    def _set_aside(self, bad: Sequence[tuple[LedgerRow, str]]) -> None:
        """Close damaged parts, and what may be assembling them; their bytes make room for those of
        another try.
        """
        world, name = self.world, self.target.dataset_id

        def close(tx: Tx) -> None:
            tx.leases.check(self.token)
            staged = tx.runs.staged_ids(name, self.backfill)
            rows = {row.run_id: row for row, _ in bad if row.run_id in staged}
            mine = [
                r
                for r in tx.runs.open_runs(name)
                if is_assembly(r) and r.backfill == self.backfill and r.intent is None
            ]
            close_runs(tx, world, [*rows.values(), *mine], "a part is missing or damaged")

        world.store.transaction(close)  # the lease is ours, so the bytes are
        for row, path in bad:
            self.set_aside(path, row.run_id)

    def _decide(self, rows: Sequence[LedgerRow], digest: str) -> Answer:
        captured = _captured(rows)
        toolchain, run_id = self.world.toolchain_digest(), self.world.new_run_id()
        plan = _plan(self.target, captured.input_hash)
        answer = self.world.store.transaction(
            lambda tx: self._claim(tx, rows, captured, plan, digest, toolchain, run_id)
        )
        self.forced = answer.forced if isinstance(answer, Claimed) else 0
        return answer

    def _claim(
        self,
        tx: Tx,
        rows: Sequence[LedgerRow],
        captured: Captured,
        plan: Plan,
        digest: str,
        toolchain: str,
        run_id: str,
    ) -> Answer:
        """Settle? leave out what is kept out; NOOP? resume? else close what is open and pin base
        and parts. One transaction.
        """
        world, target = self.world, self.target
        tx.leases.check(self.token)
        mine = [
            r
            for r in tx.runs.open_runs(target.dataset_id)
            if is_assembly(r) and r.backfill == self.backfill
        ]
        for row in mine:
            if row.intent is not None:
                return Settle(row)
        # inside the transaction, after the look for open intents
        head = world.channel(target.dataset_id).head(tx)
        if not {r.run_id for r in rows} <= tx.runs.staged_ids(
            target.dataset_id, self.backfill
        ) or self._leave_out(tx, rows, head, mine):
            return LookAgain()
        same = [
            r
            for r in mine
            if (r.input_hash, r.spec_hash, r.pinned)
            == (captured.input_hash, target.spec_hash, head.generation)
        ]
        forced = max((r.forced for r in rows), default=0)
        waiting = next((r for r in same if r.state == "PROPOSED" and r.part == digest), None)
        if not rows or waiting is not None:
            return self._nothing(tx, waiting)
        before = denied_before(tx, target, captured.input_hash, head) if not forced else None
        if before is not None:
            close_runs(tx, world, mine, "its parts were denied before")
            tx.leases.release(self.token)
            return Noop("denied", f"already denied: {before.reason}", f"run {before.run_id}", 3)
        for row in same:
            if row.state == "CLAIMED" and (row.part, row.base_version, row.toolchain_digest) == (
                digest,
                head.version_id,
                toolchain,
            ):
                wal = Journal(
                    world.store,
                    world.clock,
                    row,
                    tx.journals.get(row.wal_id),
                    (self.token,),
                    world.veil(target.dataset_id),
                )
                return Claimed(row, wal, head, forced, resumed=True)
        check_clock(tx, world, head)
        close_runs(tx, world, mine, "other parts or another base came first")
        row = new_row(tx, world, target, captured, toolchain, run_id, head, forced)
        totals = {
            "rows_read": sum(r.rows_read for r in rows),
            "rows_written": sum(r.rows_written for r in rows),
        }
        row = msgspec.structs.replace(
            row, backfill=self.backfill, part=digest, pinned=head.generation, **totals
        )
        tx.runs.insert(row)
        tx.looks.put(target.dataset_id, target.partition, run_id, "changed")
        wal = self._pinned(tx, row, plan, head, len(rows))
        return Claimed(row, wal, head, forced)

    def _leave_out(
        self, tx: Tx, rows: Sequence[LedgerRow], head: Generation, mine: Sequence[LedgerRow]
    ) -> bool:
        """Close the parts whose content was rolled back or withdrawn meanwhile, or is older than
        what is official; and their assembly.

        A forced part undoes a rollback, never a withdrawal.
        """
        gone = []
        for row in rows:
            out = kept_out(head, row.place, row.mark)
            if out is not None and not (row.forced and out.how == "held"):
                gone.append(row)
        close_runs(tx, self.world, gone, "what it holds was rolled back or withdrawn")
        later = tx.backfill.later(
            self.target.dataset_id, self.backfill, min((r.base_generation for r in rows), default=0)
        )
        old = [r for r in rows if r not in gone and any(_overtakes(run, r) for run in later)]
        close_runs(tx, self.world, old, "a later run of a window that overlaps its own is official")
        close_runs(tx, self.world, list(mine) if gone or old else [], "one of its parts was closed")
        return bool(gone or old)

    def _nothing(self, tx: Tx, waiting: LedgerRow | None) -> Noop:
        tx.leases.release(self.token)
        if waiting is None:
            return Noop("nothing", "nothing is staged")
        names = f"proposal {tx.proposals.number(waiting.run_id)}"
        if not approved(self.world, waiting):
            return Noop("proposed", "already proposed, waits for a person", names, 7)
        tx.runs.move(waiting.run_id, "PROPOSED", promo=1)
        return Noop("proposed", "already proposed", names)

    def _pinned(self, tx: Tx, row: LedgerRow, plan: Plan, head: Generation, count: int) -> Journal:
        """The PLAN: base generation and parts, once and for all attempts of this run."""
        wal = Journal(
            self.world.store,
            self.world.clock,
            row,
            tokens=(self.token,),
            veil=self.world.veil(row.dataset_id),
        )
        page = wal.page()
        hashed = keep_plan(tx, plan, row.input_hash, head.version_id)
        planned = AssemblyPlanned(
            plan=plan,
            plan_hash=hashed,
            base_generation=head.generation,
            spec=self.target.spec,
            spec_file_hash=None,
            receipt_path=receipt_path(row.run_id, row.timestamp),
        )
        pinned = Pinned(
            base_generation=head.generation,
            base_version=head.version_id,
            part=str(row.part),
            parts=pins_path(row.dataset_id, str(row.part)),
            count=count,
            proposal=tx.proposals.new(row.run_id),
        )
        page.make("PLAN", "plan", "DONE", planned)
        page.make("PLAN", "pin", "DONE", pinned)
        page.make("EXECUTE", "transform", "IN_PROGRESS")
        wal.begin(tx, page)
        return wal

    # ---- from parts to a candidate ---------------------------------------------------------------
    def _assembled(
        self, wal: Journal, head: Generation, pins: Pins, parts: Sequence[PartDone]
    ) -> Steps:
        target, base = self.target, wal.require("pin", Pinned).base_version
        done = self._kept_part(wal)
        if done is None:
            done = self._collected(base, pins, parts)
            yield Reached.PARTS_COLLECTED
            wal.done("EXECUTE", "transform", done)
            wal.intend("EXECUTE", "assemble")
            yield Reached.PART_DONE
        render_raw(self.world.data, target.dataset_id, self.world.publish(self.log).update_metadata)
        own = {target.artifact: done.stored} if done.stored else self._own(pins)
        tables = staged_tables(self, wal, own, done.result, base, head.suppressed)
        return (yield from propose(self, wal, tables, head))

    def _kept_part(self, wal: Journal) -> PartDone | None:
        """What an earlier attempt collected, if its bytes are still what the journal says."""
        done = wal.payload("transform", PartDone)
        if done is None or not done.stored:
            return done
        return done if self.world.data.holds(done.stored["from"], done.stored["digest"]) else None

    def _own(self, pins: Pins) -> Stored:
        """Each part in the place of its partition; of several windows of one the last counts."""
        own: Stored = {
            p.artifact: {"digest": p.part, "rows": p.rows, "from": _table_path(pins.dataset_id, p)}
            for p in pins.parts
        }
        for table in own.values():
            table["size"] = self.world.data.require(table["from"], table["digest"], _AGAIN).size
        return own

    def _collected(self, base: str | None, pins: Pins, parts: Sequence[PartDone]) -> PartDone:
        """What the parts come to together, as the journal tells it of any transform."""
        results = [p.result for p in parts]
        books, stored, result = _sum(results), None, results[-1]
        if self.target.entry.merge != "partition":
            with self.world.data.scratch() as scratch:
                merged = self._merged(base, pins, results, scratch)
                table = scratch / "merged" / self.target.artifact
                stored = store_table(
                    self.world,
                    self,
                    pins.dataset_id,
                    table,
                    seal=False,
                    scratch=scratch,
                    rows=merged.rows,
                )
            dropped = {
                k: books.dropped.get(k, 0) + merged.books.dropped.get(k, 0)
                for k in {**books.dropped, **merged.books.dropped}
            }
            written, unchanged = merged.books.written, merged.books.unchanged
            books = msgspec.structs.replace(
                books, written=written, unchanged=unchanged, dropped=dropped
            )
            result = msgspec.structs.replace(
                merged,
                key=result.key,
                invalid_geometries=sum(r.invalid_geometries for r in results),
            )
        result = msgspec.structs.replace(result, books=books)
        companions = {n: c for p in parts for n, c in (p.companions or {}).items()}
        if len(parts) > 1 and self.target.entry.merge != "partition":
            companions = {n: c for n, c in companions.items() if n in result.files}
        return PartDone(
            part=stored["digest"] if stored else str(self.wal.run.part) if self.wal else "",
            stored=stored,
            artifact=self.target.artifact,
            books=books,
            schema=result.schema,
            content_id=result.content_id,
            bbox=result.bbox,
            warnings=tuple(dict.fromkeys(w for r in (*results, result) for w in r.warnings)),
            max_quarantined=self.target.entry.max_quarantined,
            result=result,
            companions=companions,
            unconfined=next(
                (r.unconfined for r in (*results, result) if r.unconfined is not UNSET), UNSET
            ),
        )

    def _merged(
        self, base: str | None, pins: Pins, results: Sequence[TransformResult], scratch: Path
    ) -> TransformResult:
        """One child process for all parts, so that they are read one after the other."""
        world, entry = self.world, self.target.entry
        kept = (
            base_table(world, self.target, base)
            if entry.merge == "upsert" or pins.parts[0].window
            else None
        )
        inputs = (
            []
            if kept is None
            else [
                InputFile(
                    source_id="base",
                    path=str(open_table(world, pins.dataset_id, kept, scratch)),
                    digest=kept["digest"],
                )
            ]
        )
        for part in pins.parts:
            path = open_table(
                world,
                pins.dataset_id,
                {"from": _table_path(pins.dataset_id, part), "digest": part.part},
                scratch,
            )
            inputs.append(InputFile(source_id="part", path=str(path.absolute()), digest=part.part))
        whole = [r.books.quarantined == 0 for r in results]
        job = Collect(
            dataset_id=pins.dataset_id,
            source_kind=entry.source.kind,
            inputs=tuple(inputs),
            windows=tuple(
                _window(p.window) if ok else ("", "") for p, ok in zip(pins.parts, whole)
            ),
            schema=_columns(results),
            business_key=entry.business_key or results[-1].key,
            time_column=entry.source.time_column,
            artifact=self.target.artifact,
        )
        return msgspec.structs.replace(world.merge(job, room(scratch, "merged"), None), steps=())


def _overtakes(run: tuple[str, str, int], part: LedgerRow) -> bool:
    """Whether a run (partition, window, its generation) that became official after `part` was
    captured speaks of the same time.
    """
    partition, win, generation = run
    if partition != part.partition or generation <= part.base_generation:
        return False
    # without Z fractions sort rightly
    (begin, end), (since, until) = (_window(text.replace("Z", "")) for text in (win, part.win))
    return not win or not part.win or (begin < until and since < end)


def _window(text: str) -> tuple[str, str]:
    since, _, until = text.partition("/")
    return since, until


def _columns(results: Sequence[TransformResult]) -> tuple[Column, ...]:
    """The columns of all parts in the order of their first, each as the last part has it."""
    return tuple({c.name: c for r in results for c in r.schema}.values())


def _sum(results: Sequence[TransformResult]) -> Books:
    dropped: dict[str, int] = {}
    for r in results:
        for rule, count in r.books.dropped.items():
            dropped[rule] = dropped.get(rule, 0) + count
    counts = {
        k: sum(getattr(r.books, k) for r in results)
        for k in ("read", "written", "unchanged", "quarantined")
    }
    return Books(dropped=dropped, **counts)


def _table_path(dataset_id: str, part: Part) -> str:
    return f"{part_folder(dataset_id, part.part)}/{part.artifact}"


def _damaged(path: str, digest: str) -> IntegrityError:
    return IntegrityError(f"{path} is missing or damaged.", expected=digest, remedy=_AGAIN)


def _staged_part(world: World, row: LedgerRow) -> _Staged:
    """From the store or from the archive."""
    records: list[WalRecord] = (
        world.store.read(lambda tx: tx.journals.get(row.wal_id)) if not row.archived else []
    )
    if not records:
        raw = read_run_file(world.data, row.dataset_id, row.run_id, "wal.jsonl", {}) or b""
        records = [msgspec.json.decode(line, type=WalRecord) for line in raw.splitlines()]
    veil = world.veil(row.dataset_id)
    done, capture = (
        done_of(records, "transform", veil, PartDone),
        done_of(records, "capture", veil, CaptureKept),
    )
    if done is None or capture is None:
        raise _damaged(run_path(row.dataset_id, row.run_id, "wal.jsonl"), "the journal of the part")
    if done.part != row.part:
        raise _damaged(run_path(row.dataset_id, row.run_id, "wal.jsonl"), str(row.part))
    return _Staged(done, capture.capture_id)


def _pins(
    dataset_id: str, backfill: str, rows: Sequence[LedgerRow], staged: Sequence[_Staged]
) -> tuple[Pins, bytes]:
    parts = tuple(
        Part(
            run_id=r.run_id,
            partition=r.partition,
            window=r.win,
            mark=str(r.mark),
            part=str(r.part),
            artifact=s.done.artifact,
            capture_id=s.capture_id,
            rows=s.done.result.rows,
        )
        for r, s in zip(rows, staged)
    )
    pins = Pins(dataset_id=dataset_id, backfill=backfill, parts=parts)
    return pins, canonical.dumps(msgspec.to_builtins(pins)) + b"\n"


def _captured(rows: Sequence[LedgerRow]) -> Captured:
    """The parts as an input: everything they were captured from, known by what they hold and not by
    who made them.
    """
    found = [[str(r.place), r.input_hash, str(r.part)] for r in rows]
    sources = {
        (s["source_url"], s["digest"]): s
        for r in rows
        for s in msgspec.json.decode(r.source_metadata)
    }
    key = ids.spec_hash([r.key for r in rows])
    return Captured(
        sources=tuple(sources.values()),
        files={},
        input_hash=ids.digest(canonical.dumps(found)),
        key=key,
        etag="",
        unchanged=False,
        full=False,
    )


def _plan(target: Target, input_hash: str) -> Plan:
    """Names what the parts hold, not the list of them: that tells who made them, and a repeat has
    other run ids.
    """
    steps = (
        Step(
            id="transform",
            phase="EXECUTE",
            effect="keyed",
            targets=(parts_folder(target.dataset_id),),
        ),
        Step(
            id="assemble",
            phase="EXECUTE",
            effect="keyed",
            needs=("transform",),
            targets=(proposals_folder(target.dataset_id),),
        ),
        Step(
            id="version",
            phase="UPSERT",
            effect="keyed",
            needs=("assemble",),
            targets=(versions_folder(target.dataset_id),),
        ),
        Step(
            id="lineage", phase="LINEAGE", effect="keyed", needs=("version",), targets=("lineage",)
        ),
        Step(
            id="channel",
            phase="LINEAGE",
            effect="keyed",
            needs=("lineage",),
            targets=(channel_folder(target.dataset_id),),
        ),
    )
    return Plan(
        dataset_id=target.dataset_id,
        partition="",
        updater_id=target.updater_id,
        updater_version=target.pipeline_version,
        spec_hash=target.spec_hash,
        inputs=(SourceRef(uri="parts", content_hash=input_hash, source_id="parts"),),
        steps=steps,
    )
