"""assemble: base version + the part, by the registry's merge rule, into a judged candidate."""

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from kfm import canonical
from kfm.channel import version_kept_out, withdrawn_by
from kfm.claim import keep_head_key
from kfm.clock import rfc3339
from kfm.connectors.base import Books, InputFile, TransformJob, TransformResult
from kfm.errors import Fenced, IntegrityError, StepFailed
from kfm.gates.base import Evidence, judge_all
from kfm.model import ids
from kfm.raw import parse_checksums
from kfm.store.base import Generation, LedgerRow, Token
from kfm.wal import Wal
from kfm.world import Outcome, World

if TYPE_CHECKING:
    from kfm.update import Steps, _Update

__all__ = ["assemble", "candidate_path", "evidence_of", "judge"]


def assemble(work: "_Update", wal: Wal, result: TransformResult) -> "Steps":
    """From a durable part to PROPOSED or REJECTED, under the lease of the dataset."""
    world, target = work.world, work.target
    token = yield from _dataset_lease(work)
    wal.tokens = (work.token, token)
    head = _pin(work, wal)
    yield "assemble pinned"
    base = wal.payload("pin")["base_version"]
    artifacts, result = _merged(work, wal, result, base)
    full = ids.version_digest({p: a["digest"] for p, a in artifacts.items()}, target.transform_hash, target.pipeline_version)
    candidate = {
        "run_id": wal.run.run_id,
        "dataset_id": target.dataset_id,
        "base_generation": wal.payload("pin")["base_generation"],
        "base_version": base,
        "version_id": ids.version_id(full),
        "version_digest": full,
        "transform_hash": target.transform_hash,
        "updater_version": target.pipeline_version,
        "artifacts": artifacts,
        "content_id": result.content_id,
        "books": msgspec.to_builtins(result.books),
        "schema": msgspec.to_builtins(result.schema),
    }
    _write_candidate(work, wal, candidate)
    yield "candidate written"
    verdicts = judge(world, target.dataset_id, candidate, withdrawn_by(head, wal.run, candidate["version_id"]))
    return _propose(work, wal, candidate, verdicts, result)


def _dataset_lease(work: "_Update") -> Generator[str, None, Token]:
    world, target = work.world, work.target

    def take(tx: Any) -> Token | None:
        tx.leases.check(work.token)
        token: Token | None = tx.leases.take(target.dataset_id, world.holder, world.lease_seconds)
        return token

    token: Token | None = None
    while token is None:
        token = world.store.transaction(take)
        if token is None:
            yield "wait"
    work.tokens.append(world.hold(token))
    yield "dataset lease taken"
    return token


def _pin(work: "_Update", wal: Wal) -> Generation:
    """The PLAN of assemble: which generation and which parts, once and for all attempts of this run."""
    world, target = work.world, work.target
    channel = world.channel(target.dataset_id)

    def pin(tx: Any) -> Generation:
        tx.leases.check(*wal.tokens)
        row = tx.runs.get(wal.run.run_id)
        if row is None or row.state != "CLAIMED":
            raise Fenced(f"Run {wal.run.run_id} was closed by another.", expected="it to be CLAIMED", remedy="Run the command again.")
        head = channel.head(tx)
        if wal.state("pin") is None:
            wal.make(
                "PLAN",
                "pin",
                "DONE",
                {"base_generation": head.generation, "base_version": head.version_id, "part": wal.payload("transform")["part"]},
            )
            wal.make("EXECUTE", "assemble", "IN_PROGRESS", {})
            wal.run = tx.runs.move(wal.run.run_id, "CLAIMED", pinned=head.generation)
        tx.runs.append(wal.take_riding())
        found: Generation = head
        return found

    pinned: Generation = world.store.transaction(pin)
    return pinned


def _merged(work: "_Update", wal: Wal, result: TransformResult, base: str | None) -> tuple[dict[str, dict[str, Any]], TransformResult]:
    """Artifact path -> {digest, size, from}: where its bytes lie until they are promoted."""
    from kfm.update import part_folder

    world, target = work.world, work.target
    part = wal.payload("transform")
    source = f"{part_folder(target.dataset_id, part['part'])}/{part['artifact']}"
    stored = world.data.stat(source)
    if stored is None or stored.digest != part["part"]:
        raise IntegrityError(f"{source} is damaged.", expected=part["part"], remedy="Run again: the part is made anew from its capture.")
    own = {target.artifact: {"digest": stored.digest, "size": stored.size, "from": source}}
    merge = target.entry.merge
    if merge == "replace" and target.win:
        merge = "upsert"  # a window is a piece of the whole, never the whole
        if not target.entry.business_key and base is not None:
            raise StepFailed(
                f"{target.dataset_id} has no business key, so the rows of a window cannot find their places.",
                expected="business_key in the registry entry",
                remedy="Add it, or run without --window.",
            )
    if base is None or merge == "replace":
        return own, result
    kept = {
        name: {"digest": digest, "size": 0, "from": f"processed/{target.dataset_id}/{base}/{name}"}
        for name, digest in parse_checksums(world.data.read(f"processed/{target.dataset_id}/{base}/checksums.sha256")).items()
    }
    if merge == "partition":
        return {**kept, **own}, result
    return _upserted(work, own, kept, result)


def _upserted(
    work: "_Update", own: Mapping[str, dict[str, Any]], kept: dict[str, dict[str, Any]], result: TransformResult
) -> tuple[dict[str, dict[str, Any]], TransformResult]:
    """Rows of the base whose key the part does not have, then the rows of the part."""
    from kfm.update import part_folder
    from kfm.zones.base import hash_file

    world, target = work.world, work.target
    name = target.artifact
    if name not in kept:
        return {**kept, **own}, result
    since, _, until = target.win.partition("/")
    job = TransformJob(
        kind="merge",
        dataset_id=target.dataset_id,
        format=target.entry.source.format,
        inputs=(
            InputFile(source_id="base", path=str(world.data.local(kept[name]["from"]).absolute()), digest=kept[name]["digest"]),
            InputFile(source_id="part", path=str(world.data.local(own[name]["from"]).absolute()), digest=own[name]["digest"]),
        ),
        schema=result.schema,
        business_key=target.entry.business_key,
        time_column=target.entry.source.time_column,
        since=since or None,
        until=until or None,
        artifact=name,
    )
    with world.data.scratch() as scratch:
        merged = world.merge(job, scratch, None)
        digest = hash_file(scratch / name).digest
        path = f"{part_folder(target.dataset_id, digest)}/{name}"
        world.publish(work.log).write_file(path, scratch / name)
    stored = world.data.stat(path)
    books = Books(
        read=result.books.read,
        written=result.books.written - merged.books.unchanged,
        unchanged=merged.books.unchanged,
        quarantined=result.books.quarantined,
        dropped=result.books.dropped,
    )
    size = stored.size if stored is not None else 0
    return {**kept, name: {"digest": digest, "size": size, "from": path}}, msgspec.structs.replace(merged, books=books)


def _write_candidate(work: "_Update", wal: Wal, candidate: dict[str, Any]) -> None:
    path = candidate_path(work.target.dataset_id, wal.run.run_id)
    content = canonical.dumps(candidate) + b"\n"
    if not work.world.data.create(path, content) and work.world.data.read(path) != content:
        raise IntegrityError(
            f"Run {wal.run.run_id} would yield a second version when resumed.",
            expected="the candidate of its first attempt",
            remedy="A step is not repeatable: `kfm drill` names it.",
        )


def candidate_path(dataset_id: str, run_id: str) -> str:
    return f"work/{dataset_id}/proposals/{run_id}/candidate.json"


def evidence_of(world: World, dataset_id: str, candidate: Mapping[str, Any], suppressed: str | None) -> Evidence:
    """What the gates look at: the registry as it is now, and the bytes as they are now."""
    entry = world.registry(dataset_id)
    found: dict[str, str | None] = {}
    for path, artifact in candidate["artifacts"].items():
        stored = world.data.stat(artifact["from"])
        found[path] = stored.digest if stored is not None else None
    rows = candidate["books"].get("written", 0) + candidate["books"].get("unchanged", 0)
    return Evidence(
        entry=entry,
        expected={p: a["digest"] for p, a in candidate["artifacts"].items()},
        found=found,
        schema=tuple(candidate["schema"]),
        books=dict(candidate["books"]),
        partial=entry is not None and rows < entry.source.completeness,
        suppressed=suppressed,
        rows=rows,
    )


def judge(world: World, dataset_id: str, candidate: Mapping[str, Any], suppressed: str | None) -> list[dict[str, Any]]:
    """Every verdict. Damaged bytes are no denial to be remembered: they raise `IntegrityError`."""
    evidence = evidence_of(world, dataset_id, candidate, suppressed)
    for path, digest in evidence.expected.items():
        if evidence.found[path] != digest:
            raise IntegrityError(
                f"{candidate['artifacts'][path]['from']} is {'damaged' if evidence.found[path] else 'missing'}.",
                expected=digest,
                remedy="Restore the file from a backup (`kfm verify` lists what is damaged), then run again.",
            )
    verdicts = judge_all(world.gates, evidence)
    found: list[dict[str, Any]] = msgspec.to_builtins(verdicts)
    return found


def _propose(work: "_Update", wal: Wal, candidate: dict[str, Any], verdicts: list[dict[str, Any]], result: TransformResult) -> Outcome:
    """PROPOSED with its promote job, or REJECTED; ack; both leases free: one transaction."""
    world, target = work.world, work.target
    channel = world.channel(target.dataset_id)
    reasons = [r for v in verdicts for r in v["reasons"]]
    output_keys = [
        ids.output_key(target.updater_id, target.pipeline_version, [target.dataset_id, target.partition, target.win], a["digest"])
        for a in candidate["artifacts"].values()
    ]
    wal.done(
        "EXECUTE",
        "assemble",
        {
            "artifacts": candidate["artifacts"],
            "verdicts": verdicts,
            "output_keys": output_keys,
            "licence": target.entry.licence,
            "labels": {"sensitivity": target.entry.sensitivity, "policy_label": target.entry.policy_label},
        },
    )
    facts = {"version_id": candidate["version_id"], "version_digest": candidate["version_digest"], "content_id": candidate["content_id"]}
    now = rfc3339(world.clock.now())

    def close(tx: Any) -> tuple[LedgerRow, str]:
        tx.leases.check(*wal.tokens)
        head = channel.head(tx)
        tx.runs.append(wal.take_riding())
        pinned = wal.payload("pin")["base_generation"]
        if pinned != head.generation:
            row = tx.runs.move(
                wal.run.run_id,
                "CLAIMED",
                state="SUPERSEDED",
                reason=f"base {pinned} is not the head {head.generation}",
                ended_at=now,
                **facts,
            )
            tx.jobs.requeue(target.dataset_id, target.partition, target.win)
            tx.leases.release(*wal.tokens)
            return row, ""
        again = _nothing_new(tx, head, wal.run, candidate)
        if again is not None and not wal.run.forced:
            row = tx.runs.move(wal.run.run_id, "CLAIMED", state="NOOP", reason=again[0], ended_at=now, **facts)
            if again[1] and work.captured is not None:
                keep_head_key(tx, target, work.captured, str(head.version_id), now)
        elif reasons:
            row = tx.runs.move(
                wal.run.run_id, "CLAIMED", state="REJECTED", reason="; ".join(r["code"] for r in reasons), ended_at=now,
                error_count=len(reasons), latency_ms=work.elapsed_ms(), **facts,
            )  # fmt: skip
        else:
            row = tx.runs.move(wal.run.run_id, "CLAIMED", state="PROPOSED", promo=1, **facts)
        tx.jobs.ack(target.dataset_id, target.partition, target.win)
        tx.leases.release(*wal.tokens)
        return row, again[0] if again else ""

    row, _ = world.store.transaction(close)
    work.row = row
    work.log.say(
        "transform.metadata",
        stage="transform",
        input=candidate["content_id"],
        output=candidate["version_digest"],
        version_id=row.version_id,
    )
    return _told(work, row, reasons, result)


def _nothing_new(tx: Any, head: Generation, run: LedgerRow, candidate: Mapping[str, Any]) -> tuple[str, bool] | None:
    """(why there is nothing to promote, whether the head is what upstream says)."""
    out = version_kept_out(head, candidate["version_id"])
    if out is not None and out[0] == "held":
        return f"this version was rolled back by generation {out[1]}", False
    maker = tx.runs.maker(run.dataset_id, head.version_id, run.spec_hash) if head.version_id else None
    if maker is None:  # never official under this spec: it wants evidence of its own
        return None
    whole = not run.partition  # the content id of a partition says nothing about the others
    same = candidate["version_id"] == head.version_id or (whole and maker.content_id == candidate["content_id"])
    return ("re-encoded, 0 rows changed", True) if same else None


def _told(work: "_Update", row: LedgerRow, reasons: list[dict[str, Any]], result: TransformResult) -> Outcome:
    """Say how it went; a proposal goes on to promote, everything else ends here."""
    from kfm.receipts import finish

    numbers: dict[str, Any] = {"rows_read": row.rows_read, "rows_written": row.rows_written, "quarantined": result.books.quarantined}
    if row.state == "PROPOSED":
        work.log.say("version.proposed", stage="publish", version_id=row.version_id)
        return work.outcome("PROPOSED", version_id=row.version_id, **numbers)
    level = "error" if row.state == "REJECTED" else "info"
    with work.world.ended():
        finish(work.world, row.run_id)
        work._close_log(row.state, row.reason, level=level, reasons=reasons)
    remedy = reasons[0]["remedy"] if reasons else ""
    plain = tuple({k: str(v) for k, v in r.items()} for r in reasons)
    code = {"REJECTED": 3}.get(row.state, 0)
    names = "head" if row.state == "NOOP" else ""
    return work.outcome(
        row.state, row.reason, exit_code=code, reasons=plain, remedy=remedy, names=names, version_id=row.version_id, **numbers
    )
