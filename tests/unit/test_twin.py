"""Twins differ in everything that is hidden, and the public side cannot tell."""

import csv
import io
import json
import random
import re
import tempfile
from pathlib import Path
from typing import Any

import h3
import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline, run_transform
from kfm.connectors.operations import Govern, Read, Twin
from kfm.model.dataset import Aggregate, Column, Location, Release

SEEDS = (1, 2, 3)
KINDS = ("kiln", "mound", "well")
Site = dict[str, Any]


def job_over(
    folder: Path, format: str, kind: type[Read | Twin] = Read, **options: Any
) -> Read | Twin:
    inputs = tuple(
        InputFile(source_id=p.stem, path=str(p), digest="sha256:0")
        for p in sorted(folder.iterdir())
    )
    if kind is Twin:
        options.pop("max_quarantined", None)  # only a read sets rows aside
    return kind(
        dataset_id="ks_sites", format=format, inputs=inputs, artifact="ks_sites.parquet", **options
    )


def written(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder


def twin_of(
    folder: Path, into: Path, format: str, *, seed: int = 1, run: Any = run_inline, **options: Any
) -> TransformResult:
    into.mkdir(parents=True, exist_ok=True)
    result: TransformResult = run(job_over(folder, format, Twin, seed=seed, **options), into)
    assert (
        sorted(result.files)
        == sorted(p.name for p in into.iterdir())
        == sorted(p.name for p in folder.iterdir())
    )
    return result


def released(
    folder: Path,
    work: Path,
    format: str,
    *,
    release: Release,
    location: Location | None = None,
    **options: Any,
) -> bytes:
    """The public bytes made of some captured files."""
    suppress = options.pop("suppress", ())
    for name in ("table", "public"):
        (work / name).mkdir(parents=True)
    made = run_inline(job_over(folder, format, **options), work / "table")
    job = Govern(
        dataset_id="ks_sites", artifact="ks_sites.parquet", schema=made.schema, release=release,
        location=location, suppress=suppress, business_key=options.get("business_key", ()),
        inputs=(InputFile(source_id="table", path=str(work / "table" / made.artifact), digest="sha256:0"),),
    )  # fmt: skip
    run_inline(job, work / "public")
    return (work / "public" / "ks_sites.parquet").read_bytes()


def as_csv(sites: list[Site], **names: str) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([names.get(n, n) for n in ("site_id", "kind", "keeper", "lat", "lon")])
    writer.writerows([s["site_id"], s["kind"], s["keeper"], s["lat"], s["lon"]] for s in sites)
    return out.getvalue()


def as_geojson(sites: list[Site]) -> str:
    features = []
    for s in sites:
        x, y = s["lon"], s["lat"]
        shapes = {
            "point": {"type": "Point", "coordinates": [x, y, 12.5]},
            "line": {
                "type": "LineString",
                "coordinates": [[x, y], [x + 0.001, y + 0.002], [x + 0.002, y]],
            },
            "area": {
                "type": "Polygon",
                "coordinates": [[[x, y], [x + 0.002, y], [x + 0.001, y + 0.002], [x, y]]],
            },
            "none": None,
        }
        properties = {"kind": s["kind"], "keeper": s["keeper"]} | (
            {"note": s["note"]} if s["note"] else {}
        )
        features.append(
            {
                "type": "Feature",
                "id": s["site_id"],
                "bbox": [x, y, x, y],
                "properties": properties,
                "geometry": shapes[s["shape"]],
            }
        )
    return json.dumps(
        {
            "type": "FeatureCollection",
            "bbox": [-180, -90, 180, 90],
            "name": "sites",
            "features": features,
        }
    )


@st.composite
def many_sites(draw: Any) -> list[Site]:
    """Sites in a few clusters, somewhere on the globe."""
    centres = draw(
        st.lists(st.tuples(st.floats(-89, 89), st.floats(-179.9, 179.9)), min_size=1, max_size=3)
    )
    sites = []
    for number in range(draw(st.integers(1, 24))):
        lat, lon = draw(st.sampled_from(centres))
        sites.append(
            {
                "site_id": f"KS-{number:04d}",
                "kind": draw(st.sampled_from(KINDS)),
                "keeper": draw(st.sampled_from(("Ann", "Bo, the \"elder\"", "Cy\nand Di", ""))),
                "note": draw(st.sampled_from(("", "dry", "flooded"))),
                "lat": round(lat + draw(st.floats(-0.01, 0.01)), 6),
                "lon": round(max(-179.99, min(179.99, lon + draw(st.floats(-0.01, 0.01)))), 6),
                "shape": draw(st.sampled_from(("point", "point", "line", "area", "none"))),
            }
        )  # fmt: skip
    return sites + sites[: draw(st.integers(0, 2))]  # pages may overlap


RELEASES = (
    {"h3_resolution": 5, "min_records": 2},
    {"h3_resolution": 4, "min_records": 2, "aggregate": Aggregate(by=("kind",))},
    {"h3_resolution": 3, "min_records": 3, "aggregate": Aggregate(collect=("kind",))},
)


def both_sides(
    root: Path, files: dict[str, str], format: str, *, seed: int, **options: Any
) -> tuple[bytes, bytes]:
    """The public bytes of the original and of its twin."""
    source = written(root / "raw", files)
    twin_of(source, root / "twin", format, seed=seed, **options)
    return released(source, root / "one", format, **options), released(
        root / "twin", root / "two", format, **options
    )


@settings(max_examples=40)
@given(sites=many_sites(), rules=st.sampled_from(RELEASES), seed=st.sampled_from(SEEDS))
def test_the_public_bytes_of_csv_do_not_depend_on_what_is_hidden(
    sites: list[Site], rules: Any, seed: int
) -> None:
    release = Release(show=("kind",), **rules)
    files = {"a.csv": as_csv(sites[::2]), "b.csv": as_csv(sites[1::2] or sites)}
    with tempfile.TemporaryDirectory() as root:
        original, twin = both_sides(
            Path(root), files, "csv", seed=seed, release=release, business_key=("site_id",)
        )
    assert original == twin
    assert b"KS-0" not in original


@settings(max_examples=40)
@given(sites=many_sites(), rules=st.sampled_from(RELEASES), seed=st.sampled_from(SEEDS))
def test_the_public_bytes_of_geojson_do_not_depend_on_what_is_hidden(
    sites: list[Site], rules: Any, seed: int
) -> None:
    release = Release(show=("kind",), **rules)
    with tempfile.TemporaryDirectory() as root:
        files = {"a.geojson": as_geojson(sites)}
        original, twin = both_sides(
            Path(root), files, "geojson", seed=seed, release=release, business_key=("feature_id",)
        )
    assert original == twin
    assert b"KS-0" not in original


def site(number: int, **other: Any) -> Site:
    plain = {"kind": KINDS[number % 3], "keeper": f"keeper {number}", "note": "", "shape": "point"}
    place = {"lat": 38.5 + number / 1000, "lon": -98.25 - number / 1000}
    return {"site_id": f"KS-{number:04d}", **plain, **place, **other}


SITES = [site(n) for n in range(12)]
RELEASE = Release(withhold=("site_id", "keeper"), h3_resolution=4, min_records=2)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def shape_of(text: str) -> str:
    return re.sub("[A-Z]", "A", re.sub("[a-z]", "a", re.sub("[0-9]", "0", text)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_twin_of_csv_differs_in_everything_hidden_and_in_nothing_else(
    tmp_path: Path, seed: int
) -> None:
    source = written(
        tmp_path / "raw", {"a.csv": as_csv([site(n, kind=f"public {n}") for n in range(12)])}
    )
    result = twin_of(source, tmp_path / "twin", "csv", seed=seed, release=RELEASE)
    assert (result.books.read, result.schema, result.rows) == (0, (), 0)
    before, after = (
        {r["kind"]: r for r in rows_of(folder / "a.csv")} for folder in (source, tmp_path / "twin")
    )
    assert list(before) != list(after) and sorted(before) == sorted(after), (
        "the order changes, public values do not"
    )
    for hidden in ("site_id", "keeper"):
        one, two = (sorted(r[hidden] for r in side.values()) for side in (before, after))
        if seed % 3:
            assert one == two
        else:
            assert not set(one) & set(two) and sorted(map(shape_of, one)) == sorted(
                map(shape_of, two)
            )
    for name, old in before.items():
        new = after[name]
        assert all(old[column] != new[column] for column in ("site_id", "keeper", "lat", "lon"))
        assert (
            len({h3.latlng_to_cell(float(r["lat"]), float(r["lon"]), 4) for r in (old, new)}) == 1
        )


def test_another_seed_is_another_twin_and_the_same_seed_the_same(tmp_path: Path) -> None:
    source = written(tmp_path / "raw", {"a.csv": as_csv(SITES)})
    made = []
    for n, seed in enumerate((1, 2, 1)):
        twin_of(source, tmp_path / f"twin-{n}", "csv", seed=seed, release=RELEASE)
        made.append((tmp_path / f"twin-{n}" / "a.csv").read_bytes())
    assert made[0] == made[2] != made[1]


def test_the_child_makes_the_same_twin(tmp_path: Path) -> None:
    source = written(tmp_path / "raw", {"a.geojson": as_geojson(SITES)})
    release = Release(withhold=("feature_id",), h3_resolution=5)
    for name, run in (("inline", run_inline), ("child", run_transform)):
        twin_of(source, tmp_path / name, "geojson", seed=3, run=run, release=release)
    made = [(tmp_path / name / "a.geojson").read_bytes() for name in ("inline", "child")]
    assert made[0] == made[1] != (source / "a.geojson").read_bytes()


def test_features_keep_their_form_and_lose_their_bounds(tmp_path: Path) -> None:
    sites = [site(n, shape=("point", "line", "area", "none")[n % 4]) for n in range(8)]
    source = written(tmp_path / "raw", {"a.geojson": as_geojson(sites)})
    twin_of(
        source,
        tmp_path / "twin",
        "geojson",
        release=Release(withhold=("feature_id",), h3_resolution=5),
    )
    before, after = (
        json.loads((folder / "a.geojson").read_text()) for folder in (source, tmp_path / "twin")
    )
    assert after["name"] == "sites" and "bbox" not in after
    assert all("bbox" not in f for f in after["features"])
    kinds = sorted((f["geometry"] or {"type": ""})["type"] for f in after["features"])
    assert kinds == sorted(["Point", "LineString", "Polygon", ""] * 2)
    moved = [f["geometry"] for f in after["features"] if f["geometry"]]
    assert not [g for g in moved if g in [f["geometry"] for f in before["features"]]]
    assert all(g["coordinates"][2] == 12.5 for g in moved if g["type"] == "Point"), (
        "heights are not places"
    )
    line = next(g["coordinates"] for g in moved if g["type"] == "LineString")
    assert line[1][0] - line[0][0] == pytest.approx(0.001) and line[1][1] - line[0][
        1
    ] == pytest.approx(0.002), "only translated"


@pytest.mark.parametrize("place", [(0.0, 179.99), (-17.0, -179.999), (89.9, 0.0), (-89.99, 120.0)])
def test_twins_at_the_antimeridian_and_the_poles_stay_in_their_cells(
    tmp_path: Path, place: tuple[float, float]
) -> None:
    shapes = ("point", "line", "area")
    sites = [
        site(
            n,
            lat=place[0] - n * 1e-4 * (1 if place[0] > 0 else -1),
            lon=place[1],
            shape=shapes[n % 3],
        )
        for n in range(9)
    ]
    release = Release(withhold=("feature_id", "keeper"), h3_resolution=3, min_records=1)
    for seed in SEEDS:
        original, twin = both_sides(
            tmp_path / str(seed),
            {"a.geojson": as_geojson(sites)},
            "geojson",
            seed=seed,
            release=release,
        )
        assert original == twin
    cells = {h3.latlng_to_cell(s["lat"], s["lon"], 3) for s in sites}
    moved = json.loads((tmp_path / "1" / "twin" / "a.geojson").read_text())["features"]
    spots = [f["geometry"]["coordinates"] for f in moved if f["geometry"]["type"] == "Point"]
    assert {h3.latlng_to_cell(y, x, 3) for x, y, _ in spots} == cells
    assert len(spots) == 3 and not {(x, y) for x, y, _ in spots} & {
        (s["lon"], s["lat"]) for s in sites
    }
    assert all(
        -180 <= x <= 180 and abs(y) <= 90
        for f in moved
        for x, y, *_ in corners(f["geometry"]["coordinates"])
    )
    assert not [
        f
        for f in moved
        if f["geometry"] in [g["geometry"] for g in json.loads(as_geojson(sites))["features"]]
    ]


def test_a_wide_shape_beside_the_antimeridian_stays_on_the_globe_and_in_its_cell(
    tmp_path: Path,
) -> None:
    ring = [[178.9, 0.0], [179.99, 0.0], [179.99, 0.4], [178.9, 0.4], [178.9, 0.0]]
    wide = {
        "type": "Feature",
        "properties": {},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }
    text = json.dumps({"type": "FeatureCollection", "features": [wide]})
    release = Release(h3_resolution=2, min_records=1)
    for seed in range(12):
        original, twin = both_sides(
            tmp_path / str(seed), {"a.geojson": text}, "geojson", seed=seed, release=release
        )
        assert original == twin
        moved = json.loads((tmp_path / str(seed) / "twin" / "a.geojson").read_text())["features"][
            0
        ]["geometry"]["coordinates"]
        assert moved != [ring] and all(-180 <= x <= 180 for x, _ in corners(moved))


def corners(coordinates: Any) -> list[Any]:
    return (
        [coordinates]
        if isinstance(coordinates[0], float | int)
        else [c for part in coordinates for c in corners(part)]
    )


def test_a_point_can_come_out_anywhere_in_its_cell(tmp_path: Path) -> None:
    source = written(
        tmp_path / "raw", {"a.csv": as_csv([site(n, lat=38.5, lon=-98.25) for n in range(600)])}
    )
    twin_of(source, tmp_path / "twin", "csv", release=Release(h3_resolution=4))
    cell = h3.latlng_to_cell(38.5, -98.25, 4)
    spots = [(float(r["lat"]), float(r["lon"])) for r in rows_of(tmp_path / "twin" / "a.csv")]
    assert {h3.latlng_to_cell(*spot, 4) for spot in spots} == {cell}
    assert {h3.latlng_to_cell(*spot, 5) for spot in spots} >= set(h3.cell_to_children(cell, 5)), (
        "every part of the cell is reached"
    )
    centre = h3.cell_to_latlng(cell)
    half = min(h3.great_circle_distance(centre, corner) for corner in h3.cell_to_boundary(cell)) / 2
    far = sum(h3.great_circle_distance(centre, spot) > half for spot in spots)
    assert 0.6 < far / len(spots) < 0.8, (
        "seven tenths of a hexagon lie outside the circle of half its size"
    )


def test_without_cells_what_is_withheld_is_handed_round_and_nothing_else(tmp_path: Path) -> None:
    release = Release(
        withhold=("site_id", "lat", "lon"), aggregate=Aggregate(by=("kind",)), min_records=2
    )
    original, twin = both_sides(tmp_path, {"a.csv": as_csv(SITES)}, "csv", seed=1, release=release)
    before, after = (rows_of(tmp_path / name / "a.csv") for name in ("raw", "twin"))
    assert original == twin
    for name in ("lat", "lon", "site_id"):
        assert sorted(r[name] for r in before) == sorted(r[name] for r in after)
    keepers = {r["keeper"]: r for r in after}
    assert all(
        r["lat"] != keepers[r["keeper"]]["lat"] and r["kind"] == keepers[r["keeper"]]["kind"]
        for r in before
    )


def test_json_records_at_a_path_and_lines_are_read_again(tmp_path: Path) -> None:
    records = [
        {"site": f"s{n}", "kind": "well", "lat": 38 + n / 100, "lon": "-98.5"}
        | ({"extra": n} if n % 2 else {})
        for n in range(4)
    ]
    nested = json.dumps({"meta": {"count": 4}, "data": {"rows": records}})
    lines = "".join(json.dumps(r) + "\n" for r in records)
    release = Release(withhold=("site",), h3_resolution=3, min_records=1)
    for name, text, path in (
        ("nested", nested, "data.rows"),
        ("lines", lines, "."),
        ("plain", json.dumps(records), None),
    ):
        original, twin = both_sides(
            tmp_path / name, {"a.json": text}, "json", seed=2, release=release, records=path
        )
        assert original == twin, name
        found = json.loads((tmp_path / name / "twin" / "a.json").read_text())
        found = found["data"]["rows"] if name == "nested" else found
        assert sorted(r["site"] for r in found) == ["s0", "s1", "s2", "s3"]
        assert all(
            isinstance(r["lon"], str) and r["lon"] != "-98.5" and isinstance(r["lat"], float)
            for r in found
        )


@pytest.mark.parametrize("format", ["json", "geojson"])
def test_members_that_some_records_lack_do_not_tell_the_order(tmp_path: Path, format: str) -> None:
    records: list[dict[str, Any]] = [
        {"z": 1, "a": 2},
        {"m": 3, "z": 1},
        {"z": 2},
        {"b": 4, "a": 1, "m": 2},
    ]
    text = json.dumps(records)
    if format == "geojson":  # and only some features have an id
        plain = [
            {"type": "Feature", "properties": r, "geometry": None} | ({"id": n} if n > 1 else {})
            for n, r in enumerate(records)
        ]
        text = json.dumps({"type": "FeatureCollection", "features": plain})
    for seed in range(1, 9):
        original, twin = both_sides(
            tmp_path / str(seed), {f"a.{format}": text}, format, seed=seed, release=Release()
        )
        assert original == twin


def test_what_cannot_be_read_stays_as_it_is(tmp_path: Path) -> None:
    text = "site_id;lat;lon;kind\nA;38.1;-98.1;well\nB;north;-98.1;well\nC;1\nD;99;-98;well\n\nE;;;well\nF;38.1;-98.1;well\n"
    source = written(tmp_path / "raw", {"a.csv": text})
    twin_of(source, tmp_path / "twin", "csv", release=Release(h3_resolution=5))
    lines = (tmp_path / "twin" / "a.csv").read_text().splitlines()
    assert lines[0] == "site_id;lat;lon;kind"
    assert {"C;1", "B;north;-98.1;well", "D;99;-98;well", "E;;;well"} <= set(lines)
    assert len(lines) == 7 and "A;38.1;-98.1;well" not in lines

    broken = '{"type":"FeatureCollection","features":[{"type":"Feature","id":1,"properties":{"v":NaN},"geometry":null},{"type":"Point"},{"type":"Feature","id":2,"id":3}]}'
    other = written(tmp_path / "raw2", {"a.geojson": broken})
    twin_of(other, tmp_path / "twin2", "geojson", release=Release(h3_resolution=5))
    written_again = (tmp_path / "twin2" / "a.geojson").read_text()
    assert '{"type":"Feature","id":1,"properties":{"v":NaN},"geometry":null}' in written_again
    assert (
        '{"type":"Point"}' in written_again and '{"type":"Feature","id":2,"id":3}' in written_again
    )


def test_another_encoding_and_unusual_cells_survive(tmp_path: Path) -> None:
    sites = [site(0, kind='say "é"'), site(1, kind="two\nlines"), site(2, kind=" x,y ")]
    source = tmp_path / "raw"
    source.mkdir()
    (source / "a.csv").write_bytes(as_csv(sites).encode("cp1252"))
    twin_of(source, tmp_path / "twin", "csv", release=RELEASE, encoding="cp1252")
    text = (tmp_path / "twin" / "a.csv").read_bytes().decode("cp1252")
    assert sorted(r["kind"] for r in csv.DictReader(io.StringIO(text, newline=""))) == sorted(
        s["kind"] for s in sites
    )


def test_geometry_columns_of_a_table_move_too(tmp_path: Path) -> None:
    places = [
        "POINT (-98.25 38.5)",
        '{""type"":""Point"",""coordinates"":[-98.3,38.6]}',
        "LINESTRING (-98.2 38.4, -98.21 38.41)",
        "",
    ]
    text = "id,where,lat,lon\n" + "".join(
        f'{n},"{place}",38.5,-98.25\n' for n, place in enumerate(places)
    )
    schema = (
        Column(name="id", type="string"),
        Column(name="where", type="geometry"),
        *(Column(name=n, type="number") for n in ("lat", "lon")),
    )
    release = Release(withhold=("id",), h3_resolution=4, min_records=1)
    original, twin = both_sides(
        tmp_path, {"a.csv": text}, "csv", seed=1, release=release, schema=schema
    )
    assert original == twin
    after = {r["where"] for r in rows_of(tmp_path / "twin" / "a.csv")}
    assert not after & {
        "POINT (-98.25 38.5)",
        '{"type":"Point","coordinates":[-98.3,38.6]}',
        "LINESTRING (-98.2 38.4, -98.21 38.41)",
    }
    assert sorted(w[:5] for w in after) == ["", "LINES", "POINT", '{"typ']


def test_a_key_that_groups_do_not_show_is_hidden_and_one_that_is_shown_is_not(
    tmp_path: Path,
) -> None:
    source = written(
        tmp_path / "raw", {"a.geojson": as_geojson([site(n, kind=f"public {n}") for n in range(6)])}
    )
    ids = {}
    for name, groups in (
        ("groups", Aggregate(by=("kind",))),
        ("records", None),
        ("by id", Aggregate(by=("feature_id",))),
    ):
        release = Release(h3_resolution=4, aggregate=groups)
        twin_of(source, tmp_path / name, "geojson", release=release, business_key=("feature_id",))
        features = json.loads((tmp_path / name / "a.geojson").read_text())["features"]
        ids[name] = {f["properties"]["kind"]: f["id"] for f in features}
    assert ids["records"] == ids["by id"] == {f"public {n}": f"KS-{n:04d}" for n in range(6)}
    assert all(ids["groups"][kind] != number for kind, number in ids["records"].items())


def test_a_key_of_several_columns_stays_a_key(tmp_path: Path) -> None:
    rows = [f"{place},{year},well,38.5,-98.25" for place in "ABC" for year in (1990, 1991, 1992)]
    # the last one is a duplicate
    text = "\n".join(["site_id,year,kind,lat,lon", *rows, rows[0], ""])
    release = Release(withhold=("site_id",), h3_resolution=5, min_records=2)
    for seed in SEEDS:
        files = {"a.csv": text}
        original, twin = both_sides(
            tmp_path / str(seed),
            files,
            "csv",
            seed=seed,
            release=release,
            business_key=("site_id", "year"),
        )
        assert original == twin


def test_a_hidden_value_a_row_is_judged_by_stays_with_it(tmp_path: Path) -> None:
    schema = tuple(Column(name=n, type=t, nullable=n != "keeper") for n, t in (  # type: ignore[arg-type]
        ("site_id", "string"), ("kind", "string"), ("keeper", "integer"), ("lat", "number"), ("lon", "number")))  # fmt: skip
    sites = [
        site(n, keeper=n if n not in (2, 5) else ("unknown" if n == 2 else "")) for n in range(9)
    ]
    options: dict[str, Any] = {
        "release": RELEASE,
        "schema": schema,
        "business_key": ("site_id",),
        "max_quarantined": 1.0,
    }
    for seed in SEEDS:
        original, twin = both_sides(
            tmp_path / str(seed), {"a.csv": as_csv(sites)}, "csv", seed=seed, **options
        )
        assert original == twin


@pytest.mark.parametrize(
    "rule",
    [
        {"records": {"site_id": "KS-0003"}},
        {"records": {"lat": 38.502}},
        {"area": [-98.2545, 38.5, -98.2485, 38.6]},
    ],
)
def test_what_was_withdrawn_is_the_same_in_a_twin(tmp_path: Path, rule: dict[str, Any]) -> None:
    release = Release(withhold=("site_id", "keeper"), h3_resolution=4, min_records=1)
    for seed in SEEDS:
        root = tmp_path / str(seed)
        original, twin = both_sides(
            root, {"a.csv": as_csv(SITES)}, "csv", seed=seed, release=release, suppress=(rule,)
        )
        assert original == twin
    # cells show each row once, so there a record may go unnoticed
    plain = Release(withhold=("keeper",))
    full, less = (
        released(root / "raw", root / str(len(r)), "csv", release=plain, suppress=r)
        for r in ((), (rule,))
    )
    assert len(pq.read_table(io.BytesIO(less))) < len(pq.read_table(io.BytesIO(full))) == len(SITES)


def column(folder: Path, name: str) -> list[str]:
    return [r[name] for r in rows_of(folder / "a.csv")]


def test_every_third_twin_has_texts_of_its_own(tmp_path: Path) -> None:
    names = ["Ann Lee-7", "Ann Lee-7", "ÉVA 12", "ab", "ab", "", "--", "x1"]
    rows = [
        f"{n},{names[n % 8]},{names[n % 8]},{n % 3},2020-01-0{n % 9 + 1},{'true' if n % 2 else 'false'}"
        for n in range(16)
    ]
    text = "\n".join(["id,name,again,count,day,flag", *rows, ""])
    schema = tuple(Column(name=n, type=t) for n, t in (  # type: ignore[arg-type]
        ("id", "string"), ("name", "string"), ("again", "string"), ("count", "integer"), ("day", "date"), ("flag", "boolean")))  # fmt: skip
    source = written(tmp_path / "raw", {"a.csv": text})
    release = Release(
        withhold=("id", "name", "again", "count", "day", "flag"),
        aggregate=Aggregate(),
        min_records=1,
    )
    for told in ((), schema):
        twin_of(
            source,
            tmp_path / f"twin-{len(told)}",
            "csv",
            seed=3,
            release=release,
            schema=told,
            business_key=("id",),
        )
        after = tmp_path / f"twin-{len(told)}"
        assert column(after, "name") == column(after, "again"), (
            "what was equal stays equal, in other columns too"
        )
        before, found = set(names) - {"", "--"}, set(column(after, "name"))
        assert {"", "--"} <= found and not before & found and len(found) == len(set(names))
        assert sorted(map(shape_of, found)) == sorted(
            map(shape_of, {n.replace("É", "E") for n in names})
        )
        assert len(set(column(after, "id"))) == 16 and set(column(after, "id")) != {
            str(n) for n in range(16)
        }, "a key stays a key"
        for plain in ("count", "flag", "day"):
            assert sorted(column(after, plain)) == sorted(column(source, plain)), (
                "numbers, dates and the like are handed round"
            )


def test_a_long_text_is_renamed_in_a_time_that_follows_its_length() -> None:
    from kfm.connectors.release.twin import _renamed

    text = "Hidden Mound 12, " * 60_000
    (new,) = _renamed([text], set(), random.Random(1)).values()
    assert new != text and len(new) == len(text)


def test_a_text_that_is_named_by_a_withdrawal_is_not_made_up(tmp_path: Path) -> None:
    source = written(tmp_path / "raw", {"a.csv": "id,kind\nA,well\nB,well\n"})
    gone = tuple({"records": {"id": f" {letter} ".lower()}} for letter in "CDEFGHIJKLMNOPQRSTUVWX")
    release = Release(withhold=("id",))
    twin_of(source, tmp_path / "twin", "csv", seed=3, release=release, suppress=gone)
    assert set(column(tmp_path / "twin", "id")) == {"Y", "Z"}
    twin_of(
        source,
        tmp_path / "less",
        "csv",
        seed=3,
        release=release,
        suppress=(*gone, {"records": {"id": "a\u200b"}}),
    )
    assert "A" in column(tmp_path / "less", "id"), (
        "and one that a withdrawal finds stays where it is"
    )


def test_records_outside_the_window_keep_their_values_among_them(tmp_path: Path) -> None:
    days = ["2020-01-01", "2020-01-02", "2020-02-01", "2020-02-02", "2020-02-03", ""]
    text = "\n".join(["id,day,kind", *(f"K{n},{day},public {n}" for n, day in enumerate(days)), ""])
    source = written(tmp_path / "raw", {"a.csv": text})
    window = {
        "time_column": "day",
        "since": "2020-02-01T00:00:00Z",
        "until": "2020-02-03T00:00:00Z",
    }
    for seed in range(1, 12):
        twin_of(
            source,
            tmp_path / str(seed),
            "csv",
            seed=seed,
            release=Release(withhold=("id",)),
            business_key=("id",),
            **window,
        )
        found = {r["kind"]: r["id"] for r in rows_of(tmp_path / str(seed) / "a.csv")}
        inside = {found["public 2"], found["public 3"]}
        assert inside == {"K2", "K3"} if seed % 3 else len(set(found.values())) == 6
        assert found["public 2"] != "K2"
        assert set(found.values()) - inside == {"K0", "K1", "K4", "K5"} if seed % 3 else True


LEAKS = {
    "coarse place": 'row["hint"] = str(round(float(row["lat"]), 3))',
    "identifier": 'row["hint"] = "see " + row["site_id"]',
    "first come": 'row["hint"] = str(next(count))',
}


@pytest.mark.parametrize("leak", LEAKS.values(), ids=LEAKS)
def test_a_leak_through_connector_code_shows(tmp_path: Path, leak: str) -> None:
    loop = f"    for row in rows:\n        {leak}\n        yield row\n"
    code = f"import itertools\n\ndef transform(ctx, rows):\n    count = itertools.count()\n{loop}"
    (tmp_path / "connector.py").write_text(code)
    source = written(tmp_path / "raw", {"a.csv": as_csv(SITES)})
    # where k records share what is shown, nothing of one of them is
    rules = msgspec.structs.replace(RELEASE, min_records=1)
    options: dict[str, Any] = {"release": rules, "connector": str(tmp_path / "connector.py")}
    original = released(source, tmp_path / "one", "csv", **options)
    for seed in SEEDS:
        twin_of(source, tmp_path / f"twin-{seed}", "csv", seed=seed, release=rules)
        assert (
            released(tmp_path / f"twin-{seed}", tmp_path / f"work-{seed}", "csv", **options)
            != original
        )


ALL = {
    "sorted": "'; '.join(sorted(r['keeper'] for r in rows))",
    "digest": "hashlib.sha256(''.join(sorted(r['site_id'] for r in rows)).encode()).hexdigest()",
}


@pytest.mark.parametrize("hint", ALL.values(), ids=ALL)
def test_a_leak_of_all_hidden_values_at_once_shows(tmp_path: Path, hint: str) -> None:
    code = (
        f"import hashlib\n\ndef transform(ctx, rows):\n    rows = list(rows)\n    hint = {hint}\n"
    )
    (tmp_path / "connector.py").write_text(
        code + "    yield from ({**row, 'hint': hint} for row in rows)\n"
    )
    source = written(tmp_path / "raw", {"a.csv": as_csv(SITES)})
    options: dict[str, Any] = {
        "release": RELEASE,
        "connector": str(tmp_path / "connector.py"),
        "business_key": ("site_id",),
    }
    original = released(source, tmp_path / "one", "csv", **options)
    twin_of(source, tmp_path / "twin", "csv", seed=3, release=RELEASE, business_key=("site_id",))
    assert released(tmp_path / "twin", tmp_path / "work", "csv", **options) != original


def test_a_twin_needs_a_release(tmp_path: Path) -> None:
    source = written(tmp_path / "raw", {"a.csv": as_csv(SITES)})
    with pytest.raises(CaptureRefused, match="release"):
        twin_of(source, tmp_path / "twin", "csv")


def test_what_a_release_does_not_show_is_varied_and_what_code_renames_is_not(
    tmp_path: Path,
) -> None:
    source = written(tmp_path / "raw", {"a.csv": as_csv(SITES)})
    release = Release(show=("kind",), withhold=("site_id",), h3_resolution=4, min_records=2)
    renamed = tuple(
        Column(name=n, type="string") for n in ("site_id", "kind", "guard", "lat", "lon")
    )
    for number, (known, varied) in enumerate((((), True), (renamed, False))):
        twin_of(source, tmp_path / f"twin{number}", "csv", release=release, known=known)
        one, two = (
            {(r["keeper"], r["kind"]) for r in rows_of(f / "a.csv")}
            for f in (source, tmp_path / f"twin{number}")
        )
        assert (one != two) is varied
        one, two = (
            {(r["site_id"], r["kind"]) for r in rows_of(f / "a.csv")}
            for f in (source, tmp_path / f"twin{number}")
        )
        assert one != two, "withheld by name"


@pytest.mark.parametrize(
    "raw", [b"\xef\xbb\xbfid,kind\n1,a\n2,b\n", b"id,kind\r\n1,a\r\n2,b\n", b"id,kind\r\n1,a\r\n"]
)
def test_a_twin_keeps_the_form_of_its_file(tmp_path: Path, raw: bytes) -> None:
    """Of which a run tells what is odd: a twin without it would look like a leak."""
    from kfm.connectors.release.twin import _read_csv

    (tmp_path / "a.csv").write_bytes(raw)
    job = Read(
        dataset_id="a", source_kind="http_file", format="csv", artifact="a.parquet", inputs=(InputFile(source_id="source", path=str(tmp_path / "a.csv"), digest=""),)
    )  # fmt: skip
    file = _read_csv(job, job.inputs[0])
    made = file.write(file.records)
    assert isinstance(made, str)
    back = made.encode()
    assert back.startswith(b"\xef\xbb\xbf") == raw.startswith(b"\xef\xbb\xbf")
    assert (b"\r\n" in back, back.count(b"\n") > back.count(b"\r\n")) == (
        b"\r\n" in raw,
        raw.count(b"\n") > raw.count(b"\r\n"),
    )
