"""CSV: types, row rules with their lines, refusals."""

import datetime as dt

import pytest


def test_types_are_inferred_and_codes_stay_text(made):
    table = made(
        "csv",
        "n,x,ok,at,day,fips,text\n1,1.5,true,2020-01-01T00:00:00Z,2020-01-01,00123,a\n2,2,false,2020-01-01T01:00:00+01:00,2020-01-02,20001,b\n",
    )
    assert table.types == {
        "n": "integer",
        "x": "number",
        "ok": "boolean",
        "at": "timestamp",
        "day": "date",
        "fips": "string",
        "text": "string",
    }
    assert table.rows[1] == {
        "n": 2, "x": 2.0, "ok": False, "at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "day": dt.date(2020, 1, 2), "fips": "20001", "text": "b",
    }  # fmt: skip


@pytest.mark.parametrize(
    "cell", ["00123", "0123.5", "1234567890123456789", "1.2.3", "0x1F", "1_000"]
)
def test_what_only_looks_like_a_number_stays_text(made, cell):
    assert made("csv", f"a,b\n1,{cell}\n").types["b"] == "string"


def test_a_code_far_beyond_the_sample_still_makes_the_column_text(made):
    table = made("csv", "a,b\n" + "1,7\n" * 20_000 + "1,007\n")
    assert table.types == {"a": "integer", "b": "string"}
    assert table.rows[-1] == {"a": 1, "b": "007"}
    assert table.rows[0] == {"a": 1, "b": "7"}


@pytest.mark.parametrize(
    ("early", "late", "kind"),
    [
        ("1", "1.5", "number"),
        ("", "5", "integer"),
        ("2020-01-01", "x", "string"),
        ("true", "maybe", "string"),
        ("1", "+1", "number"),
    ],
)
def test_types_do_not_depend_on_where_the_sample_ended(made, early, late, kind):
    assert made("csv", "a,b\n" + f"1,{early}\n" * 12_000 + f"1,{late}\n" * 200).types["b"] == kind
    assert made("csv", "a,b\n" + f"1,{late}\n" * 200 + f"1,{early}\n" * 12_000).types["b"] == kind


def test_an_empty_cell_is_null_never_zero(made):
    table = made(
        "csv", 'a,b,c\n1,,x\n,2.5,""\n', schema={"a": "integer", "b": "number", "c": "string"}
    )
    assert table.rows == [{"a": 1, "b": None, "c": "x"}, {"a": None, "b": 2.5, "c": None}]
    assert {k: p.nulls for k, p in table.result.profile.items()} == {"a": 1, "b": 1, "c": 1}


def test_quotes_line_ends_and_blank_lines_are_read_as_csv_means_them(made):
    table = made("csv", 'a,b\r\n"x ""y"", z","two\r\nlines"\r\n\r\n"p",q\r\n')
    assert table.rows == [{"a": 'x "y", z', "b": "two\r\nlines"}, {"a": "p", "b": "q"}]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_taken_from_the_header(made, delimiter):
    assert made("csv", f"a{delimiter}b\n1{delimiter}x\n").rows == [{"a": 1, "b": "x"}]


def test_each_row_rule_names_the_line_where_its_record_begins(made):
    text = 'k,n,x,lat\n1,1,1,1\n"2\n2",oops,1,1\n3,1,1\n4,1,NaN,1\n,1,1,1\n6,1,1,-98.2\n7,,1,1\n8,1,1e999,1\n'
    table = made(
        "csv",
        text,
        schema={"k": "string", "n": "integer!", "x": "number", "lat": "number"},
        business_key=("k",),
    )
    assert [(r["line"], r["rule"]) for r in table.rejects] == [
        (3, "type"), (5, "csv.columns"), (6, "number.nonfinite"), (7, "key.missing"), (8, "geometry.range"), (9, "null"), (10, "number.nonfinite"),
    ]  # fmt: skip
    assert table.rejects[0]["record"] == '"2\n2",oops,1,1'
    assert table.rejects[0]["source_id"] == "s0"
    assert "oops" in table.rejects[0]["reason"]
    assert [r["k"] for r in table.rows] == ["1"]


def test_lines_are_right_across_blocks(made, monkeypatch):
    monkeypatch.setattr("kfm.connectors.read.text.BLOCK", 37)
    body = (
        "".join(f'{i},"a\nb, {i}"\n' if i % 3 else f"{i},plain\n" for i in range(200))
        + "bad,x\n"
        + "200,y\n"
    )
    table = made("csv", "n,t\n" + body, schema={"n": "integer", "t": "string"})
    assert [r["n"] for r in table.rows] == [*range(200), 200]
    assert table.rows[4]["t"] == "a\nb, 4"
    (reject,) = table.rejects
    assert reject["line"] == 1 + ("n,t\n" + body).split("bad")[0].count("\n")


def test_a_long_record_is_shown_only_in_part(made):
    table = made(
        "csv", "n,t\n1,x\nbad," + "é" * 9000 + "\n", schema={"n": "integer", "t": "string"}
    )
    assert len(table.rejects[0]["record"].encode()) <= 4096
    assert table.rejects[0]["record"].startswith("bad,éé")


@pytest.mark.parametrize(
    "stamp",
    [
        "2020-01-01T00:00:00",
        "2020-01-01",
        "2020-13-01T00:00:00Z",
        "2020-01-01T00:00:00.1234567Z",
        "noon",
    ],
)
def test_a_time_without_an_offset_is_refused_for_its_row(made, stamp):
    table = made("csv", f"at\n2020-01-01T00:00:00Z\n{stamp}\n", schema={"at": "timestamp"})
    assert [(r["line"], r["rule"]) for r in table.rejects] == [(3, "type")]
    assert table.rows == [{"at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}]


def test_a_misfit_does_not_change_how_its_neighbours_are_read(made):
    """The slow way and the fast way agree on every value."""
    cells = ["1", "-5", " 7 ", "+3", "007", "9223372036854775807"]
    fast = [made("csv", f"a\n{c}\n", schema={"a": "integer"}).rows[0]["a"] for c in cells]
    slow = made("csv", "a\n" + "\n".join(cells) + "\noops\n", schema={"a": "integer"})
    assert [r["a"] for r in slow.rows] == fast == [1, -5, 7, 3, 7, 2**63 - 1]


def test_a_hexadecimal_number_is_no_integer(made):
    assert made("csv", "a\n0x1F\n", schema={"a": "integer"}).rejects[0]["rule"] == "type"


def test_columns_are_found_by_name_in_every_input(made):
    table = made("csv", "a,b\n1,x\n", "b,a\ny,2\n", schema={"b": "string", "a": "integer"})
    assert table.rows == [{"b": "x", "a": 1}, {"b": "y", "a": 2}]
    assert list(table.types) == ["b", "a"]


def test_a_column_the_schema_does_not_know_is_named(refused):
    error = refused("csv", "a,surprise\n1,2\n", schema={"a": "integer"})
    assert error.code == "schema.unknown-column"
    assert error.detail["columns"] == ["surprise"]
    assert "surprise" in error.happened


def test_a_missing_column_is_null_with_a_warning_or_a_refusal(made, refused):
    table = made("csv", "a\n1\n", schema={"a": "integer", "b": "string"})
    assert table.rows == [{"a": 1, "b": None}]
    assert "'b'" in table.result.warnings[0]
    assert (
        refused("csv", "a\n1\n", schema={"a": "integer", "b": "string!"}).code
        == "schema.missing-column"
    )
    assert (
        refused("csv", "a\n1\n", schema={"a": "integer", "b": "string"}, business_key=("b",)).code
        == "schema.missing-column"
    )
    assert refused("csv", "a\n1\n", business_key=("b",)).code == "schema.missing-column"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty"),
        (b"a,b\n", "empty"),
        (b"\n\n", "empty"),
        (b"<!doctype html><p>sorry", "html"),
        (b"  \n<html><body>", "html"),
        (b"<?xml version='1.0'?>", "format"),
        (b'{"error": "rate limit"}', "format"),
        (b"PK\x03\x04....", "format"),
        (b"\x1f\x8b\x08...", "format"),
        (b"%PDF-1.7", "format"),
        (b"PAR1....", "format"),
        (b"a,a\n1,2\n", "csv.header"),
        (b"a,,b\n1,2,3\n", "csv.header"),
        (b'a,b\n1,"open\n2,x\n', "truncated"),
        (b"a,b\n1,\xff\n", "encoding"),
        (b"a,b\n1,x\0y\n", "encoding"),
        (b"a,b\n1,\xc3", "encoding"),
        ("a,b\n1,2\n".encode("utf-16"), "encoding"),
        ("a,b\n1,2\n".encode("utf-32"), "encoding"),
    ],
)
def test_a_capture_that_is_not_the_promised_csv_is_refused_whole(refused, data, code):
    assert refused("csv", data).code == code


def test_the_encoding_refusal_says_where_and_what_to_declare(refused):
    error = refused("csv", b"a\nab\xe9\n")
    assert "byte 4" in error.happened
    assert "latin-1" in error.remedy
    assert "utf-16" in refused("csv", "a\n1\n".encode("utf-16")).remedy


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "cp1252", "utf-8"])
def test_a_declared_encoding_is_decoded(made, encoding):
    assert made("csv", "a,b\n1,café\n".encode(encoding), encoding=encoding).rows == [
        {"a": 1, "b": "café"}
    ]


def test_a_utf8_mark_is_skipped_and_characters_may_straddle_blocks(made, monkeypatch):
    monkeypatch.setattr("kfm.connectors.read.text.BLOCK", 7)
    table = made(
        "csv", b"\xef\xbb\xbf" + ("a,b\n" + "".join(f"{i},né€𝄞\n" for i in range(9))).encode()
    )
    assert table.rows == [{"a": i, "b": "né€𝄞"} for i in range(9)]


def test_an_encoding_that_does_not_exist_is_refused(refused):
    assert refused("csv", "a\n1\n", encoding="klingon").code == "encoding"


def test_geometry_may_come_as_wkt_or_geojson_text(made):
    import shapely

    text = 'g\nPOINT (-98 38)\n"{""type"":""Point"",""coordinates"":[-97,39]}"\nnonsense\nPOINT (38 -98)\n'
    table = made("csv", text, schema={"g": "geometry"})
    assert [shapely.from_wkb(r["g"]).wkt for r in table.rows] == [
        "POINT (-98 38)",
        "POINT (-97 39)",
    ]
    assert [(r["line"], r["rule"]) for r in table.rejects] == [
        (4, "geometry"),
        (5, "geometry.range"),
    ]
    assert table.result.bbox == (-98.0, 38.0, -97.0, 39.0)


def test_one_long_text_among_short_and_missing_ones_is_read_back_as_it_was_written(made):
    lines = ["a,b", *(f"{i}," for i in range(3000)), f"3000,{'x' * 5000}"]
    table = made("csv", "\n".join(lines) + "\n")
    assert (len(table.rows), table.result.profile["b"].max) == (3001, "x" * 200)
