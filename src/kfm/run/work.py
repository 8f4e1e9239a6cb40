"""One working of a job: what it holds, and the endings it can have. Whoever looks, makes a part or
assembles shares it.
"""

from collections.abc import Generator
from contextlib import suppress
from enum import StrEnum
from typing import Unpack

import msgspec
from msgspec import UNSET

from kfm.connectors.base import ConnectorFailed, ConnectorKilled
from kfm.evidence.journal import Journal, Page
from kfm.evidence.run_end import close_log, idempotency_state, ran_of, tell_killed
from kfm.model import (
    Denied,
    Fenced,
    Json,
    KfmError,
    LedgerRow,
    Quarantined,
    Replays,
    StepFailed,
    Stopped,
    StoreUnavailable,
    Token,
    ids,
    placeless,
    rfc3339,
)
from kfm.model.paths import aside_path
from kfm.run.answers import canonical_url_of
from kfm.run.claim import Claimed, failed_row, journal_of
from kfm.run.held_leases import Held
from kfm.run.look import Captured
from kfm.store.base import Tx
from kfm.world.outcome import Outcome, Told
from kfm.world.run_log import RunLog, mask
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["MustSettle", "Reached", "Steps", "Taken", "Work", "check_settled", "guarded"]


class Reached(StrEnum):
    """What a run has just done for good; whoever drives it waits, or stops, by these."""

    WAIT = "wait"
    JOB_TAKEN = "job and lease taken"
    CAPTURED = "upstream captured"
    CLAIMED = "run claimed"
    CAPTURE_STORED = "capture stored"
    CHECK_INTENDED = "check intended"
    TRANSFORM_INTENDED = "transform intended"
    PART_STORED = "part stored"
    PART_DONE = "part DONE"
    STAGED = "run STAGED"
    DATASET_TAKEN = "dataset lease taken"
    ASSEMBLE_TAKEN = "assemble: dataset lease taken"
    PARTS_CLOSED = "damaged parts closed"
    PINS_WRITTEN = "pins written"
    PARTS_COLLECTED = "parts collected"
    PINNED = "assemble pinned"
    CANDIDATE_WRITTEN = "candidate written"
    PROPOSAL_WRITTEN = "proposal written"
    PROMOTE_TAKEN = "promote: dataset lease taken"
    JUDGED_AGAIN = "judged again"
    DECIDED = "generation named, or none to name"
    VOID = "void generation"
    REJECTED = "run REJECTED"
    VERSION_WRITTEN = "version written"
    CYPHER_WRITTEN = "cypher written"
    LINEAGE = "lineage and outbox"
    APPROVALS_RECORDED = "approvals recorded"
    RECEIPTS_SEALED = "receipts sealed"
    OFFICIAL = "★"
    PROJECTED = "projections rendered"
    COMMITTED = "run COMMITTED"
    ARCHIVED = "journal archived"
    SUPERSEDED = "run SUPERSEDED"


class MustSettle(msgspec.Struct, frozen=True):
    """A run that has named a generation comes first: it is promoted before this one goes on."""

    run_id: str

    def __str__(self) -> str:
        return f"must settle run {self.run_id}"


Steps = Generator[Reached | MustSettle, None, Outcome | None]


def check_settled(found: Outcome | None) -> None:
    """Raise `Fenced` when whoever settled another run lost the dataset on the way: looking again
    would only meet the same run, as often as it is lost.
    """
    if found is not None and found.state == "FENCED":
        raise Fenced(found.reason)


_MOST_STACK = 8000  # characters of it: its end is where it happened
_MOST_KILLED = 3  # a machine without the memory for a step ends it every time


def guarded(work: "Work", steps: Steps) -> Steps:
    """`steps` of `work`, which begin by taking a lease; whatever goes wrong from there on ends in
    an outcome, and no lease stays behind.
    """
    try:
        return (yield from steps)
    except (KeyboardInterrupt, SystemExit, StoreUnavailable):
        work.release()  # the run stays CLAIMED and is resumed
        raise
    except (KfmError, OSError) as error:
        if not work.tokens:
            raise  # nothing has begun
        return _ended_by(work, error)
    finally:
        work.world.let_go(*work.tokens)


def _ended_by(work: "Work", error: KfmError | OSError) -> Outcome:
    if isinstance(error, Fenced):
        work.release()
        return work.outcome("FENCED", str(error), exit_code=5)
    if isinstance(error, ConnectorKilled):
        return work.interrupted(error)
    if isinstance(error, KfmError):
        return work.fail(error)
    failure = StepFailed(
        f"The system refused an operation: {error.strerror or error}.",
        expected="working disks and descriptors",
        remedy="Mend that, then run again: the official version is unchanged.",
    )
    failure.__cause__ = error
    return work.fail(failure)


class Taken(msgspec.Struct, frozen=True):
    """What the transaction that takes a lease found."""

    token: Token
    forced: int = 0  # of the job that was taken with it
    unclaimed: bool = False  # who had it was killed before its run had a name
    left: tuple[LedgerRow, ...] = ()  # runs that whoever had it claimed, and was killed over
    looked_on: int = 0  # of a window: the generation that is official


class Work(Held):
    """Holds the lease of its partition, then also that of its dataset; an assembly holds the latter
    alone.
    """

    def __init__(self, world: World, target: Target, *, has_job: bool = True) -> None:
        super().__init__(world)
        self.target, self.forced, self.has_job = target, 0, has_job
        self.began = world.clock.boot_ns()
        self.log: RunLog = world.log(target.dataset_id)
        self._failed: LedgerRow | None = None  # of a run that ended before it had a journal
        self.wal: Journal | None = None
        self.captured: Captured | None = None
        self.partial: Replays | None = None  # its part holds only the records set aside by that run
        self.run_id = ""
        self._told: set[str] = set()  # runs that were killed, and are told of

    @property
    def row(self) -> LedgerRow | None:
        """Of its run, once it has one."""
        return self.wal.run if self.wal is not None else self._failed

    # ---- its job ---------------------------------------------------------------------------------
    def ack(self, tx: Tx) -> None:
        """Its job is done; that parts are STAGED asks for an assembly, which has none."""
        if self.has_job:
            tx.jobs.ack(self.target.dataset_id, self.target.partition, self.target.win)

    def requeue(self, tx: Tx, failed: str = "", until_ms: int = 0) -> None:
        """Again: at once when what it stood on moved, after a pause when it `failed`, at `until_ms`
        when upstream named that time.
        """
        target = self.target
        if not self.has_job:
            return
        if failed:
            tx.jobs.failed(target.dataset_id, target.partition, target.win, failed, until_ms)
        else:
            tx.jobs.requeue(target.dataset_id, target.partition, target.win)

    def tell_left(self, taken: Taken) -> None:
        """Who had the lease was killed over these runs: they failed, whatever becomes of them now."""
        for row in taken.left:
            log = self.world.log(row.dataset_id)
            log.bind(row.run_id)
            records = self.world.store.read(lambda tx: tx.journals.get(row.wal_id))
            with suppress(KfmError):  # who goes on says what is wrong with its journal
                tell_killed(self.world, log, journal_of(self.world, row, self.token, records))
        self._told = {row.run_id for row in taken.left}

    def begin(self, claimed: Claimed) -> None:
        """The run is ours: from here on everything is written under its name."""
        self.wal = claimed.wal
        self.log.bind(claimed.row.run_id)
        if claimed.resumed and claimed.row.run_id not in self._told:
            tell_killed(self.world, self.log, claimed.wal)
        event, row = "run.resumed" if claimed.resumed else "run.claimed", claimed.row
        self.log.say(
            event, stage="idempotency", key=row.key, forced=bool(self.forced), attempt=row.attempt
        )

    # ---- endings ---------------------------------------------------------------------------------
    def outcome(self, state: str, why: str = "", /, **more: Unpack[Told]) -> Outcome:
        row = self.row
        return Outcome(
            dataset_id=self.target.dataset_id,
            run_id=row.run_id if row else self.log.run_id,
            state=state,
            reason=why,
            partition=self.target.partition,
            window=self.target.win,
            **more,
        )

    def elapsed_ms(self) -> int:
        return (self.world.clock.boot_ns() - self.began) // 1_000_000

    def fail(self, error: KfmError) -> Outcome:
        """The run ends FAILED, its job backs off, the leases are free: one transaction."""
        world, target = self.world, self.target
        if self.wal is None and not self.has_job:
            self.release()
            return self.outcome(
                "FAILED", error.happened, exit_code=error.exit_code, remedy=error.remedy
            )
        now = rfc3339(world.clock.now())
        wal, captured = self.wal, self.captured
        detail: Json = getattr(error, "detail", {})
        code = getattr(error, "code", type(error).__name__)
        # what code or rows say about private records stays so
        sealed = self.private and isinstance(error, Quarantined | ConnectorFailed)
        told, until_ms = error.happened, int(getattr(error, "until", 0) * 1000)
        if sealed:
            told, detail = f"refused by {code}; the details are sealed", {}
        stack = mask(placeless(getattr(error, "stack", "")), world.private)[-_MOST_STACK:] or UNSET
        error.remedy = f"{error.remedy} {self._kept(error)}".rstrip()
        if sealed:
            error.remedy = f"`kfm explain run {target.dataset_id}` opens the report for you."

        def close(tx: Tx, page: Page | None = None) -> LedgerRow:
            tx.leases.check(self.token)
            changes = {
                "state": "FAILED",
                "reason": told,
                "ended_at": now,
                "error_count": 1,
                "latency_ms": self.elapsed_ms(),
            }
            changes["rows_read"] = detail.get("read", 0)
            if wal is None or page is None:
                row = msgspec.structs.replace(
                    failed_row(tx, world, target, captured, self.forced), **changes
                )
                tx.runs.insert(row)
                if not target.staged:
                    tx.deliveries.put_run(row.run_id, row.dataset_id, world.receivers.of_runs())
            else:
                step = next(
                    (r.step_id for r in reversed(wal.records) if r.status == "IN_PROGRESS"),
                    "transform",
                )
                stopped = Stopped(error=told, code=code, stack=UNSET if sealed else stack)
                page.make("EXECUTE", step, "FAILED", stopped)
                row = page.move(tx, "CLAIMED", **changes)
            if target.again is None:  # a kept capture tells nothing new about upstream
                tx.looks.put(target.dataset_id, target.partition, row.run_id, "failed")
            self.requeue(tx, told, until_ms)
            tx.leases.release(*self.tokens)
            found: LedgerRow = row
            return found

        try:
            row = wal.commit(close) if wal is not None else world.store.transaction(close)
        except Fenced as fenced:
            self.release()
            return self.outcome("FENCED", str(fenced), exit_code=5)
        except (KfmError, OSError):
            self.release()
            return self.outcome("FAILED", told, exit_code=error.exit_code or 1, remedy=error.remedy)
        self._failed = row
        with world.ended():
            if not self.log.run_id:
                self.log.bind(row.run_id)
            self.close_log("FAILED", told, level="error", code=code, remedy=error.remedy)
        with world.ended():
            from kfm.evidence.receipts import finish  # a NOOP starts faster without it

            finish(world, row.run_id)
        rows = {"rows_read": row.rows_read, "quarantined": detail.get("quarantined", 0)}
        return self.outcome("FAILED", told, exit_code=error.exit_code, remedy=error.remedy, **rows)

    def _kept(self, error: KfmError) -> str:
        """Keep the report of what was refused; a disk that is full does not keep the run open."""
        wal, captured = self.wal, self.captured
        checking = wal is not None and wal.state("check") == "IN_PROGRESS"
        refused = isinstance(error, Quarantined) or (checking and isinstance(error, Denied))
        named = refused and captured is not None
        if wal is None or not (named or (self.private and isinstance(error, ConnectorFailed))):
            return ""
        from kfm.quarantine.refused import keep_capture  # a NOOP starts faster without it

        run_id, capture_id = wal.run.run_id, captured.capture_id if captured else ""
        try:
            report = keep_capture(self.world, self.target, run_id, capture_id, error)
        except (KfmError, OSError) as other:
            self.log.say("report.unwritten", stage="transform", level="error", reason=str(other))
            why = other.happened if isinstance(other, KfmError) else f"{other.strerror or other}."
            return f"Its report could not be written: {why}"
        shown = f"`kfm quarantine show {run_id}` shows it; the report is data/{report}."
        return shown if named else ""

    def interrupted(self, error: ConnectorKilled) -> Outcome:
        """The run stays CLAIMED and is resumed: its job backs off, the leases are free. One that is
        ended again and again fails.
        """
        wal = self.wal
        steps = [r for r in wal.records if r.step_id in ("check", "assemble")] if wal else []
        begun = sum(r.status == "IN_PROGRESS" for r in steps)
        if wal is None or begun > _MOST_KILLED:
            return self.fail(error)

        def leave(tx: Tx) -> None:
            tx.leases.check(self.token)
            self.requeue(tx, error.happened)
            tx.leases.release(*self.tokens)

        try:
            self.world.store.transaction(leave)
        except Fenced as fenced:
            self.release()
            return self.outcome("FENCED", str(fenced), exit_code=5)
        except (KfmError, OSError):
            self.release()
        with self.world.ended():
            self.log.say(
                "run.interrupted", stage="transform", level="warning", reason=error.happened
            )
        return self.outcome(
            "FAILED", error.happened, exit_code=error.exit_code, remedy=error.remedy
        )

    def close_log(self, state: str, reason: str, level: str = "info", **fields: object) -> None:
        target, captured = self.target, self.captured
        url = canonical_url_of(target.sources[0]["url"])
        found = idempotency_state(
            self.log.run_id,
            target.dataset_id,
            captured.sources if captured else ({"source_url": url, "etag": ""},),
            window=target.win,
            pipeline_version=target.pipeline_version,
            key=(
                captured.key
                if captured
                else ids.run_key(url, "", target.win, target.pipeline_version)
            ),
            spec_hash=target.spec_hash,
            state=state,
        )
        sources = captured.sources if captured is not None else ()
        source_id, elapsed = target.sources[0]["source_id"], self.elapsed_ms()
        close_log(
            self.world,
            self.log,
            found,
            source_id=source_id,
            trigger=target.trigger,
            reason=reason,
            elapsed_ms=elapsed,
            ran=ran_of(
                target.updater_id, target.pipeline_version, sources, self.wal, target.trigger
            ),
            level=level,
            fields=fields,
        )

    @property
    def private(self) -> bool:
        return self.world.is_private(self.target.dataset_id)

    def make_room(self, path: str, digest: str) -> None:
        """Set aside what lies where a part goes and is not that part: the digest is its name, so
        its bytes are damaged.
        """
        found = self.world.data.stat(path)
        if found is not None and found.digest != digest:
            self.set_aside(path, self.wal.run.run_id if self.wal else self.run_id)

    def set_aside(self, path: str, run_id: str) -> None:
        """Keep damaged bytes in quarantine and free their name; an empty `path`: nothing but the
        journal is damaged.
        """
        world = self.world
        if path and world.data.exists(path):
            kept = aside_path(f"{run_id}-{path.split('/')[-2][:8]}-{path.rsplit('/', 1)[-1]}")
            world.root.create(kept, world.data.local(path))
            world.data.remove(path)
        self.log.say(
            "part.damaged",
            stage="idempotency",
            level="warning",
            damaged_run=run_id,
            path=path,
            kept="ledger/quarantine",
        )
