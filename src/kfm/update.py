"""update: from a look at upstream to a durable part.

Every `yield` stands between two durable operations: a driver may stop there, a test may kill or freeze the run there.
The order of operations is that of the checked model; see docs/protocol.md.
"""

from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from kfm.acts import check_erased
from kfm.capture import Captured, canonical_url_of, capture_again, look, replay_capture, source_refs
from kfm.claim import Decision, check_switch, claim, failed_row, is_noop
from kfm.clock import rfc3339
from kfm.closing import close_log, idempotency_state
from kfm.commitments import SEALED
from kfm.connectors.base import CaptureRefused, ConnectorFailed, ConnectorKilled, InputFile, TransformJob, TransformResult
from kfm.errors import Denied, Fenced, IntegrityError, KfmError, Quarantined, StepFailed, StoreUnavailable, UsageError
from kfm.model import ids
from kfm.model.dataset import Column
from kfm.model.ledger import LedgerRow, Token, believable, with_stamp
from kfm.model.plan import Plan, SourceRef, Step
from kfm.model.schedule import without_emitter
from kfm.quarantine import is_lifted, keep_capture, keep_rows
from kfm.raw import capture_files, parse_checksums, render_raw
from kfm.receipts import JOB_TYPE, finish
from kfm.records import read_facts
from kfm.runlog import RunLog
from kfm.store.base import Tx
from kfm.wal import Page, Wal
from kfm.world import Outcome, Target, World
from kfm.zones.base import hash_file, room

__all__ = ["Steps", "Update", "guarded", "known_columns", "look_and_plan", "make_plan", "part_folder", "transform_job", "update"]

Steps = Generator[str, None, Outcome | None]
_MOST_KILLED = 3  # a machine without the memory for a step ends it every time


def make_plan(target: Target, inputs: tuple[SourceRef, ...]) -> Plan:
    """The plan for these inputs: pure, so the same inputs always give the same bytes."""
    part = f"work/{target.dataset_id}/parts"
    steps = (
        Step(id="capture", phase="EXECUTE", effect="keyed", targets=tuple(f"raw/{target.dataset_id}/captures" for _ in inputs[:1])),
        Step(id="transform", phase="EXECUTE", effect="keyed", needs=("capture",), targets=(f"{part}/{target.artifact}",)),
        Step(id="assemble", phase="EXECUTE", effect="keyed", needs=("transform",), targets=(f"work/{target.dataset_id}/proposals",)),
        Step(
            id="version", phase="UPSERT", effect="keyed", needs=("assemble",), targets=(f"processed/{target.dataset_id}/{target.artifact}",)
        ),
        Step(id="lineage", phase="LINEAGE", effect="keyed", needs=("version",), targets=("lineage",)),
        Step(id="channel", phase="LINEAGE", effect="keyed", needs=("lineage",), targets=(f"catalog/channels/{target.dataset_id}",)),
    )
    return Plan(
        dataset_id=target.dataset_id,
        partition=target.partition,
        updater_id=target.updater_id,
        updater_version=target.pipeline_version,
        spec_hash=target.spec_hash,
        inputs=inputs,
        steps=steps,
    )


# ---- take ----------------------------------------------------------------------------------------------------------
def _take(tx: Tx, world: World, target: Target) -> tuple[Token, int] | None:
    """Take the job and the lease of its partition in one transaction; what is switched off does not begin."""
    check_switch(tx, target.dataset_id, JOB_TYPE)
    check_erased(world, target.dataset_id)
    job = tx.jobs.get(target.dataset_id, target.partition, target.win)
    if job is None or job.state == "ended":
        return None
    token = tx.leases.take(target.partition_lease, world.holder, world.lease_seconds)
    if token is None:
        return None
    tx.jobs.start(job)
    return token, job.forced


def update(world: World, target: Target, replay: LedgerRow | None = None) -> Steps:
    """Work the queued job of `target`. None: there is no such job, or another run holds its lease.

    With `target.staged` it ends when its part is durable. `replay` feeds an unfinished run from its own capture instead of asking upstream again.
    """
    if target.staged and world.is_private(target.dataset_id):
        raise UsageError(
            f"{target.dataset_id} is not public: what is withheld is checked against each capture, so its parts are not staged.",
            expected="a public dataset",
            remedy=f"`kfm run {target.dataset_id} --window …` runs one window after the other.",
        )
    began = world.clock.boot_ns()
    taken = world.store.transaction(lambda tx: _take(tx, world, target))
    if taken is None:
        return None
    work = Update(world, target, world.hold(taken[0]), taken[1], began, replay)
    work.log.say("run.triggered", stage="watch", trigger=without_emitter(target.trigger), forced=bool(taken[1]))
    yield "job and lease taken"
    return (yield from guarded(work))


def guarded(work: "Update") -> Steps:
    """The steps of `work`; whatever goes wrong ends in an outcome, and no lease stays behind."""
    world = work.world
    try:
        return (yield from work.steps())
    except Fenced as error:
        work.release()
        return work.outcome("FENCED", str(error), exit_code=5)
    except (KeyboardInterrupt, SystemExit, StoreUnavailable):
        work.release()  # the run stays CLAIMED and is resumed
        raise
    except ConnectorKilled as error:
        return work.interrupted(error)
    except KfmError as error:
        return work.fail(error)
    except OSError as error:
        failure = StepFailed(
            f"The system refused an operation: {error.strerror or error}.",
            expected="working disks and descriptors",
            remedy="Mend that, then run again: the official version is unchanged.",
        )
        failure.__cause__ = error
        return work.fail(failure)
    finally:
        world.let_go(*work.tokens)


class Update:
    """One working of a job: holds the partition's lease, then also the dataset's."""

    def __init__(self, world: World, target: Target, token: Token, forced: int, began: int, replay: LedgerRow | None) -> None:
        self.world, self.target, self.forced, self.began, self.replay = world, target, forced, began, replay
        self.token = token
        self.tokens: list[Token] = [token]
        self.log: RunLog = world.log(target.dataset_id)
        self.row: LedgerRow | None = None
        self.wal: Wal | None = None
        self.captured: Captured | None = None
        self.partial: dict[str, str] = {}  # {run_id, onto}: its part holds only the records set aside by that run
        self.run_id = ""

    # ---- its job -------------------------------------------------------------------------------------------------
    def ack(self, tx: Tx) -> None:
        tx.jobs.ack(self.target.dataset_id, self.target.partition, self.target.win)

    def requeue(self, tx: Tx, failed: str = "", until_ms: int = 0) -> None:
        """Again: at once when what it stood on moved, after a pause when it `failed`, at `until_ms` when upstream named that time."""
        target = self.target
        if failed:
            tx.jobs.failed(target.dataset_id, target.partition, target.win, failed, until_ms)
        else:
            tx.jobs.requeue(target.dataset_id, target.partition, target.win)

    # ---- endings -------------------------------------------------------------------------------------------------
    def outcome(self, state: str, why: str = "", /, **more: Any) -> Outcome:
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

    def release(self) -> None:
        """Give back what is still ours."""
        try:
            self.world.store.transaction(lambda tx: tx.leases.release(*self.tokens))
        except KfmError:
            return  # the store is gone or full: the lock files die with this process

    def elapsed_ms(self) -> int:
        return (self.world.clock.boot_ns() - self.began) // 1_000_000

    def fail(self, error: KfmError) -> Outcome:
        """The run ends FAILED, its job backs off, the leases are free: one transaction."""
        world, target = self.world, self.target
        now = rfc3339(world.clock.now())
        wal, captured = self.wal, self.captured
        detail: dict[str, Any] = getattr(error, "detail", {})
        code = getattr(error, "code", type(error).__name__)
        told, until_ms = error.happened, int(getattr(error, "until", 0) * 1000)
        if self.private and isinstance(error, Quarantined | ConnectorFailed):  # what code or rows say about private records stays sealed
            told, detail = f"refused by {code}; the details are sealed", {}
        if isinstance(error, Quarantined) and wal is not None and captured is not None:
            report = keep_capture(world, target, wal.run.run_id, captured.capture_id, error)
            error.remedy = f"{error.remedy} `kfm quarantine show {wal.run.run_id}` shows it; the report is data/{report}."
        elif self.private and wal is not None and isinstance(error, ConnectorFailed):
            keep_capture(world, target, wal.run.run_id, captured.capture_id if captured else "", error)
        if told != error.happened:
            error.remedy = f"`kfm explain run {target.dataset_id}` opens the report for you."

        def close(tx: Tx, page: Page | None = None) -> LedgerRow:
            tx.leases.check(self.token)
            changes = {"state": "FAILED", "reason": told, "ended_at": now, "error_count": 1, "latency_ms": self.elapsed_ms()}
            changes["rows_read"] = detail.get("read", 0)
            if wal is None or page is None:
                row = failed_row(tx, world, target, captured, self.forced)
                tx.runs.insert(msgspec.structs.replace(row, **changes))
            else:
                step = next((r.step_id for r in reversed(wal.records) if r.status == "IN_PROGRESS"), "transform")
                page.make("EXECUTE", step, "FAILED", {"error": told, "code": code})
                row = tx.runs.move(wal.run.run_id, "CLAIMED", **changes)
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
        self.row = row
        with world.ended():
            if not self.log.run_id:
                self.log.bind(row.run_id)
            self._close_log("FAILED", told, level="error", code=code, remedy=error.remedy)
            finish(world, row.run_id)
        rows = {"rows_read": row.rows_read, "quarantined": detail.get("quarantined", 0)}
        return self.outcome("FAILED", told, exit_code=error.exit_code, remedy=error.remedy, **rows)

    def interrupted(self, error: ConnectorKilled) -> Outcome:
        """The run stays CLAIMED and is resumed: its job backs off, the leases are free. One that is ended again and again fails."""
        wal = self.wal
        begun = sum(r.status == "IN_PROGRESS" for r in wal.records if r.step_id in ("transform", "assemble")) if wal is not None else 0
        if wal is None or begun > _MOST_KILLED:
            return self.fail(error)

        def leave(tx: Tx) -> None:
            tx.leases.check(self.token)
            self.requeue(tx, error.happened)
            tx.leases.release(*self.tokens)

        self.world.store.transaction(leave)
        self.log.say("run.interrupted", stage="transform", level="warning", reason=error.happened)
        return self.outcome("FAILED", error.happened, exit_code=error.exit_code, remedy=error.remedy)

    def _close_log(self, state: str, reason: str, level: str = "info", **fields: Any) -> None:
        target, captured = self.target, self.captured
        url = canonical_url_of(target.sources[0]["url"])
        found = idempotency_state(
            self.log.run_id,
            target.dataset_id,
            captured.sources if captured else ({"source_url": url, "etag": ""},),
            window=target.win,
            pipeline_version=target.pipeline_version,
            key=captured.key if captured else ids.run_key(url, "", target.win, target.pipeline_version),
            spec_hash=target.spec_hash,
            state=state,
        )
        source_id, elapsed = target.sources[0]["source_id"], self.elapsed_ms()
        close_log(
            self.world,
            self.log,
            found,
            source_id=source_id,
            trigger=target.trigger,
            reason=reason,
            elapsed_ms=elapsed,
            level=level,
            fields=fields,
        )

    # ---- the work ------------------------------------------------------------------------------------------------
    def steps(self) -> Steps:
        conditional = True
        while True:
            with self.world.data.scratch() as scratch:
                self.captured = captured = self._look(scratch, conditional)
                yield "upstream captured"
                decision = self._decide(captured)
                if decision.kind == "settle" and decision.row is not None:
                    yield f"must settle run {decision.row.run_id}"
                    yield from self._settle(decision.row)
                    continue
                if decision.kind == "look_again":  # the head moved after the conditional request, or the replayed run is gone
                    conditional = conditional and self.replay is not None
                    self.replay = None
                    continue
                if decision.kind == "noop":
                    return self._noop(decision)
                self.wal = wal = decision.wal
                self.row = decision.row
                if wal is None or decision.row is None:
                    raise AssertionError("a claim without a run")
                self.log.bind(decision.row.run_id)
                self._say_claimed(decision)
                yield "run claimed"
                result = yield from self._part(wal, captured, scratch)
                if self.target.staged:
                    self._stage(wal, result)
                    yield "run STAGED"
                    return self._staged(result)
                return (yield from self._assemble(wal, result))

    def _assemble(self, wal: Wal, result: TransformResult) -> Steps:
        from kfm.assemble import assemble

        self.partial = wal.payload("transform").get("replays") or {}
        outcome = yield from assemble(self, wal, result)
        return outcome

    def _stage(self, wal: Wal, result: TransformResult) -> None:
        """The part is durable, the run STAGED, its job done, the lease free: one transaction."""
        changes = {"state": "STAGED", "ended_at": rfc3339(self.world.clock.now()), "latency_ms": self.elapsed_ms()}
        changes |= _part_fields(wal.payload("transform"), wal.run)

        def stage(tx: Tx, page: Page) -> LedgerRow:
            row: LedgerRow = tx.runs.move(wal.run.run_id, "CLAIMED", **changes)
            self.ack(tx)
            tx.leases.release(*self.tokens)
            return row

        self.row = wal.commit(stage)

    def _staged(self, result: TransformResult) -> Outcome:
        row = self.row
        assert row is not None
        with self.world.ended():
            self._close_log("STAGED", "")
            finish(self.world, row.run_id)
        numbers = {"rows_read": row.rows_read, "rows_written": row.rows_written, "quarantined": result.books.quarantined}
        return self.outcome("STAGED", names=f"backfill {row.backfill}", **numbers)

    def _settle(self, row: LedgerRow) -> Steps:
        from kfm.promote import promote

        return (yield from promote(self.world, row.dataset_id, row.run_id, wait=True))

    def _look(self, scratch: Path, conditional: bool) -> Captured:
        if self.target.again is not None:
            return capture_again(self.world, self.target.again.row, scratch)
        kept = replay_capture(self.world, self.replay, scratch) if self.replay is not None else None
        if kept is None and self.target.asks and self.target.connector is None:
            self.world.prepare()
        return kept or look(self.world, self.target, self.log, scratch, conditional=conditional and not self.forced)

    def _decide(self, captured: Captured) -> Decision:
        toolchain = "" if captured.unchanged else self.world.toolchain_digest()
        plan: Plan | None = None
        if not captured.unchanged:
            plan = make_plan(self.target, source_refs(self.target, captured))
        self.run_id = self.world.new_run_id()
        decision: Decision = self.world.store.transaction(
            lambda tx: claim(tx, self.world, self.target, self.token, captured, plan, toolchain, self.run_id)
        )
        self.forced = decision.forced
        return decision

    def _say_claimed(self, decision: Decision) -> None:
        self.log.say(
            "run.claimed" if decision.kind == "new" else "run.resumed",
            stage="idempotency",
            key=decision.row.key if decision.row else "",
            forced=bool(self.forced),
            attempt=decision.row.attempt if decision.row else 0,
        )

    def _noop(self, decision: Decision) -> Outcome:
        with self.world.ended():
            self.log.bind(self.run_id)
            self.log.say("run.noop", stage="idempotency", reason=decision.reason, names=decision.names)
            told = {"code": decision.code, "names": decision.names, "partition": self.target.partition}
            self._close_log("NOOP", decision.reason, **told)  # what a rebuilt store knows of it
        head = decision.head
        return Outcome(
            dataset_id=self.target.dataset_id,
            run_id=self.run_id,
            state="NOOP",
            reason=decision.reason,
            names=decision.names,
            exit_code=decision.exit_code,
            remedy={3: f"kfm explain deny {self.target.dataset_id}", 7: f"kfm review {decision.names.rpartition(' ')[2]}"}.get(
                decision.exit_code, ""
            ),
            version_id=head.version_id if head else None,
            generation=head.generation if head else None,
            partition=self.target.partition,
            window=self.target.win,
        )

    # ---- steps of the plan -----------------------------------------------------------------------------------------
    def _part(self, wal: Wal, captured: Captured, scratch: Path) -> Generator[str, None, TransformResult]:
        """capture and transform: intent, effect, read back, DONE."""
        # The time of the run that captured it; a resumed run has the same row. Merging asks for it too, also where the part is there already.
        captured_by = self.target.again.row if self.target.again is not None else wal.run
        self.target = target = replace(self.target, captured_at=captured_by.timestamp)
        world = self.world
        kept = self._kept_part(wal)
        if kept is not None:
            return kept
        if target.connector is None:
            world.prepare()
        if wal.state("capture") != "DONE" or not self._capture_intact(captured):
            self._store_capture(captured, scratch)
            yield "capture stored"
            wal.done("EXECUTE", "capture", {"capture_id": captured.capture_id})
        if captured.refused is not None:
            raise captured.refused
        if is_lifted(world, target, captured.input_hash):
            self.target = target = replace(target, max_quarantined=1.0)
        job = self._transform_job(captured, wal.run.base_version)
        wal.intend("EXECUTE", "transform", {"artifact": target.artifact})
        yield "transform intended"
        self.log.say("input.validating", stage="validate", capture_id=captured.capture_id)
        out = room(scratch, "out")
        try:
            result = self._transformed(job, out)
        except CaptureRefused:
            for rows in out.glob("*.quarantine.jsonl"):
                keep_rows(world, target, wal.run.run_id, rows)
            raise
        payload = self._store_part(wal, result, out, captured)
        yield "part stored"
        wal.done("EXECUTE", "transform", payload)
        if target.staged:
            return result
        fields = _part_fields(payload, wal.run) | (self._untold(payload) if self.private else {})
        wal.run = wal.commit(lambda tx, page: tx.runs.move(wal.run.run_id, "CLAIMED", **fields))
        yield "part DONE"
        return result

    def _untold(self, payload: dict[str, Any]) -> dict[str, Any]:
        """What the ledger says of private records: that there are some. Their counts are in the journal, which is sealed."""
        return {"rows_read": 0, "rows_written": 0, "content_id": self.world.stand_in(self.target.dataset_id, payload["content_id"])}

    def _transformed(self, job: TransformJob, out: Path) -> TransformResult:
        """The transform; what connector code had a hand in is read and written once more where it has none."""
        result = msgspec.structs.replace(self.world.transform(job, out, self._progress), steps=())  # only a release has steps to tell
        if job.connector is None:
            return result
        made = out / result.artifact
        if made.is_symlink() or not made.is_file():
            raise IntegrityError(f"{made.name} is no file after the transform.", expected="a table", remedy="Correct the connector.")
        table = InputFile(source_id="table", path=str(made.absolute()), digest="")
        again = TransformJob(
            kind="recheck",
            dataset_id=job.dataset_id,
            format=job.format,
            inputs=(table,),
            schema=result.schema,
            business_key=job.business_key,
            artifact=job.artifact,
        )
        found = self.world.transform(again, room(out, "checked"), None)
        same = hash_file(made).digest == hash_file(out / "checked" / job.artifact).digest  # not only its rows: no byte of it is the code's
        if not same or found.rows != result.rows or found.rows != result.books.written or not result.books.balanced:
            raise IntegrityError(
                f"The table of {job.dataset_id} is not the one its transform told of.",
                expected=f"{result.rows} rows, {result.content_id}",
                remedy="Connector code may change rows, not the file or what is said of it; correct it.",
            )
        return msgspec.structs.replace(
            found, books=result.books, quarantine=result.quarantine, warnings=result.warnings, answered=result.answered, stamp=result.stamp
        )

    def _progress(self, event: dict[str, Any]) -> None:
        if event.get("op") == "log" and event.get("event") != "child.start" and not self.private:
            self.log.say(f"connector.{event.get('event')}", stage="transform", said=event.get("fields"))
        if self.world.echo is not None:
            event = {} if self.private else event
            self.world.echo({"event": "step.progress", "stage": "transform", "dataset_id": self.target.dataset_id, **event})

    def _kept_part(self, wal: Wal) -> TransformResult | None:
        """The part of an earlier attempt, if its bytes are still what the journal says."""
        if wal.state("transform") != "DONE":
            return None
        payload = wal.payload("transform")
        folder = part_folder(self.target.dataset_id, payload["part"])
        stored = self.world.data.stat(f"{folder}/{payload['artifact']}")
        if stored is None or stored.digest != payload["part"]:
            return None
        for made in payload.get("companions", {}).values():
            if getattr(self.world.data.stat(made["from"]), "digest", None) != made["digest"]:
                return None
        self.log.say("step.kept", stage="transform", step_id="transform", part=payload["part"])
        return msgspec.convert(payload["result"], TransformResult)

    @property
    def private(self) -> bool:
        return self.world.is_private(self.target.dataset_id)

    def _capture_intact(self, captured: Captured) -> bool:
        folder = f"raw/{self.target.dataset_id}/captures/{captured.capture_id}"
        if not self.world.data.exists(f"{folder}/checksums.sha256"):
            return False
        listed = parse_checksums(self.world.data.read(f"{folder}/checksums.sha256"))
        return all(getattr(self.world.data.stat(f"{folder}/{name}"), "digest", "") == digest for name, digest in listed.items())

    def _store_capture(self, captured: Captured, scratch: Path) -> None:
        files, sources = captured.files, captured.sources
        if self.private:
            folder = f"raw/{self.target.dataset_id}/captures/{captured.capture_id}"
            there = {name: self.world.data.local(f"{folder}/{name}{SEALED}") for name in files}  # of a run that was killed, or forced
            files = {name + SEALED: self._sealed(path, scratch, there[name]) for name, path in files.items()}
            kept = [hash_file(path) for path in files.values()]
            sources = tuple({"source_id": s["source_id"], "digest": k.digest, "size": k.size} for s, k in zip(sources, kept))
        publisher = self.world.publish(self.log)
        expected = {name: s["digest"] for name, s in zip(files, sources)}
        for path, content in capture_files(self.target.dataset_id, captured.capture_id, files, sources).items():
            _written(self.world, path, publisher.write_file(path, content), expected.get(path.rpartition("/")[2]))
        if not self.target.staged:  # thousands of captures would list each other; the assembling run lists them once
            render_raw(self.world.data, self.target.dataset_id, publisher.update_metadata)

    def _sealed(self, path: Path, scratch: Path, like: Path | None = None) -> Path:
        """`path` sealed with the key of this dataset; a key that was lost is not quietly replaced."""
        world, dataset_id = self.world, self.target.dataset_id
        assert world.vaults is not None
        world.require_key(dataset_id)
        into = scratch / (path.name + SEALED)
        world.vaults.seal(dataset_id, path, into, like)
        return into

    def _transform_job(self, captured: Captured, base: str | None) -> TransformJob:
        folder = f"raw/{self.target.dataset_id}/captures/{captured.capture_id}"
        stored = {name: path if self.private else self.world.data.local(f"{folder}/{name}") for name, path in captured.files.items()}
        inputs = {s["source_id"]: (stored[n], s["digest"]) for n, s in zip(captured.files, captured.sources)}
        job = transform_job(self.target, inputs, known_columns(self.world, self.target, base))
        lifted = self.target.max_quarantined == 1.0  # a person saw this very capture
        return job if lifted else msgspec.structs.replace(job, known_words=known_words(self.world, self.target, base))

    def _store_part(self, wal: Wal, result: TransformResult, out: Path, captured: Captured) -> dict[str, Any]:
        world, target = self.world, self.target
        publisher = world.publish(self.log)
        made = self._sealed(out / result.artifact, out) if self.private else out / result.artifact
        digest = hash_file(made).digest
        path = f"{part_folder(target.dataset_id, digest)}/{made.name}"
        self.make_room(path, digest)
        _written(world, path, publisher.write_file(path, made), digest)
        companions = self._store_companions(result, out, publisher)
        if result.quarantine is not None:
            keep_rows(world, target, wal.run.run_id, out / result.quarantine)
            self.log.say("rows.quarantined", stage="validate", level="warning", rows=result.books.quarantined)
        self.log.say("transform.normalise", stage="transform", input=wal.run.input_hash, output=result.content_id, rows=result.books.read)
        self.log.say("transform.convert", stage="transform", input=result.content_id, output=digest, rows=result.books.written)
        books = msgspec.to_builtins(result.books)
        return {
            "part": digest,
            "artifact": made.name,
            "books": books,
            "schema": msgspec.to_builtins(result.schema),
            "content_id": result.content_id,
            "bbox": result.bbox,
            "warnings": [*captured.warnings, *_disbelieved(result, wal.run), *result.warnings],
            "max_quarantined": target.entry.max_quarantined if target.max_quarantined is None else target.max_quarantined,
            "result": msgspec.to_builtins(result),
            "companions": companions,
            **({"unconfined": result.unconfined} if result.unconfined is not UNSET else {}),
        } | ({"replays": {"run_id": again.row.run_id, "onto": again.onto}} if (again := target.again) and again.only else {})

    def make_room(self, path: str, digest: str) -> None:
        """Set aside what lies where a part goes and is not that part: the digest is its name, so its bytes are damaged."""
        found = self.world.data.stat(path)
        if found is not None and found.digest != digest:
            self.set_aside(path, self.wal.run.run_id if self.wal else self.run_id)

    def set_aside(self, path: str, run_id: str) -> None:
        """Keep damaged bytes in quarantine and free their name; an empty `path`: nothing but the journal is damaged."""
        world = self.world
        if path and world.data.exists(path):
            kept = f"ledger/quarantine/{run_id}-{path.split('/')[-2][:8]}-{path.rsplit('/', 1)[-1]}"
            world.root.create(kept, world.data.local(path))
            world.data.remove(path)
        self.log.say("part.damaged", stage="idempotency", level="warning", damaged_run=run_id, path=path, kept="ledger/quarantine")

    def _store_companions(self, result: TransformResult, out: Path, publisher: Any) -> dict[str, dict[str, Any]]:
        """The files that belong to the table, beside it; nothing but a table can be released by rule, so nothing private has them."""
        if result.files and self.private:
            raise Denied(
                f"{self.target.dataset_id} is not public, and its {len(result.files)} files beside the table cannot be generalised.",
                expected="a table alone",
                remedy="Register it as public if it is, or publish only the table through a connector.",
            )
        found = {}
        for name in result.files:
            stored = hash_file(out / name)
            path = f"{part_folder(self.target.dataset_id, stored.digest)}/{name}"
            self.make_room(path, stored.digest)
            _written(self.world, path, publisher.write_file(path, out / name), stored.digest)
            found[name] = {"digest": stored.digest, "size": stored.size, "from": path}
        return found


def look_and_plan(world: World, target: Target) -> tuple[Plan, bool]:
    """The plan for what upstream has now, and whether running it would do anything."""
    with world.data.scratch() as scratch:
        captured = look(world, target, world.log(target.dataset_id), scratch, conditional=False)
        plan = make_plan(target, source_refs(target, captured))

        def would(tx: Tx) -> bool:
            return is_noop(tx, world, target, captured, world.channel(target.dataset_id).head(tx), []) is None

        return plan, world.store.transaction(would)


def known_columns(world: World, target: Target, base: str | None) -> tuple[Column, ...]:
    """The columns of the version a run stands on, whose types inference keeps to.

    A table that replaces the last one forgets them when its connector or registry entry changed: a person meant other types, and looks at
    them. What is released by rule has other columns than its records.
    """
    entry = target.entry
    if entry.schema or base is None or world.is_private(target.dataset_id) or entry.release is not None:
        return ()
    if not world.data.exists(f"processed/{target.dataset_id}/{base}/version.json"):
        return ()
    facts = read_facts(world.data, target.dataset_id, base)
    if facts["transform_hash"] != target.transform_hash and entry.merge == "replace" and not target.win:
        return ()
    return msgspec.convert(facts["schema"], tuple[Column, ...])


def known_words(world: World, target: Target, base: str | None) -> dict[str, int]:
    """How many words each document has in the version a run stands on."""
    path = f"processed/{target.dataset_id}/{base}/{target.artifact.rpartition('.')[0]}.ndjson"
    if target.entry.source.kind != "documents" or base is None or not world.data.exists(path):
        return {}
    found: dict[str, int] = {}
    for row in map(_Counted.decode, world.data.read(path).splitlines()):
        found[row.document_id] = found.get(row.document_id, 0) + row.words
    return found


class _Paragraph(msgspec.Struct):
    document_id: str = ""
    words: int = 0


_Counted = msgspec.json.Decoder(_Paragraph)


def transform_job(target: Target, inputs: Mapping[str, tuple[Path, str]], known: tuple[Column, ...] = ()) -> TransformJob:
    """The transform of `target` over files: source id -> (path, digest). `known`: columns of the official version."""
    entry = target.entry
    since, _, until = target.win.partition("/")
    again = target.again
    return TransformJob(
        kind="join" if entry.source.kind == "join" else "transform",
        dataset_id=target.dataset_id,
        source_kind=entry.source.kind,
        options=entry.source.options,
        mapping=target.mapping,
        area=entry.source.area,
        extent=entry.extent.bbox if entry.extent is not None else None,
        captured_at=target.captured_at or None,
        may_be_empty=entry.quality.min_rows == 0,
        format=entry.source.format,
        inputs=tuple(InputFile(source_id=name, path=str(path.absolute()), digest=digest) for name, (path, digest) in inputs.items()),
        encoding=entry.source.encoding,
        records=entry.source.records,
        schema=entry.schema or (again.schema if again else ()),
        known=known,
        max_record_bytes=entry.source.record_limit,
        business_key=entry.business_key,
        time_column=entry.source.time_column,
        since=since or None,
        until=until or None,
        max_quarantined=entry.max_quarantined if target.max_quarantined is None else target.max_quarantined,
        only=again.only if again else (),
        fixes=target.fixes,
        connector=target.connector,
        conflicts="refuse" if entry.conflicts is UNSET else entry.conflicts,
        on=entry.source.join_on,
        artifact=target.artifact,
    )


def part_folder(dataset_id: str, digest: str) -> str:
    return f"work/{dataset_id}/parts/{digest.removeprefix('sha256:')[:32]}"


def _written(world: World, path: str, got: str, expected: str | None = None) -> None:
    """Read after write: a sink that loses or changes bytes is caught before DONE."""
    if (expected is not None and got != expected) or not world.data.exists(path):
        raise IntegrityError(
            f"{path} is not there after it was written.", expected=expected or got, remedy="Check the disk, then run again."
        )


def _disbelieved(result: TransformResult, row: LedgerRow) -> tuple[str, ...]:
    stamp = "" if result.stamp is UNSET else result.stamp
    if not stamp or believable(stamp, row.timestamp):
        return ()
    return (f"Upstream says that its answer was made at {stamp}, which had not come when it was captured; that is not believed.",)


def _part_fields(payload: dict[str, Any], row: LedgerRow) -> dict[str, Any]:
    books, stamp = payload["books"], payload["result"].get("stamp")
    said = {"source_metadata": with_stamp(row.source_metadata, stamp)} if stamp and believable(stamp, row.timestamp) else {}
    return said | {
        "part": payload["part"],
        "rows_read": books["read"],
        "rows_written": books["written"],
        "content_id": payload["content_id"],
    }
