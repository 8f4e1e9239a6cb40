"""noop: whether there is nothing to do: unchanged, kept out, older, proposed or denied already,
staged.
"""

from collections.abc import Sequence

import msgspec

from kfm.channel.generations import kept_out, unknown_content
from kfm.model import (
    UNCHANGED,
    Generation,
    KfmError,
    LedgerRow,
    denial_codes,
    is_assembly,
    is_older,
    stamps_of,
)
from kfm.run.look import Captured
from kfm.store.base import Tx
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["Noop", "approved", "denied_before", "is_noop", "official_stamp", "older_told"]


class Noop(msgspec.Struct, frozen=True):
    """There is nothing to do, and why."""

    code: str  # what others decide by: unchanged, kept_out, older, proposed, denied, staged
    reason: str
    names: str = ""
    exit_code: int = 0
    head: Generation | None = None
    # run ids: of what is open in its place, what goes on all the same
    stays: frozenset[str] = frozenset()


def is_noop(
    tx: Tx,
    world: World,
    target: Target,
    captured: Captured,
    head: Generation,
    mine: Sequence[LedgerRow],
) -> Noop | None:
    """Whether there is nothing to do."""
    # what was kept of it may equal the head, and still it was refused
    if captured.refused is not None:
        return None
    if _known(tx, target, captured, head):
        return Noop(UNCHANGED, "unchanged", f"generation {head.generation}")
    outs = (kept_out(head, target.place, target.mark(found)) for found in _hashes(captured))
    out = next((found for found in outs if found is not None), None)
    if out is not None:
        word = "withdrawn" if out.how == "suppressed" else "rolled back"
        return Noop(
            "kept_out",
            f"this content was {word} by generation {out.generation}",
            f"generation {out.generation}",
        )
    said, official = (
        (captured.sources[0].get("stamp", "") if captured.sources else ""),
        official_stamp(tx, target, head),
    )
    if is_older(said, official) and target.again is None and not target.staged:
        return Noop(
            "older",
            older_told(said, official),
            f"generation {head.generation}",
            stays=_run_ids(mine),  # what waits there is newer than this answer, too
        )
    same = [
        r
        for r in mine
        if r.state == "PROPOSED"
        and (r.input_hash, r.spec_hash) == (captured.input_hash, target.spec_hash)
    ]
    waiting = next((r for r in same if r.pinned == head.generation), None)
    if waiting is not None:
        names, stays = f"proposal {tx.proposals.number(waiting.run_id)}", _run_ids([waiting])
        if world.propose_only or not approved(world, waiting):
            why = "already proposed, waits for a person"
            return Noop("proposed", why, names, 7, stays=stays)
        tx.runs.move(waiting.run_id, "PROPOSED", promo=1)
        return Noop("proposed", "already proposed", names, stays=stays)
    rejected = denied_before(tx, target, captured.input_hash, head)
    if rejected is not None:
        return Noop("denied", f"already denied: {rejected.reason}", f"run {rejected.run_id}", 3)
    same_part = (captured.input_hash, target.spec_hash, target.staged)
    kept = [
        r
        for r in mine
        if r.state == "STAGED" and (r.input_hash, r.spec_hash, r.backfill) == same_part
    ]
    if target.staged and kept:
        stays = _run_ids([*kept, *(r for r in mine if is_assembly(r))])
        return Noop("staged", "already staged", f"run {kept[-1].run_id}", stays=stays)
    return None


def _run_ids(rows: Sequence[LedgerRow]) -> frozenset[str]:
    return frozenset(r.run_id for r in rows)


def approved(world: World, row: LedgerRow) -> bool:
    """Whether the approvals of a proposal suffice now; damaged evidence never does."""
    from kfm.evidence.proposal import suffices  # only a waiting proposal is looked at

    try:
        return suffices(world, row)
    except (KfmError, OSError, msgspec.DecodeError):
        return False


def official_stamp(tx: Tx, target: Target, head: Generation) -> str:
    """When upstream said that what is official of this partition was made; empty: it did not
    say.
    """
    if head.version_id is None:
        return ""
    row = tx.runs.maker_of(target.dataset_id, head.version_id)
    # a withdrawal left it, or another partition was the last to change
    if row is None or row.partition != target.partition:
        row = next(iter(tx.runs.committed(target.dataset_id, target.partition, 1)), None)
    said, before = stamps_of(row.source_metadata) if row is not None else ("", "")
    return said or before  # an answer that said nothing leaves the last word standing


def older_told(said: str, official: str) -> str:
    return (
        f"upstream's answer is of {said}, older than the official one of {official}: not taken;"
        " --force --reason … proposes it"
    )


def denied_before(tx: Tx, target: Target, input_hash: str, head: Generation) -> LedgerRow | None:
    """The run that was denied with this input, under this spec, on this base."""
    rows = tx.runs.by_tuple(target.dataset_id, target.partition, target.spec_hash, input_hash)
    fitting = [
        r
        for r in rows
        if r.state == "REJECTED" and r.win == target.win and r.base_version == head.version_id
    ]
    return next((r for r in reversed(fitting) if not _may_have_passed(r.reason)), None)


_PASSING = (
    "root.", "attestation.", "policy.", "labels.grant", "labels.look", "leak.column", "proposal.", "receipts.", "catalog.", "integrity.",
    "approval.void",
)  # fmt: skip


def _may_have_passed(reason: str) -> bool:
    """Whether a denial had a cause outside spec and content: a key, a grant or a word of a steward,
    an engine that did not answer, a lost file.
    """
    return any(code.startswith(_PASSING) for code in denial_codes(reason))


def _known(tx: Tx, target: Target, captured: Captured, head: Generation) -> bool:
    """Does the head generation hold exactly this content, made under exactly this spec?"""
    hashes = _hashes(captured)
    if head.version_id is None or unknown_content(head):
        return False
    if head.mark_at(target.place) in [target.mark(found) for found in hashes]:
        return True
    # equal content under other bytes was seen before
    key = tx.index.head_key(target.dataset_id, target.partition, target.win)
    return (
        key is not None
        and (key.version_id, key.spec_hash) == (head.version_id, target.spec_hash)
        and key.input_hash in hashes
    )


def _hashes(captured: Captured) -> list[str]:
    """The names of an input: what became official, or was withdrawn, before private inputs were
    named by commitments goes by the other.
    """
    return [captured.input_hash, *([captured.unsalted] if captured.unsalted else [])]
