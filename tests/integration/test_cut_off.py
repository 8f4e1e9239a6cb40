"""Half a file is never taken for a whole one: its end is evidence, and so is the end that earlier
captures had.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.given.stand import Stand, answer

ROWS = [f"{i},{i * 7}" for i in range(1000)]
CSV = "id,value\n" + "\n".join(ROWS) + "\n"
LINES = "".join(json.dumps({"id": i, "value": i * 7}) + "\n" for i in range(1000))


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with Stand(tmp_path) as found:
        yield found


def unsized(body: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body.encode()


def test_a_number_that_was_cut_is_refused_where_earlier_captures_ended_with_a_line(
    stand: Stand,
) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", answer(CSV))
    half = CSV[: CSV.index("\n531,") + 6]
    stand.speaker.says["/feed"] = unsized(half)
    stand.refuses("feed", "truncated", "cut off", kept=[half.encode()])
    almost = CSV[: CSV.index("\n999,") + 6]  # within every limit of the guard on change
    stand.speaker.says["/feed"] = unsized(almost)
    stand.refuses("feed", "truncated", "no end", kept=[almost.encode()])


def test_a_second_look_that_is_whole_is_taken_instead(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", answer(CSV))
    newer = CSV.replace("\n5,35\n", "\n5,36\n")
    bodies = iter([answer(newer[:-1]), answer(newer)])
    stand.speaker.says["/feed"] = lambda *_: next(bodies)
    outcome = stand.publish("feed")
    assert (outcome["rows"], outcome["change"]) == (1000, "1,000 → 1,000 rows, 1 changed")
    assert "read again" in outcome["warnings"][0]


def test_what_ends_alike_twice_under_its_length_goes_to_the_guard(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", answer(CSV))
    stand.speaker.says["/feed"] = answer(CSV.replace("\n5,35\n", "\n5,36\n")[:-1])
    outcome = stand.publish("feed")
    assert "twice" in outcome["warnings"][0]
    stand.speaker.says["/feed"] = answer(CSV[: CSV.index("\n531,") + 6])
    outcome = stand.run("feed")
    assert (outcome["state"], outcome["exit_code"]) == ("PROPOSED", 7)
    assert "1,000 → 532 rows" in outcome["reason"]


def test_a_first_capture_without_a_last_line_break_is_taken_with_a_warning(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    outcome = stand.publish("feed", answer(CSV[:-1]))
    assert "does not end with a line break" in outcome["warnings"][0]
    report = json.loads(
        (
            stand.ws / "data/work/feed/runs" / outcome["run_id"] / "validation_report.json"
        ).read_text()
    )
    assert report["warnings"] == outcome["warnings"]
    stand.speaker.says["/feed"] = unsized(CSV.replace("\n5,35\n", "\n5,36\n")[:-1])
    assert stand.publish("feed")["generation"] == 2, "it always ended so"


@pytest.mark.parametrize(
    ("source", "whole", "end"),
    [
        pytest.param({"format": "csv"}, CSV, "\n531,", id="inside a record"),
        pytest.param(
            {"format": "csv"},
            CSV.replace(",", ',"', 1).replace("value", 'value"', 1),
            '"val',
            id="inside a quote",
        ),
        pytest.param(
            {"format": "json", "records": "."}, LINES, '{"id": 531, "va', id="inside a line of JSON"
        ),
        pytest.param(
            {"format": "json"},
            json.dumps([{"id": i, "value": i} for i in range(1000)]),
            '"id": 531',
            id="inside an array",
        ),
    ],
)
def test_a_text_that_ends_inside_something_is_cut_off(
    stand: Stand, source: dict[str, Any], whole: str, end: str
) -> None:
    stand.register("feed", source, business_key=["id"], max_quarantined=0.5)
    cut = whole[: whole.index(end) + (4 if end == "\n531," else len(end))]
    stand.speaker.says["/feed"] = answer(cut)
    outcome = stand.run("feed")
    assert (outcome["state"], outcome["exit_code"]) == ("FAILED", 1), outcome
    report = json.loads(
        (stand.ws / "data/work/feed/quarantine" / outcome["run_id"] / "report.json").read_text()
    )
    assert report["code"] == "truncated", report


def test_a_bad_last_record_of_a_whole_file_is_set_aside(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", answer(CSV))
    stand.speaker.says["/feed"] = answer(CSV.replace("\n5,35\n", "\n5,36\n") + "1000\n")
    assert [r["rule"] for r in stand.sets_aside("feed", "csv.columns")] == ["csv.columns"]


def test_refusals_do_not_make_the_next_cut_file_a_first_one(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm.run.file_end._LOOKED_AT", 1)
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", answer(CSV))
    for end in ("\n997,", "\n998,", "\n999,"):
        stand.speaker.says["/feed"] = unsized(CSV[: CSV.index(end) + 6])
        stand.refuses("feed", "truncated", "no end")


def test_two_answers_that_are_cut_in_different_places_are_no_word_of_upstream(stand: Stand) -> None:
    stand.register("feed", {"format": "csv"}, business_key=["id"])
    stand.publish("feed", answer(CSV))
    bodies = iter([answer(CSV[: CSV.index("\n998,") + 6]), answer(CSV[: CSV.index("\n999,") + 6])])
    stand.speaker.says["/feed"] = lambda *_: next(bodies)
    stand.refuses("feed", "truncated", "no end")
