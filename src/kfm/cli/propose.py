"""Fetch, transform and judge, and stop before anything becomes official: a preview that `kfm
promote N` can finish.
"""

from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, clock_flag, emit, upstream_flag
from kfm.cli.run import run_dataset
from kfm.model.errors import UsageError
from kfm.workspace.folder import open_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", nargs="+", metavar="DATASET")
    upstream_flag(parser)
    parser.add_argument(
        "--force", action="store_true", help="propose although nothing changed; gates still apply"
    )
    parser.add_argument("--reason", default="", help="why it is forced; recorded")
    clock_flag(parser)
    parser.set_defaults(dry_run=False, spec=None, propose_only=True)


def main(args: Namespace) -> int:
    if args.force and not args.reason.strip():
        raise UsageError(
            "--force needs a reason.", expected='--reason "…"', remedy="Say why; it is recorded."
        )
    workspace = open_workspace(args.workspace)
    for name in args.dataset:
        workspace.require(name)
    outcomes = [o for name in args.dataset for o in run_dataset(workspace, name, args, "", 60.0)]
    if args.json:
        emit({"runs": [msgspec.to_builtins(o) for o in outcomes]})
    return max(o.exit_code for o in outcomes)
