"""assemble: base version + the part, by the registry's merge rule, into a judged candidate with all
its evidence.
"""

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from kfm.channel.chain import version_kept_out, withdrawn_by, withdrawn_parts
from kfm.connectors.base import TransformResult
from kfm.evidence.journal import Journal, Page
from kfm.evidence.proposal import acceptable, load, needed, registry_digest, terms_before
from kfm.evidence.quarantine import check_base
from kfm.evidence.receipts import finish, run_files
from kfm.evidence.run_end import end_parts, follow_up
from kfm.evidence.version_records import origin_of, prov_record, version_records
from kfm.judge.candidate import attested, catalog_reasons, described_candidate, evidence_of, judge
from kfm.judge.permits import shown_despite
from kfm.judge.release import (
    digest_of,
    explained_before,
    is_withheld,
    keep_precise,
    new_columns,
    open_table,
    release_mark,
    sealed_records,
    suppress_rules,
)
from kfm.keys.approvals import terms_of, told_loosened
from kfm.model import ids
from kfm.model.candidate import Candidate
from kfm.model.change import told
from kfm.model.clock import rfc3339
from kfm.model.errors import Denied, Fenced, IntegrityError, KfmError
from kfm.model.journal import Assembled, PartDone, Pinned
from kfm.model.ledger import Generation, LedgerRow, Token, is_older, stamps_of
from kfm.model.origin import SAMPLE, origins_of
from kfm.model.paths import proposal_path, prov_path
from kfm.model.proposal import Proposal
from kfm.model.staged import is_assembly
from kfm.model.verdict import Reason, Verdict, denied
from kfm.model.version import is_record
from kfm.policy.base import Decision
from kfm.run.claim import keep_head_key
from kfm.run.look import captured_file
from kfm.run.noop import older_told
from kfm.run.tables import Tables, measured, merge_tables, says_newer, tables_of
from kfm.run.work import Reached, Steps, Taken, Work
from kfm.store.base import Tx
from kfm.world.outcome import Outcome, table_rows
from kfm.world.run_log import RunLog
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import hash_file, room

__all__ = ["assemble", "judge_candidate", "propose"]


def assemble(work: Work, wal: Journal, result: TransformResult) -> Steps:
    """From a durable part to PROPOSED or REJECTED, under the lease of the dataset."""
    token = yield from _dataset_lease(work)
    work.wal = wal = wal.under(work.token, token)
    head = _pin(work, wal)
    check_base(work.target, work.partial, head)
    yield Reached.PINNED
    tables = tables_of(work, wal, result, wal.require("pin", Pinned).base_version, head.suppressed)
    return (yield from propose(work, wal, tables, head))


def propose(work: Work, wal: Journal, tables: Tables, head: Generation) -> Steps:
    """The tables as a judged candidate with all its evidence, PROPOSED or REJECTED."""
    world, pin = work.world, wal.require("pin", Pinned)
    candidate = _candidate(work, wal, tables, pin)
    said, official = stamps_of(wal.run.source_metadata)
    older = is_older(said, official) and not is_assembly(wal.run) and work.target.again is None
    candidate = msgspec.structs.replace(
        candidate,
        older=(said, official) if older else UNSET,
        change=measured(world, work.target, tables, pin.base_version) or UNSET,
        restricted=_restricted(world, candidate) or UNSET,
    )
    row = msgspec.structs.replace(
        wal.run,
        version_id=candidate.version_id,
        version_digest=candidate.version_digest,
        content_id=_content_told(world, candidate),
        pinned=pin.base_generation,
        rows_written=max(0, wal.run.rows_written - tables.withdrawn),
    )
    files = _write_candidate(work, row, candidate)
    yield Reached.CANDIDATE_WRITTEN
    leak = _leaks(work, tables, candidate, head)
    verdicts = judge_candidate(world, row, candidate, files, leak, head, log=work.log)
    judged = _judgement(work, wal, candidate, tables, verdicts)
    proposal = _write_proposal(work, wal, row, candidate, judged, files, leak)
    yield Reached.PROPOSAL_WRITTEN
    wal.done("EXECUTE", "assemble", msgspec.structs.replace(judged, proposal=proposal))
    return _propose(work, wal, candidate, verdicts, tables)


def _content_told(world: World, candidate: Candidate) -> str:
    """What the ledger says of the content: its id, or a commitment to that of records which were
    not released.
    """
    content = candidate.content_id
    return (
        content if candidate.released is not None else world.stand_in(candidate.dataset_id, content)
    )


def _restricted(world: World, candidate: Candidate) -> dict[str, dict[str, int]]:
    """Column -> value -> records of the candidate that say of themselves that they are not for
    everybody.
    """
    from kfm.diff.marked import marked, speaks_of_access

    columns = speaks_of_access(c.name for c in candidate.schema)
    if not columns:
        return {}
    with world.data.scratch() as scratch:
        shown = {p: a for p, a in candidate.artifacts.items() if not is_withheld(a)}
        files = {
            p: (
                open_table(world, candidate.dataset_id, a, room(scratch, str(n)))
                if "at_rest" in a
                else world.data.local(a["from"])
            )
            for n, (p, a) in enumerate(shown.items())
        }
        return marked(files, columns)


def _dataset_lease(work: Work) -> Generator[Reached, None, Token]:
    world, target = work.world, work.target

    def lease(tx: Tx) -> Taken | None:
        tx.leases.check(work.token)
        token = tx.leases.take(target.dataset_id, world.holder, world.lease_seconds)
        return Taken(token) if token is not None else None

    while (taken := work.take(lease)) is None:
        yield Reached.WAIT
    yield Reached.DATASET_TAKEN
    return taken.token


def _pin(work: Work, wal: Journal) -> Generation:
    """The PLAN of assemble: which generation and which parts, once and for all attempts of this
    run.
    """
    world, target = work.world, work.target
    channel = world.channel(target.dataset_id)

    def pin(tx: Tx, page: Page) -> Generation:
        row = tx.runs.get(wal.run.run_id)
        if row is None or row.state != "CLAIMED":
            raise Fenced(
                f"Run {wal.run.run_id} was closed by another.",
                expected="it to be CLAIMED",
                remedy="Run the command again.",
            )
        page.run, head = row, channel.head(tx)
        if wal.state("pin") is None:
            found = Pinned(
                base_generation=head.generation,
                base_version=head.version_id,
                part=wal.require("transform", PartDone).part,
                proposal=tx.proposals.new(wal.run.run_id),
                records=sealed_records(world, target.dataset_id, head.version_id) or UNSET,
            )
            page.make("PLAN", "pin", "DONE", found)
            page.make("EXECUTE", "assemble", "IN_PROGRESS")
            page.move(tx, "CLAIMED", pinned=head.generation)
        return head

    return wal.commit(pin)


def _candidate(work: Work, wal: Journal, tables: Tables, pin: Pinned) -> Candidate:
    target, release = work.target, work.target.entry.release
    base = origin_of(work.world.data, target.dataset_id, pin.base_version)
    sources = msgspec.json.decode(wal.run.source_metadata)
    _check_origin(target.dataset_id, pin.base_version, base, origins_of(sources))
    origin = origins_of(sources, base if target.entry.merge != "replace" else ())
    return Candidate(
        run_id=wal.run.run_id,
        dataset_id=target.dataset_id,
        proposal=pin.proposal,
        base_generation=pin.base_generation,
        base_version=pin.base_version,
        transform_hash=target.transform_hash,
        updater_version=target.pipeline_version,
        spec_hash=target.spec_hash,
        policy_digest=work.world.policy_digest,
        precise=tables.precise,
        records=pin.records or UNSET,
        books=tables.books,
        released=tables.released,
        h3_resolution=release.h3_resolution if release is not None else None,
        origin=tuple(origin) or UNSET,
        **_facts_of(target, tables.result, tables.artifacts),
    )


def _check_origin(
    dataset_id: str, base_version: str | None, base: Sequence[str], own: Sequence[str]
) -> None:
    """Raise `Denied` where invented data are official and something else comes, whatever kfm.yml
    says meanwhile.
    """
    if base_version is not None and SAMPLE in base and SAMPLE not in own:
        raise Denied(
            f"What is official of {dataset_id} is invented, and this is not.",
            expected="invented and real data in channels of their own",
            remedy="Make a workspace for real data beside this one: `kfm init DIR`.",
        )


def _write_candidate(work: Work, row: LedgerRow, candidate: Candidate) -> dict[str, str]:
    """candidate.json, the records of the version and the PROV of the run; returns path below the
    proposal -> digest.
    """
    world, entry = work.world, work.target.entry
    files = version_records(world, entry, candidate, msgspec.json.decode(row.source_metadata))
    files |= {
        "candidate.json": candidate.written(),
        "prov.json": prov_record(world, entry, row, candidate),
    }
    for name, content in files.items():
        path = proposal_path(row.dataset_id, row.run_id, name)
        if not world.keep(path, content) and world.kept(path) != content:
            raise IntegrityError(
                f"Run {row.run_id} would yield a second version when resumed: {name} differs.",
                expected="the candidate of its first attempt",
                remedy="A step is not repeatable: `kfm drill` names it.",
            )
    return {name: ids.digest(content) for name, content in files.items()}


def _leaks(
    work: Work, tables: Tables, candidate: Candidate, head: Generation
) -> tuple[Reason, ...] | None:
    """What withheld values do to public bytes; None when nothing is withheld, or nothing is
    released.
    """
    world, target, captured = work.world, work.target, work.captured
    if not work.private or tables.released is None or captured is None:
        return None
    from kfm.run.leak import look_for_leaks  # private datasets only

    rules = suppress_rules(world, target.dataset_id, head.suppressed)
    newer = work.wal is not None and says_newer(work.wal.run.source_metadata)

    def merge(part: Path, result: TransformResult, scratch: Path) -> tuple[Path, TransformResult]:
        if tables.base is None:
            return part, result
        base = open_table(world, target.dataset_id, tables.base, room(scratch, "base"))
        merged = merge_tables(
            world, target, (base, ""), (part, ""), result, room(scratch, "merged"), newer=newer
        )
        return scratch / "merged" / target.artifact, merged

    def render(path: Path, result: TransformResult) -> dict[str, bytes]:
        stored = hash_file(path)
        artifacts = {
            target.artifact: {
                "digest": stored.digest,
                "size": stored.size,
                "rows": result.rows,
                "release": release_mark(target.entry),
                "from": "",
            }
        }
        facts = msgspec.structs.replace(candidate, **_facts_of(target, result, artifacts))
        made = version_records(world, target.entry, facts, [])
        return {name: content for name, content in made.items() if name != "attestation.json"}

    with world.data.scratch() as scratch:
        inputs = {
            s["source_id"]: (path, s["digest"])
            for path, s in zip(_plain_files(work, scratch), captured.sources)
        }
        released = tables.artifacts[target.artifact]["digest"]
        joined = {
            name: entry.release if (entry := world.registry(name)) else None
            for name in target.entry.source.datasets
        }
        despite = shown_despite(world, target.dataset_id)
        before = explained_before(
            world,
            target.entry,
            (candidate.records or {}).get(target.artifact),
            room(scratch, "before"),
        )
        with world.warm():  # for this dataset alone
            found = look_for_leaks(
                world,
                target,
                inputs,
                rules,
                merge=merge,
                render=render,
                released=released,
                despite=despite,
                releases=joined,
                before=before,
            )
        return tuple(msgspec.convert(found, list[Reason]))


def _facts_of(
    target: Target, result: TransformResult, artifacts: Mapping[str, Any]
) -> dict[str, Any]:
    """The members of a candidate that follow from its table."""
    full = ids.version_digest(
        {p: a["digest"] for p, a in artifacts.items()},
        target.transform_hash,
        target.pipeline_version,
    )
    time = result.profile.get(target.entry.source.time_column or "")
    return {
        "version_id": ids.version_id(full),
        "version_digest": full,
        "artifacts": dict(artifacts),
        "content_id": result.content_id,
        "schema": result.schema,
        "profile": result.profile,
        "bbox": result.bbox,
        "interval": (time.min, time.max) if time is not None and time.min and time.max else None,
        "steps": result.steps,
        "invalid_geometries": result.invalid_geometries,
    }


def _plain_files(work: Work, scratch: Path) -> list[Path]:
    """The captured files as they came."""
    assert work.captured is not None
    found = []
    for name in work.captured.files:
        path = captured_file(
            work.world, work.target.dataset_id, work.captured.capture_id, name, scratch
        )
        if path is None:
            raise IntegrityError(
                f"The capture {work.captured.capture_id} is gone.",
                expected=name,
                remedy="Run again: it is fetched anew.",
            )
        found.append(path)
    return found


def judge_candidate(
    world: World,
    row: LedgerRow,
    candidate: Candidate,
    files: Mapping[str, str],
    leak: Sequence[Reason] | None,
    head: Generation,
    approvals: tuple[int, int] = (0, 0),
    log: RunLog | None = None,
    asked: list[Decision] | None = None,
) -> list[Verdict]:
    """Every verdict on current policy and labels; what the policy decided is added to `asked`.
    Damaged bytes are no denial to be remembered: they raise `IntegrityError`.
    """
    found: dict[str, str | None] = {}
    for path, artifact in candidate.artifacts.items():
        found[path] = digest_of(world, artifact)
        if found[path] != artifact["digest"]:
            raise IntegrityError(
                f"{artifact['from']} is {'damaged' if found[path] is not None else 'missing'}.",
                expected=artifact["digest"],
                remedy=(
                    "Restore the file from a backup (`kfm verify` lists what is damaged), then run"
                    " again."
                ),
            )

    def read(name: str) -> bytes:
        return world.kept(proposal_path(row.dataset_id, row.run_id, name))

    listed = candidate.digests | {p: d for p, d in files.items() if is_record(p)}
    signed, note = attested(world, read, listed)
    described = described_candidate(world, candidate, head, row.timestamp)
    prov = (
        read("prov.json")
        if world.data.exists(world.lies(proposal_path(row.dataset_id, row.run_id, "prov.json")))
        else None
    )
    catalog = (
        catalog_reasons(world, described, prov_path(row.dataset_id, row.run_id), prov, listed)
        if described is not None
        else None
    )
    before = head.version_id if head.version_id != candidate.version_id else None
    evidence = evidence_of(
        world,
        candidate,
        found=found,
        before=before,
        suppressed=withdrawn_by(head, row, candidate.version_id)
        or withdrawn_parts(world.data, head, row),
        leak=leak,
        catalog=catalog,
        attestation=signed,
        attestation_note=note,
        loosened=told_loosened(
            terms_before(world, row.dataset_id, row.pinned), terms_of(world.family(row.dataset_id))
        ),
    )

    def heard(decision: Decision) -> None:
        if asked is not None:
            asked.append(decision)
        if log is not None:
            facts = {
                "decision_id": decision.decision_id,
                "policy_digest": decision.policy_digest,
                "engine": decision.engine,
            }
            told = (
                world.stand_in(row.dataset_id, decision.input_digest)
                if decision.input_digest
                else ""
            )
            log.say(
                "policy.decided", stage="validate", allow=decision.allow, input_digest=told, **facts
            )

    return judge(world, evidence, candidate, approvals, heard)


def _judgement(
    work: Work, wal: Journal, candidate: Candidate, tables: Tables, verdicts: Sequence[Verdict]
) -> Assembled:
    """What the journal and the run's records say of the judgement."""
    target = work.target
    business = [target.dataset_id, target.partition, target.win]
    artifacts = candidate.artifacts
    warned = wal.require("transform", PartDone).warnings or ()
    return Assembled(
        artifacts=artifacts,
        verdicts=tuple(verdicts),
        output_keys=tuple(
            ids.output_key(target.updater_id, target.pipeline_version, business, a["digest"])
            for a in artifacts.values()
        ),
        licence=target.entry.licence,
        labels={k: getattr(target.entry, k) for k in ("sensitivity", "policy_label", "care_label")},
        steps=tables.result.steps,
        profile=tables.result.profile,
        rows={p: a["rows"] for p, a in artifacts.items()},
        warnings=tuple(
            dict.fromkeys((*warned, *tables.result.warnings, *new_columns(tables.added)))
        ),
        added=tables.added or UNSET,
        change=candidate.change,
    )


def _write_proposal(
    work: Work,
    wal: Journal,
    row: LedgerRow,
    candidate: Candidate,
    judged: Assembled,
    files: Mapping[str, str],
    leak: tuple[Reason, ...] | None,
) -> str:
    """proposal.json: everything an approval speaks of, by digest. Returns its own digest."""
    world = work.world
    receipts = run_files(world, row, wal.records, judged)
    proposal = Proposal(
        proposal=wal.require("pin", Pinned).proposal,
        run_id=row.run_id,
        dataset_id=row.dataset_id,
        version_id=row.version_id,
        version_digest=row.version_digest,
        base_generation=row.pinned,
        policy_digest=world.policy_digest,
        registry_digest=registry_digest(world, row.dataset_id),
        labels=judged.labels,
        files=dict(files),
        receipts=receipts,
        verdicts=judged.verdicts,
        leak=leak,
        approvals=needed(
            world, row.dataset_id, judged.verdicts, row.pinned, canary=work.target.canary
        ),
        canary=work.target.canary or UNSET,
    )
    content = proposal.written()
    path = proposal_path(row.dataset_id, row.run_id)
    if not world.keep(path, content) and world.kept(path) != content:
        # Policy or labels changed between two attempts: nobody has seen the first judgement, so the
        # newest stands.
        world.data.replace(world.lies(path), world.at_rest(path, content))
    return ids.digest(world.data.read(world.lies(path)))


def _propose(
    work: Work, wal: Journal, candidate: Candidate, verdicts: Sequence[Verdict], tables: Tables
) -> Outcome:
    """PROPOSED (with its promote job when no person is asked) or REJECTED; ack; both leases free:
    one transaction.
    """
    world, target = work.world, work.target
    channel = world.channel(target.dataset_id)
    reasons, pinned = denied(verdicts), candidate.base_generation
    waits = needed(world, target.dataset_id, verdicts, pinned, canary=target.canary)
    facts: dict[str, Any] = {
        "version_id": candidate.version_id,
        "version_digest": candidate.version_digest,
        "content_id": _content_told(world, candidate),
        "rows_written": max(0, wal.run.rows_written - tables.withdrawn),
    }
    now = rfc3339(world.clock.now())
    if tables.precise and not reasons:
        _keep_records(world, wal, candidate, asked=bool(waits))

    def close(tx: Tx, page: Page) -> None:
        head = channel.head(tx)
        if pinned != head.generation:
            why = f"base {pinned} is not the head {head.generation}"
            page.move(tx, "CLAIMED", state="SUPERSEDED", reason=why, ended_at=now, **facts)
            work.requeue(tx)
            tx.leases.release(*wal.tokens)
            return
        again = _nothing_new(tx, world, head, wal.run, candidate, asked=bool(reasons or waits))
        if candidate.older and (again is None or again[1]):
            again = older_told(*candidate.older), False
        if again is not None and not wal.run.forced:
            row = page.move(tx, "CLAIMED", state="NOOP", reason=again[0], ended_at=now, **facts)
            if again[1] and work.captured is not None:
                keep_head_key(tx, target, work.captured, str(head.version_id), now)
            end_parts(tx, world.data, row, state="NOOP", reason=again[0], known=again[1])
        elif reasons:
            page.move(
                tx,
                "CLAIMED",
                state="REJECTED",
                reason="; ".join(dict.fromkeys(r.code for r in reasons)),
                ended_at=now,
                error_count=len(reasons),
                latency_ms=work.elapsed_ms(),
                **facts,
            )
        else:
            row = page.move(
                tx,
                "CLAIMED",
                state="PROPOSED",
                promo=int(not waits and not world.propose_only),
                **facts,
            )
            if not row.promo:
                follow_up(tx, world, target.dataset_id, row.run_id, derived=False)
        work.ack(tx)
        tx.leases.release(*wal.tokens)

    wal.commit(close)
    row = wal.run
    with world.ended():
        work.log.say(
            "transform.metadata",
            stage="transform",
            input=candidate.content_id,
            output=candidate.version_digest,
            version_id=row.version_id,
        )
    return _told(work, row, verdicts, tables, candidate.proposal or 0, waits)


def _keep_records(world: World, wal: Journal, candidate: Candidate, *, asked: bool) -> None:
    """Private records that change nothing public are what the official version stands for from now
    on.

    Else what a window added would be lost to the next one, and would never be enough to explain a
    row. This comes before the commit that ends the run, under the lease of the dataset: an attempt
    that dies in between is repeated from the records its PLAN pinned.
    """
    run = wal.run

    def nothing_new(tx: Tx) -> str | None:
        tx.leases.check(*wal.tokens)
        head: Generation = world.channel(run.dataset_id).head(tx)
        again = (
            _nothing_new(tx, world, head, run, candidate, asked=asked)
            if head.generation == candidate.base_generation
            else None
        )
        official = again is not None and (again[1] or candidate.version_id == head.version_id)
        return head.version_id if official and not run.forced and not candidate.older else None

    version: str | None = world.store.transaction(nothing_new)
    # nobody else was here since
    if version is not None and sealed_records(world, run.dataset_id, version) == (
        candidate.records or {}
    ):
        keep_precise(world, run.dataset_id, version, candidate.precise)


def _nothing_new(
    tx: Tx, world: World, head: Generation, run: LedgerRow, candidate: Candidate, *, asked: bool
) -> tuple[str, bool] | None:
    """(why there is nothing to promote, whether the head is what upstream says); `asked`: a gate or
    a person would have a say in it.
    """
    out = version_kept_out(head, candidate.version_id)
    if out is not None and out.how == "held":
        return f"this version was rolled back by generation {out.generation}", False
    if run.trigger_type == "quarantine" and candidate.version_id == head.version_id:
        return "what was decided changes nothing", False
    maker = (
        tx.runs.maker(run.dataset_id, head.version_id, run.spec_hash) if head.version_id else None
    )
    if maker is None and head.version_id:  # another window or partition, or rules that came since
        last = tx.runs.maker_of(run.dataset_id, head.version_id)
        if (
            last is not None
            and last.transform_hash == run.transform_hash
            and (not asked or _same_rules(world, last))
        ):
            maker = last
    if candidate.version_id == head.version_id and (maker is not None or not asked):
        return "0 rows changed", True
    # never official under these rules, and they want a word: it wants evidence of its own
    if maker is None:
        return None
    whole = not run.partition and not (
        is_assembly(run) and len(candidate.artifacts) > 1
    )  # the content id of a partition says nothing about the others
    return (
        ("re-encoded, 0 rows changed", True)
        if whole and maker.content_id == candidate.content_id
        else None
    )


def _same_rules(world: World, maker: LedgerRow) -> bool:
    """Whether a version was judged, and approved where that is asked for, under the registry entry
    and the policy of now.
    """
    try:
        proposal, _ = load(world, maker)
    except (KfmError, OSError):
        return False
    return (proposal.registry_digest, proposal.policy_digest) == (
        registry_digest(world, maker.dataset_id),
        world.policy_digest,
    )


def _told(
    work: Work,
    row: LedgerRow,
    verdicts: Sequence[Verdict],
    tables: Tables,
    proposal: int,
    waits: int,
) -> Outcome:
    """Say how it went; a proposal goes on to promote or waits for people, everything else ends
    here.
    """
    reasons = denied(verdicts)
    rows = {path: artifact["rows"] for path, artifact in tables.artifacts.items()}
    judged = work.wal.payload("assemble", Assembled) if work.wal is not None else None
    # of private records no count is told
    shown = 0 if work.private and tables.released is None else table_rows(rows, row.partition)
    numbers: dict[str, Any] = {
        "proposal": proposal,
        "rows": shown,
        "change": told(judged.change) if judged is not None and judged.change else "",
    }
    # of what private records made somebody warn of, nothing is said aloud but this
    if work.private:
        numbers["warnings"] = new_columns(tables.added)
    else:
        numbers["warnings"] = judged.warnings or () if judged is not None else ()
        numbers |= {
            "rows_read": row.rows_read,
            "rows_written": row.rows_written,
            "quarantined": tables.books.quarantined,
        }
    if row.state == "PROPOSED":
        with work.world.ended():
            work.log.say(
                "version.proposed", stage="publish", version_id=row.version_id, proposal=proposal
            )
        if not waits:
            code = 7 if work.world.propose_only else 0
            return work.outcome(
                "PROPOSED",
                exit_code=code,
                version_id=row.version_id,
                remedy=f"kfm promote {proposal}",
                **numbers,
            )
        asked = [r for v in verdicts for r in v.review]
        with work.world.ended():
            if asked:
                work.log.say(
                    "review.requested",
                    stage="publish",
                    level="warning",
                    proposal=proposal,
                    reasons=[r.code for r in asked],
                )
        why = (
            "; ".join(r.message for r in asked)
            or f"{waits} approval{' is' if waits == 1 else 's are'} needed"
        )
        canary = work.target.canary
        why = (
            f"canary {work.target.pipeline_version}, to be compared first: {why}" if canary else why
        )
        following = f"kfm canary compare {row.dataset_id}" if canary else f"kfm review {proposal}"
        if not canary and acceptable(work.world, row.dataset_id, verdicts):
            following = (
                f"kfm diff {row.dataset_id} proposal/{proposal}, then kfm run {row.dataset_id}"
                " --accept-change --reason …"
            )
        # once for the dataset
        decide = [r.remedy for r in asked if r.code in ("licence.restricted", "records.restricted")]
        following = "\n      ".join([*decide, following]) if decide else following
        with work.world.ended():
            work.close_log("PROPOSED", why)
        return work.outcome(
            "PROPOSED", why, exit_code=7, version_id=row.version_id, remedy=following, **numbers
        )
    level = "error" if row.state == "REJECTED" else "info"
    plain = tuple({"code": r.code, "message": r.message, "remedy": r.remedy} for r in reasons)
    with work.world.ended():
        finish(work.world, row.run_id)
        work.close_log(
            row.state,
            row.reason,
            level=level,
            reasons=[r.code for r in reasons] if work.private else plain,
        )
    remedy = reasons[0].remedy if reasons else ""
    code = {"REJECTED": 3}.get(row.state, 0)
    names = "head" if row.state == "NOOP" else ""
    return work.outcome(
        row.state,
        row.reason,
        exit_code=code,
        reasons=plain,
        remedy=remedy,
        names=names,
        version_id=row.version_id,
        **numbers,
    )
