"""The USGS Water Data OGC API: pages are walked with care, and what they say becomes one table per
collection.
"""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import shapely
from msgspec import UNSET
from tests.given.verbs import SHARED

from kfm.connectors.base import CaptureRefused, InputFile, Refused, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.kind import Ask, NotFetched
from kfm.connectors.operations import Acquire, Merge, Read
from kfm.extras.agencies import usgs_ogc

RECORDED = SHARED / "data" / "usgs-ogc"
BASE = "https://api.example.org/ogcapi/v0/collections/daily/items"


def on_recordings(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that reads the recordings; without them it is reported as not run."""
    absent = pytest.mark.skipif(
        not RECORDED.exists(), reason="not run: the recordings are not beside this repository"
    )
    return pytest.mark.needs_shared(absent(test))


def feature(time: str, value: Any = "1.5", **properties: Any) -> dict[str, Any]:
    """One observation, as the API writes it."""
    said = {
        "time_series_id": "90a0ea0b6d99431e9f3d91da1aa49564",
        "monitoring_location_id": "USGS-07141220",
        "parameter_code": "00060",
        "statistic_id": "00003",
        "time": time,
        "value": value,
        "unit_of_measure": "ft^3/s",
        "approval_status": "Provisional",
        "qualifier": None,
        "last_modified": "2026-07-30T15:43:16.002990+00:00",
    }
    point = {"type": "Point", "coordinates": [-99.0, 38.2]}
    return {
        "type": "Feature",
        "id": f"row-{time}",
        "properties": said | properties,
        "geometry": point,
    }


def page(*features: Any, next: str | None = None, **members: Any) -> str:
    links = [{"rel": "self", "href": BASE}] + ([{"rel": "next", "href": next}] if next else [])
    found = {
        "type": "FeatureCollection",
        "features": list(features),
        "numberReturned": len(features),
        "links": links,
    }
    return json.dumps(found | members)


class Made:
    """What a run over pages left."""

    def __init__(self, result: TransformResult, folder: Path) -> None:
        self.result, self.folder = result, folder
        self.rows: list[dict[str, Any]] = pq.read_table(folder / result.artifact).to_pylist()

    @property
    def rejects(self) -> list[dict[str, Any]]:
        name = self.result.quarantine
        return (
            []
            if name is None
            else [json.loads(line) for line in (self.folder / name).read_text().splitlines()]
        )


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Made]:
    """Run pages, given as text or by path, through the kind."""
    count = iter(range(100))

    def run(*pages: str | Path, name: str = "daily", **options: Any) -> Made:
        folder = tmp_path / str(next(count))
        folder.mkdir()
        inputs = []
        for i, content in enumerate(pages, 1):
            path = content if isinstance(content, Path) else folder / f"page-{i}"
            if isinstance(content, str):
                path.write_text(content)
            inputs.append(
                InputFile(
                    source_id=f"{name}.{i:05d}" if name else "s0", path=str(path), digest="sha256:0"
                )
            )
        job = Read(
            dataset_id="ks_gauges",
            source_kind="usgs_ogc",
            format="json",
            inputs=tuple(inputs),
            options=options,
            max_quarantined=1.0,
            artifact="x.parquet",
        )
        return Made(run_inline(job, folder), folder)

    return run


@pytest.fixture
def walk(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Acquire from an upstream that answers each address with the text given for it; what was asked
    for.
    """

    def run(
        answers: dict[str, str],
        *urls: str,
        since: str | None = None,
        until: str | None = None,
        **options: Any,
    ) -> list[dict[str, Any]]:
        asked: list[dict[str, Any]] = []

        def serve(message: dict[str, Any]) -> dict[str, Any]:
            asked.append(message)
            if message["url"] not in answers:
                return {"error": "404"}
            path = tmp_path / message["name"]
            path.write_text(answers[message["url"]])
            return {"path": str(path)}

        job = Acquire(
            dataset_id="ks_gauges",
            source_kind="usgs_ogc",
            format="json",
            urls=urls or (BASE,),
            options=options,
            since=since,
            until=until,
            artifact="x.parquet",
        )
        usgs_ogc.acquire(Ask(job, serve, lambda *_, **__: None))
        return asked

    return run


# -- reading


@on_recordings
@pytest.mark.parametrize(
    ("name", "total", "first", "last"),
    [
        ("daily", 47.3, dt.date(2025, 12, 26), dt.date(2026, 3, 19)),
        (
            "continuous",
            3.52,
            dt.datetime(2025, 1, 1, tzinfo=dt.UTC),
            dt.datetime(2025, 1, 1, 0, 15, tzinfo=dt.UTC),
        ),
        ("latest-continuous", 536.59, *[dt.datetime(2026, 8, 7, 18, 45, tzinfo=dt.UTC)] * 2),
    ],
)
def test_recorded_observations_have_the_figures_pandas_gives(
    read: Callable[..., Made], name: str, total: float, first: Any, last: Any
) -> None:
    import pandas as pd

    path = RECORDED / f"{name}.items.json"
    made = read(path, name=name)
    other = pd.json_normalize(json.loads(path.read_text())["features"])
    time = "observed_on" if name == "daily" else "observed_at"
    assert [r["value"] for r in made.rows] == list(pd.to_numeric(other["properties.value"]))
    assert (len(made.rows), sum(r["value"] for r in made.rows)) == (2, pytest.approx(total))
    assert (made.rows[0][time], made.rows[1][time]) == (first, last)
    assert [r["approval_status"] for r in made.rows] == list(other["properties.approval_status"])
    assert {r["unit"] for r in made.rows} <= {"ft", "ft3/s"}
    x, y = zip(*other["geometry.coordinates"])
    assert made.result.bbox == (min(x), min(y), max(x), max(y))
    assert made.result.key == ("time_series_id", time)


@on_recordings
def test_recorded_sites_keep_leading_zeros_and_may_lie_nowhere(read: Callable[..., Made]) -> None:
    made = read(RECORDED / "monitoring-locations.page1.json", name="monitoring-locations")
    plain = json.loads((RECORDED / "monitoring-locations.page1.json").read_text())["features"]
    assert (len(made.rows), sum(r["geometry"] is None for r in made.rows)) == (10, 10)
    assert [r["monitoring_location_id"] for r in made.rows] == [f["id"] for f in plain]
    assert [r["name"] for r in made.rows] == [
        f["properties"]["monitoring_location_name"] for f in plain
    ]
    assert {(r["state_code"], r["agency_code"]) for r in made.rows} == {("01", "AL012")}
    assert [r["county_code"] for r in made.rows] == [f["properties"]["county_code"] for f in plain]

    wells = read(RECORDED / "monitoring-locations.items.json", name="monitoring-locations")
    well = wells.rows[0]
    assert (well["hydrologic_unit_code"], well["altitude"], well["original_horizontal_datum"]) == (
        "011000060404",
        9.0,
        "NAD27",
    )
    assert shapely.from_wkb(wells.rows[1]["geometry"]).coords[0] == (
        -73.41899256198708,
        41.04916115609651,
    )


@on_recordings
def test_recorded_code_tables_take_their_properties_as_they_come(read: Callable[..., Made]) -> None:
    codes = read(RECORDED / "agency-codes.items.json", name="agency-codes")
    assert [r["id"] for r in codes.rows] == ["AK001", "AK008"] and [
        c.name for c in codes.result.schema
    ] == ["id", "agency_name"]
    series = read(RECORDED / "time-series-metadata.items.json", name="time-series-metadata")
    assert [(r["id"][:4], r["parameter_code"], r["hydrologic_unit_code"]) for r in series.rows] == [
        ("0458", "00045", "070900020504"),
        ("0aa9", "91060", "070900020504"),
    ]
    assert (
        series.result.key == ("id",)
        and series.result.bbox is not None
        and series.result.bbox[:2] == (-89.35249999999999, 43.20888888888889)
    )


def test_zero_missing_and_estimated_are_three_things_and_other_text_is_set_aside(
    read: Callable[..., Made],
) -> None:
    made = read(
        page(
            feature("2026-01-01", "0"),
            feature("2026-01-02", None, qualifier=["ICE"]),
            feature("2026-01-03", "", qualifier=["ESTIMATED"]),
            feature("2026-01-04", "2.5", qualifier=["ICE", "ESTIMATED"]),
            feature("2026-01-05", "0", qualifier="ESTIMATED", approval_status="Approved"),
            feature("2026-01-06", "Ice"),
            feature("2026-01-07", "NaN"),
            feature("2026-01-08T00:00:00Z"),
            feature("2026-01-10"),
        )
    )
    assert [
        (r["observed_on"].day, r["value"], r["status"], r["estimated"], r["qualifier"])
        for r in made.rows
    ] == [
        (1, 0.0, "measured", False, None),
        (2, None, "missing", False, "ICE"),
        (3, None, "missing", False, "ESTIMATED"),
        (4, 2.5, "estimated", True, "ESTIMATED,ICE"),
        (5, 0.0, "estimated", True, "ESTIMATED"),
        (10, 1.5, "measured", False, None),  # the ninth is not there: nothing is made up for it
    ]
    assert [(r["line"], r["rule"]) for r in made.rejects] == [
        (6, "type"),
        (7, "number.nonfinite"),
        (8, "type"),
    ]


def test_a_property_that_went_away_is_no_gap_and_a_new_one_is_said(
    read: Callable[..., Made],
) -> None:
    renamed = feature("2026-01-01")
    renamed["properties"]["result"] = renamed["properties"].pop("value")
    made = read(page(renamed, feature("2026-01-02", grade="C"), feature("2026-01-03")))
    assert [(r["rule"], "'value'" in r["reason"]) for r in made.rejects] == [("ogc.property", True)]
    assert len(made.rows) == 2
    assert made.result.warnings == (
        "The features of daily.00001 also have the properties grade; they are left out.",
    )


def test_a_record_without_its_series_is_set_aside(read: Callable[..., Made]) -> None:
    made = read(
        page(
            feature("2026-01-01"),
            feature("2026-01-02", time_series_id=None),
            {"type": "Feature"},
            7,
        )
    )
    assert [r["rule"] for r in made.rejects] == [
        "key.missing",
        "geojson.feature",
        "geojson.feature",
    ] and len(made.rows) == 1


def test_the_same_row_on_two_pages_is_one_and_a_different_one_is_refused(
    read: Callable[..., Made],
) -> None:
    made = read(page(feature("2026-01-01")), page(feature("2026-01-01"), feature("2026-01-02")))
    assert len(made.rows) == 2 and made.result.books.dropped == {"duplicate": 1}
    with pytest.raises(CaptureRefused) as refused:
        read(page(feature("2026-01-01")), page(feature("2026-01-01", "9")))
    assert refused.value.code == "key.conflict"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (page(feature("2026-01-01"), numberReturned=2), "page.count"),
        (page(feature("2026-01-01"), type="Everything"), "page.error"),
        (page(), "empty"),
        ('{"code": "NoApplicableCode", "description": "query error"}', "geojson.features"),
        ("<!doctype html><title>Maintenance</title>", "html"),
        (page(feature("2026-01-01"))[:-200], "truncated"),
        (
            page(feature("2026-01-01"), crs={"type": "name", "properties": {"name": "EPSG:26914"}}),
            "geojson.crs",
        ),
    ],
)
def test_a_page_that_cannot_be_trusted_is_refused_whole(
    read: Callable[..., Made], text: str, code: str
) -> None:
    with pytest.raises(CaptureRefused) as refused:
        read(text)
    assert refused.value.code == code


def test_pages_of_no_known_collection_are_refused_until_it_is_named(
    read: Callable[..., Made],
) -> None:
    with pytest.raises(CaptureRefused, match="which collection"):
        read(page(feature("2026-01-01")), name="")
    assert len(read(page(feature("2026-01-01")), name="", collection="daily").rows) == 1


def test_a_provisional_value_that_is_approved_changes_its_own_row_only(
    read: Callable[..., Made], tmp_path: Path
) -> None:
    days = ("2026-01-01", "2026-01-02", "2026-01-03")
    revised = feature(
        "2026-01-02", "1.7", approval_status="Approved", last_modified="2026-09-01T00:00:00Z"
    ) | {"id": "another-row-id"}
    old, new = (
        read(page(*map(feature, days))),
        read(page(feature(days[0]), revised, feature(days[2]))),
    )
    tables = tuple(
        InputFile(source_id=n, path=str(m.folder / "x.parquet"), digest="sha256:0")
        for n, m in (("base", old), ("part", new))
    )
    job = Merge(dataset_id="ks_g", inputs=tables, business_key=usgs_ogc.KEY, artifact="y.parquet")
    merged = run_inline(job, tmp_path)
    rows = pq.read_table(tmp_path / "y.parquet").to_pylist()
    assert (merged.books.written, merged.books.unchanged) == (1, 2)
    assert [i for i, (a, b) in enumerate(zip(rows, old.rows, strict=True)) if a != b] == [1]
    assert (rows[1]["value"], rows[1]["approval_status"]) == (1.7, "Approved")


# -- asking


def test_pages_are_followed_by_their_next_links_to_the_end(
    walk: Callable[..., list[dict[str, Any]]],
) -> None:
    url = f"{BASE}?f=json&limit=1"
    pages = {
        url: page(feature("2026-01-01"), next=f"{BASE}?cursor=a&limit=1"),
        # relative
        f"{BASE}?cursor=a&limit=1": page(feature("2026-01-02"), next="items?cursor=b&limit=1"),
        f"{BASE}?cursor=b&limit=1": page(feature("2026-01-03")),
        f"{BASE}?x=2": page(feature("2026-01-01")),  # a second address may hold the same records
    }
    asked = walk(pages, url, f"{BASE}?x=2", max_pages=4)
    assert [a["url"] for a in asked] == list(pages)
    assert [a["name"] for a in asked] == [
        "daily.00001",
        "daily.00002",
        "daily.00003",
        "daily.00004",
    ]
    assert {a["accept"] for a in asked} == {"application/geo+json"} and all(
        a["keep"] for a in asked
    )


@on_recordings
def test_the_recorded_page_leads_to_its_opaque_cursor(
    walk: Callable[..., list[dict[str, Any]]],
) -> None:
    host = "https://api.waterdata.usgs.gov/ogcapi/v0/collections/monitoring-locations/items"
    first = f"{host}?f=json&lang=en-US&limit=10&skipGeometry=false"
    second = f"{host}?cursor=QUwwMTItOTAxMDAzMDAwMDY&lang=en-US&limit=10&skipGeometry=false"
    recorded = (RECORDED / "monitoring-locations.page1.json").read_text()
    with pytest.raises(NotFetched, match="cursor=QUwwMTItOTAxMDAzMDAwMDY"):
        walk({first: recorded}, first)
    last = (RECORDED / "monitoring-locations.items.json").read_text()
    asked = walk({first: recorded, second: last}, first, since="2026-01-01T00:00:00Z")
    assert [a["url"] for a in asked] == [first, second], "sites have no time to ask for"


@pytest.mark.parametrize(
    ("second", "code"),
    [
        (page(feature("2026-01-02"), next=BASE), "page.loop"),
        (page(feature("2026-01-02"), next=f"{BASE}?cursor=a"), "page.loop"),
        (page(feature("2026-01-01"), next=f"{BASE}?cursor=b"), "page.repeated"),
        (page(feature("2026-01-02"), next="https://evil.example/items?cursor=b"), "page.host"),
        (
            page(
                feature("2026-01-02"),
                next="http://api.example.org/ogcapi/v0/collections/daily/items",
            ),
            "page.host",
        ),
        (page(feature("2026-01-02"), next="file:///etc/passwd"), "page.host"),
        (page(feature("2026-01-02"), next=f"{BASE}?cursor=b"), "page.budget"),
        (page(feature("2026-01-02"), numberReturned=5), "page.count"),
        ('{"code": "429", "description": "You have exceeded your rate limit"}', "page.error"),
        ('{"type": "FeatureCollection"}', "page.error"),
        ("<html>Bad gateway</html>", "html"),
        (page(feature("2026-01-02"))[:-9], "page.syntax"),
        ("", "page.size"),
    ],
)
def test_a_walk_that_goes_wrong_is_refused_with_its_reason(
    walk: Callable[..., list[dict[str, Any]]], second: str, code: str
) -> None:
    with pytest.raises(Refused) as refused:
        walk(
            {
                BASE: page(feature("2026-01-01"), next=f"{BASE}?cursor=a"),
                f"{BASE}?cursor=a": second,
            },
            max_pages=2,
        )
    assert refused.value.refusal.code == code


def test_a_page_too_large_to_be_one_is_refused_unread(
    walk: Callable[..., list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usgs_ogc, "_PAGE_BYTES", 100)
    with pytest.raises(Refused, match=r"page\.size"):
        walk({BASE: page(feature("2026-01-01"))})


@pytest.mark.parametrize(
    ("url", "since", "until", "asked"),
    [
        (
            f"{BASE}?f=json",
            "2026-01-01T00:00:00Z",
            "2026-02-01T00:00:00Z",
            f"{BASE}?f=json&time=2026-01-01/2026-01-31",
        ),
        (BASE, "2026-01-01T00:00:00Z", None, f"{BASE}?time=2026-01-01/.."),
        (BASE, None, "2026-02-01T06:00:00Z", f"{BASE}?time=../2026-02-01"),
        (f"{BASE}?time=2020-01-01/..", "2026-01-01T00:00:00Z", None, f"{BASE}?time=2020-01-01/.."),
        (BASE, None, None, BASE),
        (
            BASE.replace("daily", "latest-daily"),
            "2026-01-01T00:00:00Z",
            None,
            BASE.replace("daily", "latest-daily"),
        ),
        (
            BASE.replace("daily", "continuous"),
            "2026-01-01T00:00:00Z",
            "2026-01-02T00:00:00Z",
            BASE.replace("daily", "continuous") + "?time=2026-01-01T00:00:00Z/2026-01-02T00:00:00Z",
        ),
    ],
)
def test_the_window_is_asked_for_where_upstream_has_one(
    walk: Callable[..., list[dict[str, Any]]],
    url: str,
    since: str | None,
    until: str | None,
    asked: str,
) -> None:
    assert [
        a["url"] for a in walk({asked: page(feature("2026-01-01"))}, url, since=since, until=until)
    ] == [asked]


def test_addresses_of_two_collections_and_unknown_options_are_refused(
    walk: Callable[..., list[dict[str, Any]]],
) -> None:
    for urls, options in (
        ((BASE, BASE.replace("daily", "continuous")), {}),
        (("https://api.example.org/items",), {}),
        ((BASE,), {"pages": 3}),
    ):
        with pytest.raises(Refused, match="options"):
            walk({BASE: page(feature("2026-01-01"))}, *urls, **options)


def test_the_oldest_page_says_when_an_answer_was_made(read: Callable[..., Made]) -> None:
    pages = [
        page(feature(f"2026-01-0{n}"), timeStamp=f"2026-11-09T18:00:0{10 - n}Z") for n in (1, 2)
    ]
    assert read(*pages).result.stamp == "2026-11-09T18:00:08Z"
    for odd in ({}, {"timeStamp": "soon"}, {"timeStamp": 7}):
        assert read(page(feature("2026-01-01"), **odd)).result.stamp is UNSET
