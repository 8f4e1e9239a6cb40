"""promote: judge again, name the next generation, write the version, its lineage and receipts, then
★ append it.
"""

from collections.abc import Generator

import msgspec

from kfm.acts.append_act import void
from kfm.channel.generations import Channel
from kfm.evidence.journal import Journal, Page
from kfm.evidence.projection import deliver, project
from kfm.evidence.receipts import finish
from kfm.evidence.run_end import end_parts, follow_up, killed_in_promotion, tell_end, tell_killed
from kfm.model import (
    PROMOTE,
    Appending,
    Fenced,
    GenerationPredicate,
    KfmError,
    LedgerRow,
    RunDamaged,
    StepFailed,
    Token,
    denied,
    head_key_of,
    ids,
    is_assembly,
    rfc3339,
    without_emitter,
)
from kfm.run.claim import check_switch
from kfm.run.held_leases import Held
from kfm.run.name_generation import (
    AlreadyOurs,
    Ended,
    MustVoid,
    Named,
    TakenByAnother,
    ask_again,
    judge_again,
    name_next,
    why_denied,
)
from kfm.run.promote_outcome import freshness, latency, outcome_of, tell
from kfm.run.publish import Sealed, publish
from kfm.run.work import Reached, Steps
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["promote"]


def promote(
    world: World, dataset_id: str, run_id: str | None = None, *, wait: bool = False
) -> Steps:
    """Finish a proposed run. None: nothing to promote, or another process holds the dataset.

    `run_id` with `wait` settles that run: it is finished, or its number is taken by a void
    generation, before anything else of its partition happens.
    """
    work = _Promote(world, dataset_id)
    try:
        while (taken := work.take(lambda tx: _take(tx, world, dataset_id, run_id))) is None:
            if not wait or not world.store.read(lambda tx: _proposed(tx, dataset_id, run_id)):
                return None
            yield Reached.WAIT
        work.begin(taken)
        yield Reached.PROMOTE_TAKEN
        return (yield from work.steps())
    except Fenced as error:
        if not work.tokens:
            raise  # whoever waits for another has had enough of it
        work.release()
        return outcome_of(world, work.wal, "FENCED", str(error), exit_code=5)
    except (KeyboardInterrupt, SystemExit):
        work.release()
        raise
    except (KfmError, OSError) as error:
        work.give_back(str(error))  # PROPOSED with its promote job stays
        if work.made:
            why = "official; the next run tidies up"
            return outcome_of(world, work.wal, "COMMITTED", why, generation=work.row.intent)
        with world.ended():
            work.log.say("promote.failed", stage="publish", level="error", reason=str(error))
        if isinstance(error, KfmError):
            raise
        raise StepFailed(
            f"The system refused an operation: {error.strerror or error}.",
            expected="a writable workspace with space left",
            remedy="Mend that, then run `kfm resume`: the official version is unchanged.",
        ) from error
    finally:
        world.let_go(*work.tokens)


class _Taken(msgspec.Struct, frozen=True):
    """The lease of the dataset, and the run that is to be finished under it."""

    token: Token
    row: LedgerRow
    killed: bool  # who had it did not come to the end


def _proposed(tx: Tx, dataset_id: str, run_id: str | None) -> LedgerRow | None:
    """The run to finish: the one that is named, else the first that needs nobody any more."""
    if run_id is None:
        return next(iter(tx.runs.promotable(dataset_id)), None)
    row = tx.runs.get(run_id)
    return row if row is not None and row.state == "PROPOSED" else None


def _take(tx: Tx, world: World, dataset_id: str, run_id: str | None) -> _Taken | None:
    """None: there is nothing to promote, or another holds the dataset."""
    row = _proposed(tx, dataset_id, run_id)
    if row is None:
        return None
    check_switch(tx, dataset_id, PROMOTE)
    killed = killed_in_promotion(tx, row)
    token = tx.leases.take(dataset_id, world.holder, world.lease_seconds)
    if token is None:
        return None
    if row.promo:
        tx.promotions.take(row)
    return _Taken(token, row, killed)


_VOIDED = "approval.void or registry.changed"


class _Promote(Held):
    """The end of one run, under the lease of its dataset."""

    wal: Journal

    def __init__(self, world: World, dataset_id: str) -> None:
        super().__init__(world)
        self.channel: Channel = world.channel(dataset_id)
        self.log = world.log(dataset_id)
        self.made = False  # ★ has happened

    def begin(self, taken: "_Taken") -> None:
        """Read the journal of the run; everything is written under its name from here on."""
        world, row = self.world, taken.row
        self.log.bind(row.run_id)
        records = world.store.read(lambda tx: tx.journals.get(row.wal_id))
        veil = world.veil(row.dataset_id)
        self.wal = Journal(world.store, world.clock, row, records, (self.token,), veil)
        if taken.killed:
            tell_killed(world, self.log, self.wal)

    @property
    def row(self) -> LedgerRow:
        return self.wal.run

    def give_back(self, failed: str) -> None:
        """Give the dataset back; its promote job waits, after a pause for this was a failure."""

        def pause(tx: Tx) -> None:
            tx.leases.check(*self.tokens)
            if self.tokens:
                tx.promotions.failed_once_more(self.channel.dataset_id, failed)

        self.release(pause)

    def steps(self) -> Steps:
        # without it the evidence cannot be read, which is no reason to deny the run
        self.world.require_key(self.row.dataset_id)
        try:
            judged = judge_again(self.world, self.wal, self.log)
        except RunDamaged as error:  # damage elsewhere is no reason to close the run
            yield from self._abandon(error)
            return tell(self.world, self.wal, self.log, damaged=error)
        yield Reached.JUDGED_AGAIN
        answer = name_next(self.world, self.wal, judged)
        yield Reached.DECIDED
        match answer:
            case Ended():
                return tell(self.world, self.wal, self.log, judged.verdicts)
            case MustVoid():
                no = bool(denied(judged.verdicts))
                self._void("denied on resume" if no else "approval or registry changed on resume")
                yield Reached.VOID
                why = why_denied(self.world.policy_digest, self.row, judged) if no else _VOIDED
                self._done("REJECTED", why)
                yield Reached.REJECTED
                return tell(self.world, self.wal, self.log, judged.verdicts)
            case TakenByAnother():
                return (yield from self._overtaken())
            case Named():
                assert judged.candidate is not None  # nothing is named without one
                sealed = yield from publish(self.world, self.wal, self.log, judged.candidate)
                made = self._star(sealed)
                yield Reached.OFFICIAL
                if not made:
                    return (yield from self._overtaken())
            case AlreadyOurs():
                self.made = True
        with self.world.ended():
            project(self.world, self.row.dataset_id, self.log)
        yield Reached.PROJECTED
        self._done("COMMITTED", "")
        yield Reached.COMMITTED
        with self.world.ended():
            tell_end(self.world, self.log, self.wal)
            finish(self.world, self.row.run_id)
        yield Reached.ARCHIVED
        with self.world.ended():
            deliver(self.world, self.row.dataset_id, self.log)
        return tell(self.world, self.wal, self.log)

    def _overtaken(self) -> Steps:
        self._done("SUPERSEDED", f"generation {self.row.intent} is another's")
        yield Reached.SUPERSEDED
        return tell(self.world, self.wal, self.log)

    def _abandon(self, error: RunDamaged) -> Generator[Reached, None, None]:
        """Damaged evidence cannot be promoted: the run is closed and its partition runs again. A
        number it had named is taken first.
        """
        self.log.say("candidate.damaged", stage="publish", level="error", reason=error.happened)
        if self.row.intent is not None:
            self._void("damaged on resume")
            yield Reached.VOID
        self._done("SUPERSEDED", error.happened)
        yield Reached.SUPERSEDED

    # ---- ★ and after -----------------------------------------------------------------------------
    def _star(self, sealed: Sealed) -> bool:
        """★ The commit point: exclusive creation of a file. No transaction covers it."""
        row = self.row
        number = int(row.intent or 0)
        before = self.channel.path(number - 1)
        made = self.channel.append(
            GenerationPredicate(
                dataset_id=row.dataset_id,
                generation=number,
                kind="promote",
                version_id=row.version_id,
                version_digest=row.version_digest,
                receipts_digest=sealed.receipts,
                run_id=row.run_id,
                token=f"{self.token.epoch}.{self.token.number}",
                prev=ids.digest(self.world.data.read(before)) if number > 1 else None,
                reason=row.reason
                or self.wal.asked.request_reason
                or without_emitter(row.trigger_type),
                forced=bool(row.forced),
                terms_digest=sealed.terms,
                approvals_digest=sealed.approvals,
            )
        )
        self.made = made
        if made:
            self.log.say(
                "channel.appended", stage="publish", generation=number, version_id=row.version_id
            )
        else:
            found = self.channel.predicate(number)
            self.made = found is not None and found.run_id == row.run_id
        return self.made

    def _void(self, why: str) -> None:
        """Take the number this run had named, so that no frozen holder can."""
        number = int(self.row.intent or 0)
        void(
            self.world, self.row.dataset_id, number, f"{self.token.epoch}.{self.token.number}", why
        )

    def _done(self, state: str, reason: str) -> None:
        """The ledger's last word. A commit closes the proposals it made stale; a superseded run is
        triggered again.
        """
        world, now = self.world, rfc3339(self.world.clock.now())
        if state in ("REJECTED", "SUPERSEDED") and self.row.intent is not None:
            taken = self.channel.predicate(int(self.row.intent or 0))
            if taken is not None and taken.run_id == self.row.run_id:  # the frozen holder was first
                state, reason = "COMMITTED", ""
        if state == "COMMITTED":
            self.wal.done("LINEAGE", "channel", Appending(generation=self.row.intent))

        def done(tx: Tx, page: Page) -> None:
            head = self.channel.head(tx)
            changes = {
                "latency_ms": latency(self.row, now),
                "freshness_minutes": freshness(world.registry, self.wal, now),
            }
            row = page.move(
                tx, "PROPOSED", state=state, promo=0, reason=reason, ended_at=now, **changes
            )
            if state == "COMMITTED":
                end_parts(tx, world.data, row, state="COMMITTED")
                if not is_assembly(row):
                    before = tx.index.head_key(row.dataset_id, row.partition, row.win)
                    tx.index.put_head_key(head_key_of(row, row.timestamp, before))
                for other in tx.runs.open_runs(row.dataset_id):
                    if (
                        other.state == "PROPOSED"
                        and other.intent is None
                        and (other.pinned or 0) < head.generation
                    ):
                        tx.runs.move(
                            other.run_id,
                            "PROPOSED",
                            state="SUPERSEDED",
                            promo=0,
                            reason="its base is not the head any more",
                            ended_at=now,
                        )
                        ask_again(tx, other)
                follow_up(tx, world, row.dataset_id, row.run_id)
            elif state == "SUPERSEDED":
                ask_again(tx, row)
            tx.leases.release(self.token)

        self.wal.commit(done)
