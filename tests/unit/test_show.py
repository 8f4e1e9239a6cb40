"""A version on a screen: what its columns hold, where its places are."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from kfm.cli.draw import bars, dots
from kfm.data.show import preview


def test_a_preview_counts_all_rows_and_shows_the_first(tmp_path: Path) -> None:
    for name, start in (("a", 0), ("b", 50)):
        places = [shapely.Point(-98 + n / 100, 38) for n in range(start, start + 50)]
        table = pa.table(
            {
                "n": pa.array(range(start, start + 50)),
                "kind": pa.array(["oak"] * 49 + [None]),
                "when": pa.array(range(start, start + 50), pa.timestamp("s", "UTC")),
                "same": pa.array([1.5] * 50),
                "none": pa.nulls(50, pa.float64()),
                "at": pa.array([shapely.to_wkb(p) for p in places], pa.binary()),
            }
        )
        if name == "b":
            table = table.append_column("new", pa.array([True] * 50))
        box = [-98 + start / 100, 38, -98 + (start + 49) / 100, 38]
        geo = {"primary_column": "at", "columns": {"at": {"encoding": "WKB", "bbox": box}}}
        pq.write_table(
            table.replace_schema_metadata({"geo": json.dumps(geo)}), tmp_path / f"{name}.parquet"
        )
    files = {p.name: p for p in tmp_path.iterdir()}
    shown, places_ = preview(files, 60)
    assert shown.rows == 100 and len(shown.first) == 60
    assert shown.first[0]["new"] is None and shown.first[59]["new"] is True
    assert shown.first[0]["at"] == "POINT (-98 38)" and shown.first[0]["when"].startswith("1970")
    columns = {c.name: c for c in shown.columns}
    assert (columns["n"].lowest, columns["n"].highest, columns["n"].distinct) == (0, 99, 100)
    assert sum(columns["n"].shape) == 100 and len(columns["n"].shape) == 12
    assert columns["kind"].common == [("oak", 98)] and columns["kind"].missing == 2
    assert columns["new"].missing == 50 and columns["new"].common == [(True, 50)]
    assert columns["same"].shape == [] and columns["none"].lowest is None
    assert sum(columns["when"].shape) == 100 and columns["at"].type == "geometry"
    assert places_ is not None
    assert sum(map(sum, places_.spots)) == 100 and len(places_.spots) == 1
    assert preview(files, 0)[0].first == []


def test_pictures_are_drawn_of_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bars([1, 0, 4, 8]) == "▁ ▄█" and bars([]) == ""
    assert dots([[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]]) == [
        "⠁⢀"[:1] + "⢀",
        " ⠉",
    ]
    monkeypatch.setenv("KFM_ASCII", "1")
    assert bars([1, 0, 4, 8]) == ". =#" and dots([[1, 0, 9, 30]]) == [".#"]
