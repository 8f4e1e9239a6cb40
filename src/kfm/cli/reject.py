"""Reject a proposal with your own key and a reason."""

from typing import Literal

from kfm.access.references import proposal_number
from kfm.acts.approve import reject
from kfm.cli.answer import Answer, Call
from kfm.cli.approve import signer_of
from kfm.cli.terminal import show
from kfm.evidence.proposal import run_of
from kfm.evidence.receipts import finish
from kfm.model import UsageError
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Rejected", "rejected"]


class Rejected(Answer, frozen=True, kw_only=True):
    """A proposal that ended."""

    status: Literal["rejected"]
    dataset_id: str
    proposal: int
    by: str
    reason: str

    def tell(self, call: Call) -> None:
        show(
            f"{self.by} rejected proposal {self.proposal} of {self.dataset_id}; the official version"
            " is unchanged"
        )


def rejected(call: Call, number: str, key: str | None, reason: str) -> Rejected:
    reason = reason.strip()
    if not reason:
        raise UsageError(
            "A rejection needs a reason.", expected='--reason "…"', remedy="Say why; it is signed."
        )
    proposal, workspace = proposal_number(number), open_workspace(call.workspace)
    with open_world(workspace) as world:
        row = run_of(world, proposal)
        signer = signer_of(world, workspace, key)
        finish(world, reject(world, row, signer, reason).run_id)
    return Rejected(
        status="rejected",
        dataset_id=row.dataset_id,
        proposal=proposal,
        by=signer.name,
        reason=reason,
    )
