"""Many small files of a day become one pack, a line each; records and addresses stay what they
were.
"""

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from kfm.model import INGEST, Json, ids
from kfm.model.paths import noops_path, receipts_folder, run_folder, run_path
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = ["pack", "pack_noops", "pack_receipts"]


def pack(
    zone: Zone,
    lines: Sequence[Json],
    files: Sequence[str],
    path: Callable[[str], str],
    noted: Callable[[str, str], None],
) -> None:
    """Write `lines`, which hold all of `files`, to the pack that `path` names after their digest,
    and remove the files.

    A crash half-way leaves a file in both places, never in none: the pack is durable before `noted`
    (its path, its digest), which is durable before the first file goes. Lines that are none are
    noted all the same.
    """
    content = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    digest = ids.digest(content)
    if content:
        zone.create(path(digest), content)
    noted(path(digest), digest)
    for file in files:
        zone.remove(file)


def pack_noops(world: World, dataset_id: str) -> int:
    """Pack the NOOP runs of days that are over. A crash half-way leaves a run in both places, never
    in none.
    """
    today = world.clock.now().date()
    rows = world.store.read(lambda tx: tx.looks.unpacked_noops(dataset_id, today.isoformat()))
    days: dict[str, list[str]] = {}
    shown = world.latest.shown_run()
    for row in rows:
        if row.run_id == shown:
            continue
        days.setdefault(row.timestamp[:10], []).append(row.run_id)
    for day, runs in days.items():
        lines = [
            line for run_id in runs if (line := _packed(world.data, dataset_id, run_id))["files"]
        ]
        files = [
            run_path(dataset_id, line["run_id"], name) for line in lines for name in line["files"]
        ]
        path = partial(noops_path, dataset_id, day)
        pack(
            world.data,
            lines,
            files,
            path,
            lambda *_: world.store.transaction(lambda tx: tx.looks.mark_packed(runs)),
        )
        for run_id in runs:
            world.data.remove_folders(
                [run_folder(dataset_id, run_id), run_path(dataset_id, run_id, "artifacts")]
            )
    return sum(map(len, days.values()))


def _packed(zone: Zone, dataset_id: str, run_id: str) -> Json:
    base = run_folder(dataset_id, run_id)
    return {
        "run_id": run_id,
        "files": {p.removeprefix(base + "/"): zone.read(p).decode() for p in zone.names(base)},
    }


def pack_receipts(world: World) -> int:
    """Pack, day by day, the receipts of looks that began no run; a day is packed when another has
    passed. Returns how many.

    A crash half-way leaves a receipt in both places, never in none: a pack is named after its
    content.
    """
    base, over = receipts_folder(INGEST) + "/", world.clock.now() - dt.timedelta(days=1)
    loose = world.store.read(
        lambda tx: tx.effects.loose_receipts(base, base + over.strftime("%Y/%m/%d"))
    )
    days: dict[str, dict[str, bytes]] = {}
    for path, digest in loose:
        # one that is missing or was changed is not packed: `kfm verify` goes on to say so
        with suppress(FileNotFoundError):
            if ids.digest(content := world.root.read(path)) == digest:
                days.setdefault(path.rpartition("/")[0], {})[path] = content
    for day, found in days.items():
        lines = [
            {"run_id": p.removeprefix(f"{day}/").removesuffix(".json"), "text": text.decode()}
            for p, text in found.items()
        ]

        def note(path: str, digest: str) -> None:
            world.store.transaction(
                lambda tx: tx.effects.receipts_packed(path, digest, list(found))
            )

        pack(world.root, lines, list(found), lambda digest: f"{day}/{digest[7:23]}.jsonl", note)
    return sum(map(len, days.values()))
