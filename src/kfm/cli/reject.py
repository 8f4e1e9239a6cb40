"""Reject a proposal with your own key and a reason. It ends REJECTED; the same content is not
proposed again until something changes.
"""

from argparse import Namespace

from kfm.cli.approve import signer_of
from kfm.cli.call import Parser, emit
from kfm.evidence.proposal import reject, run_of
from kfm.evidence.receipts import finish
from kfm.evidence.references import proposal_number
from kfm.model import UsageError
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("number", metavar="N", help="the proposal")
    parser.add_argument(
        "--key",
        metavar="NAME|FILE",
        help="your key; default: KFM_KEY; else you are asked, on a terminal",
    )
    parser.add_argument("--reason", default="", help="why; kept with the signature")


def main(args: Namespace) -> int:
    if not args.reason.strip():
        raise UsageError(
            "A rejection needs a reason.", expected='--reason "…"', remedy="Say why; it is signed."
        )
    number, workspace = proposal_number(args.number), open_workspace(args.workspace)
    with open_world(workspace) as world:
        row = run_of(world, number)
        signer = signer_of(world, workspace, args.key)
        ended = reject(world, row, signer, args.reason.strip())
        finish(world, ended.run_id)
    if args.json:
        emit(
            {
                "status": "rejected",
                "proposal": number,
                "by": signer.name,
                "reason": args.reason.strip(),
            }
        )
        return 0
    print(
        f"{signer.name} rejected proposal {number} of {row.dataset_id}; the official version is"
        " unchanged"
    )
    return 0
