"""List runs, newest first; NOOPs with --all."""

from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, emit
from kfm.cli.terminal import show, sign
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", nargs="?", metavar="DATASET", help="only this one")
    parser.add_argument("--all", action="store_true", help="NOOPs too")
    parser.add_argument("--limit", type=int, default=50, help="how many at the most")


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    if args.dataset:
        workspace.require(args.dataset)
    with open_world(workspace) as world:
        rows = [
            msgspec.to_builtins(r)
            for r in world.store.read(lambda tx: tx.runs.recent(args.dataset, args.limit))
        ]
        noops = (
            [
                msgspec.to_builtins(r) | {"state": "NOOP"}
                for r in world.store.read(lambda tx: tx.looks.noops(args.dataset, args.limit))
            ]
            if args.all
            else []
        )
    found = sorted(rows + noops, key=lambda r: str(r["run_id"]), reverse=True)[: args.limit]
    if args.json:
        emit({"runs": found})
        return 0
    for row in found:
        said = row.get("version_id") or ""
        reason = row["reason"] if row["state"] != "COMMITTED" else ""
        show(
            f"  {sign(row['state'])} {row['run_id']}  {row['dataset_id']:<22} {row['state']:<10}"
            f" {said[:9]:<10} {reason}"
        )
    if not found:
        print("No runs yet.\n\nNext  kfm run --all")
    return 0
