"""Bytes into a zone: one large file, and many small ones."""

import hashlib
import itertools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import peers
from benchmarks.generate import many_files, random_file
from benchmarks.measure import LOWER, Result, Took, interleave, judge, median, timed

__all__ = ["one_gibibyte", "two_thousand_files"]

CHUNK = 4 << 20


def _timed(work: Callable[[], object]) -> Took:
    os.sync()  # what an earlier round left unwritten is not this one's burden
    return timed(work)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(source: Path, target: Path) -> None:
    """The plain way: read, write, fsync."""
    with source.open("rb", buffering=0) as file, target.open("wb", buffering=0) as out:
        while chunk := file.read(CHUNK):
            out.write(chunk)
        os.fsync(out.fileno())


def one_gibibyte(repeat: int) -> list[Result]:
    from kfm.zones.local import LocalZone

    source = peers.work() / "1gib.bin"
    random_file(source, 1 << 30)
    _hash(source)  # warm for every side
    with peers.fresh("store") as folder:
        zone = LocalZone(folder / "zone")
        zone.root.mkdir()

        def write() -> Took:
            took = _timed(lambda: _write(source, folder / "plain.bin"))
            (folder / "plain.bin").unlink()
            return took

        def ours() -> Took:
            took = _timed(lambda: zone.create("data/file.bin", source))
            (folder / "zone" / "data" / "file.bin").unlink()
            return took

        found = interleave(
            {"hash": lambda: _timed(lambda: _hash(source)), "write": write, "ours": ours},
            repeat,
            warm=1,
        )
        zone.close()
    floor = max(("hash", "write"), key=lambda side: median(found[side]))
    return [
        judge(
            "hash + store 1 GiB",
            found[floor],
            found["ours"],
            1 / 1.1,
            LOWER,
            raw={"hash": found["hash"], "write": found["write"]},
            unit="s",
            peer_name="hashlib.file_digest alone"
            if floor == "hash"
            else "plain write + fsync alone",
            ours_name="LocalZone.create",
            note=f"the slower of hash ({median(found['hash']):.2f} s) and write + fsync ({median(found['write']):.2f} s); kfm does both",
        )
    ]


def two_thousand_files(repeat: int) -> list[Result]:
    dvc = str(peers.peer("dvc", "dvc") / "dvc")
    source = peers.work() / "many"
    many_files(source, 2000, 50_000)

    # Rounds are cleared away only at the end: ext4 looks past every inode deleted in the last
    # minutes when it makes a new one,
    # and would charge one round's deletions to the next.
    def theirs(folder: Path) -> Took:
        shutil.rmtree(peers.work() / "dvc-site", ignore_errors=True)  # DVC remembers hashes there
        folder.mkdir()
        peers.run([dvc, "init", "--no-scm", "-q"], cwd=folder)
        shutil.copytree(source, folder / "data")
        os.sync()  # the copy itself is nobody's work
        return _timed(lambda: (peers.run([dvc, "add", "-q", "data"], cwd=folder), os.sync()))

    def ours(folder: Path) -> Took:
        folder.mkdir()
        shutil.copytree(source, folder / "data")
        os.sync()
        script = [
            sys.executable,
            str(peers.SCRIPTS / "kfm_store_many.py"),
            str(folder / "data"),
            str(folder / "zone"),
        ]
        return _timed(lambda: (peers.run(script), os.sync()))

    with peers.fresh("store") as base:
        number = itertools.count()
        found = interleave(
            {
                "peer": lambda: theirs(base / f"{next(number)}"),
                "ours": lambda: ours(base / f"{next(number)}"),
            },
            repeat,
            warm=1,
        )
    return [
        judge(
            "store 2,000 × 50 KB",
            found["peer"],
            found["ours"],
            2.5,
            LOWER,
            unit="s",
            peer_name=f"{peers.version('dvc', 'dvc')} add + sync",
            ours_name="LocalZone.create_all + sync",
            note="whole processes; both copy and hash every file",
        )
    ]
