"""already_official: whether a candidate says what is official already, and what is kept of it then."""

from kfm.channel.generations import version_kept_out
from kfm.evidence.journal import Journal
from kfm.evidence.proposal import load, registry_digest
from kfm.model import Candidate, Generation, KfmError, LedgerRow, is_assembly
from kfm.release.by_rule import keep_precise, sealed_records
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["keep_records", "nothing_new"]


def nothing_new(
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
    # the content id of a partition says nothing about the others
    whole = not run.partition and not (is_assembly(run) and len(candidate.artifacts) > 1)
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


def keep_records(world: World, wal: Journal, candidate: Candidate, *, asked: bool) -> None:
    """Private records that change nothing public are what the official version stands for from now
    on.

    Else what a window added would be lost to the next one, and would never be enough to explain a
    row. This comes before the commit that ends the run, under the lease of the dataset: an attempt
    that dies in between is repeated from the records its PLAN pinned.
    """
    run = wal.run

    def unchanged(tx: Tx) -> str | None:
        tx.leases.check(*wal.tokens)
        head: Generation = world.channel(run.dataset_id).head(tx)
        again = (
            nothing_new(tx, world, head, run, candidate, asked=asked)
            if head.generation == candidate.base_generation
            else None
        )
        official = again is not None and (again[1] or candidate.version_id == head.version_id)
        return head.version_id if official and not run.forced and not candidate.older else None

    version: str | None = world.store.transaction(unchanged)
    # nobody else was here since
    if version is not None and sealed_records(world, run.dataset_id, version) == (
        candidate.records or {}
    ):
        keep_precise(world, run.dataset_id, version, candidate.precise)
