"""Packs: many small files become one, and none is ever in no place."""

from pathlib import Path

import pytest

from kfm.evidence.run_files import unpacked
from kfm.model.ids import digest
from kfm.upkeep.pack import pack
from kfm.zones.local import LocalZone

LINES = [{"run_id": "a", "text": "1"}, {"run_id": "b", "text": "2"}]
CONTENT = b'{"run_id":"a","text":"1"}\n{"run_id":"b","text":"2"}\n'


@pytest.fixture
def zone(tmp_path: Path) -> LocalZone:
    zone = LocalZone(tmp_path)
    zone.create_all({"day/a.json": b"1", "day/b.json": b"2"})
    return zone


def test_a_pack_is_named_after_its_content_and_takes_the_place_of_its_files(
    zone: LocalZone,
) -> None:
    noted: list[tuple[str, str]] = []
    pack(
        zone,
        LINES,
        ["day/a.json", "day/b.json"],
        lambda d: f"day/{d[7:23]}.jsonl",
        lambda *told: noted.append(told),
    )
    assert noted == [(f"day/{digest(CONTENT)[7:23]}.jsonl", digest(CONTENT))]
    assert list(zone.names("day")) == [noted[0][0]] and zone.read(noted[0][0]) == CONTENT
    assert dict(unpacked(CONTENT, "text")) == {"a": "1", "b": "2"}


def test_one_that_could_not_be_noted_leaves_every_file_where_it_was(zone: LocalZone) -> None:
    def refuse(path: str, _: str) -> None:
        assert zone.read(path) == CONTENT, "durable before it is noted"
        raise OSError

    for _ in range(2):  # a second try meets its own pack
        with pytest.raises(OSError):
            pack(
                zone, LINES, ["day/a.json", "day/b.json"], lambda d: f"day/{d[7:23]}.jsonl", refuse
            )
    assert (zone.read("day/a.json"), zone.read("day/b.json"), len(list(zone.names("day")))) == (
        b"1",
        b"2",
        3,
    )


def test_nothing_to_pack_is_noted_and_makes_no_file(zone: LocalZone) -> None:
    noted: list[str] = []
    pack(zone, [], [], lambda d: f"day/{d}", lambda path, _: noted.append(path))
    assert len(noted) == 1 and not zone.exists(noted[0])


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"{}", b"7", b'{"run_id":["x"],"text":""}', b'{"run_id":"x"}', b"\xff"]
)
def test_a_damaged_line_hides_its_own_run_and_no_other(line: bytes) -> None:
    assert list(unpacked(line + b"\n" + CONTENT, "text")) == [("a", "1"), ("b", "2")]
