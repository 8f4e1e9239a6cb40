"""Earthquakes: one table from feeds and catalogues; where a place is, its coordinates say and not
its name.
"""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import shapely
from tests.given.verbs import SHARED

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read

needs_shared = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the recordings are not beside this repository"
    ),
]
QUAKES = SHARED / "data" / "usgs-earthquakes"
BOX = ((-102.06, 36.99), (-94.58, 36.99), (-94.58, 40.01), (-102.06, 40.01), (-102.06, 36.99))
HEADER = "time,latitude,longitude,depth,mag,magType,nst,gap,dmin,rms,net,id,updated,place,type"


def feature(
    event_id: str, lon: Any = -98.0, lat: Any = 38.0, depth: Any = 5.0, **more: Any
) -> dict[str, Any]:
    properties = {
        "mag": 2.5,
        "time": 1528967533010,
        "updated": 1528967887700,
        "place": "x",
        "type": "earthquake",
        "ids": f",{event_id},",
    }
    point = {"type": "Point", "coordinates": [lon, lat, depth]}
    return {"type": "Feature", "id": event_id, "properties": properties | more, "geometry": point}


def feed(*features: dict[str, Any], count: int | None = None) -> str:
    said = {"generated": 1, "status": 200, "count": len(features) if count is None else count}
    return json.dumps({"type": "FeatureCollection", "metadata": said, "features": features})


def made(folder: Path, source: Path | str, format: str = "geojson", **more: Any) -> TransformResult:
    if isinstance(source, str):
        (folder / "given").write_text(source)
        source = folder / "given"
    inputs = (InputFile(source_id="s", path=str(source), digest=""),)
    more = {"max_quarantined": 1.0} | more
    job = Read(
        dataset_id="d",
        source_kind="usgs_quakes",
        format=format,
        inputs=inputs,
        artifact="d.parquet",
        **more,
    )
    return run_inline(job, folder)


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "d.parquet").to_pylist()
    return found


def rejects(folder: Path) -> list[str]:
    return [
        json.loads(line)["rule"]
        for line in (folder / "d.quarantine.jsonl").read_text().splitlines()
    ]


def outline() -> tuple[tuple[float, float], ...]:
    """Kansas, as its counties together make it."""
    counties = json.loads((SHARED / "data/boundaries/kansas-counties.geojson").read_text())[
        "features"
    ]
    whole = shapely.union_all([shapely.geometry.shape(c["geometry"]) for c in counties])
    return tuple((x, y) for x, y in whole.exterior.coords)


def test_a_feature_becomes_an_event_with_its_depth_apart_and_all_its_ids(tmp_path: Path) -> None:
    made(
        tmp_path,
        feed(
            feature(
                "us1",
                -98.5,
                37.1,
                6.5,
                ids=",us1,ismp2,",
                net="us",
                code="1",
                tsunami=0,
                felt=3,
                mag=-0.39,
            )
        ),
    )
    (row,) = rows(tmp_path)
    assert (row["event_id"], row["ids"], row["tsunami"], row["felt"], row["magnitude"]) == (
        "us1",
        '["us1","ismp2"]',
        False,
        3,
        -0.39,
    )
    assert row["occurred_at"].isoformat() == "2018-06-14T09:12:13.010000+00:00"
    assert (row["longitude"], row["latitude"], row["depth_km"]) == (-98.5, 37.1, 6.5)
    assert shapely.from_wkb(row["geometry"]).wkt == "POINT (-98.5 37.1)"
    assert (row["state"], row["merged_into"]) == ("active", None)


def test_what_is_missing_is_null_and_not_zero(tmp_path: Path) -> None:
    made(
        tmp_path,
        feed(feature("a", depth=None, mag=None, ids=None), {**feature("b"), "geometry": None}),
    )
    a, b = rows(tmp_path)
    assert (a["depth_km"], a["magnitude"], a["ids"], a["tsunami"]) == (None, None, None, None)
    assert (b["longitude"], b["geometry"]) == (None, None)


def test_a_record_that_cannot_be_used_is_set_aside_and_the_others_go_on(tmp_path: Path) -> None:
    odd = [
        feature("a", mag="strong"),
        feature("b", lon=None),
        feature("c", lon=-998.0),
        {**feature("d"), "id": None},
        feature("e", time=None),
    ]
    result = made(tmp_path, feed(*odd, feature("good")))
    assert [r["event_id"] for r in rows(tmp_path)] == ["good"]
    assert rejects(tmp_path) == [
        "usgs_quakes.event",
        "geometry",
        "geometry.range",
        "usgs_quakes.event",
        "usgs_quakes.event",
    ]
    assert (result.books.read, result.books.written, result.books.quarantined) == (6, 1, 5)


def test_unwanted_types_are_dropped_by_rule_and_stand_in_the_books(tmp_path: Path) -> None:
    events = feed(feature("a"), feature("b", type="quarry blast"), feature("c", type="explosion"))
    assert made(tmp_path, events).books.written == 3, "all are wanted unless some are named"
    result = made(tmp_path, events, options={"types": ["earthquake"]})
    assert (result.books.read, result.books.written, result.books.dropped) == (3, 1, {"type": 2})
    with pytest.raises(CaptureRefused, match="tpyes"):
        made(tmp_path, events, options={"tpyes": ["earthquake"]})


def test_a_feed_that_holds_another_number_than_it_says_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureRefused, match="says that it holds 3 events and holds 2"):
        made(tmp_path, feed(feature("a"), feature("b"), count=3))


def test_an_error_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureRefused, match="web page"):
        made(tmp_path, "<html><body>Bad Gateway</body></html>")


def test_a_new_property_is_named(tmp_path: Path) -> None:
    result = made(tmp_path, feed(feature("a", pga=0.3)))
    assert [w for w in result.warnings if "'pga'" in w]


def test_the_catalogue_is_read_by_its_header_with_15_or_22_columns(tmp_path: Path) -> None:
    line = "2015-08-01T00:07:41.000Z,37.1,-97.5,,1.7,ml,,,,0.51,us,us1,2015-08-07T10:41:44.126Z,here,earthquake"
    made(tmp_path, f"{HEADER}\n{line}\n", "csv")
    old = rows(tmp_path)
    more = ",horizontalError,depthError,magError,magNst,status,locationSource,magSource"
    made(tmp_path, f"{HEADER}{more}\n{line},1,2,3,4,reviewed,us,us\n", "csv")
    new = rows(tmp_path)
    assert old[0]["depth_km"] is None
    assert old[0]["occurred_at"].isoformat() == "2015-08-01T00:07:41+00:00"
    assert new == [{**old[0], "status": "reviewed"}]


def test_a_catalogue_without_its_columns_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CaptureRefused, match="lacks mag"):
        made(
            tmp_path, HEADER.replace("mag,", "magnitude,") + "\n" + ",".join("x" * 15) + "\n", "csv"
        )


@pytest.mark.parametrize(("name", "count", "ids"), [
    ("all_week.2018-06-14.geojson", 4711, {"ismpkansas70246738", "ismpkansas70246608", "ismpkansas70246593", "ismpkansas70246583"}),
    ("2.5_month.2025-10-29.geojson", 1349, {"us6000rk46", "us6000rk3q", "us6000rk3m", "us6000rezn", "us6000rdsb"}),
])  # fmt: skip
@pytest.mark.parametrize("place", ["outline", "box"])
class TestRecordedFeeds:
    pytestmark = needs_shared

    def test_a_recorded_feed_is_read_whole_and_its_kansas_events_are_found_by_place(
        self, tmp_path: Path, name: str, count: int, ids: set[str], place: str
    ) -> None:
        plain = json.loads((QUAKES / name).read_text())["features"]
        result = made(tmp_path, QUAKES / name)
        table = rows(tmp_path)
        assert len(table) == len(plain) == result.books.read == count
        assert [r["event_id"] for r in table] == [f["id"] for f in plain]
        assert [r["magnitude"] for r in table] == [f["properties"]["mag"] for f in plain]
        assert [r["depth_km"] for r in table] == [f["geometry"]["coordinates"][2] for f in plain]
        assert [round(r["occurred_at"].timestamp() * 1000) for r in table] == [
            f["properties"]["time"] for f in plain
        ]
        assert not [w for w in result.warnings if "new upstream" in w]
        inside = made(tmp_path, QUAKES / name, area=outline() if place == "outline" else BOX)
        assert {r["event_id"] for r in rows(tmp_path)} == ids
        assert inside.books.dropped == {"outside-area": count - len(ids)}


class TestRecordedCatalogue:
    pytestmark = needs_shared

    def test_names_find_72_events_in_kansas_or_76_with_arkansas_but_only_56_lie_there(
        self, tmp_path: Path
    ) -> None:
        source = QUAKES / "all_month.2015-08.csv"
        with source.open(newline="") as lines:
            plain = list(csv.DictReader(lines))
        assert made(tmp_path, source, "csv").books.written == len(plain) == 8826
        table = rows(tmp_path)
        assert [r["magnitude"] for r in table] == [
            float(p["mag"]) if p["mag"] else None for p in plain
        ]
        by_name = [r for r in table if "kansas" in r["place"].lower()]
        assert (len(by_name), len([r for r in by_name if "Arkansas" not in r["place"]])) == (76, 72)
        made(tmp_path, source, "csv", area=outline())
        inside = {r["event_id"] for r in rows(tmp_path)}
        kansas = shapely.Polygon(outline())
        assert inside == {
            p["id"]
            for p in plain
            if kansas.intersects(shapely.Point(float(p["longitude"]), float(p["latitude"])))
        }
        assert len(inside) == 56, "sixteen are named after a town in Kansas and lie in Oklahoma"

    def test_only_earthquakes_are_kept_when_only_those_are_wanted(self, tmp_path: Path) -> None:
        result = made(
            tmp_path, QUAKES / "all_month.2015-08.csv", "csv", options={"types": ["earthquake"]}
        )
        assert (result.books.written, result.books.dropped) == (8675, {"type": 108 + 43})
