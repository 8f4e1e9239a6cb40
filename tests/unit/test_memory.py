"""What was found before counts for as long as nothing it was found by has changed."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kfm.access.memory import (
    Memory,
    Watched,
    is_settled,
    looking,
    mark_of,
    note,
    recall_meanwhile,
    unsettled,
)
from kfm.extras.jsonl.store import JsonlStore
from kfm.model import SystemClock
from kfm.store.sqlite import SqliteStore
from kfm.workspace.watched import SeenStore

LONG_AGO = 10_000_000_000


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """One that takes every file for settled: its clock is ahead."""
    now = time.time_ns
    monkeypatch.setattr("kfm.access.memory.time.time_ns", lambda: now() + LONG_AGO)
    return Memory()


def reading(file: Path, times: list[str]) -> Callable[[], str]:
    def find() -> str:
        note(str(file))
        times.append(file.name)
        return file.read_text() if file.exists() else "nothing"

    return find


def test_what_was_found_is_not_found_again(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    times: list[str] = []
    found = [memory.recall("a", reading(tmp_path / "a", times)) for _ in range(3)]
    assert (found, times) == (["one"] * 3, ["a"])


@pytest.mark.parametrize("how", ["in place", "by another file", "gone", "as old as before"])
def test_a_file_that_changed_is_read_again(memory: Memory, tmp_path: Path, how: str) -> None:
    file, times = tmp_path / "a", list[str]()
    file.write_text("one")
    assert memory.recall("a", reading(file, times)) == "one"
    at = file.stat()
    match how:
        case "in place":
            file.write_text("two")
        case "by another file":
            (tmp_path / "b").write_text("two")
            (tmp_path / "b").replace(file)
        case "gone":
            file.unlink()
        case _:
            file.write_text("two")
            os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))
    found = memory.recall("a", reading(file, times))
    assert found == ("nothing" if how == "gone" else "two") and len(times) == 2


def test_what_two_have_in_common_is_found_once_in_a_question_and_counts_for_both(
    memory: Memory, tmp_path: Path
) -> None:
    file, times = tmp_path / "a", list[str]()
    file.write_text("one")
    fields = dict.fromkeys(Watched.__struct_fields__)
    world = Watched(**(fields | {"memory": memory}))  # type: ignore[arg-type]

    def found(name: str) -> str:
        return memory.recall(
            name, lambda: recall_meanwhile(world, "shared", reading(file, times)) + name
        )

    with looking():
        assert (found("x"), found("y"), times) == ("onex", "oney", ["a"])
    file.write_text("two!")
    with looking():
        assert (found("y"), found("x")) == ("two!y", "two!x"), "both were found by that file"
    assert times == ["a", "a"]


def test_a_file_that_appears_is_seen(memory: Memory, tmp_path: Path) -> None:
    find = reading(tmp_path / "a", [])
    assert memory.recall("a", find) == "nothing"
    (tmp_path / "a").write_text("one")
    assert memory.recall("a", find) == "one"


def test_what_is_found_of_parts_is_found_again_when_a_part_changed(
    memory: Memory, tmp_path: Path
) -> None:
    (tmp_path / "part").write_text("one")
    part = reading(tmp_path / "part", [])
    for known in (False, True):  # the part may be in memory already, or not
        if known:
            memory.recall("part", part)
        whole = f"whole, {known}"
        assert memory.recall(whole, lambda: memory.recall("part", part)) == "one"
        (tmp_path / "part").write_text("two")
        assert memory.recall(whole, lambda: memory.recall("part", part)) == "two"
        (tmp_path / "part").write_text("one")


def test_what_was_found_of_two_states_of_a_file_is_not_kept(memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("one")
    memory.recall("a", reading(file, []))

    def mixed() -> tuple[str, str]:
        memory.recall("a", reading(file, []))  # looked at before the change
        (tmp_path / "b").write_text("two")
        (tmp_path / "b").replace(file)
        note(str(file))
        return memory.recall("a", reading(file, [])), file.read_text()

    with looking():
        assert memory.recall("mixed", mixed) == ("one", "two")
    assert memory.recall("mixed", lambda: "found anew") == "found anew"


def test_what_depends_on_the_time_is_not_kept(memory: Memory) -> None:
    def find() -> str:
        unsettled()
        return "noon"

    memory.recall("outer", lambda: memory.recall("time", find))
    assert memory.recall("time", lambda: "one") == "one"
    assert memory.recall("outer", lambda: "one") == "one"


def test_what_raises_is_not_kept(memory: Memory) -> None:
    with pytest.raises(KeyError):
        memory.recall("a", lambda: {}["x"])
    assert memory.recall("a", lambda: "one") == "one"


def test_a_file_that_was_changed_just_now_is_not_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock may not have ticked: a second change would look like none."""
    (tmp_path / "a").write_text("one")
    mark = mark_of(tmp_path / "a")
    assert mark is not None
    assert not is_settled(mark, mark[2]) and not is_settled(mark, mark[2] + 20_000_000)
    assert is_settled(mark, mark[2] + LONG_AGO) and is_settled(None, 0)
    whole_seconds = (mark[0], mark[1], 5_000_000_000)  # a file system that counts no less
    assert not is_settled(whole_seconds, 6_500_000_000)
    memory = Memory()
    for later, kept in ((20_000_000, 0), (LONG_AGO, 1)):
        at = mark[2] + later
        monkeypatch.setattr("kfm.access.memory.time.time_ns", lambda at=at: at)
        memory.recall("a", reading(tmp_path / "a", []))
        assert len(memory) == kept


class _Led:
    """A store that another thread commits for, as one that is busy does."""

    def transaction(self, work: Callable[[Any], Any], *, durable: bool = True) -> Any:
        with ThreadPoolExecutor(1) as leader:
            return leader.submit(work, None).result()


def test_what_another_thread_looks_at_in_a_transaction_is_noted_for_who_asked(
    memory: Memory, tmp_path: Path
) -> None:
    """Else it would be kept whatever becomes of the file: a withdrawal would not be seen."""
    file, store = tmp_path / "a", SeenStore(_Led())  # type: ignore[arg-type]
    find = reading(file, [])
    for said in ("one", "two"):
        file.write_text(said)
        assert memory.recall("a", lambda: store.transaction(lambda tx: find())) == said


def test_what_was_read_of_a_store_is_read_again_once_somebody_has_committed(tmp_path: Path) -> None:
    memory, times = Memory(), list[str]()
    mine, other = (SqliteStore(tmp_path / "s" / "store", SystemClock()) for _ in range(2))

    def asked() -> str | None:
        def find() -> str | None:
            times.append("read")
            told: str | None = mine.read(lambda tx: tx.index.meta("k"))
            return told

        with looking():
            return memory.recall_store(mine, "k", find)

    try:
        assert [asked(), asked()] == [None, None] and len(times) == 1
        for store in (other, mine):
            store.transaction(lambda tx: tx.index.put_meta("k", f"{len(times)}"))
            before = len(times)
            assert [asked(), asked()] == [f"{before}"] * 2 and len(times) == before + 1
    finally:
        mine.close()
        other.close()


def test_what_was_read_of_a_store_that_cannot_tell_is_never_kept(tmp_path: Path) -> None:
    memory, store = Memory(), JsonlStore(tmp_path / "s" / "store.jsonl", SystemClock())
    try:
        assert [memory.recall_store(store, "k", lambda n=n: n) for n in (1, 2)] == [1, 2]
    finally:
        store.close()


def test_the_oldest_is_forgotten_first() -> None:
    memory = Memory(most=2)
    for name in ("a", "b", "c"):
        memory.recall(name, lambda: "one")
    assert len(memory) == 2
    assert memory.recall("c", lambda: "two") == "one" and memory.recall("a", lambda: "two") == "two"


def test_answers_of_the_same_file_keep_what_it_is_known_by_once(
    memory: Memory, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("one")
    for key in ("a", "b"):
        memory.recall(key, reading(tmp_path / "a", []))
    first, second = (memory._kept[key].marks for key in ("a", "b"))
    assert first[0] is second[0]


def test_within_one_question_a_file_is_looked_at_once(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("one")
    find, looks = reading(tmp_path / "a", []), list[object]()
    memory.recall("a", find)
    real = mark_of
    monkeypatch.setattr("kfm.access.memory.mark_of", lambda path: looks.append(path) or real(path))
    for _ in range(2):
        with looking():
            memory.recall("a", find)
            memory.recall("a", find)
    assert len(looks) == 2
