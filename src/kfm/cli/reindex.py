"""Rebuild the store from the evidence files, in a new epoch. The old store, if there is one, is set
aside, never deleted.

Jobs, switches, pools, schedules and backfills are carried over when the old store can be read;
staged parts of a backfill are made again by `kfm backfill resume`. --json = {status, datasets,
runs, noops, generations, lineage, epoch, coordination, damaged}, where coordination is "carried
over" or "lost: …".
"""

from argparse import Namespace

from kfm.cli.call import Parser, again, emit
from kfm.cli.terminal import say
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import reindex_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    return None


def main(args: Namespace) -> int:
    damaged: list[str] = []
    counts = reindex_workspace(open_workspace(args.workspace), damaged)
    if args.json:
        emit({"status": "reindexed", **counts, "damaged": damaged})
        return 6 if damaged else 0
    coordination = counts.pop("coordination")
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    print(f"jobs, switches, schedules, backfills  {coordination}")
    for path in damaged:
        say(f"{path} is damaged and was left out; restore it from a backup and reindex again")
    print(f"\nNext  {again(args, 'status')}")
    return 6 if damaged else 0
