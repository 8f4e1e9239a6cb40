"""A run that is under way, followed: over a socket, while it works, is killed and goes on."""

import contextlib
import http.client
import json
import queue
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from kfm.console import live
from kfm.pages import routes as hanging
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from tests.given.browsing import chromium, looker, served
from tests.given.processes import end_what_was_started, held_connector, start, transforming
from tests.given.verbs import QUAKES, until


@pytest.fixture
def under_way(tmp_path: Path) -> "Iterator[tuple[Path, Path, SampleUpstream, Any]]":
    """A workspace with a run that stands at its first row: (workspace, what holds it, …, run)."""
    from kfm.cli.init import make_workspace

    ws = tmp_path / "ws"
    make_workspace(ws, sample=True)
    hold = held_connector(ws)
    with SampleUpstream() as sample:
        process = start(ws, sample, "run", QUAKES)
        try:
            until(lambda: transforming(ws))
            yield ws, hold, sample, process
        finally:
            hold.unlink(missing_ok=True)
            end_what_was_started()


def run_of(ws: Path) -> str:
    with open_world(open_workspace(ws)) as world:
        (row,) = world.store.read(lambda tx: tx.runs.recent(QUAKES, 5))
        return str(row.run_id)


class Heard:
    """A listener: what it is told, as it comes."""

    def __init__(self, url: str, path: str, headers: dict[str, str] | None = None) -> None:
        host = url.removeprefix("http://")
        self._connection = http.client.HTTPConnection(host, timeout=120)
        self._connection.request("GET", path, headers=headers or {})
        self._socket = self._connection.sock
        self.answer = self._connection.getresponse()
        self._events: queue.Queue[tuple[str, str, Any] | None] = queue.Queue()
        self.beats = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        name, number = "", ""
        try:
            for raw in self.answer:
                key, _, value = raw.decode().rstrip("\n").partition(": ")
                if key == "event":
                    name = value
                elif key == "id":
                    number = value
                elif key == "data":
                    self._events.put((name, number, json.loads(value)))
                self.beats += raw.startswith(b":")
        except (OSError, http.client.HTTPException, ValueError):
            pass
        self._events.put(None)

    def next(self) -> tuple[str, str, Any] | None:
        return self._events.get(timeout=120)

    def until(self, name: str) -> list[tuple[str, str, Any]]:
        """Everything up to an event of that name, itself included."""
        found = []
        while (event := self.next()) is not None:
            found.append(event)
            if event[0] == name:
                return found
        raise AssertionError(f"it ended without {name}: {found}")

    def close(self) -> None:
        if self._socket is not None:  # also where somebody reads from it
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self.answer.close()
        self._connection.close()


@contextlib.contextmanager
def listening(url: str, path: str, **headers: str) -> Iterator[Heard]:
    found = Heard(url, path, {name.replace("_", "-"): value for name, value in headers.items()})
    try:
        yield found
    finally:
        found.close()


def _refused(asked: "str | urllib.request.Request", status: int = 503) -> Any:
    """The headers of an answer that is none."""
    with pytest.raises(urllib.error.HTTPError, match=str(status)) as no:
        urllib.request.urlopen(asked)
    no.value.close()
    return no.value.headers


def test_a_run_is_followed_while_it_works_is_killed_and_goes_on(
    under_way: "tuple[Path, Path, SampleUpstream, Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    ws, hold, sample, process = under_way
    monkeypatch.setattr(live, "HEARTBEAT_S", 0.2)
    run = run_of(ws)
    with served(ws, console=True) as url, listening(url, f"/runs/{run}/events") as heard:
        assert heard.answer.status == 200
        assert heard.answer.getheader("content-type", "").startswith("text/event-stream")
        assert heard.answer.getheader("cache-control") == "private, no-store"
        before = heard.until("state")
        steps = [(e[2]["step_id"], e[2]["status"]) for e in before if e[0] == "record"]
        assert steps[-1] == ("check", "IN_PROGRESS") and before[-1][2] == {"state": "CLAIMED"}
        assert [int(e[1]) for e in before if e[0] == "record"] == list(range(len(steps)))
        assert not any("payload" in e[2] or "hash" in e[2] for e in before)
        process.kill()
        beats = heard.beats
        until(lambda: heard.beats > beats + 2)  # nothing happens, and it is still there
        hold.unlink()
        start(ws, sample, "run", QUAKES).wait()
        after = heard.until("end")
        assert ("transform", "DONE") in [(e[2].get("step_id"), e[2].get("status")) for e in after]
        assert after[-1][2] == {"state": "COMMITTED"} and heard.next() is None
        numbers = [int(e[1]) for e in before + after if e[0] == "record"]
        assert numbers == list(range(len(numbers))), "each record once, in order"
        with listening(url, f"/runs/{run}/events", last_event_id="2") as late:
            told = late.until("end")
        assert [int(e[1]) for e in told if e[0] == "record"] == numbers[3:], "from the archive"


def test_who_asks_again_goes_on_where_they_were(
    under_way: "tuple[Path, Path, SampleUpstream, Any]",
) -> None:
    ws, *_ = under_way
    run = run_of(ws)
    with served(ws, console=True) as url:
        with listening(url, f"/runs/{run}/events") as first:
            seen = [int(e[1]) for e in first.until("state") if e[0] == "record"]
        with listening(url, f"/runs/{run}/events", last_event_id=str(seen[1])) as second:
            again = [int(e[1]) for e in second.until("state") if e[0] == "record"]
        with listening(url, f"/runs/{run}/events?after={seen[-1]}") as third:
            assert third.until("state")[0][0] == "state", "nothing new"
        assert again == seen[2:]
        for wrong in ("x", "-1", "1" * 10):
            asked = urllib.request.Request(
                f"{url}/runs/{run}/events", headers={"last-event-id": wrong}
            )
            _refused(asked, 400)


def test_all_who_follow_a_run_share_one_look_and_they_are_not_too_many(
    under_way: "tuple[Path, Path, SampleUpstream, Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    ws, *_ = under_way
    run, made = run_of(ws), []

    class Counted(live.Live):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(hanging, "Live", Counted)
    monkeypatch.setattr(live, "MOST", 5)
    with served(ws, console=True) as url:
        heard = [Heard(url, f"/runs/{run}/events") for _ in range(5)]
        for each in heard:
            each.until("state")
        assert made[0].listening == 5 and len(made[0]._runs) == 1
        assert _refused(f"{url}/runs/{run}/events")["retry-after"]
        for each in heard:
            each.close()
        until(lambda: not made[0].listening and not made[0]._runs)  # and nobody looks any more
        with listening(url, f"/runs/{run}/events") as one:
            assert one.until("state")


def test_who_comes_at_the_same_moment_as_the_last_that_fits_is_told_to_come_later(
    under_way: "tuple[Path, Path, SampleUpstream, Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    ws, *_ = under_way
    run, looked, all_there = run_of(ws), live._looked, threading.Barrier(4)

    def at_once(world: World, run_id: str, after: int) -> live.Look | None:
        if next(calls, None) is not None:
            all_there.wait(60)  # nobody is answered before all four have asked
        return looked(world, run_id, after)

    calls = iter(range(4))
    monkeypatch.setattr(live, "MOST", 2)
    monkeypatch.setattr(live, "_looked", at_once)
    with served(ws, console=True) as url, ThreadPoolExecutor(4) as pool:
        heard = list(pool.map(lambda _: Heard(url, f"/runs/{run}/events"), range(4)))
        assert sorted(each.answer.status for each in heard) == [200, 200, 503, 503]
        for each in heard:
            if each.answer.status == 200:
                assert each.until("state"), "who fits is told everything"
            else:
                assert each.answer.headers["retry-after"] == "2"
            each.close()


def test_a_page_that_nobody_tells_asks_by_itself(
    under_way: "tuple[Path, Path, SampleUpstream, Any]",
    started: Browser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ws, hold, _, process = under_way
    monkeypatch.setattr(live, "MOST", 0)
    run = run_of(ws)
    with served(ws, console=True) as url, looker(started, url) as person:
        page = person.go(f"/runs/{run}")
        page.evaluate("() => { window.same = true; }")
        hold.unlink()
        assert process.wait() == 0
        page.wait_for_function(
            "() => document.querySelector('.facts .state').textContent.includes('New version')",
            timeout=120_000,
        )
        assert page.evaluate("() => window.same") is True, "the page is the one that was opened"


def test_a_stream_ends_after_a_while_and_when_the_reader_stops(
    under_way: "tuple[Path, Path, SampleUpstream, Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that each is decided anew; and nobody waits for who only listens."""
    ws, *_ = under_way
    run = run_of(ws)
    with served(ws, console=True) as url, monkeypatch.context() as patch:
        patch.setattr(live, "LONGEST_S", 0.3)
        with listening(url, f"/runs/{run}/events") as short:
            assert [e[0] for e in short.until("state")][-1] == "state"
            assert short.next() is None, "it ended, and did not say that the run has"
    with served(ws, console=True) as url:
        left = Heard(url, f"/runs/{run}/events")
        left.until("state")
    assert left.next() is None
    left.close()


def test_a_run_that_is_not_there_has_nothing_to_tell(
    under_way: "tuple[Path, Path, SampleUpstream, Any]",
) -> None:
    ws, *_ = under_way
    run = run_of(ws)
    with served(ws, console=True) as url, served(ws, console=False) as public:
        head = urllib.request.Request(f"{url}/runs/{run}/events", method="HEAD")
        with urllib.request.urlopen(head) as answer:
            assert answer.read() == b""
        for asked in (f"{url}/runs/never/events", f"{public}/runs/{run}/events"):
            _refused(asked, 404)


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def test_the_page_of_a_run_follows_it_without_being_loaded_again(
    under_way: "tuple[Path, Path, SampleUpstream, Any]", started: Browser
) -> None:
    ws, hold, _, process = under_way
    run = run_of(ws)
    with served(ws, console=True) as url, looker(started, url) as person:
        page = person.go(f"/runs/{run}")
        assert page.inner_text(".facts .state").strip() == "Running"
        page.evaluate("() => { window.same = true; }")
        hold.unlink()
        assert process.wait() == 0
        page.wait_for_function(
            "() => document.querySelector('.facts .state').textContent.includes('New version')",
            timeout=120_000,
        )
        assert page.evaluate("() => window.same") is True, "the page is the one that was opened"
        assert "New version" in page.inner_text("#live")
        page.wait_for_function("() => !document.querySelector('[data-after]')")
        assert (person.said, person.outside) == ([], [])
