"""update: from a look at upstream to a durable part.

Every `yield` stands between two durable operations: a driver may stop there, a test may kill or freeze the run there.
The order of operations is that of the checked model; see docs/protocol.md.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kfm import canonical
from kfm.channel import content_key, kept_out
from kfm.clock import rfc3339
from kfm.connectors.base import InputFile, TransformJob, TransformResult
from kfm.errors import Fenced, IntegrityError, KfmError, Quarantined, StepFailed
from kfm.fetch.base import Fetched, FetchRequest
from kfm.fetch.url import canonical_url, expand_url, parse_url
from kfm.model import ids
from kfm.model.plan import Plan, SourceRef, Step, plan_hash
from kfm.quarantine import keep_capture, keep_rows
from kfm.raw import capture_files, render_raw
from kfm.receipts import finish, receipt_path
from kfm.runlog import RunLog
from kfm.store.base import Generation, HeadKey, LedgerRow, NoopRow, Token
from kfm.wal import Wal
from kfm.world import Outcome, Target, World

__all__ = ["Captured", "Steps", "look_and_plan", "make_plan", "update"]

Steps = Generator[str, None, Outcome | None]


@dataclass(frozen=True)
class Captured:
    """What one look at upstream brought: files in scratch, or the word that nothing changed."""

    sources: tuple[dict[str, Any], ...]  # {source_id, source_url, etag, digest, size, content_type, attempts}
    files: dict[str, Path]  # name in the capture -> file
    input_hash: str
    key: str
    etag: str
    unchanged: bool  # upstream answered 304 to the head's validator
    full: bool

    @property
    def capture_id(self) -> str:
        return ids.capture_id({name: s["digest"] for name, s in zip(self.files, self.sources)})


@dataclass(frozen=True)
class Decision:
    """What the claiming transaction decided."""

    kind: str  # noop, settle, look_again, resume, new
    row: LedgerRow | None = None
    wal: Wal | None = None
    reason: str = ""
    names: str = ""
    exit_code: int = 0
    head: Generation | None = None


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
def _take(tx: Any, world: World, target: Target) -> tuple[Token, int] | None:
    """Take the job and the lease of its partition in one transaction."""
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

    `replay` feeds an unfinished run from its own capture instead of asking upstream again.
    """
    began = world.clock.boot_ns()
    taken = world.store.transaction(lambda tx: _take(tx, world, target))
    if taken is None:
        return None
    work = _Update(world, target, world.hold(taken[0]), taken[1], began, replay)
    work.log.say("run.triggered", stage="watch", trigger=target.trigger, forced=bool(taken[1]))
    yield "job and lease taken"
    try:
        return (yield from work.steps())
    except Fenced as error:
        work.release()
        return work.outcome("FENCED", str(error), exit_code=5)
    except (KeyboardInterrupt, SystemExit):
        work.release()  # the run stays CLAIMED and is resumed
        raise
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


class _Update:
    """One working of a job: holds the partition's lease, then also the dataset's."""

    def __init__(self, world: World, target: Target, token: Token, forced: int, began: int, replay: LedgerRow | None) -> None:
        self.world, self.target, self.forced, self.began, self.replay = world, target, forced, began, replay
        self.token = token
        self.tokens: list[Token] = [token]
        self.log: RunLog = world.log(target.dataset_id)
        self.row: LedgerRow | None = None
        self.wal: Wal | None = None
        self.captured: Captured | None = None
        self.run_id = ""

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
        if isinstance(error, Quarantined) and wal is not None and captured is not None:
            keep_capture(world, target, wal.run.run_id, captured.capture_id, error)
        if wal is not None:
            step = next((r.step_id for r in reversed(wal.records) if r.status == "IN_PROGRESS"), "transform")
            wal.make("EXECUTE", step, "FAILED", {"error": error.happened, "code": getattr(error, "code", type(error).__name__)})

        def close(tx: Any) -> LedgerRow:
            tx.leases.check(self.token)
            changes = {"state": "FAILED", "reason": error.happened, "ended_at": now, "error_count": 1, "latency_ms": self.elapsed_ms()}
            if wal is None:
                row = _failed_row(tx, world, target, captured, now, self.forced)
                tx.runs.insert(msgspec.structs.replace(row, **changes))
            else:
                tx.runs.append(wal.take_riding())
                row = tx.runs.move(wal.run.run_id, "CLAIMED", **changes)
            tx.jobs.requeue(target.dataset_id, target.partition, target.win)
            tx.leases.release(*self.tokens)
            found: LedgerRow = row
            return found

        try:
            row = world.store.transaction(close)
        except Fenced as fenced:
            self.release()
            return self.outcome("FENCED", str(fenced), exit_code=5)
        except (KfmError, OSError):
            self.release()
            return self.outcome("FAILED", error.happened, exit_code=error.exit_code or 1, remedy=error.remedy)
        self.row = row
        try:
            if not self.log.run_id:
                self.log.bind(row.run_id)
            self._close_log("FAILED", error.happened, level="error", code=getattr(error, "code", type(error).__name__), remedy=error.remedy)
            finish(world, row.run_id)
        except (KfmError, OSError):
            pass  # a full disk has no room for a receipt; the ledger has the word, and every tick writes what is missing
        return self.outcome("FAILED", error.happened, exit_code=error.exit_code, remedy=error.remedy)

    def _close_log(self, state: str, reason: str, level: str = "info", artifacts: int = 0, **fields: Any) -> None:
        close_log(self.world, self.log, self.target, state, reason, self.captured, self.elapsed_ms(), artifacts, level, fields)

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
                if decision.kind == "look_again":  # the head moved after the conditional request
                    conditional = False
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
                return (yield from self._assemble(wal, result))

    def _assemble(self, wal: Wal, result: TransformResult) -> Steps:
        from kfm.assemble import assemble

        outcome = yield from assemble(self, wal, result)
        return outcome

    def _settle(self, row: LedgerRow) -> Steps:
        from kfm.promote import promote

        return (yield from promote(self.world, row.dataset_id, row.run_id, wait=True))

    def _head_key(self) -> tuple[HeadKey | None, Generation, str | None]:
        target = self.target

        def look(tx: Any) -> tuple[HeadKey | None, Generation | None, str | None]:
            head = tx.index.last_generation(target.dataset_id)
            key = tx.index.head_key(target.dataset_id, target.partition, target.win)
            return key, head, tx.index.untrusted(target.dataset_id, target.sources[0]["url"])

        found: tuple[HeadKey | None, Generation, str | None] = self.world.store.read(look)
        return found

    def _look(self, scratch: Path, conditional: bool) -> Captured:
        """Ask upstream. Conditional only when a strong validator of the head version is known and may be trusted."""
        if self.replay is not None:
            kept = replay_capture(self.world, self.replay)
            if kept is not None:
                return kept
        key, head, untrusted = self._head_key()
        etags: list[str] = []
        if key is not None and conditional and not self.forced and not untrusted and head is not None:
            same = key.version_id == head.version_id and key.spec_hash == self.target.spec_hash
            if same and key.etag and not self._recheck_due(key):
                etags = msgspec.json.decode(key.etag)
        answers: list[Fetched] = []
        files: dict[str, Path] = {}
        for number, source in enumerate(self.target.sources):
            name = f"{source['source_id']}.{self.target.entry.source.format}"
            etag = etags[number] if number < len(etags) else None
            answers.append(self._fetch(source, scratch / name, etag))
            files[name] = scratch / name
        if etags and key is not None and all(a.status == 304 for a in answers):
            return self._captured(answers, files, key)
        for number, source in enumerate(self.target.sources):
            if answers[number].status == 304:  # some sources moved: the whole input is needed
                answers[number] = self._fetch(source, list(files.values())[number], None)
        captured = self._captured(answers, files, None)
        if key is not None and captured.etag and captured.etag == key.etag and captured.input_hash != key.input_hash:
            self._distrust(captured)
        return captured

    def _fetch(self, source: Mapping[str, str], into: Path, etag: str | None) -> Fetched:
        spec = self.target.entry.source
        since, _, until = self.target.win.partition("/")
        url = expand_url(source["url"], since or None, until or None, self.target.partition or None)
        hosts = tuple(sorted({parse_url(url).host, *(h.lower() for h in spec.hosts)}))
        answer = self.world.fetcher.fetch(
            FetchRequest(url=url, hosts=hosts, etag=etag, headers=spec.headers, max_bytes=spec.max_bytes), into
        )
        self.log.say(
            "source.answered",
            stage="watch",
            source_id=source["source_id"],
            status=answer.status,
            etag=answer.etag,
            bytes=answer.size,
            attempts=answer.attempts,
            waits=[msgspec.to_builtins(w) for w in answer.waits],
        )
        return answer

    def _recheck_due(self, key: HeadKey) -> bool:
        import datetime as dt

        from kfm.model.window import seconds

        every = seconds(self.target.entry.source.recheck)
        age = (self.world.clock.now() - dt.datetime.fromisoformat(key.full_check_at)).total_seconds()
        return not 0 <= age < every  # a clock that went back is no reason to trust a validator longer

    def _captured(self, answers: list[Fetched], files: dict[str, Path], known: HeadKey | None) -> Captured:
        target = self.target
        urls = [canonical_url_of(s["url"]) for s in target.sources]
        etags = msgspec.json.decode(known.etag) if known is not None and known.etag else [a.etag or "" for a in answers]
        sources = tuple(
            {
                "source_id": source["source_id"],
                "source_url": url,
                "etag": etag,
                "digest": answer.digest,
                "size": answer.size,
                "content_type": answer.content_type,
                "last_modified": answer.last_modified,
                "attempts": answer.attempts,
            }
            for source, url, etag, answer in zip(target.sources, urls, etags, answers)
        )
        inputs = known.input_hash if known is not None else ids.input_hash([(s["source_id"], s["digest"]) for s in sources])
        keys = [ids.run_key(url, etag, target.win, target.pipeline_version) for url, etag in zip(urls, etags)]
        return Captured(
            sources=sources,
            files=files,
            input_hash=inputs,
            key=keys[0] if len(keys) == 1 else ids.spec_hash(keys),
            etag=msgspec.json.encode(etags).decode() if all(etags) else "",
            unchanged=known is not None,
            full=known is None,
        )

    def _distrust(self, captured: Captured) -> None:
        """Another body under the same validator: conditional requests stop for this source."""
        target = self.target
        why = f"another body under {captured.etag} at {rfc3339(self.world.clock.now())}"
        self.world.store.transaction(lambda tx: tx.index.distrust(target.dataset_id, target.sources[0]["url"], why))
        self.log.say("source.distrusted", stage="idempotency", level="warning", reason=why)

    # ---- the claiming transaction ----------------------------------------------------------------------------------
    def _decide(self, captured: Captured) -> Decision:
        toolchain = "" if captured.unchanged else self.world.toolchain_digest()
        plan: Plan | None = None
        if not captured.unchanged:
            plan = make_plan(self.target, self._refs(captured))
        run_id = self.world.new_run_id()
        decision: Decision = self.world.store.transaction(lambda tx: self._claim(tx, captured, plan, toolchain, run_id))
        self.run_id = run_id
        return decision

    def _refs(self, captured: Captured) -> tuple[SourceRef, ...]:
        partition = self.target.partition or None
        return tuple(
            SourceRef(uri=s["source_url"], content_hash=s["digest"], partition=partition, source_id=s["source_id"], size=s["size"])
            for s in captured.sources
        )

    def _claim(self, tx: Any, captured: Captured, plan: Plan | None, toolchain: str, run_id: str) -> Decision:
        """Settle? NOOP (acks)? resume? else close what is open and claim a new run. One transaction."""
        target, world = self.target, self.world
        tx.leases.check(self.token)
        mine = [r for r in tx.runs.open_runs(target.dataset_id, target.partition) if r.win == target.win]
        for row in mine:
            if row.intent is not None:
                return Decision(kind="settle", row=row)
        head = world.channel(target.dataset_id).head(tx)  # inside the transaction, after the look for open intents
        job = tx.jobs.get(target.dataset_id, target.partition, target.win)
        self.forced = forced = job.forced if job is not None else 0
        if not forced:
            noop = self._is_noop(tx, captured, head, mine)
            if noop is not None:
                return self._ack_noop(tx, captured, head, mine, noop, run_id)
        if captured.unchanged or plan is None:
            return Decision(kind="look_again")
        resumable = next((r for r in mine if self._resumable(r, captured, head, toolchain, forced)), None)
        if resumable is not None:
            return Decision(
                kind="resume", row=resumable, wal=Wal(world.store, world.clock, resumable, tx.runs.journal(resumable.wal_id)), head=head
            )
        self._close(tx, mine, "another input, spec or base came first" if not forced else "closed by --force")
        return self._new_run(tx, captured, plan, toolchain, run_id, head, forced)

    def _is_noop(self, tx: Any, captured: Captured, head: Generation, mine: list[LedgerRow]) -> tuple[str, str, int] | None:
        """(reason, what it names, exit code) when there is nothing to do."""
        target = self.target
        if self._known(tx, captured, head):
            return "unchanged", f"generation {head.generation}", 0
        out = kept_out(head, target.partition, target.win, captured.input_hash, target.transform_hash)
        if out is not None:
            word = "withdrawn" if out[0] == "suppressed" else "rolled back"
            return f"this content was {word} by generation {out[1]}", f"generation {out[1]}", 0
        same = [r for r in mine if r.state == "PROPOSED" and (r.input_hash, r.spec_hash) == (captured.input_hash, target.spec_hash)]
        waiting = next((r for r in same if r.pinned == head.generation), None)
        if waiting is not None:
            tx.runs.move(waiting.run_id, "PROPOSED", promo=1)  # approvals suffice: nobody is asked yet
            mine.remove(waiting)
            return "already proposed", f"run {waiting.run_id}", 0
        rejected = next(
            (
                r
                for r in reversed(tx.runs.by_tuple(target.dataset_id, target.partition, target.spec_hash, captured.input_hash))
                if r.state == "REJECTED" and r.win == target.win and r.base_version == head.version_id
            ),
            None,
        )
        if rejected is not None:
            return f"already denied: {rejected.reason}", f"run {rejected.run_id}", 3
        return None

    def _known(self, tx: Any, captured: Captured, head: Generation) -> bool:
        """Does the head generation hold exactly this content, made under exactly this spec?"""
        target = self.target
        mark = f"{captured.input_hash}:{target.transform_hash}:{target.spec_hash}"
        if head.version_id is None:
            return False
        if head.contents.get(content_key(target.partition, target.win)) == mark:
            return True
        key = tx.index.head_key(target.dataset_id, target.partition, target.win)  # equal content under other bytes was seen before
        return key is not None and (key.version_id, key.input_hash, key.spec_hash) == (
            head.version_id,
            captured.input_hash,
            target.spec_hash,
        )

    def _resumable(self, row: LedgerRow, captured: Captured, head: Generation, toolchain: str, forced: int) -> bool:
        same = (row.input_hash, row.spec_hash, row.base_version, row.toolchain_digest) == (
            captured.input_hash,
            self.target.spec_hash,
            head.version_id,
            toolchain,
        )
        return row.state == "CLAIMED" and same and row.pinned in (None, head.generation) and bool(row.forced or not forced)

    def _close(self, tx: Any, rows: list[LedgerRow], why: str) -> None:
        for row in rows:
            tx.runs.move(row.run_id, row.state, state="SUPERSEDED", promo=0, reason=why, ended_at=rfc3339(self.world.clock.now()))

    def _ack_noop(
        self, tx: Any, captured: Captured, head: Generation, mine: list[LedgerRow], noop: tuple[str, str, int], run_id: str
    ) -> Decision:
        target, now = self.target, rfc3339(self.world.clock.now())
        self._close(tx, mine, "upstream went back to what is official")
        reason, names, code = noop
        tx.runs.put_noop(
            NoopRow(
                run_id=run_id,
                dataset_id=target.dataset_id,
                partition=target.partition,
                win=target.win,
                key=captured.key,
                reason=reason,
                names=names,
                timestamp=now,
            )
        )
        if reason == "unchanged":
            self.put_head_key(tx, captured, str(head.version_id), now)
        tx.jobs.ack(target.dataset_id, target.partition, target.win)
        tx.leases.release(self.token)
        return Decision(kind="noop", reason=reason, names=names, exit_code=code, head=head)

    def put_head_key(self, tx: Any, captured: Captured, version_id: str, now: str) -> None:
        target = self.target
        old = tx.index.head_key(target.dataset_id, target.partition, target.win)
        tx.index.put_head_key(
            HeadKey(
                dataset_id=target.dataset_id,
                partition=target.partition,
                win=target.win,
                run_key=captured.key,
                spec_hash=target.spec_hash,
                input_hash=captured.input_hash,
                etag=captured.etag,
                version_id=version_id,
                checked_at=now,
                full_check_at=now if captured.full or old is None else old.full_check_at,
            )
        )

    def _new_run(self, tx: Any, captured: Captured, plan: Plan, toolchain: str, run_id: str, head: Generation, forced: int) -> Decision:
        target, world = self.target, self.world
        hashed = plan_hash(plan)
        _check_plan(tx, plan, hashed, captured.input_hash, head.version_id)
        row = _row(tx, world, target, captured, toolchain, run_id, head, forced)
        tx.runs.insert(row)
        wal = Wal(world.store, world.clock, row)
        wal.make(
            "PLAN",
            "plan",
            "DONE",
            {
                "plan": msgspec.to_builtins(plan),
                "plan_hash": hashed,
                "spec": target.spec,
                "spec_file_hash": target.spec_file_hash,
                "receipt_path": receipt_path(run_id, row.timestamp),
                "base_generation": head.generation,
            },
        )
        wal.make(
            "EXECUTE",
            "capture",
            "IN_PROGRESS",
            {"capture_id": captured.capture_id, "files": {n: s["digest"] for n, s in zip(captured.files, captured.sources)}},
        )
        tx.runs.append(wal.take_riding())
        return Decision(kind="new", row=row, wal=wal, head=head)

    def _say_claimed(self, decision: Decision) -> None:
        self.log.say(
            "run.claimed" if decision.kind == "new" else "run.resumed",
            stage="idempotency",
            key=decision.row.key if decision.row else "",
            forced=bool(self.forced),
            attempt=decision.row.attempt if decision.row else 0,
        )

    def _noop(self, decision: Decision) -> Outcome:
        self.log.bind(self.run_id)
        self.log.say("run.noop", stage="idempotency", reason=decision.reason, names=decision.names)
        self._close_log("NOOP", decision.reason)
        head = decision.head
        return Outcome(
            dataset_id=self.target.dataset_id,
            run_id=self.run_id,
            state="NOOP",
            reason=decision.reason,
            names=decision.names,
            exit_code=decision.exit_code,
            version_id=head.version_id if head else None,
            generation=head.generation if head else None,
            partition=self.target.partition,
            window=self.target.win,
        )

    # ---- steps of the plan -----------------------------------------------------------------------------------------
    def _part(self, wal: Wal, captured: Captured, scratch: Path) -> Generator[str, None, TransformResult]:
        """capture and transform: intent, effect, read back, DONE."""
        world, target = self.world, self.target
        wal.tokens = (self.token,)
        kept = self._kept_part(wal)
        if kept is not None:
            return kept
        if wal.state("capture") != "DONE" or not self._capture_intact(captured):
            self._store_capture(captured)
            yield "capture stored"
            wal.done("EXECUTE", "capture", {"capture_id": captured.capture_id})
        job = self._transform_job(captured)
        wal.make("EXECUTE", "transform", "IN_PROGRESS", {"artifact": target.artifact})
        wal.commit()
        yield "transform intended"
        self.log.say("input.validating", stage="validate", capture_id=captured.capture_id)
        out = scratch / "out"
        out.mkdir(exist_ok=True)
        result = world.transform(job, out, self._progress)
        payload = self._store_part(wal, result, out, captured)
        yield "part stored"
        wal.done("EXECUTE", "transform", payload)
        wal.commit(lambda tx: tx.runs.move(wal.run.run_id, "CLAIMED", **_part_fields(payload)))
        wal.run = msgspec.structs.replace(wal.run, **_part_fields(payload))
        yield "part DONE"
        return result

    def _progress(self, event: dict[str, Any]) -> None:
        if self.world.echo is not None:
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
        self.log.say("step.kept", stage="transform", step_id="transform", part=payload["part"])
        return msgspec.convert(payload["result"], TransformResult)

    def _capture_intact(self, captured: Captured) -> bool:
        folder = f"raw/{self.target.dataset_id}/captures/{captured.capture_id}"
        found = [self.world.data.stat(f"{folder}/{name}") for name in captured.files]
        return all(f is not None and f.digest == s["digest"] for f, s in zip(found, captured.sources))

    def _store_capture(self, captured: Captured) -> None:
        files = capture_files(self.target.dataset_id, captured.capture_id, captured.files, captured.sources)
        publisher = self.world.publish(self.log)
        for path, content in files.items():
            _written(self.world, path, publisher.write_file(path, content))
        render_raw(self.world.data, self.target.dataset_id, publisher.update_metadata)

    def _transform_job(self, captured: Captured) -> TransformJob:
        target, entry = self.target, self.target.entry
        since, _, until = target.win.partition("/")
        folder = f"raw/{target.dataset_id}/captures/{captured.capture_id}"
        return TransformJob(
            dataset_id=target.dataset_id,
            format=entry.source.format,
            inputs=tuple(
                InputFile(source_id=s["source_id"], path=str(self.world.data.local(f"{folder}/{name}").absolute()), digest=s["digest"])
                for name, s in zip(captured.files, captured.sources)
            ),
            encoding=entry.source.encoding,
            records=entry.source.records,
            schema=entry.schema,
            business_key=entry.business_key,
            time_column=entry.source.time_column,
            since=since or None,
            until=until or None,
            max_quarantined=entry.max_quarantined,
            connector=target.connector,
            artifact=target.artifact,
        )

    def _store_part(self, wal: Wal, result: TransformResult, out: Path, captured: Captured) -> dict[str, Any]:
        world, target = self.world, self.target
        publisher = world.publish(self.log)
        made = out / result.artifact
        from kfm.zones.base import hash_file

        digest = hash_file(made).digest
        path = f"{part_folder(target.dataset_id, digest)}/{result.artifact}"
        _written(world, path, publisher.write_file(path, made), digest)
        if result.quarantine is not None:
            rows = (out / result.quarantine).read_bytes()
            keep_rows(world, target, wal.run.run_id, result, rows)
            self.log.say("rows.quarantined", stage="validate", level="warning", rows=result.books.quarantined)
        self.log.say("transform.normalise", stage="transform", input=wal.run.input_hash, output=result.content_id, rows=result.books.read)
        self.log.say("transform.convert", stage="transform", input=result.content_id, output=digest, rows=result.books.written)
        books = msgspec.to_builtins(result.books)
        return {
            "part": digest,
            "artifact": result.artifact,
            "books": books,
            "schema": msgspec.to_builtins(result.schema),
            "content_id": result.content_id,
            "bbox": result.bbox,
            "warnings": list(result.warnings),
            "max_quarantined": target.entry.max_quarantined,
            "result": msgspec.to_builtins(result),
        }


def look_and_plan(world: World, target: Target) -> tuple[Plan, bool]:
    """The plan for what upstream has now, and whether running it would do anything."""
    token = world.store.transaction(lambda tx: tx.leases.take(target.partition_lease, world.holder, world.lease_seconds))
    work = _Update(world, target, token, 0, world.clock.boot_ns(), None)
    with world.data.scratch() as scratch:
        captured = work._look(scratch, conditional=False)
        plan = make_plan(target, work._refs(captured))

        def would(tx: Any) -> bool:
            head = world.channel(target.dataset_id).head(tx)
            return work._is_noop(tx, captured, head, []) is None

        return plan, world.store.transaction(would)


def part_folder(dataset_id: str, digest: str) -> str:
    return f"work/{dataset_id}/parts/{digest.removeprefix('sha256:')[:32]}"


def canonical_url_of(template: str) -> str:
    """The registered address; a template with placeholders is recorded as it is registered."""
    return template if "{" in template else canonical_url(template)


def _written(world: World, path: str, got: str, expected: str | None = None) -> None:
    """Read after write: a sink that loses or changes bytes is caught before DONE."""
    if (expected is not None and got != expected) or not world.data.exists(path):
        raise IntegrityError(
            f"{path} is not there after it was written.", expected=expected or got, remedy="Check the disk, then run again."
        )


def _part_fields(payload: dict[str, Any]) -> dict[str, Any]:
    books = payload["books"]
    return {"part": payload["part"], "rows_read": books["read"], "rows_written": books["written"], "content_id": payload["content_id"]}


def _check_plan(tx: Any, plan: Plan, hashed: str, input_hash: str, base_version: str | None) -> None:
    """A changed plan for the same inputs needs a version bump; the difference is shown."""
    identity = ids.spec_hash([plan.updater_id, plan.updater_version, plan.spec_hash, input_hash, base_version])
    text = canonical.dumps(msgspec.to_builtins(plan)).decode()
    known = tx.runs.plan(identity)
    if known is None:
        tx.runs.keep_plan(identity, hashed, text)
    elif known[0] != hashed:
        old, new = msgspec.json.decode(known[1]), msgspec.json.decode(text)
        changed = sorted(k for k in {*old, *new} if old.get(k) != new.get(k))
        raise StepFailed(
            f"The plan changed without a version bump: {', '.join(f'{k}: {old.get(k)} -> {new.get(k)}' for k in changed)}.",
            expected=f"plan {known[0][:12]} for {plan.updater_id} {plan.updater_version}",
            remedy="Raise `pipeline_version` in the registry.",
        )


def _row(
    tx: Any, world: World, target: Target, captured: Captured, toolchain: str, run_id: str, head: Generation, forced: int
) -> LedgerRow:
    """A new ledger row; `attempt` counts the finished runs of its tuple, so its journal is one nobody has."""
    before = [
        r
        for r in tx.runs.by_tuple(target.dataset_id, target.partition, target.spec_hash, captured.input_hash)
        if r.state not in ("CLAIMED", "PROPOSED") and (r.base_version, r.toolchain_digest) == (head.version_id, toolchain)
    ]
    wal_id = ids.wal_id(
        target.dataset_id, target.partition, target.updater_id, target.pipeline_version, target.spec_hash, captured.input_hash,
        head.version_id, toolchain, len(before),
    )  # fmt: skip
    return LedgerRow(
        run_id=run_id,
        wal_id=wal_id,
        dataset_id=target.dataset_id,
        partition=target.partition,
        win=target.win,
        state="CLAIMED",
        key=captured.key,
        timestamp=rfc3339(world.clock.now()),
        source_metadata=msgspec.json.encode(captured.sources).decode(),
        pipeline_version=target.pipeline_version,
        updater_id=target.updater_id,
        updater_version=target.pipeline_version,
        spec_hash=target.spec_hash,
        transform_hash=target.transform_hash,
        input_hash=captured.input_hash,
        toolchain_digest=toolchain,
        attempt=len(before),
        forced=forced,
        trigger_type=target.trigger,
        base_version=head.version_id,
        base_generation=head.generation,
    )


def _failed_row(tx: Any, world: World, target: Target, captured: Captured | None, now: str, forced: int) -> LedgerRow:
    """A run that failed before it could be claimed: upstream did not answer, or its address is not allowed."""
    from kfm.channel import EMPTY

    head = tx.index.last_generation(target.dataset_id) or EMPTY(target.dataset_id)
    blank = captured or Captured(
        sources=tuple({"source_id": s["source_id"], "source_url": canonical_url_of(s["url"]), "etag": "", "digest": ""} for s in target.sources),
        files={}, input_hash="", key=ids.run_key(canonical_url_of(target.sources[0]["url"]), "", target.win, target.pipeline_version),
        etag="", unchanged=False, full=False,
    )  # fmt: skip
    return _row(tx, world, target, blank, "", world.new_run_id(), head, forced)


def replay_capture(world: World, row: LedgerRow) -> Captured | None:
    """The capture of an unfinished run, if its bytes are whole: resuming needs no network."""
    sources = msgspec.json.decode(row.source_metadata)
    entry = world.registry(row.dataset_id)
    if entry is None or not sources or not sources[0].get("digest"):
        return None
    names = [f"{s['source_id']}.{entry.source.format}" for s in sources]
    capture = ids.capture_id({n: s["digest"] for n, s in zip(names, sources)})
    files = {}
    for name, source in zip(names, sources):
        path = f"raw/{row.dataset_id}/captures/{capture}/{name}"
        stored = world.data.stat(path)
        if stored is None or stored.digest != source["digest"]:
            return None
        files[name] = world.data.local(path)
    etags = [s["etag"] or "" for s in sources]
    return Captured(
        sources=tuple(sources),
        files=files,
        input_hash=row.input_hash,
        key=row.key,
        etag=msgspec.json.encode(etags).decode() if all(etags) else "",
        unchanged=False,
        full=True,
    )


def close_log(
    world: World,
    log: RunLog,
    target: Target | None,
    state: str,
    reason: str,
    captured: Captured | None,
    elapsed_ms: int,
    artifacts: int,
    level: str = "info",
    fields: Mapping[str, Any] | None = None,
    idempotency: Mapping[str, Any] | None = None,
) -> None:
    """Telemetry, then the ledger's last word: the closing lines every run leaves, whatever became of it."""
    source_id = target.sources[0]["source_id"] if target else ""
    payload = {
        "run_id": log.run_id,
        "duration_ms": elapsed_ms,
        "dataset": log.dataset_id,
        "source_id": source_id,
        "trigger": target.trigger if target else "manual",
        "idempotency_state": state,
        "artifact_count": artifacts,
    }
    event = log.event("updater.run", payload)
    world.publish(log).emit_event("updater.run", event)
    log.say("telemetry.emitted", stage="telemetry", event_id=event["event_id"])
    log.say("run.ended", stage="ledger", level=level, state=state, reason=reason, duration_ms=elapsed_ms, **(fields or {}))
    if idempotency is None and target is not None:
        idempotency = idempotency_state(log.run_id, target, captured, state)
    if idempotency is not None:
        log.idempotency(idempotency)


def idempotency_state(
    run_id: str, target: Target, captured: Captured | None, state: str, output_keys: tuple[str, ...] = ()
) -> dict[str, Any]:
    first = captured.sources[0] if captured else {"source_url": canonical_url_of(target.sources[0]["url"]), "etag": ""}
    url, etag = first["source_url"], first["etag"] or ""
    found = {
        "run_id": run_id,
        "dataset_id": target.dataset_id,
        "source_url": url,
        "etag": etag,
        "window": target.win,
        "pipeline_version": target.pipeline_version,
        "key": captured.key if captured else ids.run_key(url, etag, target.win, target.pipeline_version),
        "output_keys": list(output_keys),
        "spec_hash": target.spec_hash,
        "state": state,
    }
    if captured and len(captured.sources) > 1:
        found["sources"] = [
            {
                "source_id": s["source_id"],
                "source_url": s["source_url"],
                "etag": s["etag"] or "",
                "key": ids.run_key(s["source_url"], s["etag"], target.win, target.pipeline_version),
            }
            for s in captured.sources
        ]
    return found
