"""A version as one file of another format: exact, the same bytes each time, whole or not at all."""

import csv
import hashlib
import io
import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pytest
import shapely

from kfm.data.formats import FORMATS, write_as
from kfm.model import UsageError

CLOCKWISE = "POLYGON ((0 0, 0 1, 1 1, 1 0, 0 0))"
GEO = {
    "version": "1.1.0",
    "primary_column": "at",
    "columns": {"at": {"encoding": "WKB", "geometry_types": ["Polygon"], "bbox": [0, 0, 1, 1]}},
}


def given(folder: Path, name: str = "a.parquet", **more: list[object]) -> dict[str, Path]:
    """A table with what is hard to write down."""
    columns = {
        "id": ["t1", '=HYPERLINK("x")', None],
        "n": [2**60, -1, None],
        "x": [0.1, float("nan"), None],
        "ok": [True, False, None],
        "said": ['a "b",\nc', "", "tab\tbell\a_x0041_ü😀"],
        "many": [[1, 2], [], None],
        **more,
    }
    table = pa.table({k: pa.array(v) for k, v in columns.items()})
    shapes = pa.array([shapely.to_wkb(shapely.from_wkt(CLOCKWISE))] * 2 + [None], pa.binary())
    when = pa.array([1_740_793_000_123_456, 0, None], pa.timestamp("us", "UTC"))
    table = table.append_column("when", when).append_column("at", shapes)
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(GEO)}), folder / name)
    return {name: folder / name}


def written(form: str, files: dict[str, Path], folder: Path, **more: object) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"trees.{form}"
    write_as(form, files, path, name="trees", key=("id",), **more)  # type: ignore[arg-type]
    assert [p.name for p in folder.iterdir() if "part" in p.name] == [], "nothing is left beside it"
    return path


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_version_gives_the_same_bytes(form: str, tmp_path: Path) -> None:
    files = given(tmp_path)
    first, second = (
        hashlib.sha256(written(form, files, tmp_path / side).read_bytes()) for side in "ab"
    )
    assert first.digest() == second.digest()


def test_csv_holds_every_value_as_it_is_and_a_missing_one_is_not_an_empty_text(
    tmp_path: Path,
) -> None:
    path = written("csv", given(tmp_path), tmp_path)
    rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    assert rows[0] == ["id", "n", "x", "ok", "said", "many", "when", "at"]
    assert rows[1][:7] == [
        "t1",
        str(2**60),
        "0.1",
        "true",
        'a "b",\nc',
        "[1, 2]",
        "2025-03-01T01:36:40.123456Z",
    ]
    assert shapely.from_wkt(rows[1][7]) == shapely.from_wkt(CLOCKWISE)
    raw = path.read_text(encoding="utf-8")
    assert '"=HYPERLINK(""x"")"' in raw, "without being asked nothing is changed"
    assert ',false,"",' in raw and raw.splitlines()[-1].startswith(",,,,")
    guarded = written("csv", given(tmp_path), tmp_path, no_formulas=True)
    assert "\"'=HYPERLINK" in guarded.read_text(encoding="utf-8")


def test_geojson_is_that_of_the_rfc(tmp_path: Path) -> None:
    path = written("geojson", given(tmp_path), tmp_path)
    first, second, third = json.loads(path.read_text(encoding="utf-8"))["features"]
    ring = shapely.geometry.shape(first["geometry"]).exterior
    assert ring.is_ccw and first["id"] == first["properties"]["id"] == "t1"
    assert first["properties"]["n"] == 2**60 and "at" not in first["properties"]
    assert second["properties"]["x"] is None, "JSON has no number that is none"
    assert third["geometry"] is None and "id" not in third
    assert pyogrio.read_info(path)["features"] == 3


def test_a_workbook_holds_text_where_a_cell_would_change_it_and_no_formula(tmp_path: Path) -> None:
    path = written("xlsx", given(tmp_path), tmp_path)
    read = pyogrio.raw.read(path, layer="trees")  # GDAL has a reader of its own
    cells = dict(zip(read[0]["fields"], read[3]))
    assert cells["id"].tolist()[:2] == ["t1", '=HYPERLINK("x")']
    assert cells["n"].tolist()[:2] == [str(2**60), "-1"]
    assert cells["said"].tolist()[0] == 'a "b",\nc'
    with zipfile.ZipFile(path) as book:
        sheet = book.read("xl/worksheets/sheet1.xml").decode()
    assert "<f>" not in sheet and "bell_x0007_" in sheet
    with pytest.raises(UsageError, match="32,767"):
        written("xlsx", given(tmp_path, long=["y" * 40_000, "", ""]), tmp_path)
    assert written("xlsx", given(tmp_path), tmp_path).read_bytes() == path.read_bytes()


def test_a_geopackage_is_one_layer_that_others_open(tmp_path: Path) -> None:
    path = written("gpkg", given(tmp_path, fid=[7, 8, 9]), tmp_path)
    told = pyogrio.read_info(path, layer="trees")
    assert (told["features"], told["crs"], told["geometry_type"]) == (3, "EPSG:4326", "Polygon")
    assert "fid" in told["fields"].tolist(), "a column of that name is a column"
    with pytest.raises(UsageError, match="capitals"):
        written("gpkg", given(tmp_path, ID=[1, 2, 3]), tmp_path)


def test_several_tables_become_one(tmp_path: Path) -> None:
    files = {**given(tmp_path), **given(tmp_path, "b.parquet", more=["a", "b", "c"])}
    whole = pq.read_table(written("parquet", files, tmp_path / "out"))
    assert whole.num_rows == 6 and whole.column("more").null_count == 3
    assert json.loads(whole.schema.metadata[b"geo"])["columns"]["at"]["bbox"] == [0, 0, 1, 1]
    one = given(tmp_path)
    assert written("parquet", one, tmp_path / "out").read_bytes() == one["a.parquet"].read_bytes()


def test_what_has_no_geometry_is_no_map_and_nothing_is_left(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    for form in ("geojson", "gpkg"):
        with pytest.raises(UsageError, match="no geometry"):
            written(form, {"a.parquet": tmp_path / "a.parquet"}, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
