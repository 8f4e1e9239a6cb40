"""Rebuild the store from the evidence files, in a new epoch. The old store, if there is one, is set aside, never deleted."""

from typing import Any

from kfm.cli.call import Parser, emit
from kfm.wiring import open_workspace, reindex_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    return None


def main(args: Any) -> int:
    counts = reindex_workspace(open_workspace(args.workspace))
    if args.json:
        emit({"status": "reindexed", **counts})
        return 0
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    print("\nNext  kfm status")
    return 0
