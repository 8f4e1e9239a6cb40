"""Values that cannot be true: what the registry states, what readers cannot show, what lies the
wrong way round; and files read back.
"""

import json
import os
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from msgspec import UNSET

from kfm.connectors.base import Refused
from kfm.connectors.child.process import run_inline
from kfm.connectors.table import writer
from kfm.connectors.table.limits import wrong_limits
from kfm.model.dataset import Column
from kfm.run import part
from kfm.world.target import Target


def test_the_only_source_of_a_dataset_is_not_called_by_its_name() -> None:
    how = {"expected": "rows", "remedy": "Look."}
    assert Refused("empty", "Source source is empty.", **how).refusal.happened == (
        "The source is empty."
    )
    assert Refused.cut("source", "no end").refusal.happened == "The source was cut off: no end."
    assert Refused("empty", "Source sources is empty.", **how).refusal.happened.startswith("Source")


def stated(kind: str, **limits: Any) -> Column:
    return Column(name="v", type=kind, **limits)  # type: ignore[arg-type]


def judged(
    job_of: Any, tmp_path: Any, column: Column, values: list[Any], format: str = "json", **more: Any
) -> tuple[list[Any], list[Any]]:
    """(values written, (line, rule) of those set aside)."""
    rows = [{"n": i, "v": v} for i, v in enumerate(values)]
    text = (
        "n,v\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values))
        if format == "csv"
        else json.dumps(rows)
    )
    job = job_of(format, text, **more)
    job = msgspec.structs.replace(job, schema=(Column(name="n", type="integer"), column))
    scratch = tmp_path / "out"
    scratch.mkdir()
    result = run_inline(job, scratch)
    assert result.books.balanced
    aside = (scratch / result.quarantine).read_text().splitlines() if result.quarantine else []
    found = [(r["line"], r["rule"]) for r in map(json.loads, aside)]
    return pq.read_table(scratch / result.artifact)["v"].to_pylist(), found


@pytest.mark.parametrize("format", ["json", "csv"])
@pytest.mark.parametrize(
    ("column", "values", "good", "rules"),
    [
        (stated("number", min=-90, max=60), [-90, 60, 60.5, -91], 2, ["value.range"] * 2),
        (
            stated("number", sentinels=(-999, 9999.9)),
            [1, -999, 9999.9, 9999],
            2,
            ["value.sentinel"] * 2,
        ),
        (stated("integer", min=0.5, max=2.5), [0, 1, 2, 3], 2, ["value.range"] * 2),
        (
            stated("integer", max=1e300, sentinels=(-9999, 0.5)),
            [1, -9999, 2**62],
            2,
            ["value.sentinel"],
        ),
        (
            stated("string", sentinels=("N/A", "none")),
            ["a", "N/A", "none", "None"],
            2,
            ["value.sentinel"] * 2,
        ),
        (
            stated("date", min="1900-01-01", max="2026-01-01"),
            ["1900-01-01", "1899-12-31", "2026-01-01", "2026-01-02"],
            2,
            ["time.range"] * 2,
        ),
        (
            stated("timestamp", min="2000-01-01", max="2026-01-01"),
            [
                "1999-12-31T23:59:59Z",
                "2000-01-01T00:00:00Z",
                "2026-01-01T23:59:59Z",
                "2026-01-02T00:00:00Z",
            ],
            2,
            ["time.range"] * 2,
        ),
        (
            stated("timestamp", max="2026-01-01T12:00:00+06:00"),
            ["2026-01-01T06:00:00Z", "2026-01-01T06:00:01Z"],
            1,
            ["time.range"],
        ),
        (
            stated("date", sentinels=("1900-01-01",)),
            ["1900-01-01", "2020-01-01"],
            1,
            ["value.sentinel"],
        ),
    ],
)
def test_what_the_registry_states_of_a_column_is_kept_row_by_row(
    job_of, tmp_path, column, values, good, rules, format
):
    kept, aside = judged(job_of, tmp_path, column, values, format)
    assert (len(kept), [rule for _, rule in aside]) == (good, rules)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        # milliseconds: 33658, the year 0, 10000
        ("timestamp", [1767225600000, 10**15 - 1, -62135596800001, 253402300800000]),
        (
            "timestamp",
            ["2026-01-01T00:00:00Z", "0000-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"],
        ),
        ("date", ["2026-01-01", "0000-01-01"]),
    ],
)
def test_a_time_that_no_reader_can_show_is_set_aside(job_of, tmp_path, kind, values):
    kept, aside = judged(job_of, tmp_path, stated(kind), values, time_column="v")
    assert (len(kept), {rule for _, rule in aside}, len(aside)) == (
        1,
        {"time.range"},
        len(values) - 1,
    )


def test_inference_does_not_hide_a_year_that_cannot_be_shown(made):
    found = made(
        "csv",
        "id,day,at\na,2026-01-01,2026-01-01T00:00:00Z\nb,0000-01-01,2026-01-01T00:00:00Z\nc,2026-01-01,0000-01-01T00:00:00Z\n",
    )
    assert (found.types, len(found.rows)) == ({"id": "string", "day": "date", "at": "timestamp"}, 1)
    assert [(r["line"], r["rule"], r["reason"].split(":")[0]) for r in found.rejects] == [
        (3, "time.range", "day"),
        (4, "time.range", "at"),
    ]


def test_a_time_that_cannot_be_true_is_not_dropped_as_outside_the_window(made):
    rows = [
        {"id": str(i), "at": t} for i, t in enumerate((1767225600000, 1600000000000, 10**15 - 1))
    ]
    window = {"since": "2026-01-01T00:00:00Z", "until": "2026-02-01T00:00:00Z"}
    found = made(
        "json",
        json.dumps(rows),
        schema={"id": "string", "at": "timestamp"},
        time_column="at",
        **window,
    )
    assert (found.result.books.dropped, [r["line"] for r in found.rejects]) == (
        {"outside-window": 1},
        [3],
    )


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (stated("number", min=5, max=1), "greater than"),
        (stated("number", min="2020-01-01"), "a number"),
        (stated("timestamp", min=3), "a moment"),
        (stated("timestamp", min="2020-01-01T00:00:00"), "with Z or an offset"),
        (stated("date", max="2020-01-01T00:00:00Z"), "a day"),
        (stated("string", min="a"), "no order"),
        (stated("boolean", sentinels=(1,)), "takes no"),
        (stated("geometry", max=1), "takes no"),
        (stated("integer", sentinels=("none",)), "a number"),
        (stated("number", max=float("inf")), "finite"),
    ],
)
def test_limits_that_make_no_sense_are_told(column, said):
    assert said in (wrong_limits(column) or "")


def test_limits_that_nobody_states_are_no_limits():
    assert wrong_limits(Column(name="v", type="json")) is None
    assert Column(name="v", type="number").min is UNSET


# -- axes


SQUARE = ((5.0, 45.0), (15.0, 45.0), (15.0, 55.0), (5.0, 55.0), (5.0, 45.0))


@pytest.mark.parametrize("place", [{"area": SQUARE}, {"extent": (5.0, 45.0, 15.0, 55.0)}])
@pytest.mark.parametrize("shape", [True, False])
def test_a_record_that_is_inside_only_with_its_axes_swapped_is_set_aside(made, place, shape):
    points = [(10.0, 50.0), (50.0, 10.0), (-60.0, 20.0)]
    if shape:
        features = [
            {
                "type": "Feature",
                "id": str(i),
                "properties": {},
                "geometry": {"type": "Point", "coordinates": p},
            }
            for i, p in enumerate(points)
        ]
        found = made(
            "geojson", json.dumps({"type": "FeatureCollection", "features": features}), **place
        )
    else:
        found = made(
            "csv",
            "id,longitude,latitude\n"
            + "".join(f"{i},{x},{y}\n" for i, (x, y) in enumerate(points)),
            **place,
        )
    assert [r["rule"] for r in found.rejects] == ["geometry.swapped"]
    assert (found.result.books.written, found.result.books.dropped) == (
        (1, {"outside-area": 1}) if "area" in place else (2, {})
    )


# -- reading back


@pytest.mark.parametrize(
    ("place", "whence"), [(30, os.SEEK_SET), (-20, os.SEEK_END)], ids=["a column", "the footer"]
)
def test_a_table_that_cannot_be_read_back_is_refused(refused, monkeypatch, place, whence):
    finish = writer.TableWriter.abandon

    def spoil(self: Any) -> None:
        finish(self)
        with self._path.open("r+b") as file:
            file.seek(place, whence)
            file.write(b"\xff" * 16)

    monkeypatch.setattr(writer.TableWriter, "abandon", spoil)
    assert (
        refused("csv", "id,n\n" + "".join(f"{i},{i * 7}\n" for i in range(500))).code
        == "table.unreadable"
    )


def test_a_table_that_lost_rows_is_refused(refused, monkeypatch):
    finish = writer.TableWriter.abandon

    def lose(self: Any) -> None:
        finish(self)
        if not getattr(self, "lost", False):
            self.lost = True
            pq.write_table(pq.read_table(self._path).slice(1), self._path)

    monkeypatch.setattr(writer.TableWriter, "abandon", lose)
    assert refused("csv", "id,n\na,1\nb,2\n").code == "table.unreadable"


# -- when the capture was made


def test_a_run_that_is_resumed_with_its_part_still_knows_when_its_capture_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What merges the part judges by that time, so it must be there whether or not the transform
    ran in this process.
    """
    target: Any = Target(entry=None, sources=())  # type: ignore[arg-type]
    work: Any = SimpleNamespace(world=None, target=target, token=None)
    monkeypatch.setattr(part, "_kept_part", lambda work, wal: "the part of the first attempt")
    wal: Any = SimpleNamespace(tokens=(), run=SimpleNamespace(timestamp="2026-06-01T00:00:00Z"))
    with pytest.raises(StopIteration) as ended:
        next(part.make_part(work, wal, None, None))  # type: ignore[arg-type]
    assert (ended.value.value, work.target.captured_at) == (
        "the part of the first attempt",
        "2026-06-01T00:00:00Z",
    )
