"""No record takes more memory than it may: longer ones refuse the capture, with their line, the
limit and the key that raises it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kfm.connectors.read.json_text import structure

M = 1 << 20
LONG = "x" * 5000
LIMIT = 4096


@pytest.mark.parametrize(
    ("format", "text", "line"),
    [
        ("csv", f"id,t\n1,a\n2,{LONG}\n3,c\n", 3),
        ("csv", f'id,t\n1,a\n2,"{LONG[:3000]}\n{LONG[:3000]}"\n3,c\n', 3),
        ("json", json.dumps([{"t": "a"}, {"t": LONG}, {"t": "c"}]), 2),
        ("json", '{"t":"a"}\n{"t":"b"}\n' + json.dumps({"t": LONG}) + "\n", 3),
        ("json", json.dumps([{"t": "a"}, {"t": [1] * 5000}]), 2),
        ("geojson", json.dumps({"type": "FeatureCollection", "features": [
            {"type": "Feature", "properties": {}, "geometry": {"type": "LineString", "coordinates": [[1.5, 2.5]] * 1000}}]}), 1),
    ],
)  # fmt: skip
def test_a_record_beyond_the_registered_limit_refuses_the_capture(refused, format, text, line):
    error = refused(format, text, max_record_bytes=LIMIT)
    assert error.code == "record.size" and error.detail["line"] == line
    assert (
        "4,096" in error.happened
        and "`source.max_record_bytes` is 4096" in error.expected
        and "source.max_record_bytes" in error.remedy
    )


def test_one_value_may_be_a_quarter_of_it(made, refused):
    rows = [{"t": "a"}, {"t": "x" * 1000}]
    assert made("json", json.dumps(rows), max_record_bytes=LIMIT).result.books.written == 2
    error = refused("json", json.dumps([*rows, {"t": "x" * 1100}]), max_record_bytes=LIMIT)
    assert (
        error.code == "record.size"
        and error.detail["line"] == 3
        and "1,024 bytes, t" in error.happened
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("final", [True, False])
def test_long_records_are_read_as_the_csv_module_would(made, end, final):
    cell, quote = "x" * (9 * M), '"'
    rows = [
        ["a", "b"],
        ["1", cell],
        [f"{cell}, {quote} {end} y", ""],
        ['say "a"', "z"],
    ]
    text = end.join([
        "a,b", f"1,{cell}", f'"{cell}, "" {end} y",', "", 'say "a",z',
    ]) + (end if final else "")  # fmt: skip
    table = made("csv", text)
    assert [[r["a"], r["b"] or ""] for r in table.rows] == rows[1:]


def test_structure_is_found_across_windows_and_escapes():
    text = b'{"a":"' + b"\\\\" * M + b'\\",[{"},{"b":[' + b"1," * M + b"2]},3]rest"
    commas, close = structure(b"  " + text, 2)
    assert text[close : close + 1] == b"]" and text[close:] == b"]rest"
    assert [text[c - 1 : c + 2] for c in commas] == [b"},{", b"},3"]


MEASURE = """
import resource, sys, tempfile
from pathlib import Path
from kfm.connectors.base import CaptureRefused, InputFile
from kfm.connectors.operations import Read
from kfm.connectors.child.process import run_transform
job = Read(dataset_id="d", format=sys.argv[1], inputs=(InputFile(source_id="s", path=sys.argv[2], digest=""),), artifact="d.parquet")
try:
    said = f"{run_transform(job, Path(tempfile.mkdtemp(dir=Path(sys.argv[2]).parent))).rows} rows"
except CaptureRefused as refused:
    said = refused.code
print(said, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)
"""


def measured(path: Path, format: str, *pieces: tuple[bytes, int]) -> tuple[str, int]:
    with path.open("wb") as file:
        for piece, times in pieces:
            for _ in range(times):
                file.write(piece)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, format, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    path.unlink()
    said, _, peak = done.stdout.strip().rpartition(" ")
    return said, int(peak)


X = b"x" * M
HEAD = b'{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"a":1},"geometry":{"type":"LineString","coordinates":[[1,2]'
CASES = {
    "one cell": ("csv", "record.size", (b"id,t\na,", 1), (X, 200), (b"\nc,d\n", 1)),
    "a quote that never closes": ("csv", "record.size", (b'id,t\na,"', 1), (X[:-1] + b"\n", 200)),
    "one string": ("json", "record.size", (b'[{"t":"a"},{"t":"', 1), (X, 200), (b'"}]', 1)),
    "one line": ("json", "record.size", (b'{"t":"a"}\n{"t":"', 1), (X, 200), (b'"}\n', 1)),
    "six million positions": (
        "geojson",
        "record.size",
        (HEAD, 1),
        (b",[1,2]" * 100_000, 60),
        (b"]}}]}", 1),
    ),
    "nothing but brackets": (
        "json",
        "record.size",
        (b'[{"t":[[]', 1),
        (b",[]" * 100_000, 150),
        (b"]}]", 1),
    ),
    "four long values": (
        "json",
        "1 rows",
        (b'[{"a":"', 1),
        (X, 15),
        (b'","b":"', 1),
        (X, 15),
        (b'","c":"', 1),
        (X, 15),
        (b'","d":"', 1),
        (X, 15),
        (b'"}]', 1),
    ),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            c, marks=[] if c in ("one string", "six million positions") else [pytest.mark.drill]
        )
        for c in CASES
    ],
)
def test_the_whole_transform_stays_below_500_mb(tmp_path, case):
    format, expected, *pieces = CASES[case]
    said, peak = measured(tmp_path / "input", format, *pieces)
    assert said == expected and peak < 500
