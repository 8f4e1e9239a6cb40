"""Approve a proposal with your own key. You sign its version, its evidence, the policy, the labels
and the generation it follows; if any of them changes, your approval does not count. When enough
people approved, `kfm promote N` makes it official.
"""

import os
import sys
from argparse import Namespace

from kfm.cli.call import Parser, again, emit
from kfm.evidence.proposal import approve, run_of
from kfm.evidence.references import proposal_number
from kfm.keys.private_key import PersonKey, fingerprint_of
from kfm.model import Denied, UsageError
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main", "signer_of"]


def configure(parser: Parser) -> None:
    parser.add_argument("number", metavar="N", help="the proposal")
    parser.add_argument(
        "--key",
        metavar="NAME|FILE",
        help="your key; default: KFM_KEY; else you are asked, on a terminal",
    )
    parser.add_argument(
        "--digest",
        metavar="HEX",
        help="what you looked at: the version digest, 8 digits or more; another one is refused",
    )
    parser.add_argument("--reason", default="", help="kept with the signature, public")


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


def main(args: Namespace) -> int:
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
        emit(
            {
                "status": "approved",
                "proposal": number,
                "by": signer.name,
                "approvals": valid,
                "needed": needed,
            }
        )
        return 0
    print(f"{signer.name} approved proposal {number} of {row.dataset_id}: {valid} of {needed}")
    if valid >= needed:
        print(f"\nNext  {again(args, f'promote {number}')}")
    return 0
