"""Text is data too: what cannot be seen or steers a reader is set aside, spellings are compared,
and oddities of a file are told.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfm.connectors.base import InputFile
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Merge, Read
from kfm.connectors.read import text as texts_of
from kfm.connectors.read.characters import check_texts
from kfm.connectors.table.merge import merge
from kfm.model.dataset import Column

NFC, NFD = "Peñasco", "Pen\u0303asco"
SCHEMA = {"id": "string", "note": "string"}
CELLS = ["\x07", "\x1b[2J", "\x7f", "\x85", "\u202e", "\u2066", "\u061c"]
FINE = [
    "a\tb",
    "two\nlines",
    "\u200e\u05d0",
    "\u200f",
    "ñ ° « é \u00a0",
    "\u0627\u0644\u062f",
    "€ – …",
    "\u2028",
]


def in_json(texts: list[str], *, key: bool = False) -> str:
    return json.dumps(
        [
            {"id": t, "note": "x"} if key else {"id": f"k{i}", "note": t}
            for i, t in enumerate(texts)
        ],
        ensure_ascii=False,
    )


def in_csv(texts: list[str], *, key: bool = False) -> str:
    quoted = ['"' + t.replace('"', '""') + '"' for t in texts]
    return "id,note\n" + "".join(f"{t},x\n" if key else f"k{i},{t}\n" for i, t in enumerate(quoted))


def in_json_escaped(texts: list[str], *, key: bool = False) -> str:
    return json.dumps(json.loads(in_json(texts, key=key)))


def rules(table: Any) -> list[tuple[str, str]]:
    return [(r["rule"], r["reason"].partition("U+")[2].partition(",")[0]) for r in table.rejects]


@pytest.mark.parametrize(("format", "write"), [("csv", in_csv), ("json", in_json_escaped)])
def test_control_and_direction_characters_are_set_aside_in_cells_and_others_pass(
    made: Any, format: str, write: Any
) -> None:
    table = made(format, write([*FINE, *CELLS]), schema=SCHEMA, business_key=("id",))
    assert rules(table) == [
        ("text.control", "0007"),
        ("text.control", "001B"),
        ("text.control", "007F"),
        ("text.control", "0085"),
        ("text.direction", "202E"),
        ("text.direction", "2066"),
        ("text.direction", "061C"),
    ]
    assert [r["note"] for r in table.rows] == FINE
    assert "\x1b" not in table.rejects[1]["reason"] and "cp1252" in table.rejects[3]["reason"]


@pytest.mark.parametrize(("format", "write"), [("csv", in_csv), ("json", in_json_escaped)])
def test_keys_hold_neither_those_nor_what_cannot_be_seen_even_where_text_is_free(
    made: Any, format: str, write: Any, job_of: Any
) -> None:
    odd = [*CELLS, "a\u200e", "a\u200f", "a\u200b", "\u2060a", "a\ufeff"]
    table = made(
        format,
        write([*odd, "plain", "tab\tbed", NFC], key=True),
        schema=SCHEMA,
        business_key=("id",),
    )
    assert {rule for rule, _ in rules(table)} == {"key.text"} and len(table.rejects) == len(odd)
    assert [r["id"] for r in table.rows] == ["plain", "tab\tbed", NFC]


def test_free_text_may_hold_anything_and_json_hides_nothing(tmp_path: Path) -> None:
    def run(**text: Any) -> tuple[int, list[str]]:
        body = [
            {"id": "a", "note": {"x": ["\x07"]}},
            {"id": "b", "note": {"\u202e": 1}},
            {"id": "c", "note": "\f"},
            {"id": "d", "note": "\\u0007"},
        ]
        (tmp_path / "in").write_text(json.dumps(body))
        columns = (Column(name="id", type="string"), Column(name="note", type="json", **text))
        source = InputFile(source_id="s", path=str(tmp_path / "in"), digest="")
        job = Read(
            dataset_id="d",
            format="json",
            inputs=(source,),
            schema=columns,
            max_quarantined=1.0,
            artifact="d.parquet",
        )
        result = run_inline(job, tmp_path)
        aside = (
            (tmp_path / "d.quarantine.jsonl").read_text().splitlines() if result.quarantine else []
        )
        return result.rows, [json.loads(line)["rule"] for line in aside]

    assert run() == (1, ["text.control", "text.direction", "text.control"])
    assert run(text="free") == (4, [])


def test_characters_are_found_in_a_part_of_a_column_and_not_under_nulls() -> None:
    whole = pa.array(["\x07", "ñ", None, "c\u202e", "", "d"], pa.string())
    bad: dict[int, Any] = {}
    check_texts((Column(name="t", type="string"),), (), [whole.slice(1)], bad)
    assert {i: rule for i, (rule, _) in bad.items()} == {2: "text.direction"}
    # the first is null
    hidden = pa.StringArray.from_buffers(
        2, whole.buffers()[1], whole.buffers()[2], pa.py_buffer(b"\x02")
    )
    bad.clear()
    check_texts((Column(name="t", type="string"),), (), [hidden], bad)
    assert not bad


def test_a_column_named_with_what_cannot_be_seen_or_in_two_spellings_is_refused(
    refused: Any,
) -> None:
    assert refused("csv", "id,na\u202eme\n1,2\n").code == "schema.names"
    assert refused("json", json.dumps([{"id": 1, NFC: 1, NFD: 2}])).code == "schema.names"


# -- spellings of keys


def test_two_spellings_of_one_key_are_one_key_and_both_are_named(made: Any, refused: Any) -> None:
    refusal = refused("csv", f"id,note\n{NFC},x\n{NFD},y\n", schema=SCHEMA, business_key=("id",))
    assert refusal.code == "key.conflict"
    assert ascii(NFC)[1:-1] in refusal.happened and ascii(NFD)[1:-1] in refusal.happened
    table = made(
        "csv", f"id,note\n{NFD},x\n{NFC},x\nother,x\n", schema=SCHEMA, business_key=("id",)
    )
    # as it came first: nothing that is official changes
    assert [r["id"] for r in table.rows] == [NFD, "other"]
    assert table.result.books.dropped == {"duplicate": 1}
    (warning,) = table.result.warnings
    assert ascii(NFC)[1:-1] in warning and ascii(NFD)[1:-1] in warning and "NFC" in warning


@pytest.mark.parametrize(
    "other", [" A 1", "A 1 ", "A  1", "A\u00a01", "A\t1", "A \u3000\n 1", "\u00a0A\u20091\u202f"]
)
def test_keys_that_differ_in_white_space_alone_are_one_key(
    made: Any, refused: Any, other: str
) -> None:
    def rows(note: str) -> str:
        return json.dumps(
            [{"id": "A 1", "note": "x"}, {"id": other, "note": note}, {"id": "A1", "note": "x"}]
        )

    refusal = refused("json", rows("y"), schema=SCHEMA, business_key=("id",))
    assert (
        refusal.code == "key.conflict"
        and "white space" in refusal.happened
        and ascii(other)[1:-1] in refusal.happened
    )
    table = made("json", rows("x"), schema=SCHEMA, business_key=("id",))
    assert [r["id"] for r in table.rows] == ["A 1", "A1"] and table.result.books.dropped == {
        "duplicate": 1
    }
    aside = made("json", rows("y"), schema=SCHEMA, business_key=("id",), conflicts="quarantine")
    assert [r["id"] for r in aside.rows] == ["A1"] and all(
        "white space" in r["reason"] for r in aside.rejects
    )
    same = made(
        "json",
        json.dumps([{"id": "A 1", "note": "a b"}, {"id": "B 1", "note": "a  b"}]),
        schema=SCHEMA,
        business_key=("id",),
    )
    # of what is no key not a character changes
    assert [r["note"] for r in same.rows] == ["a b", "a  b"]


def test_an_update_in_another_spelling_takes_the_place_of_its_key(tmp_path: Path) -> None:
    def table(name: str, *rows: tuple[str, str]) -> InputFile:
        pq.write_table(
            pa.table({"id": [r[0] for r in rows], "note": [r[1] for r in rows]}), tmp_path / name
        )
        return InputFile(source_id=name, path=str(tmp_path / name), digest="")

    base, part = (
        table("base", (NFD, "old"), ("b", "old"), (NFC, "twin")),
        table("part", (f"{NFC} ", "new"), ("c", "new")),
    )
    columns = tuple(Column(name=n, type="string") for n in ("id", "note"))
    job = Merge(
        dataset_id="d",
        inputs=(base, part),
        schema=columns,
        business_key=("id",),
        artifact="d.parquet",
    )
    result = merge(job, tmp_path)
    rows = pq.read_table(tmp_path / "d.parquet").to_pylist()
    assert [(r["id"], r["note"]) for r in rows] == [(f"{NFC} ", "new"), ("b", "old"), ("c", "new")]
    assert result.books.balanced and any("spelling" in w for w in result.warnings)


# -- files


@pytest.mark.parametrize("end", [b"\x1a", b"\x1a" * 100, b"\r\n\x1a\r\n"])
def test_what_dos_puts_behind_a_file_is_no_part_of_it(made: Any, end: bytes) -> None:
    for format, body in (("csv", b"id,note\r\na,b"), ("json", b'[{"id":"a","note":"b"}]')):
        table = made(format, body + end, schema=SCHEMA)
        assert table.rows == [{"id": "a", "note": "b"}]
        assert [w for w in table.result.warnings if "0x1A" in w]
    wide = made(
        "csv", ("id,note\na,b" + end.decode()).encode("utf-16"), schema=SCHEMA, encoding="utf-16"
    )
    assert wide.rows == [{"id": "a", "note": "b"}] and "0x1A" in wide.result.warnings[0]
    assert rules(made("csv", "id,note\na\x1a,b\nc,d\n", schema=SCHEMA)) == [
        ("text.control", "001A")
    ]


def test_marks_and_line_ends_that_differ_are_told(made: Any) -> None:
    def said(format: str, body: bytes, **more: Any) -> list[str]:
        return list(made(format, body, schema=SCHEMA, **more).result.warnings)

    assert "byte order mark" in said("csv", b"\xef\xbb\xbfid,note\na,b\n")[0]
    assert "byte order mark" in said("json", b'\xef\xbb\xbf[{"id":"a","note":"b"}]')[0]
    assert said("csv", b"\xef\xbb\xbfid,note\na,b\n", encoding="utf-8-sig") == []
    assert "CRLF and LF" in said("csv", b"id,note\r\na,b\nc,d\r\n")[0]
    # as spreadsheets write cells of two lines
    assert said("csv", b'id,note\r\na,"two\nlines"\r\nc,d\r\n') == []
    assert said("csv", b"id,note\ra,b\r") == []


# -- headers


def test_a_header_that_stands_in_the_file_again_is_dropped_and_named(
    made: Any, refused: Any
) -> None:
    body = "id,note\na,1\nid,note\nb,2\nID, Note\nc,3\nid,1\n"
    for schema in (SCHEMA, None):
        table = made("csv", body, schema=schema, business_key=("id",))
        assert [r["id"] for r in table.rows] == ["a", "b", "c", "id"]
        assert table.result.books.dropped == {"repeated header": 2}
        assert any("line 3, 5" in w for w in table.result.warnings)
    table = made("csv", "id,note,size,unit\na,b,1,m\nid,note,length,unit\nc,d,2,m\n", schema=None)
    assert [(r["line"], r["rule"]) for r in table.rejects] == [(3, "csv.header")]
    assert refused("csv", "id,note\na,1\nnote,id\nb,2\n", schema=SCHEMA).refusal.detail["line"] == 3


def test_a_mapped_file_with_its_header_again_loses_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("Id;Size\na;1,5\nId;Size\nb;2,5\n\x1a")
    mapping = {
        "delimiter": ";",
        "decimal": ",",
        "columns": [
            {"from": "Id", "to": "id", "type": "string"},
            {"from": "Size", "to": "size", "type": "number"},
        ],
    }
    source = InputFile(source_id="s", path=str(tmp_path / "in"), digest="")
    job = Read(
        dataset_id="d",
        source_kind="delimited",
        format="csv",
        inputs=(source,),
        mapping=mapping,
        artifact="d.parquet",
    )
    result = run_inline(job, tmp_path)
    assert pq.read_table(tmp_path / "d.parquet").to_pylist() == [
        {"id": "a", "size": 1.5},
        {"id": "b", "size": 2.5},
    ]
    assert result.books.dropped == {"repeated header": 1} and len(result.warnings) == 2


# -- every kind of source that reads text

QUAKE = {
    "mag": 2.5,
    "time": 1528967533010,
    "updated": 1528967887700,
    "type": "earthquake",
    "place": "PLACE",
}
POINT = {"type": "Point", "coordinates": [-98.0, 38.0, 5.0]}
STATION = "USC0014000{n}  38.0000  -98.0000  500.0 KS PLACE                          "
RDB = "agency_cd\tsite_no\tstation_nm\tdec_lat_va\tdec_long_va\tdec_coord_datum_cd\n5s\t15s\t50s\t16n\t16n\t10s\n"


def features(*rows: dict[str, Any], **more: Any) -> str:
    return json.dumps({"type": "FeatureCollection", "features": rows, **more}, ensure_ascii=False)


def _texts(kind: str, place: str) -> str:
    """A file of this kind with two records, the second of which says `place`."""
    both = [(1, "plain"), (2, place)]
    if kind == "usgs_quakes":
        rows = [
            {
                "type": "Feature",
                "id": f"us{n}",
                "properties": QUAKE | {"place": p},
                "geometry": POINT,
            }
            for n, p in both
        ]
        return features(*rows)
    if kind == "nws":
        rows = [
            {
                "type": "Feature",
                "id": f"a{n}",
                "geometry": None,
                "properties": {"id": f"a{n}", "headline": p},
            }
            for n, p in both
        ]
        return features(*rows)
    if kind == "stac":
        times = {"datetime": "2023-06-22T16:00:00Z"}
        fixed = {
            "type": "Feature",
            "stac_version": "1.0.0",
            "geometry": None,
            "assets": {},
            "links": [],
        }
        return features(
            *(fixed | {"id": f"i{n}", "properties": times | {"platform": p}} for n, p in both)
        )
    if kind == "usgs_quakes csv":
        rows = [f"2020-01-01T00:00:00Z,38,-98,5,2.5,ml,us{n},{p},earthquake" for n, p in both]
        return "time,latitude,longitude,depth,mag,magType,id,place,type\n" + "\n".join(rows) + "\n"
    if kind == "nwis":
        return RDB + "".join(f"USGS\t0714122{n}\t{p}\t38.2\t-99.1\tNAD83\n" for n, p in both)
    if kind == "ghcnd":
        return "".join(
            STATION.format(n=n).replace("PLACE", p.ljust(5)).ljust(85) + "\n" for n, p in both
        )
    return "\n\n".join(f"Paragraph {n}, {p}." for n, p in both) + "\n"


@pytest.mark.parametrize(
    ("kind", "format"),
    [
        ("usgs_quakes", "geojson"),
        ("nws", "json"),
        ("stac", "json"),
        ("usgs_quakes csv", "csv"),
        ("nwis", "rdb"),
        ("ghcnd", "txt"),
        ("documents", "text"),
    ],
)
def test_every_kind_of_source_looks_at_its_text_and_tells_what_is_odd(
    tmp_path: Path, kind: str, format: str
) -> None:
    body = _texts(kind, "x\u202ey").replace("\n", "\r\n", 1).encode()
    (tmp_path / "in").write_bytes(b"\xef\xbb\xbf" + body + b"\x1a")
    source = InputFile(source_id="s", path=str(tmp_path / "in"), digest="")
    name = kind.partition(" ")[0]
    job = Read(
        dataset_id="d",
        source_kind=name,
        format=format,
        inputs=(source,),
        max_quarantined=1.0,
        artifact="d.parquet",
    )
    result = run_inline(job, tmp_path)
    rows = [
        json.loads(line) for line in (tmp_path / "d.quarantine.jsonl").read_bytes().splitlines()
    ]
    assert [r["rule"] for r in rows] == ["text.direction"] and "U+202E" in rows[0]["reason"]
    assert (result.books.written, result.books.quarantined) == (1, 1)
    assert [w for w in result.warnings if "byte order mark" in w] and [
        w for w in result.warnings if "0x1A" in w
    ]
    if format in ("csv", "rdb", "txt"):
        assert [w for w in result.warnings if "CRLF and LF" in w]


@pytest.mark.parametrize(
    "block",
    [
        "é😀\u0000".encode(),
        b"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xc0\x80",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"a\xc3",
        b"\xa9a",
        b"\xff",
    ],
)
def test_a_block_is_utf8_where_python_says_so(block):
    """Half surrogates, overlong forms and what lies beyond Unicode are not, nor is a character that
    is cut.
    """
    try:
        expected = block.decode() is not None
    except UnicodeDecodeError:
        expected = False
    assert texts_of._is_utf8(b"x" * 100 + block) == expected
