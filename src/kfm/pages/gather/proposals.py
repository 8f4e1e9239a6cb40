"""What the pages of proposals tell; for operators."""

from kfm.access.boundary import Opened, data_of, located
from kfm.cli.answer import Call
from kfm.cli.review import Reviewed, Waits, review
from kfm.diff.base import Diff
from kfm.evidence.proposal import run_of
from kfm.model import Denied, Generation, KfmError, UsageError
from kfm.pages import addresses
from kfm.pages.gather.asks import Asks
from kfm.pages.proposal import ProposalPage, ProposalsPage, WaitingLine
from kfm.reader.changes import diff_of, nothing_before
from kfm.reader.door import Hidden
from kfm.world.world import World

__all__ = ["proposal_page", "proposals_page"]


def proposals_page(asks: Asks) -> ProposalsPage:
    found = review(Call(asks.workspace.path, True, False), None)
    assert isinstance(found, Waits)  # no number was named
    return ProposalsPage(
        address="/proposals",
        title="Proposals",
        command="kfm review",
        proposals=tuple(
            WaitingLine(
                proposal=w.proposal,
                dataset_id=w.dataset_id,
                title=_title(asks, w.dataset_id),
                since=w.since,
                approvals=w.approvals,
                needed=w.needed,
                why=tuple(w.asked),
                problem=w.problem,
            )
            for w in found.proposals
        ),
    )


def _title(asks: Asks, dataset_id: str) -> str:
    entry = asks.workspace.readable(dataset_id)
    return entry.title if entry is not None else dataset_id


def proposal_page(asks: Asks, number: int) -> ProposalPage:
    try:
        row = run_of(asks.world, number)
    except UsageError as nothing:
        raise Hidden from nothing
    found = review(Call(asks.workspace.path, True, False), str(number))
    assert isinstance(found, Reviewed)  # one was named
    judged = found.judgement
    entry = asks.workspace.readable(row.dataset_id)
    diff, not_shown = _diff(asks, number, row.dataset_id)
    return ProposalPage(
        address=addresses.proposal(number),
        title=f"Proposal {number}",
        command=f"kfm review {number}",
        proposal=number,
        dataset_id=row.dataset_id,
        dataset_title=_title(asks, row.dataset_id),
        label=entry.policy_label or entry.sensitivity if entry is not None else None,
        state=found.state,
        run_id=row.run_id,
        version_id=judged.version_id,
        since=row.timestamp,
        verdicts=judged.verdicts,
        approvals=judged.approvals,
        needed=judged.needed,
        base_generation=judged.base_generation,
        you_sign=dict(found.you_sign),
        diff=diff,
        not_shown=not_shown,
        approve=f'kfm approve {number} --key NAME --reason "…"',
        reject=f'kfm reject {number} --key NAME --reason "…"',
        preview=f"kfm show proposal/{number}",
    )


def _diff(asks: Asks, number: int, dataset_id: str) -> tuple[Diff | None, str]:
    """What it changes, as precisely as whoever looks may see it."""
    with asks.asking.unpublished() as world:
        return _compared(asks, world, number, dataset_id)


def _compared(asks: Asks, world: World, number: int, dataset_id: str) -> tuple[Diff | None, str]:
    try:
        new = located(world, f"proposal/{number}", asks.reader)
        head: Generation = asks.world.store.transaction(
            lambda tx: asks.world.channel(dataset_id).head(tx)
        )
        if head.version_id is None:
            old: Opened = nothing_before(new)
        else:
            old = data_of(asks.world, dataset_id, asks.reader)
        return diff_of(old, new), ""
    except Denied as no:
        asks.asking.refuse(no)
        return None, f"{no.happened} {no.remedy}"
    except KfmError as error:
        return None, f"{error.happened} {error.remedy}"
