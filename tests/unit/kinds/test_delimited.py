"""Delimited files: the mapping says what each column is; what it does not say is drift, and nothing
is guessed.
"""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import shapely
from tests.given.verbs import SHARED

from kfm.connectors.base import CaptureRefused, InputFile
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read
from kfm.kinds import delimited
from kfm.model.dataset import Column
from kfm.model.errors import UsageError
from kfm.workspace.config import load_mapping

needs_shared = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the recordings are not beside this repository"
    ),
]
DATA = SHARED / "data"
WELLS = DATA / "kgs" / "Morel" / "Wells_14125.csv"


def job(folder: Path, source: Path | str | bytes, mapping: dict[str, Any], **more: Any) -> Read:
    if not isinstance(source, Path):
        (folder / "given").write_bytes(source if isinstance(source, bytes) else source.encode())
        source = folder / "given"
    inputs = (InputFile(source_id="s", path=str(source), digest=""),)
    return Read(
        dataset_id="d", source_kind="delimited", format="csv", inputs=inputs, mapping=mapping, artifact="d.parquet", **more
    )  # fmt: skip


def table(
    folder: Path, source: Path | str | bytes, mapping: dict[str, Any], **more: Any
) -> tuple[Any, list[dict[str, Any]]]:
    return run_inline(job(folder, source, mapping, **more), folder), pq.read_table(
        folder / "d.parquet"
    ).to_pylist()


def refused(
    folder: Path, source: Path | str | bytes, mapping: dict[str, Any], **more: Any
) -> CaptureRefused:
    with pytest.raises(CaptureRefused) as caught:
        table(folder, source, mapping, **more)
    return caught.value


def column(source: str | int, to: str, type: str = "string", **more: Any) -> dict[str, Any]:
    return {"from": source, "to": to, "type": type} | more


def test_columns_are_renamed_typed_and_put_in_the_order_of_the_mapping(tmp_path: Path) -> None:
    mapping = {
        "columns": [
            column("B", "count", "integer"),
            column(" A", "code"),
            column("C", "open", "boolean"),
        ]
    }
    result, rows = table(tmp_path, "A ,B,C\n007, 12 ,yes\n008,,no\n", mapping)
    assert rows == [
        {"count": 12, "code": "007", "open": True},
        {"count": None, "code": "008", "open": False},
    ]
    assert [c.name for c in result.schema] == ["count", "code", "open"]


def test_texts_that_mean_nothing_are_null_and_zero_is_zero(tmp_path: Path) -> None:
    mapping = {
        "columns": [column("a", "a", "number", null=["-9999"]), column("b", "b")],
        "null": ["NA"],
    }
    _, rows = table(tmp_path, "a,b\n-9999,-9999\nNA,NA\n0, \n,x\n", mapping)
    assert [tuple(r.values()) for r in rows] == [
        (None, "-9999"),
        (None, None),
        (0.0, None),
        (None, "x"),
    ]


@pytest.mark.parametrize("key", ["nulls", '"null"', "null"])
def test_nulls_are_read_under_every_name_they_had(tmp_path: Path, key: str) -> None:
    (tmp_path / "mapping.yml").write_text(
        f"{key}: [NA]\ncolumns:\n  - {{from: a, to: a, type: number, {key}: ['-']}}\n"
    )
    _, rows = table(tmp_path, "a\nNA\n-\n1\n", load_mapping(tmp_path / "mapping.yml"))
    assert [r["a"] for r in rows] == [None, None, 1.0]


def test_nulls_under_two_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mapping.yml").write_text(
        "null: [NA]\nnulls: ['-']\ncolumns:\n  - {from: a, to: a}\n"
    )
    with pytest.raises(UsageError, match="null"):
        load_mapping(tmp_path / "mapping.yml")


@pytest.mark.parametrize(
    ("decimal", "thousands", "text", "value"),
    [
        (",", None, "12,5", 12.5),
        (",", ".", "-1.234.567,25", -1234567.25),
        (",", ".", "1234,5", 1234.5),
        (".", ",", "1,234", 1234.0),
        (".", " ", "1 234\u00a0567.5", 1234567.5),
        (",", None, "1,5e3", 1500.0),
        (",", None, "12.5", None),
        (".", ",", "12,5", None),
        (",", ".", "1.23", None),
        (",", None, "-", None),
    ],
)
def test_numbers_are_read_with_the_marks_that_are_stated(
    tmp_path: Path, decimal: str, thousands: str | None, text: str, value: float | None
) -> None:
    mapping = {
        "columns": [column("a", "a", "number")],
        "delimiter": ";",
        "decimal": decimal,
        "thousands": thousands,
    }
    result, rows = table(tmp_path, f"a\n0\n{text}\n", mapping, max_quarantined=1)
    assert [r["a"] for r in rows] == [0.0] + ([value] if value is not None else [])
    assert result.books.quarantined == (value is None)


def test_marks_hold_for_units_integers_and_coordinates_too(tmp_path: Path) -> None:
    columns = [
        column("d", "d", "number", unit="m", source_unit="ft"),
        column("n", "n", "integer"),
        column("t", "t"),
    ]
    mapping = {
        "columns": columns,
        "delimiter": ";",
        "decimal": ",",
        "thousands": ".",
        "crs": 4326,
        "x": "x",
        "y": "y",
    }
    _, rows = table(tmp_path, "d;n;t;x;y\n1.000,5;2.000;1,5;-98,25;38,5\n", mapping)
    assert rows == [{"d": 304.9524, "n": 2000, "t": "1,5", "longitude": -98.25, "latitude": 38.5}]
    assert (
        refused(
            tmp_path, "d\n1\n", {"columns": [column("d", "d")], "decimal": ",", "thousands": ","}
        ).code
        == "mapping"
    )


@pytest.mark.parametrize(
    ("mapped", "stated"), [("string", "number"), ("number", "date"), ("integer", "number")]
)
def test_a_mapping_and_a_registry_that_differ_are_one_refusal(
    tmp_path: Path, mapped: str, stated: Any
) -> None:
    schema = (Column(name="a", type=stated),)
    error = refused(tmp_path, "a\n1\n2\n", {"columns": [column("a", "a", mapped)]}, schema=schema)
    assert (
        error.code == "mapping"
        and "mapping.yml" in str(error)
        and "data/registry/d.yml" in str(error)
    )


def test_code_may_make_more_of_a_text_but_not_of_what_is_typed(tmp_path: Path) -> None:
    code = tmp_path / "connector.py"
    code.write_text(
        "def transform(ctx, rows):\n    for row in rows:\n        yield {'a': float(row['a'].strip('m'))}\n"
    )
    schema = (Column(name="a", type="number"),)
    assert table(
        tmp_path, "a\n12m\n", {"columns": [column("a", "a")]}, schema=schema, connector=str(code)
    )[1] == [{"a": 12.0}]
    assert (
        refused(
            tmp_path,
            "a\nyes\n",
            {"columns": [column("a", "a", "boolean")]},
            schema=schema,
            connector=str(code),
        ).code
        == "mapping"
    )


@pytest.mark.parametrize(
    ("source", "unit", "text", "value"),
    [
        ("ft", "m", "5661", 1725.4728),
        ("ft", "m", "-0.1", -0.03048),
        ("ft_us", "m", "3937", 1200.0),
        ("degF", "Cel", "212", 100.0),
        ("degF", "Cel", "-40", -40.0),
        ("in", "mm", "0.01", 0.254),
        ("mi", "km", "1", 1.609344),
        ("acre", "m2", "1", 4046.8564224),
        ("ft3/s", "m3/s", "35.5", 1.005248054016),
        ("K", "Cel", "273.15", 0.0),
    ],
)
def test_units_are_converted_exactly(
    tmp_path: Path, source: str, unit: str, text: str, value: float
) -> None:
    mapping = {"columns": [column("a", "a", "number", unit=unit, source_unit=source)]}
    result, rows = table(tmp_path, f"a\n{text}\n", mapping)
    assert rows == [{"a": value}]
    assert result.schema[0].unit == unit


def test_dates_are_read_in_the_stated_forms_and_others_are_set_aside(tmp_path: Path) -> None:
    mapping = {"columns": [column("d", "d", "date", format=["%m-%d-%Y", "%m/%d/%Y"])]}
    result, rows = table(
        tmp_path, "d\n10-22-1784\n1/5/1790\n1790-01-05\n13/13/1790\n\n", mapping, max_quarantined=1
    )
    assert [r["d"] for r in rows] == [dt.date(1784, 10, 22), dt.date(1790, 1, 5)]
    assert [
        json.loads(line)["line"] for line in (tmp_path / result.quarantine).read_text().splitlines()
    ] == [4, 5]


def test_two_digit_years_lie_in_the_stated_hundred(tmp_path: Path) -> None:
    stated = column("d", "d", "date", format=["%d-%b-%y"])
    assert refused(tmp_path, "d\n25-Jun-66\n", {"columns": [stated]}).code == "mapping"
    _, rows = table(
        tmp_path,
        "d\n25-Jun-66\n01-Jan-12\n31-Dec-65\n",
        {"columns": [stated | {"first_year": 1966}]},
    )
    assert [r["d"].year for r in rows] == [1966, 2012, 2065]


def test_times_without_a_zone_need_one_and_become_utc(tmp_path: Path) -> None:
    text = "t\n2024-07-01 12:00\n2024-01-01 12:00\n2024-01-01T12:00:00+02:00\n2024-11-03 01:30\n2024-03-10 02:30\n"
    mapping = {"columns": [column("t", "t", "timestamp")]}
    assert refused(tmp_path, "t\n2024-07-01 12:00\n", mapping).code == "quarantine.share"
    result, rows = table(
        tmp_path, text, mapping | {"time_zone": "America/Chicago"}, max_quarantined=1
    )
    assert [r["t"].hour for r in rows] == [17, 18, 10]
    assert result.books.quarantined == 2  # an hour that came twice, and one that never was
    assert refused(tmp_path, text, mapping | {"time_zone": "Kansas"}).code == "mapping"


def test_another_encoding_another_system_and_local_time_come_out_canonical_twice(
    tmp_path: Path,
) -> None:
    """UTF-8, longitude and latitude of WGS 84, UTC; and the same bytes for the same input."""
    text = "name;e;n;t\nDoña Añaza;984250;1000000;2024-07-01 12:00\n".encode("cp1252")
    mapping = {
        "columns": [column("name", "name"), column("t", "t", "timestamp")],
        "delimiter": ";",
        "encoding": "cp1252",
        "time_zone": "America/Chicago",
        "crs": 3435,
        "x": "e",
        "y": "n",
        "geometry": "point",
    }
    made = []
    for number in "12":
        (tmp_path / number).mkdir()
        _, (row,) = table(tmp_path / number, text, mapping)
        made.append((tmp_path / number / "d.parquet").read_bytes())
    assert row["name"] == "Doña Añaza" and "Doña Añaza".encode() in made[0]
    assert row["t"] == dt.datetime(2024, 7, 1, 17, tzinfo=dt.UTC)
    assert row["longitude"] == pytest.approx(-(88 + 20 / 60), abs=1e-9)
    assert made[0] == made[1]


def test_an_unknown_column_is_refused_kept_or_dropped_as_stated(tmp_path: Path) -> None:
    text, mapping = "a,New Thing,\n1,2,3\n", {"columns": [column("a", "a")]}
    error = refused(tmp_path, text, mapping)
    assert error.code == "schema.unknown-column"
    assert "'New Thing' (column 2), 'column_3' (column 3)" in str(error)
    assert table(tmp_path, text, mapping | {"unlisted": "keep"})[1] == [
        {"a": "1", "new_thing": "2", "column_3": "3"}
    ]
    result, rows = table(tmp_path, text, mapping | {"unlisted": "drop"})
    assert rows == [{"a": "1"}]
    assert "New Thing" in result.warnings[0]


def test_kept_columns_of_one_name_stay_apart(tmp_path: Path) -> None:
    _, rows = table(
        tmp_path, "x,v,V,v,a\n1,2,3,4,5\n", {"columns": [column(1, "a")], "unlisted": "keep"}
    )
    assert rows == [{"a": "1", "v_2": "2", "v": "3", "v_4": "4", "a_2": "5"}]


def test_a_column_that_went_away_is_named(tmp_path: Path) -> None:
    assert "'gone'" in str(refused(tmp_path, "a\n1\n", {"columns": [column("gone", "g")]}))
    assert "names column 2" in str(refused(tmp_path, "a\n1\n", {"columns": [column(2, "g")]}))
    assert refused(tmp_path, "a,a\n1,2\n", {"columns": [column("a", "g")]}).code == "csv.header"
    assert table(tmp_path, "a,a\n1,2\n", {"columns": [column(2, "g"), column(1, "h")]})[1] == [
        {"g": "2", "h": "1"}
    ]


def test_a_preamble_comments_another_delimiter_and_another_encoding_are_read(
    tmp_path: Path,
) -> None:
    text = "Station report\nmade by hand\n# a note\nname;v\nDoña;1\n# another\nx;2\n".encode(
        "latin-1"
    )
    mapping = {
        "columns": [column("name", "name"), column("v", "v", "integer")],
        "skip_rows": 2,
        "comment": "#",
    }
    _, rows = table(tmp_path, text, mapping | {"delimiter": ";", "encoding": "latin-1"})
    assert rows == [{"name": "Doña", "v": 1}, {"name": "x", "v": 2}]


@pytest.mark.parametrize("header", [False, ["x", "y"]])
def test_a_file_without_header_gives_its_first_row_as_a_record(tmp_path: Path, header: Any) -> None:
    result, rows = table(
        tmp_path,
        "a\t1\nb\t2\n",
        {"header": header, "columns": [column(1, "name"), column(2, "v", "integer")]},
    )
    assert rows == [{"name": "a", "v": 1}, {"name": "b", "v": 2}]
    assert result.books.read == 2


def test_a_row_that_is_too_long_or_of_another_type_is_set_aside_with_its_line(
    tmp_path: Path,
) -> None:
    mapping = {"columns": [column("a", "a", "integer"), column("b", "b", required=True)]}
    result, rows = table(
        tmp_path, 'a,b\n1,"x\ny"\n2,b,3\nthree,b\n4,\n5,z\n', mapping, max_quarantined=1
    )
    assert [r["a"] for r in rows] == [1, 5]
    found = [json.loads(line) for line in (tmp_path / result.quarantine).read_text().splitlines()]
    assert [(f["line"], f["rule"]) for f in found] == [(4, "csv.columns"), (5, "type"), (6, "null")]
    assert found[0]["record"] == "2,b,3"


def test_coordinates_become_longitude_and_latitude_with_the_original_kept(tmp_path: Path) -> None:
    mapping = {
        "columns": [column("id", "id")],
        "crs": 3435,
        "x": "e",
        "y": "n",
        "geometry": "point",
    }
    _, rows = table(tmp_path, "id,e,n\na,984250,1000000\nb,,\n", mapping)
    first, second = rows
    assert first["longitude"] == pytest.approx(-(88 + 20 / 60), abs=1e-9)
    assert (first["source_crs"], first["source_x"], first["source_y"]) == (
        "EPSG:3435",
        984250.0,
        1000000.0,
    )
    point = shapely.from_wkb(first["geometry"])
    assert (point.x, point.y) == (first["longitude"], first["latitude"])
    assert set(second.values()) == {"b", None}


def test_coordinates_that_are_half_there_swapped_or_no_numbers_are_set_aside(
    tmp_path: Path,
) -> None:
    mapping = {"columns": [column("id", "id")], "crs": "EPSG:4326", "x": "x", "y": "y"}
    text = "id,x,y\ngood,-98,38\nhalf,-98,\nother,,38\nswapped,38,-98\nnan,NaN,38\nwords,west,38\n"
    result, rows = table(tmp_path, text, mapping, max_quarantined=1)
    assert [(r["id"], r["longitude"], r["latitude"]) for r in rows] == [("good", -98.0, 38.0)]
    rules = [
        json.loads(line)["rule"] for line in (tmp_path / result.quarantine).read_text().splitlines()
    ]
    assert rules == ["crs.range", "crs.range", "crs.range", "number.nonfinite", "type"]
    assert "source_x" not in rows[0]


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({}, "no mapping.yml"),
        ({"columns": []}, "columns"),
        ({"columns": [column("a", "a", "number", source_unit="furlong", unit="m")]}, "furlong"),
        ({"columns": [column("a", "a", "string", source_unit="ft", unit="m")]}, "ft"),
        ({"columns": [column("a", "a", format=["%Y"])]}, "format"),
        ({"columns": [column("a", "Not Snake")]}, "to"),
        ({"columns": [column("a", "a"), column("b", "a")]}, "made twice"),
        ({"columns": [column(0, "a")]}, "from"),
        ({"columns": [column("a", "a")], "crs": 4326}, "go together"),
        ({"columns": [column("a", "latitude")], "crs": 4326, "x": "x", "y": "y"}, "latitude"),
        ({"columns": [column("a", "a")], "geometry": "point"}, "geometry needs"),
        ({"columns": [column("a", "a")], "colums": 1}, "colums"),
    ],
)
def test_a_mapping_that_is_wrong_is_refused_with_the_place(
    tmp_path: Path, mapping: dict[str, Any], words: str
) -> None:
    error = refused(tmp_path, "a\n1\n", mapping)
    assert (error.code, words in str(error)) == ("mapping", True)


def test_connector_code_is_given_the_mapped_rows(tmp_path: Path) -> None:
    mapping = {
        "columns": [column("a", "a", "integer"), column("d", "d", "date", format=["%m/%d/%Y"])]
    }
    (reader,) = delimited.readers(job(tmp_path, "a,d\n1,02/03/2024\nx,02/03/2024\n", mapping))
    (block,) = list(reader.loose())
    assert block[0].row == {"a": 1, "d": dt.date(2024, 2, 3)}
    assert (block[1].row, block[1].line, block[1].raw()) == (None, 3, "x,02/03/2024")


def test_a_large_file_is_read_in_blocks_with_one_header(tmp_path: Path) -> None:
    text = "a title\na,b\n" + "".join(f"{i},{'x' * 90}\n" for i in range(60_000))
    assert len(text) > 4 << 20
    mapping = {
        "columns": [column("a", "a", "integer"), column("b", "b")],
        "skip_rows": 1,
        "delimiter": ",",
    }
    result, _ = table(tmp_path, text, mapping)
    assert result.books.written == 60_000
    assert (result.profile["a"].min, result.profile["a"].max) == ("0", "59999")


class TestRecordings:
    pytestmark = needs_shared
    well = (
        column("KID", "kid"),
        column("TOTAL_DEPTH", "total_depth", "number", unit="m", source_unit="ft"),
    )

    def test_nad27_wells_are_refused_and_not_shifted(self, tmp_path: Path) -> None:
        mapping = {
            "columns": self.well,
            "unlisted": "drop",
            "crs": "EPSG:4267",
            "x": "NAD27_LONGITUDE",
            "y": "NAD27_LATITUDE",
        }
        error = refused(tmp_path, WELLS, mapping)
        assert error.code == "crs.grid"
        assert "us_noaa_conus.tif" in str(error)

    def test_nad27_wells_are_read_with_their_coordinates_under_their_own_names(
        self, tmp_path: Path
    ) -> None:
        import pandas as pd

        own = [
            column(f"NAD27_{n}", f"nad27_{n.lower()}", "number", unit="deg")
            for n in ("LONGITUDE", "LATITUDE")
        ]
        dates = [column("COMPLETION_DATE", "completed", "date", format=["%m/%d/%Y"])]
        result, rows = table(
            tmp_path,
            WELLS,
            {"columns": [*self.well, *own, *dates], "unlisted": "drop"},
            business_key=("kid",),
        )
        other = pd.read_csv(WELLS, dtype={"KID": str})
        assert (len(rows), len(other)) == (654, 654)
        assert sum(r["total_depth"] is None for r in rows) == 15
        assert sum(r["total_depth"] or 0 for r in rows) == pytest.approx(
            2_439_273 * 0.3048, abs=1e-6
        )
        assert [r["nad27_longitude"] for r in rows] == other["NAD27_LONGITUDE"].tolist()
        assert sum(r["completed"] is not None for r in rows) == int(
            other["COMPLETION_DATE"].notna().sum()
        )
        assert result.bbox is None

    def test_newspapers_without_header_lie_where_the_file_says(self, tmp_path: Path) -> None:
        import pandas as pd

        names = [
            "lccn",
            "title",
            "frequency",
            "publisher",
            "city",
            "state",
            "place",
            "latitude",
            "longitude",
            "method",
            "geonames",
            "map",
            "url",
        ]
        columns = [column(n, n) for n in names if n not in ("latitude", "longitude")]
        mapping = {
            "header": names,
            "delimiter": "\t",
            "columns": columns,
            "crs": 4326,
            "x": "longitude",
            "y": "latitude",
            "geometry": "point",
        }
        source = DATA / "history" / "chronam-newspapers.tsv"
        result, rows = table(tmp_path, source, mapping, business_key=("lccn",))
        other = pd.read_csv(source, sep="\t", header=None, names=names, quoting=3)
        assert len(rows) == len(other) == 471
        assert sum(r["state"] == "KS" for r in rows) == 10
        assert sum(r["longitude"] is None for r in rows) == 2
        assert sum(r["latitude"] or 0 for r in rows) == pytest.approx(
            float(other["latitude"].sum())
        )
        assert result.bbox == (-157.85833, 18.01108, -66.10572, 58.27564)

    def test_treaties_with_a_damaged_header_are_read_by_number(self, tmp_path: Path) -> None:
        dates = column("Date", "signed", "date", format=["%m-%d-%Y", "%m/%d/%Y"])
        mapping = {
            "columns": [
                column(1, "treaty_id"),
                column("Nation3", "nation3"),
                dates,
                column(15, "nation13"),
            ],
            "null": ["NA"],
        }
        source = DATA / "history" / "treaties" / "UniverseCases.csv"
        assert "'Type' (column 2)" in str(refused(tmp_path, source, mapping))
        result, rows = table(
            tmp_path, source, mapping | {"unlisted": "keep"}, business_key=("treaty_id",)
        )
        assert (len(rows), len({r["treaty_id"] for r in rows})) == (595, 595)
        assert [r["nation13"] for r in rows if r["nation13"]] == ["Cho-e-nem-nee"]
        assert (
            min(r["signed"] for r in rows).isoformat(),
            max(r["signed"] for r in rows).isoformat(),
        ) == ("1784-10-22", "1911-05-10")
        assert {"column_20", "column_21", "column_22"} < {c.name for c in result.schema}

    def test_soil_stations_keep_leading_zeros_and_have_metres(self, tmp_path: Path) -> None:
        import pandas as pd

        source = DATA / "soils" / "nrcs-scan-snotel-stations.csv"
        end = column(
            "endDate", "ended", "date", format=["%Y-%m-%d %H:%M"], null=["2100-01-01 00:00"]
        )
        height = column("Elevation_ft", "elevation", "number", source_unit="ft", unit="m")
        columns = [
            column("stationTriplet", "triplet"),
            column("HUC", "huc"),
            column("stateCode", "state"),
            height,
            end,
        ]
        place = {"crs": 4326, "x": "Longitude", "y": "Latitude", "unlisted": "drop"}
        _, rows = table(tmp_path, source, {"columns": columns, "null": ["NA"], **place})
        other = pd.read_csv(source)
        assert len(rows) == len(other) == 1191
        assert rows[0]["huc"] == "060300020502"
        assert sum(r["elevation"] or 0 for r in rows) == pytest.approx(
            float(other["Elevation_ft"].sum()) * 0.3048
        )
        assert sum(r["ended"] is None for r in rows) == int(
            (other["endDate"] == "2100-01-01 00:00").sum()
        ) + int(other["endDate"].isna().sum())
        assert sum(r["state"] == "KS" for r in rows) == 4

    @pytest.mark.parametrize(
        ("name", "rows", "mapping"),
        [
            (
                "noaa-ghcnd/ghcnd-stations-resaved.ks.csv",
                1900,
                {
                    "columns": [
                        column("siteid", "id"),
                        column("elev", "elevation", "number", unit="m"),
                    ],
                    "crs": 4326,
                    "x": "long",
                    "y": "lat",
                },
            ),
            (
                "archaeology/p3k14c.kansas.csv",
                398,
                {"columns": [column("LabID", "lab_id")], "crs": 4326, "x": "Long", "y": "Lat"},
            ),
            (
                "archaeology/nrhp-iowa-2013.csv",
                2166,
                {
                    "columns": [
                        column(
                            "Listed Date", "listed", "date", format=["%d-%b-%y"], first_year=1966
                        )
                    ]
                },
            ),
            (
                "archaeology/dinaa-tdar-links.csv",
                1289,
                {"columns": [column("link_identified", "linked", "timestamp")], "time_zone": "UTC"},
            ),
            (
                "soils/soil-survey-timeline.ks.csv",
                140,
                {"columns": [column("year", "year", "number"), column("pdf", "pdf", "boolean")]},
            ),
            (
                "kgs/Arroyo/Wells_134741.csv",
                124,
                {"columns": [column("SPUD_DATE", "spudded", "date", format=["%m/%d/%Y"])]},
            ),
            (
                "kgs/Morel/Cuttings_14125.csv",
                454,
                {"columns": [column("STARTING_DEPTH", "from_depth", "number", unit="[ft_i]")]},
            ),
        ],
    )
    def test_every_record_of_the_other_files_is_read(
        self, tmp_path: Path, name: str, rows: int, mapping: dict[str, Any]
    ) -> None:
        import pandas as pd

        result, _ = table(tmp_path, DATA / name, mapping | {"unlisted": "drop"})
        assert result.books.written == rows == len(pd.read_csv(DATA / name))
