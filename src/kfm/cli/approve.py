"""Approve a proposal with your own key. You sign its version, its evidence, the policy, the labels and the generation it follows;
if any of them changes, your approval does not count. When enough people approved, `kfm promote N` makes it official."""

import os
from typing import Any

from kfm.cli.call import Parser, again, emit
from kfm.errors import Denied, UsageError
from kfm.proposal import approve, run_of
from kfm.ref import proposal_number
from kfm.wiring import open_world
from kfm.workspace import Workspace, open_workspace

__all__ = ["configure", "main", "signer_of"]


def configure(parser: Parser) -> None:
    parser.add_argument("number", metavar="N", help="the proposal")
    parser.add_argument("--key", metavar="NAME|FILE", help="your key; default: KFM_KEY, or the only one in keys/people")
    parser.add_argument("--digest", metavar="HEX", help="what you looked at: the version digest, 8 digits or more; another one is refused")
    parser.add_argument("--reason", default="", help="kept with the signature, public")


def signer_of(world: Any, workspace: Workspace, named: str | None) -> Any:
    """The key of the person at the keyboard."""
    name = named or os.environ.get("KFM_KEY")
    if name is None:
        there = sorted((workspace.path / "keys" / "people").glob("*.key"))
        if len(there) != 1:
            raise UsageError(
                "Whose key?", expected="--key NAME or a .key file", remedy="`kfm keys list` shows who may sign; `kfm keys new` makes a key."
            )
        name = str(there[0])
    return world.keys.person(name)


def main(args: Any) -> int:
    number, workspace = proposal_number(args.number), open_workspace(args.workspace)
    with open_world(workspace) as world:
        row = run_of(world, number)
        wanted = (args.digest or "").removeprefix("sha256:").removeprefix("v").lower()
        if args.digest and (len(wanted) < 8 or not str(row.version_digest).startswith(wanted)):
            raise Denied(
                f"Proposal {number} is {row.version_digest}, not {args.digest}.",
                expected="the digest of what you looked at",
                remedy=f"`kfm review {number}` shows what is proposed now.",
            )
        signer = signer_of(world, workspace, args.key)
        valid, needed = approve(world, row, signer, args.reason)
    if args.json:
        emit({"status": "approved", "proposal": number, "by": signer.name, "approvals": valid, "needed": needed})
        return 0
    print(f"{signer.name} approved proposal {number} of {row.dataset_id}: {valid} of {needed}")
    if valid >= needed:
        print(f"\nNext  {again(args, f'promote {number}')}")
    return 0
