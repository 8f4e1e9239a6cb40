"""Make an earlier version official again. What it leaves is held: it comes back only by `kfm run --force`."""

from typing import Any

from kfm.cli.call import Parser, clock_flag, emit, heed_clock, offer
from kfm.errors import UsageError
from kfm.judgement import check_version
from kfm.operate import rollback
from kfm.ref import dataset_of, resolve
from kfm.wiring import open_world
from kfm.workspace import open_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("--to", metavar="REF", help="the version; default: the one before the present")
    parser.add_argument("--reason", default="", help="why; recorded in the channel")
    clock_flag(parser)


def main(args: Any) -> int:
    if not args.reason.strip():
        raise UsageError("A rollback needs a reason.", expected='--reason "…"', remedy="Say why; it is signed into the channel.")
    workspace = open_workspace(args.workspace)
    workspace.require(args.dataset)
    with open_world(workspace) as world:
        heed_clock(world, args, args.dataset)
        text = args.to if args.to is None or "@" in args.to else f"{args.dataset}@{args.to}"
        if text is not None and dataset_of(text) != args.dataset:
            raise UsageError(f"{args.to} is no version of {args.dataset}.", expected=f"{args.dataset}@…", remedy="Correct --to.")
        version = resolve(world, text).version_id if text else None
        made = rollback(world, args.dataset, version, args.reason.strip(), lambda found: check_version(world, args.dataset, found))
        offer(args, world, args.dataset)
    if args.json:
        emit({"status": "rolled_back", "dataset_id": args.dataset, "version_id": made.version_id, "generation": made.generation})
        return 0
    print(f"{args.dataset} is {str(made.version_id)[:9]}… again, generation {made.generation}")
    print(f"\nNext  kfm get {args.dataset}")
    return 0
