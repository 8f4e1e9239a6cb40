"""promote: judge again, name the next generation, write the version, its lineage and receipts, then
★ append it.
"""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kfm.catalog.lineage import cypher, edges, labels_told, openlineage, record_of
from kfm.channel.chain import EMPTY, Channel
from kfm.evidence.captures import checksums
from kfm.evidence.journal import Journal, Page
from kfm.evidence.projection import deliver, project
from kfm.evidence.proposal import (
    approvals_of,
    count,
    load,
    record_approvals,
    registry_digest,
    rejected_by,
    uncompared,
)
from kfm.evidence.receipts import finish, promotion_of, seal, without_values
from kfm.evidence.run_end import close_log, end_parts, follow_up, idempotency_state
from kfm.judge.intact import check_files, check_version_folder, inputs_changed
from kfm.judge.release import keep_precise, new_columns, open_table
from kfm.judge.verdicts import judge_candidate
from kfm.model import canonical, ids
from kfm.model.candidate import Candidate
from kfm.model.change import told
from kfm.model.channel import GenerationPredicate
from kfm.model.clock import rfc3339
from kfm.model.errors import Fenced, IntegrityError, KfmError, StepFailed
from kfm.model.interrupts import finishing
from kfm.model.journal import (
    Appending,
    Assembled,
    LineageKept,
    LineageMeant,
    PartDone,
    Pinned,
    Planned,
    VersionKept,
    VersionNamed,
)
from kfm.model.ledger import SAID_NO, LedgerRow, Token, head_key_of
from kfm.model.paths import announcements_folder, proposal_path, run_path, version_folder
from kfm.model.receipt import PolicyAsked, Promotion
from kfm.model.schedule import without_emitter
from kfm.model.staged import is_assembly
from kfm.model.verdict import Reason, Verdict, denied
from kfm.model.version import is_record
from kfm.policy.base import Decision
from kfm.run.act import void
from kfm.run.noop import approved
from kfm.run.work import Reached, Steps
from kfm.store.base import Tx
from kfm.world.outcome import Outcome, table_rows
from kfm.world.world import World

__all__ = ["ask_again", "promote"]


def promote(
    world: World, dataset_id: str, run_id: str | None = None, *, wait: bool = False
) -> Steps:
    """Finish a proposed run. None: nothing to promote, or another process holds the dataset.

    `run_id` with `wait` settles that run: it is finished, or its number is taken by a void
    generation, before anything else of its partition happens.
    """
    work = _Promote(world, dataset_id)
    try:
        while (answer := work.take(run_id)) is not True:
            if answer is None or not wait:
                return None
            yield Reached.WAIT
        yield Reached.PROMOTE_TAKEN
        return (yield from work.steps())
    except Fenced as error:
        work.release()
        return work.outcome("FENCED", str(error), exit_code=5)
    except (KeyboardInterrupt, SystemExit):
        work.release()
        raise
    except (KfmError, OSError) as error:
        work.release(str(error))  # PROPOSED with its promote job stays
        if work.made:
            return work.outcome(
                "COMMITTED", "official; the next run tidies up", generation=work.row.intent
            )
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


def _take(
    tx: Tx, world: World, dataset_id: str, run_id: str | None
) -> tuple[Token, LedgerRow] | bool | None:
    """(token, row), False when the lease is held by another, None when there is nothing to
    promote.
    """
    if run_id is not None:
        row = tx.runs.get(run_id)
        row = row if row is not None and row.state == "PROPOSED" else None
    else:
        row = next(iter(tx.runs.promotable(dataset_id)), None)
    if row is None:
        return None
    token = tx.leases.take(dataset_id, world.holder, world.lease_seconds)
    if token is None:
        return False
    if row.promo:
        tx.jobs.promoting(row)
    return token, row


@dataclass(frozen=True)
class Ended:
    """There is nothing to make official, or not now."""


@dataclass(frozen=True)
class MustVoid:
    """It is denied after it had named a generation, which a frozen holder may still write: its
    number must be taken.
    """


@dataclass(frozen=True)
class TakenByAnother:
    """Somebody else made the generation it had named."""


@dataclass(frozen=True)
class AlreadyOurs:
    """★ has happened: what is left is to say so."""


@dataclass(frozen=True)
class Named:
    """The one generation this run may create is in its row."""


# of the transaction that names a generation
Answer = Ended | MustVoid | TakenByAnother | AlreadyOurs | Named


class _Promote:
    """The end of one run, under the lease of its dataset."""

    wal: Journal

    def __init__(self, world: World, dataset_id: str) -> None:
        self.world = world
        self.tokens: list[Token] = []  # of the lease of the dataset, once it is ours
        self.channel: Channel = world.channel(dataset_id)
        self.log = world.log(dataset_id)
        self.made = False  # ★ has happened
        self.registry_digest: str | None = None  # of the entry and the rules it was proposed under
        self.policy_digest: str | None = None
        self.inputs_changed = False
        self.asked: list[Decision] = []  # what the policy decided when it was judged again

    def take(self, run_id: str | None) -> bool | None:
        """Take the lease and open the journal. False: another holds it; None: there is nothing to
        promote. A signal waits until the token is known here.
        """
        world, dataset_id = self.world, self.channel.dataset_id
        with finishing:
            taken = world.store.transaction(lambda tx: _take(tx, world, dataset_id, run_id))
            if not isinstance(taken, tuple):
                return taken
            self.tokens = [world.hold(taken[0])]
        row = taken[1]
        self.log.bind(row.run_id)
        records = world.store.read(lambda tx: tx.journals.get(row.wal_id))
        veil = world.veil(dataset_id)
        self.wal = Journal(world.store, world.clock, row, records, (self.token,), veil)
        return True

    @property
    def token(self) -> Token:
        return self.tokens[0]

    @property
    def row(self) -> LedgerRow:
        return self.wal.run

    def release(self, failed: str = "") -> None:
        """Give the dataset back; its promote job waits, after a pause when this was a failure."""

        def give(tx: Tx) -> None:
            tx.leases.check(*self.tokens)
            if failed and self.tokens:
                tx.jobs.promote_failed(self.channel.dataset_id, failed)
            tx.leases.release(*self.tokens)

        with contextlib.suppress(KfmError):
            self.world.store.transaction(give)

    def outcome(self, state: str, reason: str = "", **more: Any) -> Outcome:
        row = self.row
        judged, private = (
            self.wal.payload("assemble", Assembled),
            self.world.is_private(row.dataset_id),
        )
        rows = judged.rows if judged is not None else {}
        added, warnings = (
            (judged.added or (), judged.warnings or ()) if judged is not None else ((), ())
        )
        return Outcome(
            dataset_id=row.dataset_id,
            run_id=row.run_id,
            state=state,
            reason=reason,
            version_id=row.version_id,
            rows=table_rows(rows, row.partition),
            rows_read=0 if private else row.rows_read,  # of a private input no count is told
            rows_written=sum(rows.values()) if private else row.rows_written,
            quarantined=0 if private else self._quarantined(),
            partition=row.partition,
            window=row.win,
            change=told(judged.change) if judged is not None and judged.change else "",
            warnings=new_columns(added) if private else warnings,
            **more,
        )

    def _quarantined(self) -> int:
        part = self.wal.payload("transform", PartDone)
        return part.books.quarantined if part is not None else 0

    def steps(self) -> Steps:
        # without it the evidence cannot be read, which is no reason to deny the run
        self.world.require_key(self.row.dataset_id)
        try:
            verdicts, candidate = self._judge()
        except IntegrityError as error:
            yield from self._abandon(error)
            return self._told(damaged=error)
        yield Reached.JUDGED_AGAIN
        answer = self._intend(verdicts)
        yield Reached.DECIDED
        match answer:
            case Ended():
                return self._told(verdicts)
            case MustVoid():
                no = denied(verdicts)
                self._void("denied on resume" if no else "approval or registry changed on resume")
                yield Reached.VOID
                self._done("REJECTED", self._why(no) if no else "approval.void or registry.changed")
                yield Reached.REJECTED
                return self._told(verdicts)
            case TakenByAnother():
                return (yield from self._overtaken())
            case Named():
                assert candidate is not None  # nothing is named without one
                yield from self._publish(candidate)
                made = self._star()
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
            finish(self.world, self.row.run_id)
        yield Reached.ARCHIVED
        with self.world.ended():
            deliver(self.world, self.row.dataset_id, self.log)
        return self._told()

    def _overtaken(self) -> Steps:
        self._done("SUPERSEDED", f"generation {self.row.intent} is another's")
        yield Reached.SUPERSEDED
        return self._told()

    def _abandon(self, error: IntegrityError) -> Generator[Reached, None, None]:
        """Damaged evidence cannot be promoted: the run is closed and its partition runs again. A
        number it had named is taken first.
        """
        self.log.say("candidate.damaged", stage="publish", level="error", reason=error.happened)
        if self.row.intent is not None:
            self._void("damaged on resume")
            yield Reached.VOID
        self._done("SUPERSEDED", error.happened)
        yield Reached.SUPERSEDED

    # ---- before ★ --------------------------------------------------------------------------------
    def _judge(self) -> tuple[list[Verdict], Candidate | None]:
        """On current policy and labels, and on the bytes as they are now."""
        missing = check_files(self.world, self.row, self.wal)
        if missing:
            return [Verdict(gate="integrity", reasons=tuple(missing))], None
        path = proposal_path(self.row.dataset_id, self.row.run_id, "candidate.json")
        try:
            candidate = msgspec.convert(canonical.loads(self.world.kept(path)), Candidate)
        except (OSError, KfmError, msgspec.ValidationError) as error:
            raise IntegrityError(
                f"{path} is damaged or missing.",
                expected="what was proposed",
                remedy="Run the dataset again.",
            ) from error
        full = ids.version_digest(
            candidate.digests, candidate.transform_hash, candidate.updater_version
        )
        if full != self.row.version_digest:
            raise IntegrityError(
                f"The candidate of run {self.row.run_id} was changed after it was proposed.",
                expected=str(self.row.version_digest),
                remedy="Run the dataset again with --force.",
            )
        head = self.world.store.read(
            lambda tx: tx.index.last_generation(self.row.dataset_id)
        ) or EMPTY(self.row.dataset_id)
        proposal, _ = load(self.world, self.row)
        self.registry_digest, self.policy_digest = proposal.registry_digest, proposal.policy_digest
        valid, wanted = count(self.world, self.row)
        self.inputs_changed = inputs_changed(self.world, self.row)
        found = judge_candidate(
            self.world,
            self.row,
            candidate,
            proposal.files,
            proposal.leak,
            head,
            (wanted, valid),
            self.log,
            self.asked,
        )
        return found, candidate

    def _intend(self, verdicts: Sequence[Verdict]) -> Answer:
        """Name the one generation this run may create: right after the one its candidate was
        assembled on.
        """
        world, now = self.world, rfc3339(self.world.clock.now())
        no = denied(verdicts)

        def intend(tx: Tx, page: Page) -> Answer:
            row = tx.runs.get(self.row.run_id)
            if row is None or row.state != "PROPOSED":
                # another process closed it: what is told is what became of it
                page.run = row or page.run
                tx.leases.release(self.token)
                return Ended()
            page.run, head = row, self.channel.head(tx)
            if row.intent is not None and head.generation >= row.intent:
                taken = tx.index.generation(row.dataset_id, row.intent)
                return (
                    AlreadyOurs()
                    if taken is not None and taken.run_id == row.run_id
                    else TakenByAnother()
                )
            changed = self.inputs_changed or self.registry_digest not in (
                None,
                registry_digest(world, row.dataset_id),
            )
            if row.intent is not None and (no or changed or not approved(world, row)):
                return MustVoid()  # a frozen holder may still write it
            if changed:
                return self._end(
                    tx,
                    page,
                    "SUPERSEDED",
                    "the registry entry or an input changed after it was proposed",
                    now,
                )
            if no:
                return self._end(tx, page, "REJECTED", self._why(no), now)
            if row.intent is None:
                if row.pinned != head.generation:
                    return self._end(
                        tx,
                        page,
                        "SUPERSEDED",
                        f"base {row.pinned} is not the head {head.generation}",
                        now,
                    )
                # once, for this generation: an approval given for anything else does not count
                if not approved(world, row):
                    tx.leases.release(self.token)
                    page.move(tx, "PROPOSED", promo=0)
                    return Ended()
                row = page.move(tx, "PROPOSED", intent=head.generation + 1, promo=1)
                page.make("UPSERT", "version", "IN_PROGRESS", self._named(row, page.held, verdicts))
                page.make(
                    "LINEAGE",
                    "lineage",
                    "PENDING",
                    LineageMeant(cypher=run_path(row.dataset_id, row.run_id, "lineage.cypher")),
                )
            elif (
                promotion_of(self.wal.records, world.veil(row.dataset_id)) is None
            ):  # named by an older kfm, which did not say what it looked at
                page.make("UPSERT", "version", "IN_PROGRESS", self._named(row, page.held, verdicts))
            return Named()

        return self.wal.commit(intend)

    def _named(
        self, row: LedgerRow, held: Sequence[str], verdicts: Sequence[Verdict]
    ) -> VersionNamed:
        """The generation that is named, and what was looked at first: the words are those of the
        gates, the policy and the store itself.
        """
        seen = Promotion(
            generation=int(row.intent or 0),
            lease=held[0] if held else "",
            gates={v.gate: v.word for v in verdicts},
            policy=next(
                (
                    PolicyAsked(
                        decision_id=d.decision_id, policy_digest=d.policy_digest, engine=d.engine
                    )
                    for d in self.asked
                ),
                None,
            ),
        )
        return VersionNamed(generation=row.intent, version_id=row.version_id, promotion=seen)

    def _why(self, no: Sequence[Reason]) -> str:
        """The codes of a denial; one under another policy than it was proposed with is not
        remembered against the same content.
        """
        changed = self.row.spec_hash and self.policy_digest not in (None, self.world.policy_digest)
        return "; ".join(
            dict.fromkeys([*(["policy.changed"] if changed else []), *(r.code for r in no)])
        )

    def _end(self, tx: Tx, page: Page, state: str, reason: str, now: str) -> "Ended":
        tx.leases.release(self.token)
        row = page.move(tx, "PROPOSED", state=state, promo=0, reason=reason, ended_at=now)
        if state == "SUPERSEDED":
            ask_again(tx, row)
        return Ended()

    def _publish(self, candidate: Candidate) -> Generator[Reached, None, None]:
        """UPSERT the version, then lineage and outbox in one commit, then the receipts: all before
        ★.
        """
        row, wal = self.row, self.wal
        # where it will be announced, once ★ has happened
        self.world.root.local(f"{announcements_folder(row.dataset_id)}/{row.intent}")
        if candidate.precise:
            keep_precise(self.world, row.dataset_id, str(row.version_id), candidate.precise)
        self._write_version(candidate)
        yield Reached.VERSION_WRITTEN
        planned = wal.payload("plan", Planned)
        labels = labels_told(planned.spec if planned is not None else None)
        record = record_of(self.world.stand_in, row, candidate.artifacts, labels)
        self.world.publish(self.log).write_file(
            run_path(row.dataset_id, row.run_id, "lineage.cypher"), cypher(record).encode()
        )
        self.world.publish(self.log).write_file(
            run_path(row.dataset_id, row.run_id, "openlineage.json"), openlineage(record)
        )
        yield Reached.CYPHER_WRITTEN
        wal.done("UPSERT", "version", VersionKept(version_id=row.version_id))
        wal.done("LINEAGE", "lineage", LineageKept(edges=len(edges(record))))
        payload = canonical.dumps(
            {"version_id": row.version_id, "assets": candidate.digests}
        ).decode()

        def rows(tx: Tx, page: Page) -> None:
            page.make(
                "LINEAGE",
                "channel",
                "IN_PROGRESS",
                Appending(generation=row.intent, path=self.channel.path(int(row.intent or 0))),
            )
            tx.index.put_lineage(
                row.run_id,
                row.dataset_id,
                int(row.intent or 0),
                msgspec.json.encode(record).decode(),
                edges(record),
            )
            tx.outbox.put(row.run_id, row.dataset_id, int(row.intent or 0), payload)

        wal.commit(rows)
        yield Reached.LINEAGE
        self.approvals_digest, self.terms_digest = record_approvals(self.world, row)
        yield Reached.APPROVALS_RECORDED
        self.receipts_digest = seal(self.world, row, wal.records)
        yield Reached.RECEIPTS_SEALED

    def _write_version(self, candidate: Candidate) -> None:
        """Artifacts and records first, `checksums.sha256` last: a folder without it is not a
        version.
        """
        row, data = self.row, self.world.data
        folder = version_folder(row.dataset_id, row.version_id)
        artifacts = candidate.digests
        if data.exists(f"{folder}/checksums.sha256"):
            check_version_folder(self.world, row, artifacts)
            return
        proposal, _ = load(self.world, row)
        records = {path: digest for path, digest in proposal.files.items() if is_record(path)}
        for path, digest in records.items():
            left = data.stat(f"{folder}/{path}")
            if left is not None and left.digest != digest:
                data.remove(f"{folder}/{path}")  # of a run that never got as far as its checksums
        publisher = self.world.publish(self.log)
        for path, digest in (artifacts | records).items():
            target = f"{folder}/{path}"
            if path in artifacts and candidate.artifacts[path]["from"] == target:
                continue
            with self._content(candidate, path) as content:
                got = publisher.write_file(target, content)
            if got != digest:
                raise IntegrityError(
                    f"{target} is damaged.", expected=digest, remedy="Run again with --force."
                )
        publisher.write_file(f"{folder}/checksums.sha256", checksums(artifacts | records))
        check_version_folder(self.world, row, artifacts)
        self.log.say(
            "version.written", stage="publish", version_id=row.version_id, artifacts=len(artifacts)
        )

    @contextlib.contextmanager
    def _content(self, candidate: Candidate, path: str) -> Iterator[bytes | Path]:
        """An artifact or record of the candidate as it becomes official."""
        artifact = candidate.artifacts.get(path)
        if artifact is None:
            yield self.world.kept(proposal_path(self.row.dataset_id, self.row.run_id, path))
        elif "at_rest" not in artifact:
            yield self.world.data.local(artifact["from"])
        else:
            with self.world.data.scratch() as scratch:
                yield open_table(self.world, self.row.dataset_id, artifact, scratch)

    # ---- ★ and after -----------------------------------------------------------------------------
    def _star(self) -> bool:
        """★ The commit point: exclusive creation of a file. No transaction covers it."""
        row = self.row
        number = int(row.intent or 0)
        before, planned = self.channel.path(number - 1), self.wal.payload("plan", Planned)
        made = self.channel.append(
            GenerationPredicate(
                dataset_id=row.dataset_id,
                generation=number,
                kind="promote",
                version_id=row.version_id,
                version_digest=row.version_digest,
                receipts_digest=self.receipts_digest,
                run_id=row.run_id,
                token=f"{self.token.epoch}.{self.token.number}",
                prev=ids.digest(self.world.data.read(before)) if number > 1 else None,
                reason=row.reason
                or (planned.request_reason if planned is not None else "")
                or without_emitter(row.trigger_type),
                forced=bool(row.forced),
                terms_digest=self.terms_digest,
                approvals_digest=self.approvals_digest,
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
            self.world,
            self.row.dataset_id,
            number,
            f"{self.token.epoch}.{self.token.number}",
            why,
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
                "latency_ms": _latency(self.row, now),
                "freshness_minutes": self._freshness(now),
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

    def _freshness(self, now: str) -> int:
        """Minutes between the newest moment the data speaks of (else upstream's own date, else the
        capture) and now.
        """
        import datetime as dt
        from email.utils import parsedate_to_datetime

        entry = self.world.registry(self.row.dataset_id)
        part = self.wal.payload("transform", PartDone)
        told = (
            part.result.profile.get(entry.source.time_column or "")
            if part is not None and entry is not None
            else None
        )
        newest = told.max if told is not None else None
        dated = msgspec.json.decode(self.row.source_metadata)[0].get("last_modified")
        try:
            moment = (
                dt.datetime.fromisoformat(newest)
                if newest
                else parsedate_to_datetime(dated)
                if dated
                else None
            )
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            moment = dt.datetime.fromisoformat(self.row.timestamp)
        return max(0, int((dt.datetime.fromisoformat(now) - moment).total_seconds() // 60))

    def _told(
        self, verdicts: Sequence[Verdict] = (), damaged: IntegrityError | None = None
    ) -> Outcome:
        row = self.row
        if row.state == "PROPOSED":
            return self._waits()
        if row.ended_at is not None:
            with self.world.ended():
                finish(self.world, row.run_id)
                self._close_log(row)
        reasons = tuple(
            {"code": r.code, "message": r.message, "remedy": r.remedy} for r in denied(verdicts)
        )
        if row.state == "REJECTED":
            self._decided("deny", reasons)
        code = {"COMMITTED": 0, "REJECTED": 3, "SUPERSEDED": 6 if damaged else 0}.get(row.state, 0)
        remedy = damaged.remedy if damaged else reasons[0]["remedy"] if reasons else ""
        return self.outcome(
            row.state,
            row.reason,
            exit_code=code,
            reasons=reasons,
            remedy=remedy,
            generation=row.intent,
        )

    def _waits(self) -> Outcome:
        """Denied for want of valid approvals, with what is wrong with those there are; recorded,
        and nothing else has changed.
        """
        valid, wanted = count(self.world, self.row)
        void = [j for j in approvals_of(self.world, self.row) if not j.valid]
        pin = self.wal.payload("pin", Pinned)
        number = pin.proposal if pin is not None else 0
        remedy = f"kfm approve {number} --key NAME"
        reasons = [
            {
                "code": "approval.missing",
                "message": f"{valid} of {wanted} approvals are valid.",
                "remedy": remedy,
            }
        ]
        if uncompared(self.world, self.row, load(self.world, self.row)[0]):
            reasons.append(
                {
                    "code": "approval.uncompared",
                    "message": "It is a canary's, and nobody has compared it.",
                    "remedy": f"kfm canary compare {self.row.dataset_id}",
                }
            )
        no = rejected_by(self.world.data, self.world.keys, self.row)
        reasons += (
            [
                {
                    "code": SAID_NO,
                    "message": f"{no} rejected it.",
                    "remedy": f"kfm reject {number} --reason …",
                }
            ]
            if no
            else []
        )
        reasons += [
            {
                "code": "approval.void",
                "message": f"{j.name}: {j.why}",
                "remedy": f"kfm review {number}",
            }
            for j in void
        ]
        self._decided("deny", reasons)
        return self.outcome(
            "PROPOSED",
            "waits for a person",
            exit_code=7,
            reasons=tuple(reasons),
            remedy=remedy,
            proposal=number,
        )

    def _decided(self, verdict: str, reasons: Sequence[dict[str, str]]) -> None:
        """The audit line of a promotion that was refused."""
        told = (
            without_values(reasons) if self.world.is_private(self.row.dataset_id) else list(reasons)
        )
        line = {
            "ts": rfc3339(self.world.clock.now()),
            "verdict": verdict,
            "holder": self.world.holder,
            "reasons": told,
        }
        with self.world.ended():
            path = proposal_path(self.row.dataset_id, self.row.run_id, "decisions.jsonl")
            self.world.data.append(path, msgspec.json.encode(line) + b"\n")
        self.log.say(
            "promote.denied", stage="publish", level="warning", reasons=[r["code"] for r in reasons]
        )

    def _close_log(self, row: LedgerRow) -> None:
        judged, sources = (
            self.wal.payload("assemble", Assembled),
            msgspec.json.decode(row.source_metadata),
        )
        found = idempotency_state(
            row.run_id,
            row.dataset_id,
            sources,
            window=row.win,
            pipeline_version=row.pipeline_version,
            key=row.key,
            spec_hash=row.spec_hash,
            state=row.state,
            output_keys=judged.output_keys if judged is not None else (),
        )
        fields = {
            "version_id": row.version_id,
            "generation": row.intent,
            "rows_read": row.rows_read,
            "rows_written": row.rows_written,
        }
        close_log(
            self.world,
            self.log,
            found,
            source_id=sources[0]["source_id"],
            trigger=row.trigger_type,
            reason=row.reason,
            elapsed_ms=_latency(row, row.ended_at or row.timestamp),
            artifacts=len(judged.artifacts) if judged is not None else 0,
            fields=fields,
        )


def ask_again(tx: Tx, row: LedgerRow) -> None:
    """A superseded run is triggered again; parts that were to be assembled stay STAGED, which asks
    for the next assemble.
    """
    if not is_assembly(row):
        tx.jobs.put(row.dataset_id, row.partition, row.win)


def _latency(row: LedgerRow, now: str) -> int:
    import datetime as dt

    return max(
        0,
        int(
            (
                dt.datetime.fromisoformat(now) - dt.datetime.fromisoformat(row.timestamp)
            ).total_seconds()
            * 1000
        ),
    )
