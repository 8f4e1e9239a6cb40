"""Approve a proposal with your own key."""

import os
import sys
from typing import Literal

from kfm.access.references import proposal_number
from kfm.acts.approve import approve
from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.terminal import show, write
from kfm.evidence.proposal import run_of
from kfm.keys.private_key import PersonKey, fingerprint_of
from kfm.model import Denied, UsageError
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Approved", "approved", "signer_of"]


def signer_of(world: World, workspace: Workspace, named: str | None) -> PersonKey:
    """The key of the person at the keyboard: one that was named, or the only one here once they say
    that it is theirs.
    """
    name = named or os.environ.get("KFM_KEY")
    if name is not None:
        return world.keys.person(name)
    there = sorted((workspace.path / "keys" / "people").glob("*.key"))
    if len(there) != 1:
        raise UsageError(
            "Whose key?",
            expected="--key NAME or a .key file",
            remedy="`kfm keys list` shows who may sign; `kfm keys new` makes a key.",
        )
    signer = world.keys.person(there[0])
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"Nobody said whose key signs; the only one here is that of {signer.name}.",
            expected=f"--key {signer.name!r}, or KFM_KEY",
            remedy="Name the key if it is yours; nobody signs for another.",
        )
    print(
        f"Sign as {signer.name}, {fingerprint_of(signer.public)}? [y/N] ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError(
            "Nothing was signed.", expected="y", remedy="Name your own key with --key."
        )
    return signer


class Approved(Answer, frozen=True, kw_only=True):
    """A proposal that one person more approved."""

    status: Literal["approved"]
    dataset_id: str
    proposal: int
    by: str
    approvals: int
    needed: int

    def tell(self, call: Call) -> None:
        so_far = f"{self.approvals} of {self.needed}"
        show(f"{self.by} approved proposal {self.proposal} of {self.dataset_id}: {so_far}")
        if self.approvals >= self.needed:
            write(f"\nNext  {again(call, f'promote {self.proposal}')}")


def approved(call: Call, number: str, key: str | None, digest: str | None, reason: str) -> Approved:
    proposal, workspace = proposal_number(number), open_workspace(call.workspace)
    with open_world(workspace) as world:
        row = run_of(world, proposal)
        wanted = (digest or "").removeprefix("sha256:").removeprefix("v").lower()
        if digest and (len(wanted) < 8 or not str(row.version_digest).startswith(wanted)):
            raise Denied(
                f"Proposal {proposal} is {row.version_digest}, not {digest}.",
                expected="the digest of what you looked at",
                remedy=f"`kfm review {proposal}` shows what is proposed now.",
            )
        signer = signer_of(world, workspace, key)
        valid, needed = approve(world, row, signer, reason)
    return Approved(
        status="approved",
        dataset_id=row.dataset_id,
        proposal=proposal,
        by=signer.name,
        approvals=valid,
        needed=needed,
    )
