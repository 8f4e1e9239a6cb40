"""The store in lines of JSON, beside what every store promises: a line is whole or not there, damage
is noticed, and what grew is written anew.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.given.ledger import row

from kfm.extras.jsonl.lines import Header, Lines, write_lines
from kfm.extras.jsonl.rebuild import rebuilding
from kfm.extras.jsonl.store import JsonlStore, Replica, copy_file
from kfm.extras.jsonl.tables import FORMAT, Tables
from kfm.model.clock import SystemClock
from kfm.model.errors import Fenced, IntegrityError, StepFailed
from kfm.store.base import Rebuild
from kfm.store.sqlite import SqliteStore

CLOCK = SystemClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger" / "ledger.jsonl"


@pytest.fixture
def store(path: Path) -> Iterator[JsonlStore]:
    found = JsonlStore(path, CLOCK)
    yield found
    found.abandon()


def put(store: Any, *names: str) -> None:
    for name in names:
        store.transaction(lambda tx: tx.index.put_meta(name, f"told by {name}"))


def told(path: Path) -> dict[str, str]:
    with closing(JsonlStore(path, CLOCK)) as store:
        return {n: v for n in "abcd" if (v := store.read(lambda tx, n=n: tx.index.meta(n)))}


def aside(path: Path) -> list[bytes]:
    return [p.read_bytes() for p in (path.parent / "quarantine").glob("line-*")]


def test_a_transaction_is_one_line_that_other_languages_can_read(
    path: Path, store: JsonlStore
) -> None:
    before = path.read_bytes()
    store.transaction(lambda tx: (tx.runs.insert(row()), tx.index.put_meta("a", "ä\n\u2028")))
    assert path.read_bytes().startswith(before)
    (line,) = path.read_bytes().removeprefix(before).splitlines()
    found = json.loads(line)
    assert list(found) == ["n", "prev", "rows", "sum"]
    assert [(r["table"], "put" in r) for r in found["rows"]] == [("ledger", True), ("meta", True)]
    assert found["rows"][1] == {"at": 1, "put": {"key": "a", "value": "ä\n\u2028"}, "table": "meta"}
    store.transaction(lambda tx: tx.runs.delete("r1"))
    last = json.loads(path.read_bytes().splitlines()[-1])
    assert last["rows"] == [{"drop": {"run_id": "r1"}, "table": "ledger"}]
    assert (last["n"], last["prev"]) == (found["n"] + 1, found["sum"])


def test_what_changes_nothing_writes_nothing(path: Path, store: JsonlStore) -> None:
    put(store, "a")
    before = path.read_bytes()
    store.transaction(lambda tx: tx.index.meta("a"))
    with contextlib.suppress(ValueError):
        store.transaction(lambda tx: (tx.index.put_meta("b", ""), int("x")))
    assert path.read_bytes() == before


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_a_line_that_was_cut_off_at_the_end_is_dropped_and_kept_aside(
    path: Path, store: JsonlStore, kept: int
) -> None:
    put(store, "a")
    whole = path.read_bytes()
    put(store, "b")
    line = path.read_bytes().removeprefix(whole)
    path.write_bytes(whole + line[:kept])
    assert told(path) == {"a": "told by a"}
    assert path.read_bytes() == whole and aside(path) == [line[:kept]]


def test_a_line_of_which_a_power_cut_left_the_length_alone_is_dropped(
    path: Path, store: JsonlStore
) -> None:
    put(store, "a")
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0" * 100 + b"\n")
    assert told(path) == {"a": "told by a"}
    path.write_bytes(whole + b"\0" * 100)
    put(store, "b")
    assert told(path) == {"a": "told by a", "b": "told by b"}


def test_who_is_at_work_drops_what_a_dead_writer_left(path: Path, store: JsonlStore) -> None:
    put(store, "a")
    with path.open("ab") as file:
        file.write(b'{"n":')
    assert store.read(lambda tx: tx.index.meta("a")) == "told by a"
    put(store, "b")
    assert told(path) == {"a": "told by a", "b": "told by b"}
    assert aside(path) == [b'{"n":']


@pytest.mark.parametrize(
    ("number", "change"),
    # a whole line that is missing at the end is one that was never written
    [*itertools.product((0, 1, 2, 3), ("flip", "drop", "double", "swap")), (-1, "flip")],
)
def test_any_other_damage_is_an_error_that_names_the_line(
    path: Path, store: JsonlStore, number: int, change: str
) -> None:
    put(store, "a", "b", "c")
    lines = path.read_bytes().splitlines(keepends=True)
    at = number % len(lines)
    if change == "flip":
        lines[at] = lines[at].replace(b'"n":', b'"m":')
    elif change == "drop":
        del lines[at]
    elif change == "double":
        lines.insert(at, lines[at])
    else:
        other = at - 1 if at else 1
        lines[at], lines[other] = lines[other], lines[at]
    path.write_bytes(b"".join(lines))
    with pytest.raises(IntegrityError, match=r"damaged in line \d") as error:
        JsonlStore(path, CLOCK)
    assert "kfm reindex" in error.value.remedy


def test_damage_is_noticed_by_who_has_it_open_as_soon_as_it_is_asked(
    path: Path, store: JsonlStore
) -> None:
    assert store.check() == "ok"
    put(store, "a")
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(bytes(data))
    assert "damaged in line" in store.check()
    with pytest.raises(IntegrityError):
        store.read(lambda tx: tx.index.meta("a"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": "nobody", "put": {}},
        {"table": "meta", "put": {"key": "a", "value": "b", "c; drop table meta": 1}, "at": 1},
        {"table": "meta", "put": {"key": "a"}, "at": 1},
        {"table": "meta", "drop": {}},
        {"table": ["meta"]},
    ],
)
def test_a_row_that_no_table_has_a_place_for_is_damage(
    path: Path, store: JsonlStore, wrong: Any
) -> None:
    put(store, "a")
    with closing(Replica(path)) as found:
        found.lines.append([wrong], True)
    with pytest.raises(IntegrityError, match="damaged in line"):
        JsonlStore(path, CLOCK)
    with pytest.raises(IntegrityError, match="damaged in line"):
        put(store, "b")


def test_only_what_a_power_cut_may_take_back_does_not_wait_for_the_disk(
    store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    store.transaction(lambda tx: tx.index.put_meta("a", "1"), durable=False)
    assert not synced
    store.transaction(lambda tx: tx.index.put_meta("a", "2"))
    assert synced == [store._own.lines._fd]


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_a_line_that_cannot_be_written_leaves_no_trace(
    path: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    put(store, "a")
    before, real = path.read_bytes(), getattr(os, call)
    done: list[int] = []

    def fails(fd: int, *more: Any) -> int:
        done.append(fd)
        if call == "pwrite" and len(done) == 1:
            return real(fd, more[0][:30], *more[1:])
        if len(done) > 2 - (call == "fsync"):
            return real(fd, *more)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fails)
    with pytest.raises(StepFailed, match="No space left"):
        put(store, "b")
    assert path.read_bytes() == before
    monkeypatch.undo()
    put(store, "c")
    assert told(path) == {"a": "told by a", "c": "told by c"}


def test_a_disk_that_cannot_even_be_cut_back_is_written_to_no_more(
    store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        with pytest.raises(StepFailed):
            put(store, "a")
    with pytest.raises(StepFailed, match="failed before"):
        put(store, "b")


def test_what_grew_is_written_anew_and_everybody_follows(
    path: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm.extras.jsonl.store._SMALL", 4096)
    for name in ("r2", "r1", "r3"):
        store.transaction(lambda tx, name=name: tx.runs.insert(row(name)))
    with closing(JsonlStore(path, CLOCK)) as other:
        for number in range(200):
            store.transaction(lambda tx, n=number: tx.index.put_meta("a", str(n)), durable=False)
        assert other.read(lambda tx: tx.index.meta("a")) == "199"
        size = path.stat().st_size
        store.tidy()
        assert path.stat().st_size < size / 4
        assert other.read(lambda tx: tx.index.meta("a")) == "199"
        put(other, "b")
        put(store, "c")
        assert other.read(lambda tx: tx.index.meta("c")) == "told by c"
        assert [r.run_id for r in other.read(lambda tx: tx.runs.recent())] == ["r3", "r1", "r2"]
    assert set(told(path)) == {"a", "b", "c"}
    small = path.stat().st_size
    store.tidy()
    assert path.stat().st_size == small, "nothing to gain"


def test_a_file_that_grew_is_written_anew_when_it_is_opened(
    path: Path, store: JsonlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        store.transaction(lambda tx, n=number: tx.index.put_meta("a", str(n)), durable=False)
    size = path.stat().st_size
    monkeypatch.setattr("kfm.extras.jsonl.store._SMALL", 4096)
    assert told(path) == {"a": "199"}
    assert path.stat().st_size < size / 4


def test_what_was_deleted_is_gone_from_the_file_after_a_vacuum(
    path: Path, store: JsonlStore
) -> None:
    store.transaction(lambda tx: tx.runs.insert(row(reason="a secret place")))
    store.transaction(lambda tx: tx.runs.delete("r1"))
    assert b"a secret place" in path.read_bytes()
    store.vacuum()
    assert b"a secret place" not in path.read_bytes()


@pytest.mark.parametrize("have", range(1, FORMAT))
def test_every_older_state_is_migrated_and_keeps_its_rows(path: Path, have: int) -> None:
    path.parent.mkdir()
    old = Tables(have)
    old.db.execute("insert into meta values ('epoch', '3')")
    write_lines(path, Header(format=have, store="s"), list(old.everything()))
    with closing(JsonlStore(path, CLOCK)) as store:
        assert store.epoch == 3
        store.transaction(lambda tx: tx.runs.insert(row()))
    with closing(JsonlStore(path, CLOCK)) as store:
        assert store.read(lambda tx: [p.name for p in tx.pools.listing()]) == ["default"]
        assert store.read(lambda tx: tx.runs.get("r1")) == row()
    with closing(Lines(path)) as lines:
        assert (lines.header.format, lines.header.store) == (FORMAT, "s")


def test_wide_integers_are_written_as_text_that_no_language_rounds(
    path: Path, store: JsonlStore
) -> None:
    wide = 2**62 + 1
    store.transaction(lambda tx: tx.jobs.put("d", "", ""))
    with closing(Replica(path)) as found:
        found.tables.follow()
        found.db.execute("begin")
        found.db.execute("update job set put_ms = ?", (wide,))
        found.lines.append(found.tables.changed(), True)
    assert json.loads(path.read_bytes().splitlines()[-1])["rows"][0]["put"]["put_ms"] == {
        "integer": str(wide)
    }
    assert store.read(lambda tx: tx.jobs.get("d", "", "")).put_ms == wide


def test_a_row_that_was_deleted_and_came_again_is_the_newest(path: Path, store: JsonlStore) -> None:
    for name in ("r1", "r2"):
        store.transaction(lambda tx, name=name: tx.runs.insert(row(name)))
    store.transaction(lambda tx: (tx.runs.delete("r1"), tx.runs.insert(row("r1"))))
    with closing(JsonlStore(path, CLOCK)) as other:
        assert [r.run_id for r in other.read(lambda tx: tx.runs.recent())] == ["r1", "r2"]


def test_a_copy_is_a_store_of_its_own(path: Path, store: JsonlStore, tmp_path: Path) -> None:
    put(store, "a")
    copy_file(path, tmp_path / "copy" / "store.sqlite")
    put(store, "b")
    with closing(SqliteStore(tmp_path / "copy" / "store.sqlite", CLOCK)) as copy:
        assert copy.read(lambda tx: (tx.index.meta("a"), tx.index.meta("b"))) == ("told by a", None)
        put(copy, "c")
    assert set(told(path)) == {"a", "b"}


def test_a_rebuilt_store_fences_who_has_the_old_one_open(
    path: Path, store: JsonlStore, tmp_path: Path
) -> None:
    store.transaction(
        lambda tx: (tx.index.put_meta("epoch", "3"), tx.index.put_meta("root", '{"version":1}'))
    )
    store.transaction(lambda tx: tx.switches.off("wells", "why", "ada"))
    with rebuilding(path, CLOCK, tmp_path / "aside") as new:
        told_of: Rebuild = new
        assert (told_of.old_epoch, told_of.old_root) == (3, '{"version":1}')
        told_of.store.transaction(lambda tx: tx.index.put_meta("epoch", "4"))
        assert told_of.finish(lambda tx: tx.index.put_meta("a", "done"))
    with pytest.raises(Fenced, match="rebuilt"):
        put(store, "b")
    assert store.read(lambda tx: tx.index.meta("root")) == '{"version":1}', "looks are harmless"
    with closing(JsonlStore(path, CLOCK)) as now:
        assert now.epoch == 4 and now.read(lambda tx: tx.index.meta("root")) is None
        assert [s.name for s in now.read(lambda tx: tx.switches.listing())] == ["wells"]
    with closing(JsonlStore(tmp_path / "aside" / path.name, CLOCK)) as old:
        assert old.epoch == 3, "the old one is kept"
    assert not list(path.parent.glob("*.new-*"))


def test_a_damaged_store_is_rebuilt_without_what_only_it_knew(path: Path, tmp_path: Path) -> None:
    with closing(JsonlStore(path, CLOCK)) as store:
        put(store, "a", "b")
    data = path.read_bytes().replace(b"told by a", b"told by x")
    path.write_bytes(data)
    with rebuilding(path, CLOCK, tmp_path / "aside") as new:
        assert (new.old_epoch, new.old_root) == (0, None)
        assert not new.finish(lambda tx: None)
    assert told(path) == {} and (tmp_path / "aside" / path.name).read_bytes() == data


def test_one_that_is_left_before_it_is_finished_changes_nothing(path: Path, tmp_path: Path) -> None:
    with closing(JsonlStore(path, CLOCK)) as store:
        put(store, "a")
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), rebuilding(path, CLOCK, tmp_path / "aside") as new:
        1 / new.store.transaction(lambda tx: (tx.index.put_meta("epoch", "4"), 0)[1])
    assert path.read_bytes() == before and not list(path.parent.glob("*.new-*"))
