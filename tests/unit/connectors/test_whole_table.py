"""The table as a whole: same bytes every time, honest books, windows, duplicates."""

import json
import random
import unicodedata
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kfm.connectors.base import Books, ColumnProfile
from kfm.connectors.table import writer
from kfm.connectors.table.hashing import mixed
from kfm.connectors.table.keys import KeyFile, _changes
from kfm.model.dataset import Column

SETTINGS = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def points(n, seed=1):
    rng = random.Random(seed)
    return [
        {
            "type": "Feature",
            "id": f"q{i}",
            "properties": {
                "mag": round(rng.uniform(0, 6), 2),
                "place": rng.choice(["here", "there", None]),
            },
            "geometry": {
                "type": "Point",
                "coordinates": [round(rng.uniform(-102, -94), 5), round(rng.uniform(37, 40), 5)],
            },
        }
        for i in range(n)
    ]


def document(features):
    return json.dumps({"type": "FeatureCollection", "features": features})


# -- bytes


def test_the_same_input_gives_the_same_bytes(made):
    text = document(points(3000))
    assert (
        made("geojson", text, business_key=("feature_id",)).data
        == made("geojson", text, business_key=("feature_id",)).data
    )


def test_how_the_reader_cuts_its_blocks_leaves_no_trace(made, monkeypatch):
    text = document(points(2000))
    monkeypatch.setattr(writer, "GROUP_ROWS", 300)
    whole = made("geojson", text)
    monkeypatch.setattr("kfm.connectors.read.text.BLOCK", 3001)
    pieces = made("geojson", text)
    assert pieces.data == whole.data
    assert pieces.result.content_id == whole.result.content_id
    assert pq.ParquetFile(whole.scratch / "ks_test.parquet").num_row_groups == 7


def test_row_groups_also_end_by_size(made, monkeypatch):
    monkeypatch.setattr(writer, "GROUP_BYTES", 1000)
    text = "a\n" + "".join(f"{'x' * 99}{i % 10}\n" for i in range(95)) + "y" * 5000 + "\n" + "z\n"
    whole = made("csv", text)
    groups = pq.ParquetFile(whole.scratch / "ks_test.parquet").metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [10] * 9 + [6, 1]
    monkeypatch.setattr("kfm.connectors.read.text.BLOCK", 501)
    assert made("csv", text).data == whole.data


def test_the_content_id_follows_rows_and_schema_and_nothing_else(made):
    schema = {"a": "integer", "b": "string"}
    one = made("csv", "a,b\n1,x\n,y\n", schema=schema).result.content_id
    assert made("json", '[{"a":1,"b":"x"},{"b":"y"}]', schema=schema).result.content_id == one
    assert made("csv", "a,b\n,y\n1,x\n", schema=schema).result.content_id != one
    assert made("csv", "a,b\n1,x\n0,y\n", schema=schema).result.content_id != one
    assert (
        made("csv", "a,b\n1,x\n,y\n", schema={"a": "number", "b": "string"}).result.content_id
        != one
    )
    assert made("csv", "a,b\n1,xy\n,\n", schema=schema).result.content_id != one
    nulls = [
        made("csv", text, schema=schema).result.content_id
        for text in ("a,b\n0,x\n,x\n", "a,b\n,x\n0,x\n")
    ]
    assert nulls[0] != nulls[1]


def test_a_slow_row_leaves_no_trace_in_the_content(made):
    schema = {
        "i": "integer",
        "n": "number",
        "b": "boolean",
        "t": "timestamp",
        "d": "date",
        "s": "string",
    }
    good = '{"i":1,"n":2.5,"b":true,"t":"2020-01-01T00:00:00Z","d":"2020-01-01","s":"x"},{"i":null}'
    fast = made("json", f"[{good}]", schema=schema)
    slow = made(
        "json",
        f'[{good},{{"i":"?"}},{{"n":"?"}},{{"b":"?"}},{{"t":"?"}},{{"d":"?"}},{{"s":[]}}]',
        schema=schema,
    )
    assert slow.result.content_id == fast.result.content_id
    assert len(slow.rejects) == 6


def test_the_profile_tells_nulls_and_extremes(made):
    table = made("csv", "a,t,s\n3,2020-01-02T00:00:00Z,b\n-1,,a\n,2020-01-01T00:00:00.5Z,\n")
    assert msgspec.to_builtins(table.result.profile) == {
        "a": {"nulls": 1, "min": "-1", "max": "3"},
        "t": {"nulls": 1, "min": "2020-01-01T00:00:00.500000Z", "max": "2020-01-02T00:00:00Z"},
        "s": {"nulls": 1, "min": "a", "max": "b"},
    }


# -- window


def test_rows_outside_the_half_open_window_are_dropped_by_rule(made):
    days = [
        "2020-01-01T00:00:00Z",
        "2020-01-02T00:00:00Z",
        "2020-01-02T23:59:59.999999Z",
        "2020-01-03T01:00:00+01:00",
        "",
    ]
    window = {"time_column": "at", "since": "2020-01-02T00:00:00Z", "until": "2020-01-03T00:00:00Z"}
    table = made("csv", "n,at\n" + "".join(f"{i},{d}\n" for i, d in enumerate(days)), **window)
    assert [r["n"] for r in table.rows] == [1, 2]
    assert table.result.books == Books(
        read=5, written=2, quarantined=1, dropped={"outside-window": 2}
    )
    assert [(r["line"], r["rule"]) for r in table.rejects] == [(6, "time.missing")]


@pytest.mark.parametrize(("cell", "kind"), [("2020-01-02", "date"), ("1577923200000", "integer")])
def test_dates_and_epoch_milliseconds_are_placed_too(made, cell, kind):
    text = f"at\n{cell}\n"
    options = {"schema": {"at": kind}, "time_column": "at"}
    assert (
        made(
            "csv", text, since="2020-01-02T00:00:00Z", until="2020-01-03T00:00:00Z", **options
        ).result.books.written
        == 1
    )
    assert made("csv", text, since="2020-01-02T00:00:01Z", **options).result.books.dropped == {
        "outside-window": 1
    }


def test_faults_of_rows_outside_the_window_do_not_matter(made):
    table = made(
        "csv", "k,at,n\n,2019-01-01T00:00:00Z,oops\na,2020-01-01T00:00:00Z,1\n", schema={"k": "string", "at": "timestamp", "n": "integer"},
        business_key=("k",), time_column="at", since="2020-01-01T00:00:00Z",
    )  # fmt: skip
    assert table.result.books == Books(read=2, written=1, dropped={"outside-window": 1})


def test_a_time_column_that_holds_no_time_is_refused(refused):
    assert (
        refused("csv", "at,b\nnoon,1\n", time_column="at", since="2020-01-01T00:00:00Z").code
        == "schema.time-column"
    )


# -- duplicates


def test_equal_duplicates_are_kept_once(made):
    table = made("csv", "k,v\na,1\nb,2\na,1\nc,3\na,1\nb,2\n", business_key=("k",))
    assert [r["k"] for r in table.rows] == ["a", "b", "c"]
    assert table.result.books == Books(read=6, written=3, dropped={"duplicate": 3})
    assert table.data == made("csv", "k,v\na,1\nb,2\nc,3\n", business_key=("k",)).data


def test_without_a_business_key_nothing_is_a_duplicate(made):
    assert made("csv", "k,v\na,1\na,1\n").result.books.written == 2


def test_the_key_may_span_columns_and_types(made):
    schema = {"a": "integer", "b": "timestamp", "c": "string"}
    text = (
        "a,b,c\n1,2020-01-01T00:00:00Z,x\n1,2020-01-01T01:00:00+01:00,x\n1,2020-01-02T00:00:00Z,x\n"
    )
    assert made("csv", text, schema=schema, business_key=("a", "b")).result.books == Books(
        read=3, written=2, dropped={"duplicate": 1}
    )


def test_conflicting_duplicates_refuse_the_capture_and_show_both(refused):
    error = refused("csv", "k,v\na,1\nb,2\na,9\n", business_key=("k",))
    assert error.code == "key.conflict"
    lines = [{"source_id": "s0", "line": 2}, {"source_id": "s0", "line": 4}]
    assert error.detail["conflicts"] == [
        {"key": {"k": "a"}, "rows": [{"k": "a", "v": "1"}, {"k": "a", "v": "9"}], "lines": lines}
    ]
    many = refused(
        "csv", "k,v\n" + "".join(f"{i},1\n{i},2\n" for i in range(30)), business_key=("k",)
    )
    assert len(many.detail["conflicts"]) == 20
    assert "30 records" in many.happened


def test_duplicates_are_found_in_many_buckets_and_colliding_hashes_harm_nothing(made, monkeypatch):
    rows = [f"{i},{i % 7}" for i in range(500)]
    text = "k,v\n" + "\n".join(rows + rows[::3]) + "\n"
    expected = made("csv", text, business_key=("k",))
    assert expected.result.books.dropped == {"duplicate": 167}
    monkeypatch.setattr("kfm.connectors.table.keys._BUCKET", 50)
    monkeypatch.setattr("kfm.connectors.table.keys._KEPT", 50)
    assert made("csv", text, business_key=("k",)).data == expected.data
    monkeypatch.setattr(
        "kfm.connectors.table.keys.mixed", lambda arrays: np.full(len(arrays[0]), 7, np.uint64)
    )
    assert made("csv", text, business_key=("k",)).data == expected.data


# -- shares and books


def test_a_share_of_bad_rows_above_the_limit_refuses_the_capture(made, refused):
    text = "n\n" + "1\n" * 98 + "x\nNaN\n"
    assert (
        made("csv", text, schema={"n": "integer"}, max_quarantined=0.02).result.books.quarantined
        == 2
    )
    error = refused("csv", text, schema={"n": "integer"}, max_quarantined=0.0199)
    assert error.code == "quarantine.share"
    assert error.detail["rules"] == {"type": 1, "number.nonfinite": 1}
    assert error.detail["examples"]["type"][0]["line"] == 100


def test_books_that_do_not_add_up_say_so():
    assert Books(read=4, written=1, unchanged=1, quarantined=1, dropped={"x": 1}).balanced
    assert not Books(read=5, written=1, unchanged=1, quarantined=1, dropped={"x": 1}).balanced


CELLS = st.sampled_from(
    [
        "1",
        "2",
        "",
        "x",
        "NaN",
        "1e999",
        '"q, ""z"""',
        '"two\nlines"',
        "-0",
        "3.5",
        "99999999999999999999",
        "é",
    ]
)
ROWS = st.lists(
    st.tuples(
        CELLS, CELLS, st.sampled_from(["k1", "k2", "k3", ""]), st.sampled_from(["", ",extra"])
    ),
    min_size=1,
    max_size=12,
)


@SETTINGS
@given(rows=ROWS)
def test_every_csv_row_is_accounted_for(made, rows):
    """`made` checks books, rows and rejects against each other."""
    lines, expected_lines, at = ["a,b,k"], [], 2
    for a, b, k, extra in rows:
        record = f"{a},{b},{k}{extra}"
        lines.append(record)
        expected_lines.append(at)
        at += 1 + record.count("\n")
    table = made("csv", "\n".join(lines), schema={"a": "integer", "b": "number", "k": "string"})
    assert table.result.books.read == len(rows)
    assert {r["line"] for r in table.rejects} <= set(expected_lines)
    bad = [
        extra != ""
        or a not in ("1", "2", "", "-0")
        or b not in ("1", "2", "", "-0", "3.5", "99999999999999999999")
        for a, b, _, extra in rows
    ]
    assert [line for line, is_bad in zip(expected_lines, bad) if is_bad] == [
        r["line"] for r in table.rejects
    ]


VALUES = st.sampled_from(
    [
        "1",
        "2.5",
        "null",
        '"x"',
        "NaN",
        "1e999",
        "true",
        '"},{"',
        '[{"a":1},{"b":2}]',
        '"\\\\"',
        "12345678901234567890123",
    ]
)
PLACES = st.sampled_from(
    ["[-98.5,38.5]", "[38.5,-98.5]", "[1]", "null", "[1,2,3]", "[NaN,1]", '"x"']
)
FEATURES = st.lists(st.tuples(VALUES, PLACES), min_size=1, max_size=10)


@SETTINGS
@given(features=FEATURES, block=st.sampled_from([5, 40, 1 << 20]), typed=st.booleans())
@example(
    features=[("2.5", "[-98.5,38.5]"), ("12345678901234567890123", "[-98.5,38.5]")],
    block=5,
    typed=False,
)
def test_every_feature_is_accounted_for(made, features, block, typed):
    text = ",".join(
        '{{"type":"Feature","properties":{{"v":{}}},"geometry":{{"type":"Point","coordinates":{}}}}}'.format(
            *f
        )
        for f in features
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kfm.connectors.read.text.BLOCK", block)
        table = made(
            "geojson",
            f'{{"features":[{text}]}}',
            schema={"v": "number", "geometry": "geometry"} if typed else None,
        )
    assert table.result.books.read == len(features)
    for reject in table.rejects:
        value, place = features[reject["line"] - 1]
        assert reject["record"].count(value) and reject["record"].count(place)
    good = [
        p in ("[-98.5,38.5]", "[1,2,3]")
        and v not in ("NaN", "1e999")
        and (not typed or v in ("1", "2.5", "null"))
        for v, p in features
    ]
    assert {r["line"] for r in table.rejects} == {i for i, ok in enumerate(good, 1) if not ok}


_SERIES = [(station, day) for station in ("a", "\u00e9", "c") for day in range(100)]
_SHUFFLED = sorted(_SERIES, key=lambda row: (row[1] * 37 % 100, row[0]))
_ORDERS = {
    "in series": _SERIES,
    "in another order": _SERIES[::-1],
    "in no order": _SHUFFLED,
    "in series, then in no order": [*_SERIES[:200], *_SHUFFLED],
    "a series in two files that overlap": [*_SERIES[:60], *_SERIES[55:]],
    "a series, and one row again": [*_SERIES, _SERIES[150]],
    "a series, and one key again in another spelling": [*_SERIES, ("e\u0301", 7)],
    "in series, and every row twice": [row for row in _SERIES for _ in range(2)],
}


@pytest.mark.parametrize("trial", [0, 1 << 16])
@pytest.mark.parametrize("order", _ORDERS)
def test_a_key_that_is_there_twice_is_found_in_whatever_order_rows_come(
    tmp_path, monkeypatch, order, trial
):
    monkeypatch.setattr("kfm.connectors.table.keys._TRIAL", trial)
    # 64 rows may stand alone, no more
    monkeypatch.setattr("kfm.connectors.table.keys._SHORTEST", 40)
    rows = _ORDERS[order]
    table = pa.table(
        {
            "v": pa.array([1] * len(rows)),
            "day": pa.array([d for _, d in rows], pa.date32()),
            "station": [s for s, _ in rows],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    keys = KeyFile(tmp_path)
    for batch in table.to_batches(max_chunksize=70):
        keys.add([batch.column("station"), batch.column("day")])
    found = keys.resolve(tmp_path / "t.parquet", ("station", "day"))
    keys.remove()
    seen: set[tuple[str, int]] = set()
    twice = [
        (k := (unicodedata.normalize("NFC", s), d)) in seen or seen.add(k) is not None
        for s, d in rows
    ]
    assert (found.drop.tolist() if found is not None else [False] * len(rows)) == twice
    assert (found is None) == (not any(twice))


@pytest.mark.parametrize(
    "values",
    [
        ["a", "a", "b", "b", "b", "a"],  # of one width, as codes are
        ["TMAX", "TMAX", "TMIN", "TMIN"],
        ["USC00144530"] * 5,
        ["USC00144530", "USC00144530", "USC00144531"],
        ["a", "ab", "ab", "", ""],
        ["", ""],
        ["one"],
        [1, 1, 2],
        [],
    ],
)
def test_a_stretch_ends_where_a_value_changes(values):
    padded = pa.array(
        [values[0] if values else "x", *values] if values else [], pa.array(values or ["x"]).type
    )
    for array in (pa.array(values, padded.type), padded.slice(1)):
        assert _changes(array).tolist() == [
            i for i in range(1, len(array)) if values[i] != values[i - 1]
        ]


def test_equal_values_have_equal_hashes_wherever_they_stand():
    texts = ["", "a", "ab", "abcdefgh", "abcdefghi", "x" * 256, "x" * 257, "y" * 300, None, "é"]
    every = pa.array([*texts, *texts[::-1]])
    both = mixed([every])
    assert (both[: len(texts)] == both[: len(texts) - 1 : -1]).all()
    assert len(set(both.tolist())) == len(texts)
    alone = [mixed([pa.array([None, text], pa.string()).slice(1)])[0] for text in texts]
    assert both[: len(texts)].tolist() == alone
    numbers = pa.array([0.0, -0.0, 1.5, None])
    assert mixed([numbers])[0] == mixed([numbers])[1]
    assert len({*mixed([numbers]).tolist()}) == 3


def test_the_extremes_of_texts_are_told_whether_they_are_short_long_or_missing(
    tmp_path, monkeypatch
):
    """Of short ones by the statistics that are written beside them, of long ones by themselves."""
    monkeypatch.setattr(writer, "GROUP_ROWS", 2)
    texts = ["m", "\u00e9", None, None, "b", None, "y" * 1001, "c", "d", "x" * 1000]
    table = writer.TableWriter(
        tmp_path / "t.parquet",
        (Column(name="t", type="string"), Column(name="n", type="integer")),
        (),
    )
    table.add(pa.record_batch({"t": texts, "n": pa.array(range(len(texts)))}))
    _, profile = table.finish(None)
    table.verify()
    assert profile["t"] == ColumnProfile(nulls=3, min="b", max="\u00e9")
    assert (profile["n"].min, profile["n"].max) == ("0", "9")
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 5


def test_a_table_without_rows_has_no_key_twice(tmp_path: Path) -> None:
    assert KeyFile(tmp_path).resolve(tmp_path / "none.parquet", ("id",)) is None
