"""A release shows what its rules allow, and nothing else of the table it is made from."""

import io
import json
import random
from pathlib import Path
from typing import Any

import h3
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.connectors.base import EXPLAINED, CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline, run_transform
from kfm.connectors.operations import Govern
from kfm.model.dataset import Aggregate, Location, Release

STAMP = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("site_id", pa.string()),
        ("kind", pa.string()),
        ("year", pa.int64()),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
    ]
)
HERE, THERE, ALONE = (38.5, -98.25), (39.9, -95.1), (37.0, -101.9)


def site(
    number: int, place: tuple[float | None, float | None] = HERE, **other: Any
) -> dict[str, Any]:
    lat, lon = place
    return {
        "site_id": f"KS-{number:04d}",
        "kind": ("kiln", "well")[number % 2],
        "year": 1900 + number,
        "lat": lat,
        "lon": lon,
        **other,
    }


SITES = [
    *(site(n) for n in range(6)),
    *(site(n, THERE) for n in range(6, 11)),
    *(site(n, ALONE) for n in range(11, 14)),
]


class Made:
    """A finished release."""

    def __init__(self, result: TransformResult, folder: Path) -> None:
        self.result, self.path = result, folder / result.artifact
        self.data = self.path.read_bytes()
        self.rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(self.data)).to_pylist()
        self.dropped = result.books.dropped
        assert result.books.balanced
        assert result.rows == len(self.rows)
        assert [c.name for c in result.schema] == pq.read_schema(self.path).names
        assert {p.name for p in folder.iterdir()} - {EXPLAINED} == {result.artifact}


def governed(
    folder: Path,
    rows: list[dict[str, Any]] | pa.Table,
    *,
    schema: pa.Schema = SCHEMA,
    run: Any = run_inline,
    release: Any = None,
    **more: Any,
) -> Made:
    number = len(list(folder.iterdir()))
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema)
    pq.write_table(table, folder / f"table-{number}.parquet")
    (folder / f"out-{number}").mkdir()
    inputs = (
        InputFile(
            source_id="table", path=str(folder / f"table-{number}.parquet"), digest="sha256:0"
        ),
    )
    release = Release(**release) if isinstance(release, dict) else release
    job = Govern(
        dataset_id="ks_sites", inputs=inputs, release=release, artifact="ks_sites.parquet", **more
    )
    return Made(run(job, folder / f"out-{number}"), folder / f"out-{number}")


def refused(folder: Path, *args: Any, **more: Any) -> CaptureRefused:
    with pytest.raises(CaptureRefused) as caught:
        governed(folder, *args, **more)
    assert caught.value.happened and caught.value.expected and caught.value.remedy
    return caught.value


def cell(place: tuple[float, float], resolution: int = 5) -> str:
    return h3.latlng_to_cell(*place, resolution)


# -- generalised records


def test_records_are_known_by_their_cell_only(tmp_path: Path) -> None:
    made = governed(tmp_path, SITES, release={"withhold": ("site_id",), "h3_resolution": 5})
    assert [c.name for c in made.result.schema] == ["h3_cell", "kind", "year", "geometry"]
    assert [(r["h3_cell"], r["kind"], r["year"]) for r in made.rows] == [
        (c, None, None) for c in sorted([cell(HERE), cell(THERE)])
    ]
    assert made.dropped == {"k_min": 3}
    for row in made.rows:
        corners = [(lng, lat) for lat, lng in h3.cell_to_boundary(row["h3_cell"])]
        assert list(shapely.from_wkb(row["geometry"]).exterior.coords) == [*corners, corners[0]], (
            "exact, closed"
        )
    shapes = shapely.from_wkb([r["geometry"] for r in made.rows])
    assert made.result.bbox == tuple(shapely.total_bounds(shapes).tolist())
    assert made.result.geometry_types == ("Polygon",)
    geo = json.loads(pq.read_metadata(made.path).metadata[b"geo"])
    assert tuple(geo["columns"]["geometry"]["bbox"]) == made.result.bbox


def test_nothing_precise_is_left_in_the_file_or_the_answer(tmp_path: Path) -> None:
    sites = [site(n, (38.123456 + n / 1e6, -98.654321 - n / 1e6)) for n in range(8)]
    made = governed(
        tmp_path,
        sites,
        release={"withhold": ("site_id",), "h3_resolution": 5},
        business_key=("site_id",),
        suppress=({"records": {"year": 1907}},),
    )
    answer = msgspec.json.encode(
        msgspec.structs.replace(made.result, books=type(made.result.books)())
    )
    shown = json.dumps(made.rows, default=lambda b: b.hex()).encode()
    for s in sites:
        for secret in (s["site_id"], str(s["lat"]), str(s["lon"])):
            assert secret.encode() not in made.data + answer + shown
        for number in (s["lat"], s["lon"]):
            assert pa.array([number]).buffers()[1].to_pybytes() not in made.data + b"".join(
                r["geometry"] for r in made.rows
            )
    assert b"site_id" not in made.data, (
        "statistics and dictionaries know nothing of the column either"
    )
    assert "site_id" not in made.result.profile
    assert made.result.warnings == ()


def test_the_steps_are_settings_without_counts(tmp_path: Path) -> None:
    rules = {"withhold": ("site_id",), "h3_resolution": 5, "aggregate": Aggregate(by=("kind",))}
    made = governed(tmp_path, SITES, release=rules, suppress=({"records": {"site_id": "KS-0001"}},))
    assert made.result.steps == (
        {"step": "suppress"},
        {"step": "withhold", "columns": ["site_id"]},
        {
            "step": "h3_generalise",
            "discharges": "generalise",
            "resolution": 5,
            "min_records": 5,
            "min_area_km2": 0.0,
        },
        {
            "step": "aggregate",
            "discharges": "aggregate",
            "by": ["kind"],
            "collect": [],
            "min_records": 5,
        },
    )
    assert governed(tmp_path, SITES).result.steps == ()


@settings(max_examples=30)
@given(seed=st.integers(), groups=st.booleans(), zero=st.sampled_from((0.0, 1.5)))
def test_the_order_of_the_rows_leaves_no_trace(
    tmp_path_factory: pytest.TempPathFactory, seed: int, groups: bool, zero: float
) -> None:
    schema = (
        SCHEMA.append(pa.field("depth", pa.float64()))
        .append(pa.field("seen", STAMP))
        .append(pa.field("open", pa.bool_()))
    )
    sites = [
        s | {"depth": -zero if n % 3 else zero, "seen": n % 2 or None, "open": n % 5 == 0}
        for n, s in enumerate(SITES)
    ]
    mixed = random.Random(seed).sample(sites, len(sites))
    aggregate = Aggregate(by=("depth",), collect=("kind", "open")) if groups else None
    rules = {
        "withhold": ("site_id", "year"),
        "h3_resolution": 5,
        "min_records": 2,
        "aggregate": aggregate,
    }
    folder = tmp_path_factory.mktemp("order")
    assert (
        governed(folder, sites, schema=schema, release=rules).data
        == governed(folder, mixed, schema=schema, release=rules).data
    )


def test_withholding_alone_also_forgets_the_order(tmp_path: Path) -> None:
    rules = {"withhold": ("site_id", "lat", "lon")}
    made = governed(tmp_path, SITES, release=rules)
    assert made.data == governed(tmp_path, SITES[::-1], release=rules).data
    assert made.rows == sorted(
        ({"kind": s["kind"], "year": s["year"]} for s in SITES),
        key=lambda r: (r["kind"], r["year"]),
    )
    assert made.dropped == {}, "k is for cells and groups"


def test_records_without_a_place_are_dropped_by_name(tmp_path: Path) -> None:
    sites = [
        *(site(n) for n in range(5)),
        site(5, (None, -98.0)),
        site(6, (38.0, None)),
        site(7, (91.0, 0.0)),
        site(8, (0.0, 180.5)),
    ]
    made = governed(tmp_path, sites, release={"withhold": ("site_id",), "h3_resolution": 5})
    assert made.dropped == {"no_place": 4}
    assert len(made.rows) == 1


@pytest.mark.parametrize("shapes", ["points", "lines", "polygons"])
def test_shapes_are_placed_by_a_point_of_theirs(tmp_path: Path, shapes: str) -> None:
    ring = [(-98.3, 38.4), (-98.2, 38.4), (-98.2, 38.5), (-98.3, 38.4)]
    shape = {
        "points": shapely.Point(-98.25, 38.5, 7),
        "lines": shapely.LineString(ring[:3]),
        "polygons": shapely.Polygon(ring),
    }[shapes]
    wkb = shapely.to_wkb(shape, flavor="iso")
    table = pa.table(
        {"name": [f"n{i}" for i in range(4)], "where": pa.array([wkb, wkb, None, wkb], pa.binary())}
    )
    made = governed(
        tmp_path, table, release={"withhold": ("name",), "h3_resolution": 4, "min_records": 3}
    )
    point = shapely.point_on_surface(shape)
    assert [r["h3_cell"] for r in made.rows] == [cell((point.y, point.x), 4)]
    assert made.dropped == {"no_place": 1}
    assert list(made.rows[0]) == ["h3_cell", "geometry"]


def test_every_column_that_says_where_goes(tmp_path: Path) -> None:
    schema = (
        SCHEMA.append(pa.field("Latitude", pa.string()))
        .append(pa.field("LNG", pa.string()))
        .append(pa.field("y", pa.float64()))
    )
    schema = schema.append(pa.field("x", pa.float64())).append(pa.field("shape", pa.binary()))
    rows = [
        site(n, THERE, Latitude="1", LNG="2", y=HERE[0], x=HERE[1], shape=None) for n in range(5)
    ]
    rules = {"withhold": ("site_id",), "h3_resolution": 5}
    made = governed(
        tmp_path, rows, schema=schema, release=rules, location=Location(latitude="y", longitude="x")
    )
    assert [c.name for c in made.result.schema] == ["h3_cell", "kind", "year", "geometry"]
    assert {r["h3_cell"] for r in made.rows} == {cell(HERE)}, (
        "without a geometry the registry's columns decide"
    )


def test_half_a_pair_goes_too(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("x", pa.float64()))
    rows = [site(n, (HERE[0], 10.0), x=HERE[1]) for n in range(5)]
    rules = {"withhold": ("site_id",), "h3_resolution": 5}
    made = governed(
        tmp_path,
        rows,
        schema=schema,
        release=rules,
        location=Location(latitude="lat", longitude="x"),
    )
    assert list(made.rows[0]) == ["h3_cell", "kind", "year", "geometry"]
    assert {r["h3_cell"] for r in made.rows} == {cell(HERE)}


def test_places_written_as_text_or_whole_numbers_count(tmp_path: Path) -> None:
    schema = pa.schema([("lat", pa.string()), ("lon", pa.int64())])
    rows = [{"lat": text, "lon": -98} for text in ("38.5", " 38.5", "38,5", "", None)]
    made = governed(tmp_path, rows, schema=schema, release={"h3_resolution": 3, "min_records": 2})
    assert [r["h3_cell"] for r in made.rows] == [cell((38.5, -98), 3)], (
        "each row once: two records of a cell look like one"
    )
    assert made.dropped == {"no_place": 3}


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ((0.0, 180.0), "MultiPolygon"),
        ((-17.0, -179.99), "MultiPolygon"),
        ((90.0, 0.0), "Polygon"),
        ((-89.999, 50.0), "Polygon"),
    ],
)
def test_cells_at_the_antimeridian_and_the_poles_are_whole(
    tmp_path: Path, place: tuple[float, float], kind: str
) -> None:
    made = governed(
        tmp_path,
        [site(n, place) for n in range(5)],
        release={"withhold": ("site_id",), "h3_resolution": 3},
    )
    shape = shapely.from_wkb(made.rows[0]["geometry"])
    lat, lng = h3.cell_to_latlng(cell(place, 3))
    assert (
        shape.geom_type == kind
        and shape.is_valid
        and shape.covers(shapely.Point(lng, lat))
        and shape.covers(shapely.Point(*place[::-1]))
    )
    assert (
        made.result.bbox is not None and made.result.bbox[0] == -180 and made.result.bbox[2] == 180
    )
    assert shape.area < 360 * 5, "it does not reach round the other way"


def test_a_cell_that_is_too_small_stops_the_release(tmp_path: Path) -> None:
    rules = {"withhold": ("site_id",), "h3_resolution": 7}
    area = h3.cell_area(cell(HERE, 7), "km^2")
    sites = [site(n) for n in range(6)]
    assert governed(tmp_path, sites, release=rules | {"min_area_km2": area * 0.99}).rows
    error = refused(tmp_path, sites, release=rules | {"min_area_km2": area * 1.01})
    assert error.code == "release.area"
    assert cell(HERE, 7) not in str(error)


@pytest.mark.parametrize(("k", "cells"), [(1, 3), (3, 3), (4, 2), (6, 1), (7, 0)])
def test_a_cell_needs_k_records(tmp_path: Path, k: int, cells: int) -> None:
    made = governed(
        tmp_path, SITES, release={"withhold": ("site_id",), "h3_resolution": 5, "min_records": k}
    )
    assert len({r["h3_cell"] for r in made.rows}) == cells
    assert made.result.books.read == len(SITES)
    assert (made.result.bbox is None) == (cells == 0)


# -- groups


def test_groups_say_roughly_how_many(tmp_path: Path) -> None:
    sites = [
        site(n, kind="a" if n < 4 else "b" if n < 9 else "c" if n < 18 else "d" if n < 28 else "e")
        for n in range(53)
    ]
    made = governed(
        tmp_path, sites, release={"h3_resolution": 5, "aggregate": Aggregate(by=("kind",))}
    )
    assert [(r["kind"], r["records"]) for r in made.rows] == [
        ("b", "5 to 9"),
        ("c", "5 to 9"),
        ("d", "10 to 24"),
        ("e", "25 or more"),
    ]
    assert made.dropped == {"k_min": 4}
    assert (made.result.books.read, made.result.books.written) == (53, 49), (
        "written are the records the groups stand for"
    )
    assert [c.name for c in made.result.schema] == ["h3_cell", "kind", "records", "geometry"]


@pytest.mark.parametrize(
    ("k", "bands"),
    [
        (1, {1: "1 to 4", 4: "1 to 4", 5: "5 or more"}),
        (2, {2: "2 to 3", 3: "2 to 3", 4: "4 to 9", 9: "4 to 9", 10: "10 or more"}),
        (5, {5: "5 to 9", 9: "5 to 9", 10: "10 to 24", 24: "10 to 24", 25: "25 or more"}),
    ],
)
def test_bands_follow_k_and_never_are_a_count(
    tmp_path: Path, k: int, bands: dict[int, str]
) -> None:
    for count, band in bands.items():
        rules = {"aggregate": Aggregate(), "min_records": k}
        assert governed(tmp_path, [site(n) for n in range(count)], release=rules).rows == [
            {"records": band}
        ]


def test_a_group_lists_what_at_least_k_of_it_hold(tmp_path: Path) -> None:
    kinds = ["well"] * 5 + ["kiln"] * 6 + ["shrine"] * 4 + [None] * 7
    sites = [site(n, kind=kind, year=1900 + n % 3) for n, kind in enumerate(kinds)] + [
        site(90 + n, THERE, kind=f"k{n}") for n in range(6)
    ]
    made = governed(
        tmp_path,
        sites,
        release={"h3_resolution": 5, "aggregate": Aggregate(collect=("kind", "year"))},
    )
    listed = {r["h3_cell"]: (r["kind"], r["year"]) for r in made.rows}
    assert listed == {cell(HERE): ("kiln; well", "1900; 1901; 1902"), cell(THERE): (None, None)}
    assert b"shrine" not in made.data


def test_groups_without_cells_and_with_empty_keys(tmp_path: Path) -> None:
    sites = [site(n, kind=None if n < 5 else "well" if n < 10 else "kiln") for n in range(12)]
    made = governed(
        tmp_path, sites, release={"withhold": ("lat", "lon"), "aggregate": Aggregate(by=("kind",))}
    )
    assert made.rows == [{"kind": "well", "records": "5 to 9"}, {"kind": None, "records": "5 to 9"}]
    assert made.dropped == {"k_min": 2}
    assert made.result.bbox is None


def test_two_zeros_are_one_group_and_one_value(tmp_path: Path) -> None:
    table = pa.table({"depth": [0.0, -0.0] * 3, "also": [-0.0, 0.0] * 3})
    made = governed(
        tmp_path,
        table,
        release={"aggregate": Aggregate(by=("depth",), collect=("also",)), "min_records": 4},
    )
    assert made.rows == [{"depth": 0.0, "records": "4 to 7", "also": "0"}]


def test_a_release_shows_the_columns_it_names_and_no_other(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(SITES, SCHEMA).append_column(
        "wkt", pa.array([f"POINT ({s['lon']} {s['lat']})" for s in SITES])
    )
    made = governed(tmp_path, table, release={"show": ("kind",), "h3_resolution": 5})
    assert {n for row in made.rows for n in row} == {"h3_cell", "kind", "geometry"}
    assert made.result.steps[0] == {"step": "show", "columns": ["kind"]}
    assert (
        governed(tmp_path, table, release={"show": (), "h3_resolution": 5}).result.schema[0].name
        == "h3_cell"
    ), "cells alone"


@pytest.mark.parametrize(
    "rules",
    [
        {"show": ("kind", "owner")},  # upstream may have renamed it
        {"show": ("kind",), "aggregate": Aggregate(by=("year",))},
        {"show": ()},
        {"withhold": ("site_id", "owner")},
        {"h3_resolution": 5, "aggregate": Aggregate(by=("lat",))},
        {"withhold": ("kind",), "aggregate": Aggregate(by=("kind",))},
        {"aggregate": Aggregate(by=("kind",), collect=("kind",))},
        {"aggregate": Aggregate(collect=("nothing",))},
        {"withhold": tuple(SCHEMA.names)},
    ],
)
def test_a_release_that_cannot_be_meant_is_refused(tmp_path: Path, rules: dict[str, Any]) -> None:
    assert refused(tmp_path, SITES, release=rules).code == "release.column"


def test_names_of_its_own_columns_are_not_taken_twice(tmp_path: Path) -> None:
    for name, rules in (
        ("h3_cell", {}),
        ("geometry", {}),
        ("records", {"aggregate": Aggregate(by=("records",))}),
    ):
        table = pa.Table.from_pylist(SITES, SCHEMA).append_column(name, pa.array([1] * len(SITES)))
        assert (
            refused(tmp_path, table, release={"h3_resolution": 5, **rules}).code == "release.column"
        )
        assert governed(tmp_path, table, release={"h3_resolution": 5, "withhold": (name,)}).rows


def test_without_a_place_nothing_is_generalised(tmp_path: Path) -> None:
    table = pa.table({"name": ["a"] * 9})
    for half in (table, table.append_column("lat", pa.array([1.0] * 9))):
        assert refused(tmp_path, half, release={"h3_resolution": 5}).code == "release.place"
    assert (
        refused(
            tmp_path,
            table,
            release={"h3_resolution": 5},
            location=Location(latitude="y", longitude="x"),
        ).code
        == "release.place"
    )


# -- withdrawn records


def test_without_a_release_the_rest_passes_as_it_is(tmp_path: Path) -> None:
    mixed = SITES[::-1]
    made = governed(
        tmp_path,
        mixed,
        suppress=(
            {"records": {"site_id": "KS-0003", "kind": "well"}},
            {"records": {"site_id": "KS-0004", "kind": "well"}},
        ),
    )
    assert made.rows == [s for s in mixed if s["site_id"] != "KS-0003"], (
        "all columns of a rule must agree"
    )
    assert made.dropped == {"withdrawn": 1}
    assert made.result.bbox is None


@pytest.mark.parametrize(
    ("column", "type_", "values", "wanted", "left"),
    [
        ("v", pa.string(), ["a", "A", None, "a ", "b", "a a"], "a", [None, "b", "a a"]),
        (
            "v",
            pa.string(),
            [" KS2254257 ", "ks2254257", "KS22\u200b54257", "\ufeffＫＳ2254257\u00a0", "KS2254258"],
            "KS2254257",
            ["KS2254258"],
        ),
        ("v", pa.string(), ["Stra\u00dfe", "Cafe\u0301", "STRASSE"], "strasse", ["Cafe\u0301"]),
        (
            "v",
            pa.string(),
            ["Caf\u00e9", "Cafe\u200d\u0301", "Cafe"],
            " CAFE\u0301\u200b",
            ["Cafe"],
        ),
        ("v", pa.string(), ["7", "007", "7.0"], 7, ["007", "7.0"]),
        ("v", pa.string(), ["a", None, ""], None, ["a", ""]),
        ("v", pa.int64(), [7, 8, None], "7", [8, None]),
        ("v", pa.int64(), [7, 8, None], 7.0, [8, None]),
        ("v", pa.int64(), [7, 8, None], "seven", [7, 8, None]),
        ("v", pa.float64(), [0.1, 1.0, None], 1, [0.1, None]),
        ("v", pa.float64(), [0.1, 1.0, None], "0.10", [1.0, None]),
        ("v", pa.bool_(), [True, False, None], True, [False, None]),
        ("v", pa.bool_(), [True, False, None], "false", [True, None]),
        ("v", STAMP, [0, 1_000_000], "1970-01-01T01:00:01+01:00", [0]),
        ("v", pa.date32(), [0, 1], "1970-01-02", [0]),
    ],
)
def test_records_are_found_by_the_text_of_their_values(
    tmp_path: Path, column: str, type_: Any, values: Any, wanted: Any, left: Any
) -> None:
    table = pa.table({column: pa.array(values, type_)})
    made = governed(tmp_path, table, suppress=({"records": {column: wanted}},))
    assert [r[column] for r in made.rows] == pa.array(left, type_).to_pylist()
    assert made.result.books.dropped.get("withdrawn", 0) == len(values) - len(left)


def test_an_area_takes_points_and_whatever_reaches_into_it(tmp_path: Path) -> None:
    inside, edge, outside, across = (
        shapely.Point(1, 1),
        shapely.Point(2, 2),
        shapely.Point(2.1, 2),
        shapely.LineString([(-1, 1), (9, 1)]),
    )
    table = pa.table(
        {
            "n": list("abcde"),
            "g": pa.array([*shapely.to_wkb([inside, edge, outside, across]), None], pa.binary()),
        }
    )
    made = governed(tmp_path, table, suppress=({"area": [0, 0, 2, 2]},))
    assert [r["n"] for r in made.rows] == ["c", "e"]
    assert made.result.bbox == (2.1, 2.0, 2.1, 2.0)
    sites = [
        site(0, (10.0, 179.5)),
        site(1, (10.0, -179.5)),
        site(2, (10.0, 0.0)),
        site(3, (None, None)),
        site(4, (10.0, 170.0)),
    ]
    assert [
        r["year"] for r in governed(tmp_path, sites, suppress=({"area": [179, 0, -179, 20]},)).rows
    ] == [1902, 1903, 1904]


def test_withdrawn_records_count_towards_nothing(tmp_path: Path) -> None:
    rules = {"withhold": ("site_id",), "h3_resolution": 5}
    made = governed(tmp_path, SITES, release=rules, suppress=({"records": {"site_id": "KS-0008"}},))
    assert {r["h3_cell"] for r in made.rows} == {cell(HERE)}, (
        "the other cell had five records and has four"
    )
    assert made.dropped == {"k_min": 7, "withdrawn": 1}


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ({"records": {"owner": "x"}}, "suppress.column"),
        ({"records": {}}, "suppress.rule"),
        ({"area": [0, 0, 1]}, "suppress.rule"),
        # latitude first: it would name no place at all
        ({"area": [38, -98, 39, -97]}, "suppress.rule"),
        ({"area": [0, 2, 1, 1]}, "suppress.rule"),
        ({"digest": "sha256:0"}, "suppress.rule"),
        ({"area": [0, 0, 1, 1], "records": {"kind": "a"}}, "suppress.rule"),
    ],
)
def test_a_withdrawal_that_cannot_be_applied_stops_everything(
    tmp_path: Path, rule: dict[str, Any], code: str
) -> None:
    assert refused(tmp_path, SITES, suppress=(rule,)).code == code


def test_an_area_needs_places(tmp_path: Path) -> None:
    for table in (pa.table({"n": ["a"]}), pa.table({"lat": [0.5]})):
        assert refused(tmp_path, table, suppress=({"area": [0, 0, 1, 1]},)).code == "suppress.place"


# -- tables of any size


@pytest.mark.parametrize(
    "release",
    [
        None,
        {"h3_resolution": 5},
        {"h3_resolution": 5, "aggregate": Aggregate(by=("kind",), collect=("year",))},
    ],
)
def test_an_empty_table_stays_one(tmp_path: Path, release: Any) -> None:
    made = governed(
        tmp_path, [], release=release, suppress=({"records": {"kind": "x"}}, {"area": [0, 0, 1, 1]})
    )
    assert made.rows == [] and made.result.bbox is None and made.result.books.read == 0


def test_names_with_dots_do_not_bring_others_along(tmp_path: Path) -> None:
    table = pa.table(
        {"a": ["x"] * 5, "a.secret": ["s"] * 5, "lat": [38.5] * 5, "lon": [-98.25] * 5}
    )
    made = governed(tmp_path, table, release={"withhold": ("a.secret",), "h3_resolution": 5})
    assert list(made.rows[0]) == ["h3_cell", "a", "geometry"]
    assert b"secret" not in made.data


def test_rows_of_many_batches_keep_to_the_rules(tmp_path: Path) -> None:
    count = 150_000
    chance = random.Random(4)
    places = [(38 + n / 2, -98.0) for n in range(20)]
    chosen = [chance.choice(places) for _ in range(count)]
    table = pa.table(
        {
            "id": [str(n) for n in range(count)],
            "lat": [p[0] for p in chosen],
            "lon": [p[1] for p in chosen],
        }
    )
    made = governed(
        tmp_path,
        table,
        release={"withhold": ("id",), "h3_resolution": 5},
        suppress=({"records": {"id": "149999"}},),
    )
    assert sorted(row["h3_cell"] for row in made.rows) == sorted(
        {cell(place) for place in chosen[:-1]}
    )
    assert (made.result.books.written, made.dropped) == (count - 1, {"withdrawn": 1})


def test_the_child_gives_the_same_bytes(tmp_path: Path) -> None:
    rules = {"withhold": ("site_id",), "h3_resolution": 5}
    made = [
        governed(tmp_path, SITES, release=rules, run=run) for run in (run_inline, run_transform)
    ]
    assert made[0].data == made[1].data
    assert made[0].result == made[1].result
    assert (
        refused(tmp_path, SITES, release={"withhold": ("owner",)}, run=run_transform).code
        == "release.column"
    )
