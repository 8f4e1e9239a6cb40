"""Whole workspaces: many datasets side by side, and what it costs to keep one private."""

import json
import shutil
from collections import Counter
from pathlib import Path

from benchmarks import peers
from benchmarks.measure import LOWER, Result, Took, interleave, judge
from benchmarks.workspace import ENTRY

__all__ = ["nine_private_rows", "twelve_streams"]

# one has no licence, one waits for a person
WANTED = {"COMMITTED": 10, "REJECTED": 1, "PROPOSED": 1}
RELEASE = "release: {h3_resolution: 5, show: [period], min_records: 5}\n"


def _again(kept: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder)
    return folder


def twelve_streams(repeat: int) -> list[Result]:
    with peers.fresh("streams") as folder:
        peers.run([peers.kfm(), "init", str(folder / "kept"), "--kansas", "--sample"])

        def ran(*more: str) -> Took:
            where = _again(folder / "kept", folder / "used")
            found = peers.run(
                [peers.kfm(), "run", "--all", "--upstream", "sample", "--json", *more],
                cwd=where,
                check=False,
            )
            assert Counter(r["state"] for r in json.loads(found.stdout)["runs"]) == WANTED, (
                found.stdout
            )
            return found.seconds

        found = interleave(
            {"peer": lambda: ran("--at-once", "1"), "ours": lambda: ran()}, repeat, warm=1
        )
    return [
        judge(
            "12 streams", found["peer"], found["ours"], 1.2, LOWER, stretch=1.7, unit="s",
            peer_name="kfm run --all --at-once 1", ours_name="kfm run --all",
            note="the Kansas workspace from nothing, answers of the sample upstream inside the same processes",
        )
    ]  # fmt: skip


def _site(n: int) -> dict[str, object]:
    """One of nine invented places, all in the same cell."""
    about = {
        "station_id": f"14XX{n:04d}",
        "name": f"Hidden Mound {n * 7919 % 10007}",
        "period": "Archaic",
    }
    return {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [-98 + n / 1000, 38.5 - n / 1500]},
        "properties": about,
    }


def nine_private_rows(repeat: int) -> list[Result]:
    with peers.fresh("private") as folder:
        peers.run([peers.kfm(), "init", str(folder / "public")])
        inbox = folder / "public" / "inbox"
        inbox.mkdir()
        (inbox / "points.geojson").write_text(
            json.dumps({"type": "FeatureCollection", "features": [_site(n) for n in range(9)]})
        )
        shutil.copytree(folder / "public", folder / "private")
        entry = ENTRY.format(url="file:///inbox/points.geojson")
        (folder / "public" / "data" / "registry" / "points.yml").write_text(entry)
        entry = entry.replace(
            "sensitivity: public\npolicy_label: public",
            "sensitivity: sensitive-location\npolicy_label: sensitive-location",
        )
        (folder / "private" / "data" / "registry" / "points.yml").write_text(entry + RELEASE)

        def ran(name: str) -> Took:
            where = _again(folder / name, folder / "used")
            found = peers.run([peers.kfm(), "run", "points", "--json"], cwd=where)
            assert json.loads(found.stdout)["runs"][0]["state"] == "COMMITTED", found.stdout
            return found.seconds

        found = interleave(
            {"peer": lambda: ran("public"), "ours": lambda: ran("private")}, repeat, warm=1
        )
    return [
        judge(
            "9 private rows", found["peer"], found["ours"], 1 / 3, LOWER, stretch=1 / 2, unit="s",
            peer_name="kfm run of the same rows, public", ours_name="kfm run, private",
            note="sealing, the release by cell, the twins and the search for what leaks, against a run without any of it",
        )
    ]  # fmt: skip
