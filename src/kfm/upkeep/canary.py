"""canary: another version of an updater beside what is official, counted row by row, recorded
before anybody approves it.
"""

from kfm.access.boundary import NOBODY, Reader, located
from kfm.evidence.proposal import Compared, Comparison, comparison_of, load
from kfm.evidence.receipts import pretty
from kfm.model import Denied, Generation, KfmError, LedgerRow, rfc3339
from kfm.model.paths import proposal_path
from kfm.world.world import World

__all__ = ["compare", "waiting"]


def waiting(world: World, dataset_id: str) -> list[tuple[int, LedgerRow]]:
    """The proposals of a dataset's canary that wait: number and run."""
    rows: list[tuple[int, LedgerRow]] = world.store.read(lambda tx: tx.proposals.waiting())
    return [
        (number, row)
        for number, row in rows
        if row.dataset_id == dataset_id and _is_canary(world, row)
    ]


def _is_canary(world: World, row: LedgerRow) -> bool:
    try:
        return bool(load(world, row)[0].canary)
    except (KfmError, OSError):
        return False  # `kfm review` says what is wrong with it


def compare(
    world: World, number: int, row: LedgerRow, by: str, reader: Reader = NOBODY
) -> tuple[Comparison, bool]:
    """What is recorded of this proposal beside what is official, and whether that was done just
    now.
    """
    kept = comparison_of(world, row)
    if kept is not None:
        return kept, False
    head = world.store.transaction(lambda tx: world.channel(row.dataset_id).head(tx))
    if row.pinned != head.generation:
        raise Denied(
            f"Proposal {number} was made on generation {row.pinned}; generation {head.generation}"
            " is official now.",
            expected="a proposal on what is official",
            remedy=f"Run `kfm run {row.dataset_id}`: it is made again on that.",
        )
    found = Comparison(
        dataset_id=row.dataset_id,
        proposal=number,
        run_id=row.run_id,
        partition=row.partition,
        pipeline_version=row.pipeline_version,
        official_version=head.version_id,
        base_generation=head.generation,
        candidate_digest=load(world, row)[1],
        artifacts=_counted(world, number, row, head, reader),
        at=rfc3339(world.clock.now()),
        by=by,
    )
    if not world.data.create(
        proposal_path(row.dataset_id, row.run_id, "comparison.json"), pretty(found)
    ):
        kept = comparison_of(world, row)
        if kept is None:
            raise Denied(
                f"The comparison recorded for proposal {number} speaks of other bytes.",
                expected="one of this candidate",
                remedy=f"`kfm run {row.dataset_id} --force --reason …` proposes it again.",
            )
        return kept, False
    return found, True


def _counted(
    world: World, number: int, row: LedgerRow, head: Generation, reader: Reader
) -> dict[str, Compared]:
    """Artifact -> its differing rows; tables that were taken over as they are are left out."""
    from kfm.diff.tables import diff_files

    new = located(world, f"proposal/{number}", reader)
    old = (
        located(world, f"{row.dataset_id}@{head.generation}", reader).files
        if head.version_id is not None
        else {}
    )
    own = f"{row.partition or row.dataset_id}.parquet"
    found = {}
    for name in sorted(
        n
        for n in {*old, *new.files}
        if n.endswith(".parquet") and (n == own or old.get(n) != new.files.get(n))
    ):
        sides = [{name: files[name]} if name in files else {} for files in (old, new.files)]
        diff = diff_files(sides[0], sides[1], new.business_key, limit=0)
        found[name] = Compared(added=diff.added, removed=diff.removed, changed=diff.changed)
    return found
