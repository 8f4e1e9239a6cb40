"""Through the command: every public row stands for k records, and so does every difference between
two generations.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm.testing import Upstream
from tests.given.verbs import Said, tree

Kfm = Callable[..., Said]
PLACES = [(38.5, -98.25), (39.9, -95.1), (37.2, -101.5), (38.9, -100.0), (37.5, -96.0)]


def rows(*counts: int, day: str = "") -> bytes:
    """So many records in each place; the code of each is its own."""
    lines = [
        f"s{p}-{n},{lat + n / 1e4:.5f},{lon:.5f},c{p}{n},{day}"
        for p, (lat, lon) in enumerate(PLACES)
        for n in range(*_range(counts, p))
    ]
    return ("site,lat,lon,code,seen\n" + "\n".join(lines) + "\n").encode()


def _range(counts: tuple[int, ...], place: int) -> tuple[int, int]:
    return (0, counts[place]) if place < len(counts) else (0, 0)


def register(ws: Path, up: Upstream, shown: str, more: str = "", time: str = "") -> None:
    (ws / "data" / "registry" / "pits.yml").write_text(
        "dataset_id: pits\ntitle: Pits\nlicence: CC0-1.0\nsensitivity: sensitive-location\npolicy_label: sensitive-location\n"
        f"source: {{url: '{up.url}/pits.csv', format: csv{time}}}\nbusiness_key: [site]\ncadence: daily\nchange: {{rows: null, cells: null, deletions: null}}\n"
        f"release: {{h3_resolution: 5, min_records: 3, show: [{shown}], withhold: [site]{more}}}\n"
    )


def public(kfm: Kfm, ws: Path) -> list[dict[str, Any]]:
    version = next(
        d for d in kfm("status", "--json").json["datasets"] if d["dataset_id"] == "pits"
    )["version_id"]
    shown = pq.read_table(ws / "data" / "processed" / "pits" / version / "pits.parquet").to_pylist()
    return [{k: v for k, v in row.items() if k != "geometry"} for row in shown]


def test_one_record_more_or_less_does_not_show(kfm: Kfm, ws: Path, up: Upstream) -> None:
    register(ws, up, "code")
    up.files["/pits.csv"] = rows(9, 7, 5, 4, 0)
    assert kfm("run", "pits").code == 0
    first, zones = public(kfm, ws), [ws / "data" / "processed", ws / "data" / "catalog"]
    assert len(first) == 4 and {row["code"] for row in first} == {None}, (
        "a row for each cell, none for each record"
    )
    before = [tree(zone) for zone in zones]
    up.files["/pits.csv"] = rows(10, 7, 5, 3, 1)
    assert kfm("run", "pits").code == 0
    assert [tree(zone) for zone in zones] == before, "no byte tells of it"
    up.files["/pits.csv"] = rows(10, 7, 2, 3, 3)
    assert kfm("run", "pits").code == 0
    second = public(kfm, ws)
    assert len([r for r in second if r not in first]) == 1, "three came to the last place"
    assert len([r for r in first if r not in second]) == 1, (
        "three left the third; the fourth lost one, and stays"
    )
    receipts = [
        p
        for p in (ws / "receipts").rglob("*.json")
        if json.loads(p.read_text())["status"] == "succeeded"
    ]
    assert len(receipts) == 2 and [kfm("rebuild", str(p)).code for p in receipts] == [0, 0], (
        "the difference is made again as it was judged"
    )
    assert kfm("withdraw", "pits", "--record", "site=s3-1", "--reason", "asked", "--yes").code == 0
    assert len(public(kfm, ws)) == 3, "it is not held back: two are left there"
    assert kfm("verify").code == 0 and kfm("doctor").code == 0
    assert [kfm("rebuild", str(p)).code for p in receipts] == [3, 3], (
        "what was withdrawn is in them"
    )


@pytest.mark.drill  # four runs with all their twins
def test_what_windows_add_one_by_one_is_enough_in_the_end(kfm: Kfm, ws: Path, up: Upstream) -> None:
    register(ws, up, "", ", aggregate: {}", time=", time_column: seen")
    up.files["/pits.csv"] = rows(4, day="2024-01-01T00:00:00Z")
    assert kfm("run", "pits").code == 0
    shown = []
    for day in (2, 3, 4):
        lat, lon = PLACES[1]
        up.files["/pits.csv"] = (
            f"site,lat,lon,code,seen\nw{day},{lat},{lon},c{day},2024-01-0{day}T00:00:00Z\n".encode()
        )
        assert (
            kfm(
                "run",
                "pits",
                "--since",
                f"2024-01-0{day}T00:00:00Z",
                "--until",
                f"2024-01-0{day + 1}T00:00:00Z",
            ).code
            == 0
        )
        shown.append(public(kfm, ws))
    assert [[r["records"] for r in found] for found in shown] == [
        ["3 to 5"],
        ["3 to 5"],
        ["3 to 5", "3 to 5"],
    ]
    assert kfm("verify").code == 0
