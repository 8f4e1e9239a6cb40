"""Fetch, transform and judge, and stop before anything becomes official: a preview that `kfm
promote N` can finish.
"""

from argparse import Namespace

from kfm.cli.call import Parser, clock_flag, emit, upstream_flag
from kfm.cli.run import Wanted, run_dataset
from kfm.model import UsageError
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


def main(args: Namespace) -> int:
    if args.force and not args.reason.strip():
        raise UsageError(
            "--force needs a reason.", expected='--reason "…"', remedy="Say why; it is recorded."
        )
    workspace = open_workspace(args.workspace)
    for name in args.dataset:
        workspace.require(name)
    wanted = Wanted(
        where=args.workspace,
        as_json=args.json,
        verbose=args.verbose,
        upstream=args.upstream,
        force=args.force,
        reason=args.reason,
        propose_only=True,
        clock_ok=args.clock_ok,
    )
    outcomes = [o for name in args.dataset for o in run_dataset(workspace, name, wanted)]
    if args.json:
        emit({"runs": outcomes})
    return max(o.exit_code for o in outcomes)
