"""How much lies where: bytes and files by dataset and zone, what `kfm gc` could free, and what the
disk has left.

Bytes that lie under two names are counted once, where they are published.
--json = {"datasets": [{dataset_id, zones: {zone: {files, bytes}}, bytes, retention, freeable:
{files, bytes}}], "workspace": {receipts, ledger: {files, bytes}}, "disk": {free, total}}.
"""

import shutil
from argparse import Namespace
from pathlib import Path

import msgspec

from kfm.cli.call import Parser, again, emit
from kfm.cli.terminal import show
from kfm.upkeep.reindex import datasets_with_evidence
from kfm.upkeep.retention import ZONES, Usage, doomed, freed, measured, usage
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from kfm.zones.base import held_file

__all__ = ["configure", "human", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", metavar="DATASET", nargs="?", help="this one only")


def human(size: int) -> str:
    """Bytes as people say them."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return (
                f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
            )
        amount /= 1000
    return f"{amount:,.1f} TB"


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    with open_world(workspace) as world:
        every = sorted({*workspace.registered(), *datasets_with_evidence(world)})
        if args.dataset is not None and args.dataset not in every:
            workspace.require(args.dataset)
        rows = [
            _row(workspace, world, name) for name in ([args.dataset] if args.dataset else every)
        ]
    rest = {name: _below(workspace, workspace.path / name) for name in ("receipts", "ledger")}
    disk = shutil.disk_usage(workspace.path)
    if args.json:
        emit(
            {
                "datasets": rows,
                "workspace": rest,
                "disk": {"free": disk.free, "total": disk.total},
            }
        )
        return 0
    _print(rows, rest)
    print(f"\nDisk  {human(disk.free)} of {human(disk.total)} free")
    if any(row.freeable.files for row in rows):
        print(f"\nNext  {again(args, 'gc' + (f' {args.dataset}' if args.dataset else ''))}")
    return 0


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a dataset lies where, and what could go."""

    dataset_id: str
    zones: dict[str, Usage]
    bytes: int
    retention: str | None
    freeable: Usage


def _row(workspace: Workspace, world: World, dataset_id: str) -> Filled:
    zones, items = usage(world, dataset_id), doomed(world, dataset_id)
    entry = workspace.readable(dataset_id)
    return Filled(
        dataset_id=dataset_id,
        zones=zones,
        bytes=sum(zone.bytes for zone in zones.values()),
        retention=entry.retention if entry is not None else None,
        freeable=Usage(files=sum(len(item.paths) for item in items), bytes=freed(world, items)),
    )


def _below(workspace: Workspace, folder: Path) -> Usage:
    return measured(
        (held_file(path) for path in sorted(folder.rglob("*")) if path.is_file()), set()
    )


def _print(rows: list[Filled], rest: dict[str, Usage]) -> None:
    width = max([len(row.dataset_id) for row in rows] + [8])
    print(f"  {'':<{width}}" + "".join(f"{name:>11}" for name in (*ZONES, "files", "gc frees")))
    for row in rows:
        sizes = [human(row.zones[zone].bytes) for zone in ZONES]
        files = sum(row.zones[zone].files for zone in ZONES)
        show(
            f"  {row.dataset_id:<{width}}"
            + "".join(f"{text:>11}" for text in (*sizes, f"{files:,}", human(row.freeable.bytes)))
        )
    for name, found in rest.items():
        show(f"  {name:<{width}}{human(found.bytes):>11}{'':>33}{found.files:>11,}")
