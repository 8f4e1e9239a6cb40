"""The National Weather Service: alerts placed in counties, stations, observations in one unit
each.
"""

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
from kfm.connectors.kind import Ask
from kfm.connectors.operations import Acquire, Read
from kfm.extras.agencies import nws

needs_shared = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the recordings are not beside this repository"
    ),
]
NWS, BOUNDARIES = SHARED / "data" / "nws", SHARED / "data" / "boundaries"
SQUARE = [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]


def page(*features: dict[str, Any], **members: Any) -> str:
    return json.dumps({"type": "FeatureCollection", "features": features, **members})


def alert(
    alert_id: str, same: list[str], ugc: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    codes = {"SAME": same, "UGC": ugc or []}
    said = {
        "id": alert_id,
        "geocode": codes,
        "references": [],
        "expires": "2019-09-03T06:15:00-05:00",
        "event": "Flood Warning",
    }
    return {
        "type": "Feature",
        "id": f"https://api.weather.gov/alerts/{alert_id}",
        "geometry": None,
        "properties": said | more,
    }


def observation(**measures: Any) -> dict[str, Any]:
    said = {
        "station": "https://api.weather.gov/stations/KCNK",
        "timestamp": "2019-08-17T11:55:00+00:00",
    }
    return {
        "type": "Feature",
        "id": "x",
        "geometry": {"type": "Point", "coordinates": [-97.65, 39.54]},
        "properties": said | measures,
    }


def made(
    folder: Path, *sources: Path | str, counties: Path | str | None = None, **options: Any
) -> TransformResult:
    inputs = []
    for i, source in enumerate((*sources, *((counties,) if counties is not None else ()))):
        path = source if isinstance(source, Path) else folder / f"given-{i}"
        if isinstance(source, str):
            path.write_text(source)
        name = f"page-{i + 1:04}" if i < len(sources) else "counties"
        inputs.append(InputFile(source_id=name, path=str(path), digest=""))
    job = Read(
        dataset_id="d",
        source_kind="nws",
        format="json",
        inputs=tuple(inputs),
        options=options,
        artifact="d.parquet",
        max_quarantined=1.0,
    )
    return run_inline(job, folder)


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder / "d.parquet").to_pylist()
    return found


def rejects(folder: Path) -> list[tuple[str, str]]:
    found = [json.loads(line) for line in (folder / "d.quarantine.jsonl").read_text().splitlines()]
    return [(r["rule"], r["reason"]) for r in found]


# -- asking


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Runs `acquire` against a few answers by address; what was asked for."""

    def run(answers: dict[str, str | Path], *urls: str, **options: Any) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []

        def serve(message: dict[str, Any]) -> dict[str, Any]:
            messages.append(message)
            answer = answers.get(message["url"])
            if answer is None:
                return {"error": "404"}
            path = answer if isinstance(answer, Path) else tmp_path / message["name"]
            if isinstance(answer, str):
                path.write_text(answer)
            return {"path": str(path)}

        job = Acquire(
            dataset_id="d",
            source_kind="nws",
            options=options,
            urls=urls,
            format="json",
            artifact="d.parquet",
        )
        nws.acquire(Ask(job, serve, lambda *_, **__: None))
        return messages

    return run


HOST = "https://api.weather.gov"


def test_every_page_is_asked_for_as_geojson_until_there_is_no_next_link(
    asked: Callable[..., Any],
) -> None:
    answers = {
        f"{HOST}/a": page(alert("1", []), pagination={"next": f"{HOST}/a?cursor=x"}),
        f"{HOST}/a?cursor=x": page(alert("2", [])),
        f"{HOST}/b": page(alert("3", [])),
        "https://example.org/c.json": page({"type": "Feature", "id": "20117", "properties": {}, "geometry": {"type": "Polygon", "coordinates": SQUARE}}),
    }  # fmt: skip
    got = asked(answers, f"{HOST}/a", f"{HOST}/b", counties_url="https://example.org/c.json")
    assert [m["url"] for m in got] == list(answers)
    assert [m["name"] for m in got] == ["page-0001", "page-0002", "page-0003", "counties"]
    assert {m["accept"] for m in got[:3]} == {"application/geo+json"}
    assert all(m["keep"] for m in got)


@pytest.mark.parametrize("further", ["/a?cursor=y", "/a?cursor=x", "/a"])
def test_an_empty_page_ends_the_list_wherever_it_leads(
    asked: Callable[..., Any], further: str
) -> None:
    answers = {
        f"{HOST}/a": page(alert("1", []), pagination={"next": f"{HOST}/a?cursor=x"}),
        f"{HOST}/a?cursor=x": page(pagination={"next": f"{HOST}{further}"}),
    }
    assert len(asked(answers, f"{HOST}/a")) == 2


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(
            page(alert("2", []), pagination={"next": f"{HOST}/a"}), id="the first address again"
        ),
        pytest.param(
            page(alert("2", []), pagination={"next": f"{HOST}/a?cursor=x"}),
            id="its own address again",
        ),
        pytest.param(
            page(alert("1", []), pagination={"next": f"{HOST}/a?cursor=y"}), id="the same ids again"
        ),
        pytest.param(page(alert("1", [])), id="the same ids again, and no next link"),
    ],
)
def test_pages_that_repeat_are_refused(asked: Callable[..., Any], second: str) -> None:
    answers = {
        f"{HOST}/a": page(alert("1", []), pagination={"next": f"{HOST}/a?cursor=x"}),
        f"{HOST}/a?cursor=x": second,
    }
    with pytest.raises(Refused, match="repeat themselves at") as refused:
        asked(answers, f"{HOST}/a")
    assert refused.value.refusal.code == "nws.paging"


def test_a_next_link_need_not_be_followed(asked: Callable[..., Any]) -> None:
    assert (
        len(
            asked(
                {f"{HOST}/a": page(alert("1", []), pagination={"next": f"{HOST}/a?cursor=x"})},
                f"{HOST}/a",
                follow=False,
            )
        )
        == 1
    )


@pytest.mark.parametrize("link", ["https://example.org/a", "http://api.weather.gov/a?cursor=x"])
def test_a_next_link_to_another_host_is_refused(asked: Callable[..., Any], link: str) -> None:
    with pytest.raises(Refused, match="leads to"):
        asked(
            {f"{HOST}/a": page(alert("1", []), pagination={"next": link}), link: page()},
            f"{HOST}/a",
        )


def test_pages_without_end_are_refused(asked: Callable[..., Any]) -> None:
    answers = {f"{HOST}/a": page(alert("0", []), pagination={"next": f"{HOST}/a?1"})}
    answers |= {
        f"{HOST}/a?{i}": page(alert(str(i), []), pagination={"next": f"{HOST}/a?{i + 1}"})
        for i in range(1, 9)
    }
    with pytest.raises(Refused, match="more than 5 pages"):
        asked(answers, f"{HOST}/a", pages=5)


def test_a_problem_report_is_refused_in_its_own_words_even_with_status_200(
    asked: Callable[..., Any], tmp_path: Path
) -> None:
    problem = json.dumps(
        {
            "title": "Unexpected Problem",
            "status": 500,
            "detail": "It broke.",
            "correlationId": "493c-63",
        }
    )
    with pytest.raises(Refused, match=r"Unexpected Problem.*493c-63"):
        asked({f"{HOST}/a": problem}, f"{HOST}/a")
    with pytest.raises(CaptureRefused, match=r"Unexpected Problem.*493c-63"):
        made(tmp_path, problem, resource="stations")


def test_a_page_of_the_cdn_is_refused(asked: Callable[..., Any]) -> None:
    with pytest.raises(Refused, match="web page"):
        asked({f"{HOST}/a": "<HTML><H1>Access Denied</H1></HTML>"}, f"{HOST}/a")


@pytest.mark.parametrize(
    "options",
    [
        {"state": "Kansas"},
        {"resource": "forecasts"},
        {"resource": "stations", "state": "KS"},
        {"pages": 0},
    ],
)
def test_options_that_mean_nothing_are_refused_before_anything_is_asked(
    asked: Callable[..., Any], options: dict[str, Any]
) -> None:
    with pytest.raises(Refused) as caught:
        asked({}, f"{HOST}/a", **options)
    assert caught.value.refusal.code == "options"


# -- alerts


def test_counties_come_from_same_and_county_codes_and_other_states_are_dropped_by_rule(
    tmp_path: Path,
) -> None:
    both = alert("both", ["020107", "029013"], ["KSC107", "MOC013"])
    zone = alert("zone", ["020043"], ["KSZ010"])
    named = alert("named", [], ["KSC117"])
    unplaced = alert("unplaced", [], ["KSZ099"])
    mapped = alert("mapped", [], ["KSZ010"])
    result = made(
        tmp_path,
        page(both, zone, named, unplaced, mapped, alert("missouri", ["029013"])),
        state="KS",
        zones={"KSZ010": ["20001"]},
    )
    found = {r["alert_id"]: json.loads(r["counties"]) for r in rows(tmp_path)}
    assert found == {
        "both": ["20107"],
        "zone": ["20001", "20043"],
        "named": ["20117"],
        "unplaced": [],
        "mapped": ["20001"],
    }
    assert result.books.dropped == {"other-state": 1}
    made(tmp_path, page(both, alert("sea", ["077655", "057450"])))
    assert [json.loads(r["counties"]) for r in rows(tmp_path)] == [["20107", "29013"], []], (
        "waters are no counties"
    )


def test_an_alert_without_a_shape_gets_that_of_its_counties_and_says_so(tmp_path: Path) -> None:
    neighbour = [[[x + 1, y] for x, y in SQUARE[0]]]
    counties = page(*({"type": "Feature", "properties": {"GEOID": i}, "geometry": {"type": "Polygon", "coordinates": c}} for i, c in (("20001", SQUARE), ("20003", neighbour))))  # fmt: skip
    own = alert("own", ["020001"]) | {"geometry": {"type": "Polygon", "coordinates": neighbour}}
    result = made(
        tmp_path,
        page(own, alert("two", ["020001", "020003"]), alert("far", ["020001", "020005"])),
        counties=counties,
        state="KS",
    )
    found = {r["alert_id"]: (r["geometry_source"], r["geometry"]) for r in rows(tmp_path)}
    assert {k: v[0] for k, v in found.items()} == {
        "own": "polygon",
        "two": "counties",
        "far": "none",
    }
    two = shapely.from_wkb(found["two"][1])
    assert (two.geom_type, two.bounds, two.area, len(two.geoms)) == (
        "MultiPolygon",
        (0, 0, 2, 1),
        2,
        1,
    ), "one shape, not two side by side"
    assert found["far"][1] is None
    assert [w for w in result.warnings if "20005" in w], (
        "half of it must not be taken for the whole"
    )
    made(tmp_path, page(alert("two", ["020001"])), state="KS")
    assert (
        rows(tmp_path)[0]["geometry"],
        rows(tmp_path)[0]["geometry_source"],
        rows(tmp_path)[0]["counties"],
    ) == (
        None,
        "none",
        '["20001"]',
    )


def test_quantised_arcs_are_decoded_forwards_backwards_and_with_holes(tmp_path: Path) -> None:
    topology = {
        "type": "Topology",
        "transform": {"scale": [0.5, 0.5], "translate": [10, 20]},
        # the left square's open edge, the edge both share, the right square's, a hole in the left
        # one, and an islet of no width
        "arcs": [[[4, 0], [-4, 0], [0, 4], [4, 0]], [[4, 4], [0, -4]], [[4, 0], [4, 0], [0, 4], [-4, 0]],
                 [[1, 1], [0, 1], [1, 0], [0, -1], [-1, 0]], [[9, 9], [0, 1], [0, -1]]],
        "objects": {"counties": {"geometries": [
            {"type": "Polygon", "id": "20001", "arcs": [[0, 1], [3]]},
            {"type": "MultiPolygon", "id": "20003", "arcs": [[[2, 1]], [[4]]]},
        ]}},
    }  # fmt: skip
    made(
        tmp_path,
        page(alert("l", ["020001"]), alert("r", ["020003"])),
        counties=json.dumps(topology),
    )
    left, right = (shapely.from_wkb(r["geometry"]) for r in rows(tmp_path))
    assert (left.bounds, left.area) == ((10, 20, 12, 22), 4 - 0.25)
    assert (right.bounds, right.area) == ((12, 20, 14, 22), 4)
    topology["objects"]["counties"]["geometries"][1]["arcs"] = [[[~2, ~1]], [[4]]]  # type: ignore[index]
    made(tmp_path, page(alert("r", ["020003"])), counties=json.dumps(topology))
    assert shapely.from_wkb(rows(tmp_path)[0]["geometry"]).equals(right)


def test_an_outline_that_touches_itself_is_mended(tmp_path: Path) -> None:
    spike = [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]
    county = {
        "type": "Feature",
        "id": "20001",
        "properties": {},
        "geometry": {"type": "Polygon", "coordinates": spike},
    }
    result = made(tmp_path, page(alert("a", ["020001"])), counties=page(county))
    assert shapely.from_wkb(rows(tmp_path)[0]["geometry"]).bounds == (0, 0, 1, 1)
    assert result.invalid_geometries == 0


def test_outlines_that_are_none_are_refused(tmp_path: Path) -> None:
    for text in (
        "<html>",
        "[]",
        '{"type": "Topology", "arcs": []}',
        '{"type": "FeatureCollection", "features": [{}]}',
    ):
        with pytest.raises(CaptureRefused, match="county outlines"):
            made(tmp_path, page(alert("a", ["020001"])), counties=text)


def test_superseded_and_expired_alerts_are_flagged_across_pages_and_stay(tmp_path: Path) -> None:
    new = alert(
        "urn:oid:2",
        ["020001"],
        references=[{"identifier": "urn:oid:1"}, {"@id": f"{HOST}/alerts/NWS-IDP-PROD-7"}],
    )
    first = page(
        alert("urn:oid:1", ["020001"]),
        alert("NWS-IDP-PROD-7", ["020001"]),
        updated="2019-09-03T11:15:00Z",
    )
    late = alert("NWS-IDP-PROD-8", ["020001"], expires="2019-09-03T06:15:01-05:00")
    made(tmp_path, first, page(new, late, updated="2019-09-03T11:15:00Z"))
    found = {r["alert_id"]: (r["superseded"], r["expired"]) for r in rows(tmp_path)}
    assert found == {
        "urn:oid:1": (True, True),
        "NWS-IDP-PROD-7": (True, True),
        "urn:oid:2": (False, True),
        "NWS-IDP-PROD-8": (False, False),
    }
    assert json.loads(rows(tmp_path)[2]["references"]) == ["urn:oid:1", "NWS-IDP-PROD-7"]


def test_an_alert_of_another_shape_is_set_aside(tmp_path: Path) -> None:
    odd = [
        alert("a", ["020001"], geocode={"SAME": "020001"}),
        alert("b", ["020001"], references="w-nws,1,2019"),
    ]
    made(
        tmp_path,
        page(*odd, alert("c", ["020001"], sent="date:now -2 minutes"), alert("good", ["020001"])),
    )
    assert [r["alert_id"] for r in rows(tmp_path)] == ["good"]
    assert [rule for rule, _ in rejects(tmp_path)] == ["nws.record", "nws.record", "type"]


# -- observations and stations


def test_every_unit_upstream_uses_becomes_the_declared_one(tmp_path: Path) -> None:
    sent = [
        {"temperature": {"value": 20, "unitCode": "unit:degC", "qualityControl": "qc:V"}},
        {"temperature": {"value": 68, "unitCode": "wmoUnit:degF"}, "windSpeed": {"value": 7.56, "unitCode": "wmoUnit:km_h-1"}},
        {"temperature": {"value": "20.0", "unitCode": "wmoUnit:degC"}, "windSpeed": {"value": 2.1, "unitCode": "unit:m_s-1"}},
        {"temperature": {"value": 293.15, "unitCode": "http://codes.wmo.int/common/unit/K"}, "windSpeed": {"value": 7.56, "unitCode": "uc:km/h"}},
        {"temperature": {"value": 20, "unitCode": "Cel"}, "precipitationLastHour": {"value": 0.0122, "unitCode": "unit:m"}},
        {"precipitationLastHour": {"value": 12.2, "unitCode": "wmoUnit:mm"}, "barometricPressure": {"value": 1009.8, "unitCode": "hPa"}},
    ]  # fmt: skip
    made(tmp_path, page(*(observation(**m) | {"properties": observation(**m)["properties"] | {"timestamp": f"2019-08-17T1{i}:00:00Z"}} for i, m in enumerate(sent))), resource="observations")  # fmt: skip
    table = rows(tmp_path)
    assert [r["temperature"] for r in table] == [20, 20, 20, 20, 20, None]
    assert [r["wind_speed"] for r in table] == [None, 2.1, 2.1, 2.1, None, None]
    assert [r["precipitation_last_hour"] for r in table] == [None, None, None, None, 12.2, 12.2]
    assert table[5]["barometric_pressure"] == 100980
    assert [r["temperature_quality"] for r in table] == ["V", None, None, None, None, None]
    job = Read(
        dataset_id="d", format="json", options={"resource": "observations"}, artifact="d.parquet"
    )
    units = {c.name: c.unit for c in nws.columns(job)}
    assert (units["temperature"], units["wind_speed"], units["precipitation_last_hour"]) == (
        "Cel",
        "m/s",
        "mm",
    )


def test_a_missing_value_is_null_whatever_its_unit_and_a_value_of_unknown_unit_is_set_aside(
    tmp_path: Path,
) -> None:
    good = observation(
        temperature={"unitCode": "unit:furlong"}, dewpoint={"value": None}, windGust=None
    )
    strange = observation(temperature={"value": 20, "unitCode": "unit:furlong"})
    bare = observation(temperature={"value": 20})
    text = observation(temperature={"value": "warm", "unitCode": "unit:degC"})
    made(tmp_path, page(good, strange, bare, text), resource="observations")
    (row,) = rows(tmp_path)
    assert (row["temperature"], row["dewpoint"], row["wind_gust"], row["visibility"]) == (
        None,
        None,
        None,
        None,
    )
    assert [rule for rule, _ in rejects(tmp_path)] == ["unit.unknown", "unit.unknown", "type"]
    assert "furlong" in rejects(tmp_path)[0][1]


class TestRecordings:
    pytestmark = needs_shared

    def test_of_284_alerts_in_2019_three_touch_kansas(self, tmp_path: Path) -> None:
        source = NWS / "alerts/active.2019-09-03.json"
        plain = json.loads(source.read_text())["features"]
        result = made(tmp_path, source)
        table = rows(tmp_path)
        assert len(table) == len(plain) == result.books.read == 284
        assert [r["alert_id"] for r in table] == [f["properties"]["id"] for f in plain]
        assert (
            sum(r["geometry"] is None for r in table)
            == sum(f["geometry"] is None for f in plain)
            == 155
        )
        assert not any(r["superseded"] for r in table)
        assert table[0]["sent"].isoformat() == "2019-09-03T10:41:00+00:00"
        result = made(tmp_path, source, state="KS")
        assert [(r["area"].partition(",")[0], r["counties"]) for r in rows(tmp_path)] == [
            ("Marshall", '["20117"]'),
            ("Linn", '["20107"]'),
            ("Doniphan", '["20043"]'),
        ]
        assert result.books.dropped == {"other-state": 281}

    @pytest.mark.parametrize(
        "outlines", ["us-atlas-counties-10m.topojson", "kansas-counties.geojson"]
    )
    def test_the_shape_of_a_recorded_alert_is_the_union_of_its_counties_in_both_formats(
        self, tmp_path: Path, outlines: str
    ) -> None:
        three = page(
            alert("a", ["020001", "020003", "020209"]),
            alert("all", [f"0{20001 + 2 * i}" for i in range(105)]),
        )
        made(tmp_path, three, counties=BOUNDARIES / outlines, state="KS")
        given = json.loads((BOUNDARIES / "kansas-counties.geojson").read_text())["features"]
        plain = {f["id"]: shapely.geometry.shape(f["geometry"]) for f in given}
        a, whole = (shapely.from_wkb(r["geometry"]) for r in rows(tmp_path))
        assert a.equals(shapely.union_all([plain[c] for c in ("20001", "20003", "20209")]))
        assert a.is_valid
        assert len(a.geoms) == 2
        assert whole.bounds == (-102.052894, 36.992751, -94.60152, 40.002896)
        assert whole.area == pytest.approx(sum(s.area for s in plain.values()))

    def test_zone_alerts_of_2019_are_drawn_from_the_outlines_of_the_whole_country(
        self, tmp_path: Path
    ) -> None:
        result = made(
            tmp_path,
            NWS / "alerts/active.2019-09-03.json",
            counties=BOUNDARIES / "us-atlas-counties-10m.topojson",
        )
        sources = [r["geometry_source"] for r in rows(tmp_path)]
        drawn = [r for r in rows(tmp_path) if r["geometry_source"] == "counties"]
        assert {s: sources.count(s) for s in ("polygon", "counties", "none")} == {
            "polygon": 129,
            "counties": 72,
            "none": 83,
        }
        assert all(json.loads(r["counties"]) for r in drawn)
        assert result.invalid_geometries == 0
        waters = [r for r in rows(tmp_path) if r["geometry_source"] == "none"]
        assert not any(json.loads(r["counties"]) for r in waters), "only waters have no outline"

    def test_of_529_alerts_in_2025_none_touches_kansas_and_the_recorders_times_are_not_taken_for_times(
        self, tmp_path: Path
    ) -> None:
        source = NWS / "alerts/active.status=actual.2025-12-15.json"
        result = made(tmp_path, source, state="KS")
        assert (result.books.read, result.books.written, result.books.dropped) == (
            529,
            0,
            {"other-state": 529},
        )
        job = Read(
            dataset_id="d",
            format="json",
            inputs=(InputFile(source_id="p", path=str(source), digest=""),),
            artifact="d.parquet",
        )
        (reader,) = nws.readers(job)
        found = [r.row for r in reader.rows() if r.row is not None]
        assert (len(found), sum(r["geometry"] is None for r in found)) == (529, 510)
        assert all(r["alert_id"].startswith("urn:oid:2.49.0.1.840.0.") for r in found)
        assert made(tmp_path, source).books.quarantined == 529
        assert {rule for rule, _ in rejects(tmp_path)} == {"type"}

    def test_the_153_observations_of_concordia_keep_their_values_order_and_straggler(
        self, tmp_path: Path
    ) -> None:
        source = NWS / "stations/KCNK/observations.json"
        plain = [f["properties"] for f in json.loads(source.read_text())["features"]]
        result = made(tmp_path, source, resource="observations")
        table = rows(tmp_path)
        assert len(table) == len(plain) == result.books.read == 153
        assert {r["station_id"] for r in table} == {"KCNK"}
        assert [r["observed_at"].isoformat() for r in table] == [p["timestamp"] for p in plain]
        assert table[-1]["observed_at"].isoformat() == "2017-06-06T04:42:00+00:00"
        for name, sent in (
            ("temperature", "temperature"),
            ("wind_gust", "windGust"),
            ("sea_level_pressure", "seaLevelPressure"),
        ):
            assert [r[name] for r in table] == [p[sent]["value"] for p in plain]
        rain = [p["precipitationLastHour"]["value"] for p in plain]
        assert [r["precipitation_last_hour"] for r in table] == [
            None if v is None else pytest.approx(v * 1000) for v in rain
        ]
        assert sum(v is not None for v in rain) == 24
        assert {r["temperature_quality"] for r in table} == {"V", "S"}

    def test_an_observation_without_any_value_is_known_by_its_address(self, tmp_path: Path) -> None:
        made(
            tmp_path,
            NWS / "pynws/stations_observations_missing_value.json",
            resource="observations",
        )
        (row,) = rows(tmp_path)
        assert (row["station_id"], row["observed_at"].isoformat(), row["temperature"]) == (
            "KFLL",
            "2019-06-27T10:53:00+00:00",
            None,
        )

    def test_a_list_that_ignores_its_limit_gives_47_stations(
        self, tmp_path: Path, asked: Callable[..., Any]
    ) -> None:
        source = NWS / "gridpoints/OAX/59,58/stations.limit=3.json"
        address = f"{HOST}/gridpoints/OAX/59,58/stations?limit=3"
        assert len(asked({address: source}, address, resource="stations", follow=False)) == 1
        following = json.loads(source.read_text())["pagination"]["next"]
        got = asked({address: source, following: page()}, address, resource="stations")
        assert [m["url"] for m in got] == [address, following], (
            "the next page is asked for, and is empty"
        )
        made(tmp_path, source, resource="stations")
        table = rows(tmp_path)
        assert (len(table), len({r["station_id"] for r in table})) == (47, 47)
        first = {
            k: table[0][k]
            for k in (
                "station_id",
                "name",
                "timezone",
                "county",
                "county_fips",
                "forecast_zone",
                "elevation",
            )
        }
        assert list(first.values()) == [
            "KAHQ",
            "Wahoo",
            "America/Chicago",
            "NEC155",
            "31155",
            "NEZ051",
            373.0752,
        ]

    def test_the_recorded_problem_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(
            CaptureRefused, match=r"Unexpected Problem.*493c3a1d-f87e-407f-ae2c-24483f5aab63"
        ):
            made(tmp_path, NWS / "problem-500.json")


def test_the_oldest_page_says_when_an_answer_was_made(tmp_path: Path) -> None:
    first = page(alert("1", []), updated="2026-11-09T12:00:00-06:00")
    then = page(alert("2", []), updated="2026-11-09T17:59:00+00:00")
    assert made(tmp_path, first, then, resource="alerts").stamp == "2026-11-09T17:59:00Z"
    for odd in ({}, {"updated": "soon"}, {"updated": 7}):
        assert made(tmp_path, page(alert("1", []), **odd), resource="alerts").stamp is UNSET
