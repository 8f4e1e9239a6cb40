"""Workspaces with very many official versions, made in minutes: the records, signatures and
generations are those that a run writes, by the same functions, without its fetching, checking and
syncing. `kfm verify` misses nothing but the records of those runs; the reader decides as of any other.
"""

import contextlib
import datetime as dt
import hashlib
import io
import multiprocessing
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import msgspec

from benchmarks import peers
from kfm.cli.init import make_workspace
from kfm.evidence.captures import checksums
from kfm.evidence.version_records import version_records
from kfm.keys.approvals import terms_digest, terms_of
from kfm.model import (
    Candidate,
    Column,
    DatasetEntry,
    GenerationPredicate,
    Recorded,
    canonical,
    ids,
    rfc3339,
)
from kfm.model.paths import approvals_path, version_path
from kfm.release.by_rule import release_marks
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from kfm.zones.base import hash_file

__all__ = ["DAY", "Version", "items", "kept", "name", "publish", "register", "unsynced"]

DAY = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)  # of the first version of every dataset
_COLUMNS = tuple(
    Column(name=column, type=kind, unit=None, nullable=True)
    for column, kind in (("id", "integer"), ("value", "number"), ("geometry", "geometry"))
)
_ENTRY = """dataset_id: {name}
title: Measurements of {name}
licence: CC-BY-4.0
sensitivity: public
policy_label: public
source: {{url: "https://example.org/{name}.geojson", format: geojson}}
business_key: [id]
"""


class Version(NamedTuple):
    """What one version holds and says of itself."""

    files: Mapping[str, bytes | Path]
    rows: int
    bbox: tuple[float, float, float, float] | None = None
    interval: tuple[str, str] | None = None


def name(number: int) -> str:
    return f"d{number:04}"


def kept(folder: str, stamp: str) -> tuple[Path, bool]:
    """Where a world lies, and whether it lies there whole: `--keep` left it."""
    path = peers.work() / folder
    return path, (path / "made").is_file() and (path / "made").read_text() == stamp


@contextlib.contextmanager
def unsynced() -> Iterator[None]:
    """What is made here can be made again: nobody waits for the disk."""
    with mock.patch("os.fsync", return_value=None):
        yield


def register(workspace: Path, names: Sequence[str]) -> None:
    for each in names:
        (workspace / "data" / "registry" / f"{each}.yml").write_text(_ENTRY.format(name=each))


# ---- versions ------------------------------------------------------------------------------------
def publish(world: World, dataset_id: str, versions: Sequence[Version]) -> None:
    """Make these official, one after the other."""
    entry = world.registry(dataset_id)
    assert entry is not None
    before: str | None = None
    for number, version in enumerate(versions, 1):
        candidate = _candidate(entry, version)
        _written(world, entry, candidate, version)
        before = _appended(world, entry, candidate, number, before)


def _candidate(entry: DatasetEntry, version: Version) -> Candidate:
    mark = release_marks(entry, [column.name for column in _COLUMNS])[0]
    artifacts = {}
    for path, content in version.files.items():
        if isinstance(content, Path):
            digest, size = hash_file(content)
        else:
            digest, size = f"sha256:{hashlib.sha256(content).hexdigest()}", len(content)
        artifacts[path] = {"digest": digest, "size": size, "rows": version.rows, "release": mark}
    transform = ids.digest(entry.dataset_id.encode()).removeprefix("sha256:")
    full = ids.version_digest({p: a["digest"] for p, a in artifacts.items()}, transform, "1.0.0")
    return Candidate(
        dataset_id=entry.dataset_id,
        transform_hash=transform,
        updater_version="1.0.0",
        h3_resolution=None,
        version_id=ids.version_id(full),
        version_digest=full,
        artifacts=artifacts,
        content_id=f"sha256:{full}",
        schema=_COLUMNS,
        profile={},
        bbox=version.bbox,
        interval=version.interval,
        steps=(),
    )


def _written(world: World, entry: DatasetEntry, candidate: Candidate, version: Version) -> None:
    files = dict(version.files)
    digests = dict(candidate.digests)
    for path, raw in version_records(world, entry, candidate, ()).items():
        files[path], digests[path] = raw, ids.digest(raw)
    files["checksums.sha256"] = checksums(digests)
    for path, content in files.items():
        world.data.create(version_path(entry.dataset_id, candidate.version_id, path), content)


def _appended(
    world: World, entry: DatasetEntry, candidate: Candidate, number: int, before: str | None
) -> str:
    """★, with the record of who agreed: nobody is asked about what is public."""
    run_id, terms = ids.new_run_id(), terms_of([entry])
    about = {
        "dataset_id": entry.dataset_id,
        "run_id": run_id,
        "version_digest": candidate.version_digest,
    }
    said = {**about, "base_generation": number - 1, "terms": terms_digest(terms)}
    recorded = Recorded(
        **about,
        generation=number,
        at=rfc3339(world.clock.now()),
        terms=terms,
        asked=(),
        canary=False,
        signed=said,
        approvals=(),
        acceptances=(),
        grants=(),
    )
    raw = canonical.dumps(msgspec.to_builtins(recorded)) + b"\n"
    world.data.create(approvals_path(entry.dataset_id, run_id), raw)
    channel = world.channel(entry.dataset_id)
    made = channel.append(
        GenerationPredicate(
            **about,
            generation=number,
            kind="promote",
            version_id=candidate.version_id,
            receipts_digest=ids.digest(b""),
            token=f"1.{number}",
            prev=before,
            reason="benchmark",
            terms_digest=terms_digest(terms),
            approvals_digest=ids.digest(raw),
        )
    )
    assert made, f"generation {number} of {entry.dataset_id} is there already"
    return ids.digest(world.data.read(channel.path(number)))


# ---- many items ----------------------------------------------------------------------------------
def items(folder: Path, datasets: int, versions: int) -> None:
    """`datasets` with so many daily versions each, all over the world."""
    make_workspace(folder, sample=False, allow_loopback=True)
    names = [name(number) for number in range(datasets)]
    register(folder, names)
    cores = os.cpu_count() or 1
    shares = [(folder, names[core::cores], versions) for core in range(cores)]
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        pool.starmap(_share, shares)
    with open_world(open_workspace(folder)) as world:
        for each in names:  # the index of the store is made from the files
            world.store.transaction(lambda tx, of=each: world.channel(of).head(tx))


def _share(folder: Path, names: Sequence[str], versions: int) -> None:
    with unsynced(), open_world(open_workspace(folder)) as world:
        for each in names:
            publish(world, each, [_version(each, day) for day in range(versions)])


def _version(dataset_id: str, day: int) -> Version:
    chance = random.Random(f"{dataset_id}/{day}")
    west, south = chance.uniform(-179, 177), chance.uniform(-80, 78)
    wide, high = chance.uniform(0.01, 2), chance.uniform(0.01, 2)
    first = DAY + dt.timedelta(days=day, seconds=chance.randrange(3600))
    return Version(
        {f"{dataset_id}.parquet": _table(day, chance.random())},
        1,
        (round(west, 4), round(south, 4), round(west + wide, 4), round(south + high, 4)),
        (rfc3339(first), rfc3339(first + dt.timedelta(hours=22))),
    )


def _table(number: int, value: float) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"id": [number], "value": [value], "geometry": [b""]})
    into = io.BytesIO()
    pq.write_table(table, into)
    return into.getvalue()
