"""Rebuild the store from the evidence files, in a new epoch. The old store, if there is one, is set aside, never deleted."""

from typing import Any

from kfm.cli.call import Parser, again, emit
from kfm.cli.terminal import say
from kfm.wiring import reindex_workspace
from kfm.workspace import open_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    return None


def main(args: Any) -> int:
    damaged: list[str] = []
    counts = reindex_workspace(open_workspace(args.workspace), damaged)
    if args.json:
        emit({"status": "reindexed", **counts, "damaged": damaged})
        return 6 if damaged else 0
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    for path in damaged:
        say(f"{path} is damaged and was left out; restore it from a backup and reindex again")
    print(f"\nNext  {again(args, 'status')}")
    return 6 if damaged else 0
