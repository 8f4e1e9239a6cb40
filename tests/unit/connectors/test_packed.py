"""Packed files: each way of packing gives the table of the plain file, and each way to harm or to
lie is refused with the limit it meets.
"""

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kfm.connectors.base import CaptureRefused
from kfm.model.dataset import Packed

ROWS = b"id,name\n" + b"".join(b"%d,n%d\n" % (i, i) for i in range(500))
FEATURES = (
    b'{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"a":1},'
    b'"geometry":{"type":"Point","coordinates":[-98.5,38.5]}}]}'
)


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


WAYS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zip": lambda data: zipped(**{"some/folder/wells.csv": data}),
    "zstd": zstd,
}


@pytest.mark.parametrize("by", WAYS)
def test_a_packed_file_gives_the_bytes_of_the_plain_one(made: Any, tmp_path: Path, by: str) -> None:
    plain = made("csv", ROWS, business_key=("id",)).data
    assert made("csv", WAYS[by](ROWS), business_key=("id",), packed=Packed(by=by)).data == plain
    shapes = made("geojson", WAYS[by](FEATURES), packed=Packed(by=by))
    assert shapes.types == {"a": "integer", "geometry": "geometry"}
    assert not list(tmp_path.rglob(".unpacked-*"))


def test_several_streams_one_after_another_are_one_file(made: Any) -> None:
    head, rest = ROWS[:800], ROWS[800:]
    plain = made("csv", ROWS).data
    for by, way in (("gzip", gzip.compress), ("zstd", zstd)):
        assert made("csv", way(head) + way(rest), packed=Packed(by=by)).data == plain


@pytest.mark.parametrize("member", ["b.csv", "*/b.csv", "in/b.csv", "[b]*"])
def test_the_member_is_chosen_by_its_name_or_a_pattern(made: Any, member: str) -> None:
    held = zipped(**{"a.csv": b"x\n1\n", "in/b.csv": ROWS, "__MACOSX/in/._b.csv": b"notes"})
    found = made("csv", held, packed=Packed(by="zip", member=member))
    assert found.types == {"id": "string", "name": "string"}


BOMB = b"0" * (40 << 20)


@pytest.mark.parametrize(
    ("data", "packed", "code", "said"),
    [
        pytest.param(
            gzip.compress(BOMB), {"by": "gzip"}, "archive.ratio", "max_ratio", id="gzip bomb"
        ),
        pytest.param(zstd(BOMB), {"by": "zstd"}, "archive.ratio", "200 times", id="zstd bomb"),
        pytest.param(
            zipped(**{"a.csv": BOMB}), {"by": "zip"}, "archive.ratio", "200 times", id="zip bomb"
        ),
        pytest.param(
            gzip.compress(ROWS),
            {"by": "gzip", "max_bytes": 1000},
            "archive.size",
            "1,000",
            id="long",
        ),
        pytest.param(
            zipped(**{"a.csv": ROWS}),
            {"by": "zip", "max_bytes": 1000},
            "archive.size",
            "1000",
            id="a long member",
        ),
        pytest.param(
            gzip.compress(gzip.compress(ROWS)), {"by": "gzip"}, "archive.nested", "gzip", id="twice"
        ),
        pytest.param(
            gzip.compress(zipped(**{"a.csv": ROWS})),
            {"by": "gzip"},
            "archive.nested",
            "zip",
            id="a zip",
        ),
        pytest.param(
            zipped(**{"a.csv": zstd(ROWS)}),
            {"by": "zip"},
            "archive.nested",
            "zstd",
            id="zstd in zip",
        ),
        pytest.param(gzip.compress(ROWS)[:-9], {"by": "gzip"}, "truncated", "early", id="cut gzip"),
        pytest.param(
            gzip.compress(ROWS)[:30], {"by": "gzip"}, "truncated", "early", id="short gzip"
        ),
        pytest.param(
            zstd(ROWS)[:-9], {"by": "zstd"}, "archive.damaged", "Truncated", id="cut zstd"
        ),
        pytest.param(
            zipped(**{"a.csv": ROWS})[:-9], {"by": "zip"}, "archive.damaged", "cut", id="cut zip"
        ),
        pytest.param(
            gzip.compress(ROWS) + b"more", {"by": "gzip"}, "archive.damaged", "whole", id="a tail"
        ),
        pytest.param(
            gzip.compress(ROWS)[:-8] + b"\0" * 8,
            {"by": "gzip"},
            "archive.damaged",
            "CRC",
            id="a sum",
        ),
        pytest.param(
            zstd(ROWS) + b"more", {"by": "zstd"}, "archive.damaged", "whole", id="a zstd tail"
        ),
        pytest.param(ROWS, {"by": "gzip"}, "format", "gzip", id="plain text"),
        pytest.param(zstd(ROWS), {"by": "gzip"}, "format", "zstd", id="another way"),
        pytest.param(b"", {"by": "zip"}, "format", "0 bytes", id="nothing"),
        pytest.param(
            b"<html><h1>502</h1></html>", {"by": "gzip"}, "html", "error page", id="an error page"
        ),
        pytest.param(
            zipped(**{"a.csv": ROWS, "b.csv": ROWS}),
            {"by": "zip"},
            "archive.member",
            "'b.csv'",
            id="two",
        ),
        pytest.param(
            zipped(**{"a.csv": ROWS}),
            {"by": "zip", "member": "b.csv"},
            "archive.member",
            "'a.csv'",
            id="another name",
        ),
        pytest.param(
            zipped(**{"../a.csv": ROWS}),
            {"by": "zip"},
            "archive.path",
            "'../a.csv'",
            id="a way out",
        ),
        pytest.param(
            zipped(**{"a.csv": ROWS, "/etc/x": b""}),
            {"by": "zip", "member": "a.csv"},
            "archive.path",
            "'/etc/x'",
            id="a way out beside it",
        ),
        pytest.param(gzip.compress(b""), {"by": "gzip"}, "empty", "0 bytes", id="nothing inside"),
    ],
)
def test_what_harms_or_lies_is_refused_with_the_limit_it_meets(
    refused: Any, tmp_path: Path, data: bytes, packed: dict[str, Any], code: str, said: str
) -> None:
    error: CaptureRefused = refused("csv", data, packed=Packed(**packed))
    assert error.code == code
    assert said in f"{error.happened} {error.expected}"
    assert not list(tmp_path.rglob(".unpacked-*"))


def test_only_a_web_page_is_called_an_error_page(refused: Any, made: Any) -> None:
    for page in (
        b"<h1>Sorry</h1>",
        b"<?xml version='1.0'?>\n<!DOCTYPE html>\n<html>",
        b" <HTML lang=x>",
    ):
        assert (error := refused("csv", page)).code == "html"
        assert "error page" in error.happened
    for other in (b"<?xml version='1.0'?><rows/>", b"<rows>\n <row/></rows>"):
        assert (error := refused("json", other)).code == "format"
        assert "error page" not in error.happened
        assert "kind: xml" in error.remedy
    found = made("csv", b"<TICKER>,<DATE>\nA,2026-01-31\n")
    assert found.types == {"<TICKER>": "string", "<DATE>": "date"}
