"""How much lies where: bytes and files by dataset and zone, what `kfm gc` could free, and what the
disk has left.
"""

import shutil
from pathlib import Path

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.terminal import show, write
from kfm.upkeep.reindex import datasets_with_evidence
from kfm.upkeep.retention import ZONES, Usage, doomed, freed, measured, usage
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from kfm.zones.base import held_file

__all__ = ["Lying", "human", "lying"]


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


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a dataset lies where, and what could go."""

    dataset_id: str
    zones: dict[str, Usage]
    bytes: int
    retention: str | None
    freeable: Usage


class Disk(msgspec.Struct, frozen=True):
    """What the disk has left."""

    free: int
    total: int


class Lying(Answer, frozen=True, kw_only=True):
    """How much lies where."""

    datasets: list[Filled]
    workspace: dict[str, Usage]
    disk: Disk

    def tell(self, call: Call) -> None:
        _print(self.datasets, self.workspace)
        show(f"\nDisk  {human(self.disk.free)} of {human(self.disk.total)} free")
        if any(row.freeable.files for row in self.datasets):
            only = f" {self.datasets[0].dataset_id}" if len(self.datasets) == 1 else ""
            write(f"\nNext  {again(call, f'gc{only}')}")


def lying(call: Call, dataset: str | None) -> Lying:
    workspace = open_workspace(call.workspace)
    with open_world(workspace) as world:
        every = sorted({*workspace.registered(), *datasets_with_evidence(world)})
        if dataset is not None and dataset not in every:
            workspace.require(dataset)
        rows = [_row(workspace, world, name) for name in ([dataset] if dataset else every)]
    disk = shutil.disk_usage(workspace.path)
    return Lying(
        datasets=rows,
        workspace={
            name: _below(workspace, workspace.path / name) for name in ("receipts", "ledger")
        },
        disk=Disk(disk.free, disk.total),
    )


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
    show(f"  {'':<{width}}" + "".join(f"{name:>11}" for name in (*ZONES, "files", "gc frees")))
    for row in rows:
        sizes = [human(row.zones[zone].bytes) for zone in ZONES]
        files = sum(row.zones[zone].files for zone in ZONES)
        show(
            f"  {row.dataset_id:<{width}}"
            + "".join(f"{text:>11}" for text in (*sizes, f"{files:,}", human(row.freeable.bytes)))
        )
    for name, found in rest.items():
        show(f"  {name:<{width}}{human(found.bytes):>11}{'':>33}{found.files:>11,}")
