"""claim: the one transaction that decides. Settle? NOOP? resume? else close what is open and begin
a new run.
"""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from kfm.channel.generations import EMPTY
from kfm.evidence.append_times import check_clock
from kfm.evidence.journal import Journal
from kfm.evidence.run_end import close_runs
from kfm.model import (
    UNCHANGED,
    Capturing,
    Clock,
    DatasetEntry,
    Denied,
    Generation,
    HeadKey,
    KfmError,
    LedgerRow,
    NoopRow,
    Plan,
    StepFailed,
    Token,
    UsageError,
    WalRecord,
    after_stamp,
    canonical,
    ids,
    is_assembly,
    plan_hash,
    rfc3339,
    without_emitter,
)
from kfm.model.paths import receipt_path
from kfm.run.answers import canonical_url_of
from kfm.run.look import Captured
from kfm.run.noop import Noop, is_noop, official_stamp
from kfm.store.base import Tx
from kfm.world.target import Target
from kfm.world.world import World

__all__ = [
    "Answer",
    "Claimed",
    "LookAgain",
    "Settle",
    "check_kept",
    "check_switch",
    "claim",
    "failed_row",
    "journal_of",
    "keep_head_key",
    "keep_plan",
    "new_row",
]


class Settle(msgspec.Struct, frozen=True):
    """A run has named a generation and not ended: it is settled before anything else of its
    partition happens.
    """

    row: LedgerRow


class LookAgain(msgspec.Struct, frozen=True):
    """What was looked at is not enough, or is not what it was."""

    forced: int = 0


class Claimed(msgspec.Struct, frozen=True):
    """A run of its own, with its journal, on this head."""

    row: LedgerRow
    wal: Journal
    head: Generation
    forced: int = 0
    resumed: bool = False


Answer = Noop | Settle | LookAgain | Claimed  # of the transaction that decides


def check_switch(tx: Tx, *names: str) -> None:
    """Raise `Denied` when a person has switched off one of these: a dataset, or a type of job."""
    off = next((s for s in tx.switches.listing() if s.name in names), None)
    if off is not None:
        raise Denied(
            f"{off.name} is switched off: {off.reason}",
            expected="it to be on",
            remedy=f"`kfm switch on {off.name}` when that is settled.",
        )


def check_kept(entry: DatasetEntry) -> None:
    """Raise `UsageError` for a dataset that is retired: nobody asks its upstream for anything."""
    if entry.retired is not None:
        raise UsageError(
            f"{entry.dataset_id} is retired: {entry.retired}. Nothing was fetched.",
            expected="a dataset that is kept up to date",
            remedy=f"Remove `retired` from data/registry/{entry.dataset_id}.yml to bring it back.",
        )


def claim(
    tx: Tx,
    world: World,
    target: Target,
    token: Token,
    captured: Captured,
    toolchain: str,
    run_id: str,
) -> Answer:
    """Settle? NOOP (acks)? resume? else close what is open and claim a new run. One transaction."""
    tx.leases.check(token)
    mine = _unfinished(tx, target)
    for row in mine:
        if row.intent is not None:
            return Settle(row)
    # inside the transaction, after the look for open intents
    head = world.channel(target.dataset_id).head(tx)
    job = tx.jobs.get(target.dataset_id, target.partition, target.win)
    forced = job.forced if job is not None else 0
    if not forced and not captured.replayed:
        noop = is_noop(tx, world, target, captured, head, mine)
        if noop is not None:
            return _ack_noop(tx, world.clock, target, token, captured, head, mine, noop, run_id)
    if captured.unchanged:
        return LookAgain(forced)
    check_clock(tx, world, head)
    resumable = next(
        (r for r in mine if _resumable(r, target, captured, head, toolchain, forced)), None
    )
    if resumable is not None:
        wal = journal_of(world, resumable, token, tx.journals.get(resumable.wal_id))
        return Claimed(resumable, wal, head, forced, resumed=True)
    if captured.replayed:
        return LookAgain(forced)
    close_runs(
        tx,
        world.clock,
        mine,
        "another input, spec or base came first" if not forced else "closed by --force",
    )
    place = next(
        (
            r
            for r in mine
            if r.state == "PROPOSED" and r.pinned == head.generation and _keeps_place(world, r)
        ),
        None,
    )
    why = without_emitter(job.reason) if job is not None and not target.staged else ""
    return _new_run(tx, world, target, token, captured, toolchain, run_id, head, forced, place, why)


def journal_of(
    world: World, row: LedgerRow, token: Token, records: Sequence[WalRecord] = ()
) -> Journal:
    """The journal of a run, under the lease it was claimed with."""
    veil = world.veil(row.dataset_id)
    return Journal(world.store, world.clock, row, records, (token,), veil)


def _unfinished(tx: Tx, target: Target) -> list[LedgerRow]:
    """Open runs of this partition and window, parts of it that wait to be assembled, and whatever
    may be assembling them.
    """
    opened = tx.runs.open_runs(target.dataset_id)
    own = [
        r
        for r in opened
        if (r.partition, r.win) == (target.partition, target.win) and not is_assembly(r)
    ]
    parts = tx.runs.staged(target.dataset_id, target.partition, target.win)
    backfills = {r.backfill for r in parts}
    return [*own, *parts, *(r for r in opened if is_assembly(r) and r.backfill in backfills)]


def _keeps_place(world: World, row: LedgerRow) -> bool:
    """Whether a proposal waits for a word on its change that nobody has given yet: what comes in
    its place goes on under its number.
    """
    from kfm.evidence.proposal import waits_for_change  # only a waiting proposal is looked at

    try:
        return not is_assembly(row) and waits_for_change(world, row)
    except (KfmError, OSError):
        return False


def _resumable(
    row: LedgerRow,
    target: Target,
    captured: Captured,
    head: Generation,
    toolchain: str,
    forced: int,
) -> bool:
    same = (row.input_hash, row.spec_hash, row.base_version, row.toolchain_digest) == (
        captured.input_hash,
        target.spec_hash,
        head.version_id,
        toolchain,
    )
    asked = bool(row.forced or not forced) and row.backfill == target.staged
    return row.state == "CLAIMED" and same and row.pinned in (None, head.generation) and asked


def _ack_noop(
    tx: Tx,
    clock: Clock,
    target: Target,
    token: Token,
    captured: Captured,
    head: Generation,
    mine: list[LedgerRow],
    noop: Noop,
    run_id: str,
) -> Noop:
    now = rfc3339(clock.now())
    stale = [r for r in mine if r.run_id not in noop.stays]
    close_runs(tx, clock, stale, "upstream went back to what is official")
    tx.looks.put_noop(
        NoopRow(
            run_id=run_id,
            dataset_id=target.dataset_id,
            partition=target.partition,
            win=target.win,
            key=captured.key,
            reason=noop.reason,
            names=noop.names,
            timestamp=now,
            code=noop.code,
        )
    )
    if target.again is None:  # a kept capture tells nothing new about upstream
        tx.looks.put(target.dataset_id, target.partition, run_id, noop.code)
    if noop.code == UNCHANGED:
        keep_head_key(tx, target, captured, str(head.version_id), now)
    tx.jobs.ack(target.dataset_id, target.partition, target.win)
    tx.leases.release(token)
    return msgspec.structs.replace(noop, head=head)


def keep_head_key(tx: Tx, target: Target, captured: Captured, version_id: str, now: str) -> None:
    """Remember what this look saw, for the version that is official now."""
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


def _new_run(
    tx: Tx,
    world: World,
    target: Target,
    token: Token,
    captured: Captured,
    toolchain: str,
    run_id: str,
    head: Generation,
    forced: int,
    place: LedgerRow | None,
    why: str,
) -> Claimed:
    # people know the proposal by its number: what takes its place goes on under it
    if place is not None:
        tx.proposals.hand_on(place.run_id, run_id)
    row = new_row(tx, world.clock, target, captured, toolchain, run_id, head, forced)
    tx.runs.insert(row)
    if not target.staged:  # a part is told of with what it is assembled into
        tx.deliveries.put_run(run_id, target.dataset_id, world.receivers.of_runs())
    if target.again is None:  # a kept capture tells nothing new about upstream
        tx.looks.put(target.dataset_id, target.partition, run_id, "changed")
    wal = journal_of(world, row, token)
    page = wal.page()
    page.make(
        "EXECUTE",
        "capture",
        "IN_PROGRESS",
        Capturing(
            spec=target.spec,
            spec_file_hash=target.spec_file_hash,
            receipt_path=receipt_path(run_id, row.timestamp),
            base_generation=head.generation,
            request_reason=why or UNSET,
            looked_on=captured.looked_on if target.leased_window else UNSET,
            capture_id=captured.capture_id,
            files={n: s["digest"] for n, s in zip(captured.files, captured.sources)},
        ),
    )
    wal.begin(tx, page)
    return Claimed(row, wal, head, forced)


def keep_plan(tx: Tx, plan: Plan, input_hash: str, base_version: str | None) -> str:
    """The hash of a plan, which is remembered: a changed one for the same inputs needs a version
    bump; the difference is shown.
    """
    hashed = plan_hash(plan)
    identity = ids.spec_hash(
        [plan.updater_id, plan.updater_version, plan.spec_hash, input_hash, base_version]
    )
    text = canonical.dumps(msgspec.to_builtins(plan)).decode()
    known = tx.looks.plan(identity)
    if known is None:
        tx.looks.keep_plan(identity, hashed, text)
    elif known[0] != hashed:
        old, new = msgspec.json.decode(known[1]), msgspec.json.decode(text)
        changed = sorted(k for k in {*old, *new} if old.get(k) != new.get(k))
        raise StepFailed(
            "The plan changed without a version bump:"
            f" {', '.join(f'{k}: {old.get(k)} -> {new.get(k)}' for k in changed)}.",
            expected=f"plan {known[0][:12]} for {plan.updater_id} {plan.updater_version}",
            remedy="Raise `pipeline_version` in the registry.",
        )
    return hashed


def new_row(
    tx: Tx,
    clock: Clock,
    target: Target,
    captured: Captured,
    toolchain: str,
    run_id: str,
    head: Generation,
    forced: int,
) -> LedgerRow:
    """A new ledger row; `attempt` counts the finished runs of its tuple, so its journal is one
    nobody has.
    """
    before = [
        r
        for r in tx.runs.by_tuple(
            target.dataset_id, target.partition, target.spec_hash, captured.input_hash
        )
        if r.state not in ("CLAIMED", "PROPOSED")
        and (r.base_version, r.toolchain_digest) == (head.version_id, toolchain)
    ]
    wal_id = ids.wal_id(
        target.dataset_id,
        target.partition,
        target.updater_id,
        target.pipeline_version,
        target.spec_hash,
        captured.input_hash,
        head.version_id,
        toolchain,
        len(before),
    )
    return LedgerRow(
        run_id=run_id,
        wal_id=wal_id,
        dataset_id=target.dataset_id,
        partition=target.partition,
        win=target.win,
        state="CLAIMED",
        key=captured.key,
        timestamp=rfc3339(clock.now()),
        source_metadata=after_stamp(captured.sources, official_stamp(tx, target, head)),
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
        backfill=target.staged,
    )


def failed_row(
    tx: Tx, world: World, target: Target, captured: Captured | None, forced: int
) -> LedgerRow:
    """A run that failed before it could be claimed: upstream did not answer, or its address is not
    allowed.
    """
    head = tx.index.last_generation(target.dataset_id) or EMPTY(target.dataset_id)
    blank = captured or Captured(
        sources=tuple(
            {
                "source_id": s["source_id"],
                "source_url": canonical_url_of(s["url"]),
                "etag": "",
                "digest": "",
            }
            for s in target.sources
        ),
        files={},
        input_hash="",
        key=ids.run_key(
            canonical_url_of(target.sources[0]["url"]), "", target.win, target.pipeline_version
        ),
        etag="",
        unchanged=False,
        full=False,
    )
    return new_row(tx, world.clock, target, blank, "", world.new_run_id(), head, forced)
