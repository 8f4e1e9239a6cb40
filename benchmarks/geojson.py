"""A large GeoJSON file to a published version, and how much memory it takes."""

import json
import os
import shutil
import sys
from pathlib import Path

from benchmarks import peers
from benchmarks.generate import points
from benchmarks.measure import LOWER, Result, Took, failed, interleave, judge, median
from benchmarks.serve import serve
from benchmarks.workspace import make_workspace

__all__ = ["big_memory", "geojson", "memory"]

SMALL, LARGE = 100, 400  # MB
FLAT = 1 / 1.35  # a file four times as large may take a third more


def _served(megabytes: int) -> tuple[Path, int]:
    folder = peers.work() / f"geojson-{megabytes}"
    folder.mkdir(exist_ok=True)
    return folder, points(folder / "points.geojson", megabytes)


def _publish(folder: Path, url: str, rows: int, watched: bool = False) -> peers.Ran:
    """A fresh workspace, then one run to an official version; only the run counts."""
    shutil.rmtree(folder, ignore_errors=True)
    space = make_workspace(folder, f"{url}/points.geojson")
    os.sync()
    ran = (peers.run_watched if watched else peers.run)(
        [peers.kfm(), "run", "points", "--json"], cwd=space
    )
    outcome = json.loads(ran.stdout)["runs"][0]
    assert outcome["state"] == "COMMITTED", ran.stdout
    assert outcome["rows_written"] == rows, ran.stdout
    return ran


def geojson(repeat: int) -> list[Result]:
    served, rows = _served(SMALL)
    source = str(served / "points.geojson")

    def plain(how: str) -> Took:
        os.sync()
        ran = peers.run(
            [
                sys.executable,
                str(peers.SCRIPTS / "plain_geojson.py"),
                source,
                str(folder / "plain.parquet"),
                how,
            ]
        )
        assert json.loads(ran.stdout)["rows"] == rows
        return ran.seconds

    def gdal() -> Took:
        os.sync()
        ran = peers.run(
            [
                str(gdal_bin / "python"),
                str(peers.SCRIPTS / "pyogrio_geojson.py"),
                source,
                str(folder / "gdal.parquet"),
            ]
        )
        assert json.loads(ran.stdout)["rows"] == rows
        return ran.seconds

    with peers.fresh("geojson") as folder, serve(served) as url:
        sides = {
            "peer": lambda: plain("lean"),
            "ours": lambda: _publish(folder / "kfm", url, rows).seconds,
            "stock": lambda: plain("stock"),
        }
        try:
            gdal_bin = peers.peer("pyogrio", "pyogrio", "pyarrow")
            sides["gdal"] = gdal
            beside = ""
        except peers.PeerMissing as missing:
            beside = f"; GDAL: {missing}"
        found = interleave(sides, repeat, warm=1)
    beside = f"; the script as one writes it first: {median(found['stock']):.2f} s{beside}"
    if "gdal" in found:
        beside += f"; pyogrio/GDAL: {median(found['gdal']):.2f} s"
    return [
        judge(
            "GeoJSON 100 MB",
            found["peer"],
            found["ours"],
            1 / 1.5,
            LOWER,
            raw={k: v for k, v in found.items() if k not in ("peer", "ours")},
            unit="s",
            peer_name="lean script: convert + hash",
            ours_name="kfm run to a published version",
            note=f"{rows:,} point features, 6 properties; kfm also downloads, keeps the raw bytes, checks, signs and makes durable{beside}",
        )
    ]


def memory(repeat: int) -> list[Result]:
    return [_memory(repeat, "GeoJSON memory", LARGE)]


def big_memory(repeat: int, gigabytes: float) -> list[Result]:
    """Only on request: the inputs are large."""
    return [_memory(repeat, "GeoJSON memory, big", round(gigabytes * 1000))]


def _memory(repeat: int, row: str, large: int) -> Result:
    sides = {name: _served(size) for name, size in (("peer", SMALL), ("ours", large))}
    with peers.fresh("geojson") as folder:

        def peak(side: str) -> float:
            served, rows = sides[side]
            with serve(served) as url:
                return _publish(folder / "kfm", url, rows, watched=True).peak_bytes / 1e6

        if not Path("/proc/self/status").exists():
            return failed(row, FLAT, "needs /proc")
        found = interleave({"peer": lambda: peak("peer"), "ours": lambda: peak("ours")}, repeat)
    return judge(
        row,
        found["peer"],
        found["ours"],
        FLAT,
        LOWER,
        unit="MB",
        peer_name=f"kfm itself at {SMALL} MB",
        ours_name=f"kfm at {large:,} MB",
        note=f"peak memory of the whole process tree, {sides['peer'][1]:,} and {sides['ours'][1]:,} features; flat means at most 1.35×",
    )
