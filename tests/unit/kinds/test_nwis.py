"""NWIS archives: RDB and WaterML in JSON become long tables in which zero, estimate and gap
differ.
"""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.given.verbs import SHARED

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Merge, Read
from kfm.extras.agencies import nwis

RECORDED = SHARED / "data" / "usgs-nwis"
LARNED = RECORDED / "dv.07141220.1998-08-01_2012-12-31.rdb.txt"
DV = "# rebuilt\n#  7   00060   00003   Discharge, cubic feet per second (Mean)\n#  8   00300   00003   Dissolved oxygen, mg/L (Mean)\n"
DV_HEAD = "agency_cd\tsite_no\tdatetime\t7_00060_00003\t7_00060_00003_cd\t8_00300_00003\t8_00300_00003_cd\n5s\t15s\t20d\t14n\t10s\t14n\t10s\n"


def on_recordings(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that reads the recordings; without them it is reported as not run."""
    absent = pytest.mark.skipif(
        not RECORDED.exists(), reason="not run: the recordings are not beside this repository"
    )
    return pytest.mark.needs_shared(absent(test))


class Made:
    """What a run over one file left."""

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
    """Run one file, given as text or by its path, through the kind."""
    count = iter(range(100))

    def run(content: str | Path, format: str = "rdb", **options: Any) -> Made:
        folder = tmp_path / str(next(count))
        folder.mkdir()
        if isinstance(content, str):
            path = folder / "input"
            path.write_bytes(content.encode())
            content = path
        source = InputFile(source_id="s0", path=str(content), digest="sha256:0")
        job = Read(
            dataset_id="ks_gauges",
            source_kind="nwis",
            format=format,
            inputs=(source,),
            options=options,
            max_quarantined=1.0,
            artifact="x.parquet",
        )
        return Made(run_inline(job, folder), folder)

    return run


def series(
    values: list[dict[str, Any]] | list[list[dict[str, Any]]],
    *,
    stat: str = "00003",
    **variable: Any,
) -> dict[str, Any]:
    """A WaterML series at Larned with one block of values per method."""
    blocks = values if values and isinstance(values[0], list) else [values]
    return {
        "sourceInfo": {"siteCode": [{"value": "07141220", "agencyCode": "USGS"}]},
        "variable": {
            "variableCode": [{"value": "00060"}],
            "unit": {"unitCode": "ft3/s"},
            "options": {"option": [{"name": "Statistic", "optionCode": stat}]},
            "noDataValue": -999999.0,
        }
        | variable,
        "values": [
            {"value": block, "method": [{"methodID": 100 + i}]} for i, block in enumerate(blocks)
        ],
    }


def point(
    value: str | None, when: str = "2020-02-14T00:00:00.000", *qualifiers: str
) -> dict[str, Any]:
    return {"value": value, "qualifiers": list(qualifiers), "dateTime": when}


def document(*found: Any) -> str:
    return json.dumps(
        {
            "name": "ns1:timeSeriesResponseType",
            "value": {"queryInfo": {}, "timeSeries": list(found)},
        }
    )


@on_recordings
def test_at_larned_zero_missing_and_estimated_are_three_things(read: Callable[..., Made]) -> None:
    import pandas as pd

    made = read(LARNED)
    flow = [r for r in made.rows if r["parameter_code"] == "00060"]
    stage = [r for r in made.rows if r["parameter_code"] == "00065"]
    assert (len(flow), len(stage), made.result.books.read, made.result.books.quarantined) == (
        5267,
        5267,
        10534,
        0,
    )
    zero = [r for r in flow if r["value"] == 0]
    missing = [r for r in flow if r["status"] == "missing"]
    estimated = [r for r in flow if r["status"] == "estimated"]
    assert (len(zero), len(missing), len(estimated)) == (2194, 61, 270)
    assert (
        sum(r["status"] == "measured" for r in zero) == 2169
        and sum(r["status"] == "estimated" for r in zero) == 25
    )
    assert all(r["value"] is None and not r["estimated"] for r in missing)
    gauged = {r["observed_on"] for r in stage if r["value"] is not None}
    assert all(r["observed_on"] in gauged for r in missing), "days with stage but no flow"
    assert (min(r["observed_on"] for r in flow), max(r["observed_on"] for r in flow)) == (
        dt.date(1998, 8, 1),
        dt.date(2012, 12, 31),
    )
    assert {r["unit"] for r in flow} == {"ft3/s"} and {r["unit"] for r in stage} == {"ft"}

    # the first line is types
    other = pd.read_csv(LARNED, sep="\t", comment="#", dtype=str).iloc[1:]
    column, codes = pd.to_numeric(other["54640_00060_00003"]), other["54640_00060_00003_cd"]
    assert (
        sum(r["value"] for r in flow if r["value"] is not None)
        == pytest.approx(column.sum())
        == pytest.approx(371408.24)
    )
    assert sum(r["value"] for r in stage if r["value"] is not None) == pytest.approx(
        pd.to_numeric(other["54641_00065_00003"]).sum()
    )
    assert (len(zero), len(missing), len(estimated)) == (
        (column == 0).sum(),
        column.isna().sum(),
        (codes == "A:e").sum(),
    )
    assert {str(r["observed_on"]): r["value"] for r in flow} == dict(
        zip(other["datetime"], column.astype(object).where(column.notna(), None))
    )


@on_recordings
@pytest.mark.parametrize(
    ("name", "format", "rows", "total", "provisional"),
    [
        ("dv.02177000.rdb.txt", "rdb", 31, 11897.0, 1),
        ("dv.01491000_01645000.json", "json", 4, 1143.0, 4),
        ("iv.01646500_02458502.P1D.json", "json", 186, 641180.4, 186),
    ],
)
def test_recorded_values_have_the_figures_a_plain_reading_gives(
    read: Callable[..., Made], name: str, format: str, rows: int, total: float, provisional: int
) -> None:
    made = read(RECORDED / name, format)
    text = (RECORDED / name).read_text()
    if format == "json":
        blocks = [b["value"] for s in json.loads(text)["value"]["timeSeries"] for b in s["values"]]
        plain = [float(v["value"]) for block in blocks for v in block]
    else:
        plain = [
            float(line.split("\t")[3]) for line in text.splitlines() if line.startswith("USGS")
        ]
    assert [r["value"] for r in made.rows] == plain
    assert (len(plain), sum(plain)) == (rows, pytest.approx(total))
    assert sum(r["approval_status"] == "Provisional" for r in made.rows) == provisional
    assert {r["status"] for r in made.rows} == {"measured"}


@on_recordings
def test_recorded_moments_are_in_utc_and_empty_series_are_said(read: Callable[..., Made]) -> None:
    made = read(RECORDED / "iv.01646500_02458502.P1D.json", "json")
    sites = {
        s: [r["observed_at"] for r in made.rows if r["site_no"] == s]
        for s in ("01646500", "02458502")
    }
    assert [len(times) for times in sites.values()] == [92, 94]
    first = [min(times).isoformat() for times in sites.values()]
    last = [max(times).isoformat() for times in sites.values()]
    # 17:00-04:00 and 16:00-05:00
    assert first == ["2020-08-17T21:00:00+00:00", "2020-08-17T21:00:00+00:00"]
    assert last == ["2020-08-18T19:45:00+00:00", "2020-08-18T20:15:00+00:00"]
    assert read(RECORDED / "dv.01491000_01645000.json", "json").result.warnings == (
        "8 time series of s0 hold no value.",
    )


@on_recordings
def test_recorded_sites_and_peaks_are_read_by_their_headers(read: Callable[..., Made]) -> None:
    sites, peaks = read(RECORDED / "site.rdb.txt"), read(RECORDED / "peaks.rdb.txt")
    assert sites.result.bbox == (-77.33577778, 38.99719444, -75.7858056, 39.1280833)
    assert [
        (r["site_no"], r["source_crs"], r["altitude"], r["hydrologic_unit_code"])
        for r in sites.rows
    ] == [
        ("01491000", "EPSG:4269", 2.73, "02060005"),
        ("01645000", "EPSG:4269", 213.31, "02070008"),
    ]
    lines = [
        x.split("\t")
        for x in (RECORDED / "peaks.rdb.txt").read_text().splitlines()
        if x.startswith("USGS")
    ]
    assert [r["peak_flow"] for r in peaks.rows] == [float(x[4]) for x in lines]
    assert (
        len(peaks.rows),
        max(r["peak_flow"] for r in peaks.rows),
        sum(r["estimated"] for r in peaks.rows),
    ) == (20, 16800, 1)
    assert (peaks.rows[0]["peak_on"], peaks.rows[-1]["peak_on"]) == (
        dt.date(2000, 3, 22),
        dt.date(2018, 12, 16),
    )


def test_a_word_a_sentinel_and_an_empty_cell_are_gaps_and_other_text_is_set_aside(
    read: Callable[..., Made],
) -> None:
    cells = [
        "0\tA",
        "0\tA:e",
        "\t",
        "Ice\tP",
        "-999999\tP Eqp",
        "***\tP",
        "12\tP:Ice",
        "\tA:e",
        "1,5\tP",
    ]
    made = read(
        DV
        + DV_HEAD
        + "".join(f"USGS\t07141220\t2020-01-{i:02}\t{c}\t\t\n" for i, c in enumerate(cells, 1))
    )
    flow = [
        (r["value"], r["status"], r["condition"], r["approval_status"])
        for r in made.rows
        if r["ts_id"] == "7"
    ]
    assert [i for i, r in enumerate(made.rows) if r["estimated"]] == [2], (
        "what is missing is not estimated"
    )
    assert flow == [
        (0.0, "measured", None, "Approved"),
        (0.0, "estimated", None, "Approved"),
        (None, "missing", None, None),
        (None, "missing", "Ice", "Provisional"),
        (None, "missing", "Eqp", "Provisional"),
        (None, "missing", "***", "Provisional"),
        (12.0, "measured", "Ice", "Provisional"),
        (None, "missing", None, "Approved"),
    ]
    assert [(r["line"], r["rule"], "1,5" in r["record"]) for r in made.rejects] == [
        (14, "nwis.value", True)
    ]
    assert {r["unit"] for r in made.rows if r["ts_id"] == "8"} == {"mg/L"}, (
        "as the comments describe it"
    )


def test_every_site_may_bring_its_own_header(read: Callable[..., Made]) -> None:
    second = "# next\nagency_cd\tsite_no\tdatetime\t9_00065_00003\t9_00065_00003_cd\n5s\t15s\t20d\t14n\t10s\n"
    made = read(
        DV
        + DV_HEAD
        + "USGS\t07141220\t2020-01-01\t1\tA\t2\tA\n"
        + second
        + "USGS\t07139500\t2020-01-01\t3\tP\n"
    )
    assert [(r["site_no"], r["ts_id"], r["value"]) for r in made.rows] == [
        ("07141220", "7", 1),
        ("07141220", "8", 2),
        ("07139500", "9", 3),
    ]


def test_a_line_with_too_few_cells_is_set_aside_and_the_rest_goes_on(
    read: Callable[..., Made],
) -> None:
    made = read(
        DV
        + DV_HEAD
        + "USGS\t07141220\t2020-01-01\t1\nUSGS\t07141220\t2020-13-01\t1\tA\t1\tA\nUSGS\t07141220\t2020-01-03\t1\tA\t1\tA\n"
    )
    assert [(r["line"], r["rule"]) for r in made.rejects] == [
        (6, "rdb.columns"),
        (7, "type"),
        (7, "type"),
    ]
    assert len(made.rows) == 2 and made.result.books.balanced


def test_the_hour_that_happens_twice_is_two_moments(read: Callable[..., Made]) -> None:
    head = "agency_cd\tsite_no\tdatetime\ttz_cd\t7_00060\t7_00060_cd\n5s\t15s\t20d\t6s\t14n\t10s\n"
    line = "USGS\t07141220\t2020-11-01 01:30\t{}\t{}\tP\n"
    made = read(head + line.format("CDT", 1) + line.format("CST", 2) + line.format("XYZ", 3))
    assert [(r["observed_at"].isoformat(), r["value"], r["statistic_code"]) for r in made.rows] == [
        ("2020-11-01T06:30:00+00:00", 1, "00000"),
        ("2020-11-01T07:30:00+00:00", 2, "00000"),
    ]
    assert [r["rule"] for r in made.rejects] == ["nwis.zone"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("# No sites/data found using the selection criteria specified\n", "empty"),
        ("", "empty"),
        (DV + DV_HEAD, "empty"),
        (DV_HEAD.split("\n")[0] + "\nUSGS\t07141220\t2020-01-01\t1\tA\t2\tA\n", "rdb.types"),
        ("<html><body>Service unavailable</body></html>", "html"),
        ('{"error": "no"}\n', "rdb.header"),
        ("station\tvalue\n1\t2\n", "rdb.header"),
        (DV_HEAD.replace("8_00300_00003", "7_00060_00003"), "rdb.header"),
        (DV + "x" * (2 << 20), "rdb.line"),
    ],
)
def test_what_is_no_table_is_refused_whole(read: Callable[..., Made], text: str, code: str) -> None:
    with pytest.raises(CaptureRefused) as refused:
        read(text)
    assert refused.value.code == code


def test_a_registered_service_is_kept_to(read: Callable[..., Made]) -> None:
    with pytest.raises(CaptureRefused, match="no table of the site service"):
        read(DV + DV_HEAD + "USGS\t07141220\t2020-01-01\t1\tA\t2\tA\n", service="site")
    with pytest.raises(CaptureRefused, match="service"):
        read(DV, service="gw")


SITE_HEAD = "agency_cd\tsite_no\tstation_nm\tdec_lat_va\tdec_long_va\tdec_coord_datum_cd\textra\n5s\t15s\t50s\t16s\t16s\t10s\t1s\n"


def test_a_position_on_another_datum_is_set_aside_and_none_at_all_is_null(
    read: Callable[..., Made],
) -> None:
    rows = "USGS\t1\tA\t38.1\t-99.1\tNAD83\t\nUSGS\t2\tB\t38.1\t-99.1\tNAD27\t\nUSGS\t3\tC\t\t\t\t\nUSGS\t4\tD\tx\t-99.1\tNAD83\t\n"
    made = read(SITE_HEAD + rows)
    assert [(r["site_no"], r["geometry"] is None) for r in made.rows] == [("1", False), ("3", True)]
    assert [(r["line"], r["rule"]) for r in made.rejects] == [(4, "nwis.datum"), (6, "type")]
    odd = "Column 'latitude' is number; 1 of 2 values is not, and its row is set aside."
    assert made.result.warnings == (odd, "s0 also has the columns extra; they are left out.")


def test_a_peak_of_which_only_the_year_is_known_keeps_its_text(read: Callable[..., Made]) -> None:
    head = "agency_cd\tsite_no\tpeak_dt\tpeak_va\tpeak_cd\n5s\t15s\t10d\t8s\t33s\n"
    days = ["1936-00-00\t9\t2,7", "1937-03-00\t0\t", "1938-03-04\t\t", "1939-02-30\t1\t"]
    made = read(head + "".join(f"USGS\t07141220\t{d}\n" for d in days))
    assert [(r["peak_date"], r["peak_on"], r["peak_flow"], r["estimated"]) for r in made.rows] == [
        ("1936-00-00", None, 9, True),
        ("1937-03-00", None, 0, False),
        ("1938-03-04", dt.date(1938, 3, 4), None, False),
    ]
    assert [r["rule"] for r in made.rejects] == ["type"]


def test_each_method_is_a_series_and_the_sentinel_is_null(read: Callable[..., Made]) -> None:
    made = read(
        document(
            series(
                [
                    [point("0.00")],
                    [point("-999999", "2020-02-14T00:00:00.000", "P", "Ice"), point(None)],
                ]
            )
        ),
        "json",
    )
    got = {
        (r["ts_id"], r["value"], r["status"], r["condition"], str(r["observed_on"]))
        for r in made.rows
    }
    assert got == {
        ("100", 0.0, "measured", None, "2020-02-14"),
        ("101", None, "missing", "Ice", "2020-02-14"),
    }


def test_the_unit_is_the_documents_unless_the_parameter_says_it(read: Callable[..., Made]) -> None:
    warm = series([point("4.5")], variableCode=[{"value": "00010"}], unit={"unitCode": "deg C"})
    assert [
        r["unit"] for r in read(document(series([point("1")], unit={}), warm), "json").rows
    ] == ["ft3/s", "Cel"]


def test_a_gap_listed_once_per_reason_is_one_row(read: Callable[..., Made]) -> None:
    day = "2014-11-11T00:00:00.000"
    made = read(
        document(series([point("-999999", day, "P", "Ice"), point("-999999", day, "P", "Bkw")])),
        "json",
    )
    assert [(r["condition"], r["value"]) for r in made.rows] == [("Bkw,Ice", None)]
    assert made.result.books.dropped == {"same-moment": 1} and made.result.books.balanced


def test_two_different_numbers_for_one_moment_are_refused(read: Callable[..., Made]) -> None:
    with pytest.raises(CaptureRefused) as refused:
        read(document(series([point("1"), point("2")])), "json")
    assert refused.value.code == "key.conflict"


def test_a_series_that_is_built_otherwise_is_set_aside(read: Callable[..., Made]) -> None:
    broken = [
        {"variable": {}},
        7,
        series(
            [point("1", "2020-02-14T00:00:00.000-06:00"), point("abc", "2020-02-15T00:00:00.000")]
        ),
    ]
    made = read(document(series([point("1")]), *broken), "json")
    assert [r["rule"] for r in made.rejects] == [
        "nwis.series",
        "json.record",
        "nwis.time",
        "nwis.value",
    ]
    assert [r["line"] for r in made.rejects] == [2, 3, 4, 5] and len(made.rows) == 1


@pytest.mark.parametrize(
    "text",
    [
        document(),
        '{"value": {"timeSeries": []}}',
        document(series([])),
        '{"error": "x"}',
        "<html>",
        '{"value',
    ],
)
def test_an_empty_or_foreign_document_is_never_a_success(
    read: Callable[..., Made], text: str
) -> None:
    with pytest.raises(CaptureRefused) as refused:
        read(text, "json")
    assert refused.value.code in ("empty", "json.records", "html", "json.syntax", "truncated")
    assert (refused.value.code == "empty") == ("timeSeries" in text)
    assert '"timeSeries": []' not in text or "no time series" in refused.value.happened


def test_a_provisional_value_that_is_approved_changes_its_own_row_only(
    read: Callable[..., Made], tmp_path: Path
) -> None:
    before = [point("10", f"2020-02-{d}T00:00:00.000", "P") for d in (14, 15, 16)]
    after = [*before[:1], point("11.5", "2020-02-15T00:00:00.000", "A", "e"), *before[2:]]
    old, new = (read(document(series(points)), "json") for points in (before, after))
    tables = tuple(
        InputFile(source_id=n, path=str(m.folder / "x.parquet"), digest="sha256:0")
        for n, m in (("base", old), ("part", new))
    )
    job = Merge(dataset_id="ks_gauges", inputs=tables, business_key=nwis.KEY, artifact="y.parquet")
    merged = run_inline(job, tmp_path)
    rows = pq.read_table(tmp_path / "y.parquet").to_pylist()
    assert (merged.books.written, merged.books.unchanged, len(rows)) == (1, 2, 3)
    assert [r for r, o in zip(rows, old.rows) if r != o] == [rows[1]]
    assert (rows[1]["value"], rows[1]["status"], rows[1]["approval_status"]) == (
        11.5,
        "estimated",
        "Approved",
    )


def test_the_same_bytes_give_the_same_table(read: Callable[..., Made]) -> None:
    text = (
        DV
        + DV_HEAD
        + "".join(f"USGS\t07141220\t2020-01-{d:02}\t{d}\tA\t\t\n" for d in range(1, 29))
    )
    one, two = read(text), read(text.replace("\n", "\r\n"))
    assert one.result.content_id == two.result.content_id
    assert one.result.schema == nwis.COLUMNS and one.result.key == nwis.KEY


def test_a_document_that_states_another_unit_than_its_parameter_has_is_set_aside(
    read: Callable[..., Made],
) -> None:
    wrong = series([point("1")], unit={"unitCode": "m3/s"})
    made = read(document(series([point("1", "2020-02-15T00:00:00.000")]), wrong), "json")
    assert (len(made.rows), made.result.books.quarantined) == (1, 1)
    head = "agency_cd\tsite_no\tdatetime\t1_00060_00003\t1_00060_00003_cd\n5s\t15s\t20d\t14n\t10s\nUSGS\t07141220\t2020-01-01\t5\tA\n"
    for said, kept in (
        ("cubic feet per second", 1),
        ("cubic meters per second", 0),
        ("[from the upper gauge]", 1),
    ):
        found = read(f"#  1  00060  00003  Discharge, {said} (Mean)\n{head}")
        assert (found.result.books.written, found.result.books.quarantined) == (kept, 1 - kept), (
            said
        )


@pytest.mark.parametrize(
    ("line", "stamp"),
    [
        ("# retrieved: 2014-01-27 16:54:02 EST\t(natwebvaas01)\n", "2014-01-27T21:54:02Z"),
        ("# Retrieved: 2020-02-20 16:35:50 EST\n", "2020-02-20T21:35:50Z"),
        ("# retrieved: 2020-02-14 13:17:02 -05:00\t(sdas01)\n", "2020-02-14T18:17:02Z"),
        ("# retrieved: 2020-02-14 13:17:02 XYZ\n", ""),
        ("# retrieved: 2020-99-14 13:17:02 EST\n", ""),
        (
            "# retrieved: 2020-02-20 16:35:50 EST\n# retrieved: 2019-02-20 16:35:50 EST\n",
            "2019-02-20T21:35:50Z",
        ),
        ("", ""),
    ],
)
def test_a_table_says_when_it_was_retrieved(
    read: Callable[..., Made], line: str, stamp: str
) -> None:
    found = read(f"{line}{DV}{DV_HEAD}USGS\t07141220\t2020-01-01\t1.5\tA\t2.5\tA\n").result.stamp
    assert (found or "") == stamp if isinstance(found, str) else not stamp


@on_recordings
def test_every_recording_that_says_so_is_stamped(read: Callable[..., Made]) -> None:
    assert (
        read(RECORDED / "dv.01491000_01645000.json", "json").result.stamp
        == "2020-02-20T21:07:37.666000Z"
    )
    assert (
        read(RECORDED / "iv.01646500_02458502.P1D.json", "json").result.stamp
        == "2020-08-18T20:50:43.301000Z"
    )
    assert read(RECORDED / "dv.02177000.rdb.txt").result.stamp == "2014-01-27T21:54:02Z"


@pytest.mark.parametrize(
    "note", [[], None, "x", [{"title": "requestDT", "value": 3}], [{"title": "other"}], ["x"]]
)
def test_notes_that_say_nothing_give_no_stamp(read: Callable[..., Made], note: Any) -> None:
    if not RECORDED.exists():
        pytest.skip("not run: the recordings are not beside this repository")
    document = json.loads((RECORDED / "dv.01491000_01645000.json").read_text())
    document["value"]["queryInfo"]["note"] = note
    assert not isinstance(read(json.dumps(document), "json").result.stamp, str)
