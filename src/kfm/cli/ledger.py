"""Print the ledger: every run key and what became of it."""

from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, emit
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", nargs="?", metavar="DATASET", help="only this one")
    parser.add_argument("--limit", type=int, default=1000, help="how many at the most")


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    if args.dataset:
        workspace.require(args.dataset)
    with open_world(workspace) as world:
        rows = world.store.read(lambda tx: tx.runs.recent(args.dataset, args.limit))
        epoch = world.store.epoch
    if args.json:
        emit(
            {
                "epoch": epoch,
                "rows": [
                    msgspec.to_builtins(r)
                    | {"source_metadata": msgspec.json.decode(r.source_metadata)}
                    for r in rows
                ],
            }
        )
        return 0
    for r in rows:
        forced = " forced" if r.forced else ""
        print(
            f"  {r.timestamp[:19]}  {r.dataset_id:<22} {r.state:<10} key {r.key[:12]}…  spec"
            f" {r.spec_hash[:8]}…  {r.pipeline_version}{forced}"
        )
    return 0
