"""XML: records at a path, their values by simple paths, and nothing that a file could do beside."""

import datetime as dt
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read
from kfm.kinds import xml
from kfm.model.dataset import Column

WELLS = """<?xml version="1.0" encoding="UTF-8"?>
<county xmlns="urn:wells" xmlns:g="urn:geo" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
 <title>Wells</title>
 <list>
  <well id="007"><name>Barton &amp; Co</name><depth unit="ft"><value>182.5</value></depth><g:at>38.5</g:at>
   <drilled>1998-04-17</drilled><use>water</use><use>stock</use></well>
  <well id="008"><!-- no name --><name xsi:nil="true">x</name><depth unit="ft"><value> 96 </value></depth><g:at>38.6</g:at>
   <drilled/><use>water</use><note>dug <b>by</b> hand</note></well>
 </list>
</county>"""
COLUMNS = {
    "well_id": "@id",
    "name": "name",
    "depth": "depth/value",
    "unit": "depth/@unit",
    "drilled": "drilled",
    "uses": {"path": "use", "join": ";"},
    "note": "note",
}
Table = Callable[..., tuple[TransformResult, list[dict[str, Any]]]]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    def make(
        text: str | bytes, records: str = "/county/list/well", **more: Any
    ) -> tuple[TransformResult, list[dict[str, Any]]]:
        path = tmp_path / "given.xml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        options = {"records": records} | more.pop("options", {})
        job = Read(
            dataset_id="d",
            source_kind="xml",
            format="xml",
            options=options,
            inputs=(InputFile(source_id="s", path=str(path), digest=""),),
            artifact="d.parquet",
            **({"max_quarantined": 1.0} | more),
        )
        result = run_inline(job, tmp_path)
        return result, pq.read_table(tmp_path / "d.parquet").to_pylist()

    return make


def test_attributes_and_elements_become_columns_by_their_paths(table: Table) -> None:
    expected = [
        {"well_id": "007", "name": "Barton & Co", "depth": 182.5, "unit": "ft", "drilled": dt.date(1998, 4, 17), "uses": "water;stock", "note": None},
        {"well_id": "008", "name": None, "depth": 96.0, "unit": "ft", "drilled": None, "uses": "water", "note": "dug by hand"},
    ]  # fmt: skip
    for records in (
        "/county/list/well",
        "//well",
        "well",
        "/*/list/well",
        "/w:county/w:list/w:well",
    ):
        _, rows = table(
            WELLS, records, options={"columns": COLUMNS, "namespaces": {"w": "urn:wells"}}
        )
        assert rows == expected
    assert rows[0]["depth"] == 182.5
    other = {"at": "g:at", "none": "w:at"}
    spaces = {"g": "urn:geo", "w": "urn:wells"}
    _, rows = table(WELLS, "well", options={"columns": other, "namespaces": spaces})
    assert rows == [{"at": 38.5, "none": None}, {"at": 38.6, "none": None}]


def test_without_a_list_every_attribute_and_element_is_a_column(table: Table) -> None:
    one = WELLS.replace("<use>stock</use>", "")
    result, rows = table(one)
    assert {c.name: c.type for c in result.schema} == {
        "id": "string", "name": "string", "depth_unit": "string", "depth_value": "number", "at": "number", "drilled": "date",
        "use": "string", "note": "string", "note_b": "string",
    }  # fmt: skip
    assert [r["depth_value"] for r in rows] == [182.5, 96.0]


def test_a_value_that_stands_twice_sets_its_record_aside(table: Table, tmp_path: Path) -> None:
    _, rows = table(WELLS)
    assert [r["id"] for r in rows] == ["008"]
    (line,) = (tmp_path / "d.quarantine.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert (told["line"], told["rule"]) == (1, "xml.repeated")
    assert "Barton" in told["record"]


@pytest.mark.parametrize("encoding", ["iso-8859-1", "windows-1252", "utf-16", "shift_jis"])
def test_the_encoding_is_the_one_that_the_file_states(table: Table, encoding: str) -> None:
    name = "日本" if encoding == "shift_jis" else "Pawnée"
    text = WELLS.replace("UTF-8", encoding).replace("Barton", name)
    _, rows = table(text.encode(encoding), options={"columns": COLUMNS})
    assert rows[0]["name"] == f"{name} & Co"
    _, rows = table(
        text.replace(encoding, "UTF-8").encode(encoding),
        options={"columns": COLUMNS},
        encoding=encoding,
    )
    assert rows[0]["name"] == f"{name} & Co"


def test_a_long_file_takes_no_more_memory_than_a_short_one(tmp_path: Path) -> None:
    def peak(records: int) -> int:
        path = tmp_path / f"{records}.xml"
        with path.open("w") as out:
            out.write("<wells>")
            for n in range(records):
                out.write(f"<well id='{n}'><name>{'x' * 8000}</name></well>\n")
            out.write("</wells>")
        job = Read(dataset_id="d", source_kind="xml", format="xml", options={"records": "well"}, artifact="d",
                   inputs=(InputFile(source_id="s", path=str(path), digest=""),))  # fmt: skip
        (reader,) = xml.readers(job)
        tracemalloc.start()
        assert sum(1 for _ in reader.rows()) == records
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(1600) < 1.5 * peak(400)


LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE county [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
    "<county><list><well id='1'><name>&b;</name></well></list></county>"
)


@pytest.mark.parametrize(
    ("text", "more", "code"),
    [
        pytest.param("", {}, "format", id="nothing"),
        pytest.param("<!DOCTYPE html><html><body>Sorry", {}, "html", id="a web page"),
        pytest.param('{"a": 1}', {}, "format", id="JSON"),
        pytest.param(b"PK\x03\x04....", {}, "format", id="a zip"),
        pytest.param(LAUGHS, {}, "xml.doctype", id="a billion laughs"),
        pytest.param('<!DOCTYPE c SYSTEM "file:///etc/passwd"><county/>', {}, "xml.doctype", id="a file beside"),
        pytest.param(WELLS[:-30], {}, "truncated", id="cut off"),
        pytest.param(WELLS[:400], {}, "truncated", id="cut in a tag"),
        pytest.param(WELLS.replace("</list>", ""), {}, "xml.syntax", id="an element that does not end"),
        pytest.param(WELLS.replace("&amp;", "&unknown;"), {}, "xml.syntax", id="an entity nobody defines"),
        pytest.param(WELLS.replace("&amp;", "&"), {}, "xml.syntax", id="a bare ampersand"),
        pytest.param(WELLS + WELLS, {}, "xml.syntax", id="two documents"),
        pytest.param(WELLS.replace("Barton", "\x01"), {}, "xml.syntax", id="a control character"),
        pytest.param(WELLS.encode().replace(b"Barton", b"\xff\xfe"), {}, "encoding", id="no UTF-8"),
        pytest.param(WELLS.replace("UTF-8", "klingon"), {}, "encoding", id="no such encoding"),
        pytest.param(WELLS.replace("UTF-8", "base64"), {}, "encoding", id="an encoding of no text"),
        pytest.param("<a>" * 300 + "</a>" * 300, {}, "xml.depth", id="deep"),
        pytest.param("<a>" * 200_000, {}, "xml.depth", id="very deep"),
        pytest.param(f"<a b='{'x' * (18 << 20)}'/>", {}, "xml.size", id="a long tag"),
        pytest.param(WELLS.replace("Barton", "x" * 3000), {"max_record_bytes": 2048}, "record.size", id="a long record"),
        pytest.param(WELLS, {"records": "/county/well"}, "xml.records", id="nothing at the path"),
        pytest.param(WELLS, {"records": "//g:well"}, "options", id="an unknown prefix"),
        pytest.param(WELLS, {"records": "//well[1]"}, "options", id="more than a path"),
        pytest.param(WELLS, {"records": "//well/@id"}, "options", id="an attribute as record"),
        pytest.param(WELLS, {"options": {"columns": {"a": "//name"}}}, "options", id="a column elsewhere"),
        pytest.param(WELLS, {"options": {"entities": True}}, "options", id="an unknown option"),
    ],
)  # fmt: skip
def test_what_is_no_such_document_is_refused(
    table: Table, text: str | bytes, more: dict[str, Any], code: str
) -> None:
    with pytest.raises(CaptureRefused) as caught:
        table(text, **more)
    assert caught.value.code == code
    assert caught.value.expected and caught.value.remedy


def test_a_column_that_no_record_has_is_missing_where_it_must_be_there(table: Table) -> None:
    stated = (
        Column(name="owner", type="string", nullable=False),
        Column(name="name", type="string"),
    )
    with pytest.raises(CaptureRefused) as caught:
        table(
            WELLS,
            schema=stated,
            options={"columns": {"owner": "owner", "name": "name"}},
            business_key=("owner",),
        )
    assert caught.value.code == "schema.missing-column"
