"""Hosts are asked no faster than agreed, by all processes together, and every wait has a reason."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from itertools import pairwise

import pytest

from kfm.fetch.base import FetchRequest, Wait
from kfm.fetch.host_limits import Manners
from kfm.model.dataset import HostLimits, Polite
from kfm.model.errors import UpstreamUnavailable

HOST = "data.example"
BUSY = "polite: 2 requests to this host are under way"


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.time, self.waits = 1000.0, []

    def now(self) -> float:
        return self.time

    def pause(self, wait: Wait) -> None:
        self.waits.append(wait)
        self.time += wait.seconds + 1e-6


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def polite(tmp_path, clock):
    """Makes the manners of one more process; its jitter is always the full one."""

    def make(jitter=lambda: 1.0, **limits) -> Manners:
        rules = Polite(hosts={HOST: HostLimits(**limits)})
        return Manners(tmp_path / "hosts", rules, now=clock.now, jitter=jitter)

    return make


def take(manners: Manners, clock: Clock, times: int = 1) -> list[float]:
    """When each of several turns began."""
    began = []
    for _ in range(times):
        with manners.turn(HOST, clock.pause):
            began.append(clock.time)
    return began


def test_no_second_holds_more_requests_than_allowed(polite, clock):
    ours, theirs = polite(per_second=5), polite(per_second=5)
    began = [at for _ in range(10) for manners in (ours, theirs) for at in take(manners, clock)]
    assert all(later - earlier >= 1.0 for earlier, later in zip(began, began[5:]))
    assert began[4] == began[0]  # and a burst within it needs no wait
    assert {w.reason for w in clock.waits} == {"polite: host allows 5 requests a second"}


def test_a_rate_below_one_is_kept_too(polite, clock):
    began = take(polite(per_second=0.5), clock, 4)
    assert all(later - earlier >= 2.0 for earlier, later in pairwise(began))


def test_one_more_request_waits_until_another_ends(polite, clock):
    ours, theirs = polite(concurrency=2), polite(concurrency=2)
    with ExitStack() as stack:
        stack.enter_context(ours.turn(HOST, clock.pause))
        second = stack.enter_context(ExitStack())
        second.enter_context(theirs.turn(HOST, clock.pause))

        def somebody_ends(wait: Wait) -> None:
            clock.pause(wait)
            second.close()

        with ours.turn(HOST, somebody_ends):
            pass
    assert [w.reason for w in clock.waits] == [BUSY]


def test_a_killed_process_frees_its_place(polite, clock, tmp_path):
    program = (
        "import sys; from pathlib import Path; from kfm.fetch.host_limits import Manners; from kfm.model.dataset import HostLimits, Polite\n"
        f"manners = Manners(Path({str(tmp_path / 'hosts')!r}), Polite(hosts={{{HOST!r}: HostLimits(concurrency=1)}}))\n"
        f"with manners.turn({HOST!r}, print):\n    print('in', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"in\n"
    clock.time = 4e9  # long after what the child wrote

    def killed(wait: Wait) -> None:
        clock.pause(wait)
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()

    with polite(concurrency=1).turn(HOST, killed):
        pass
    assert [w.reason for w in clock.waits] == ["polite: 1 request to this host is under way"]


def test_processes_at_work_at_once_share_one_rate(tmp_path):
    program = (
        "import time; from pathlib import Path; from kfm.fetch.host_limits import Manners; from kfm.model.dataset import HostLimits, Polite\n"
        "seen = []\n"
        "now = lambda: seen.append(time.time()) or seen[-1]\n"
        f"manners = Manners(Path({str(tmp_path / 'hosts')!r}), Polite(hosts={{{HOST!r}: HostLimits(per_second=20)}}), now=now)\n"
        "for _ in range(12):\n"
        f"    with manners.turn({HOST!r}, lambda wait: time.sleep(wait.seconds)):\n        print(seen[-1])"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    began = sorted(float(line) for child in children for line in child.communicate()[0].split())
    assert len(began) == 36
    assert all(later - earlier >= 0.999 for earlier, later in zip(began, began[20:]))


def test_the_note_is_read_and_written_by_one_at_a_time(polite, clock, tmp_path):
    take(polite(), clock)
    entered = threading.Event()
    with (tmp_path / "hosts" / f"{HOST}.json").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        other = threading.Thread(target=lambda: take(polite(), clock) and entered.set())
        other.start()
        assert not entered.wait(0.2)
    other.join()
    assert entered.is_set()


@pytest.mark.parametrize("status", [429, 503])
def test_what_one_is_asked_everyone_waits_for(status, polite, clock):
    ours, theirs = polite(), polite()
    ours.answered(HOST, status, 7.0)
    take(theirs, clock)
    assert clock.waits == [Wait(7.0, f"http {status}, asked to wait 7 s", asked=True)]


def test_a_shorter_wish_does_not_cut_a_longer_one(polite, clock):
    ours = polite()
    ours.answered(HOST, 429, 7.0)
    ours.answered(HOST, 503, 1.0)
    assert take(ours, clock)[0] >= 1007


def test_429_without_a_wish_lengthens_the_wait_for_all_and_success_shrinks_it(polite, clock):
    ours, theirs = polite(), polite()
    grown = []
    for _ in range(9):
        before = take(theirs, clock)[0]
        ours.answered(HOST, 429, None)
        grown.append(round(take(theirs, clock)[0] - before, 3))
    assert grown == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    shrunk = []
    for _ in range(8):
        before = clock.time
        shrunk.append(round(take(theirs, clock)[0] - before, 3))
        theirs.answered(HOST, 200, None)
    assert shrunk == [60, 30, 15, 7.5, 3.75, 1.875, 0.938, 0.0]
    assert "polite: requests are 60 s apart since the host answered 429" in {
        w.reason for w in clock.waits
    }


def test_the_lengthened_wait_has_jitter(polite, clock):
    ours = polite(jitter=lambda: 0.0)
    for _ in range(4):
        ours.answered(HOST, 429, None)
    assert take(ours, clock)[0] == pytest.approx(1004, abs=0.01)


def test_503_without_a_wish_is_nobody_elses_business(polite, clock):
    ours = polite()
    ours.answered(HOST, 503, None)
    take(ours, clock)
    assert clock.waits == []


def test_an_absurd_wish_closes_a_host_for_a_day_at_most(polite, clock):
    ours = polite()
    ours.answered(HOST, 429, 1e9)
    assert take(ours, clock)[0] < 1000 + 86401


def test_a_clock_that_went_back_frees_everyone(polite, clock):
    ours = polite()
    ours.answered(HOST, 429, 60.0)
    clock.time -= 500
    take(ours, clock)
    assert clock.waits == []


@pytest.mark.parametrize("harm", [b"", b"{", b"\xff\x00", b'{"starts": "x"}'])
def test_a_damaged_note_is_no_obstacle(harm, polite, clock, tmp_path):
    ours = polite()
    ours.answered(HOST, 429, 60.0)
    (tmp_path / "hosts" / f"{HOST}.json").write_bytes(harm)
    take(ours, clock)
    assert clock.waits == []
    ours.answered(HOST, 429, 5.0)
    take(ours, clock)
    assert [w.seconds for w in clock.waits] == [5.0]


def test_where_nothing_can_be_written_nothing_is_counted(polite, clock, tmp_path):
    (tmp_path / "hosts").write_text("in the way")
    assert take(polite(per_second=1), clock, 3) == [1000.0] * 3


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_is_not_limited_unless_it_is_named(host, tmp_path, clock):
    for _ in range(20):
        with Manners(tmp_path / "hosts", Polite(), now=clock.now).turn(host, clock.pause):
            pass
    assert not (tmp_path / "hosts").exists()
    named = Manners(
        tmp_path / "hosts", Polite(hosts={host: HostLimits(per_second=1)}), now=clock.now
    )
    for _ in range(2):
        with named.turn(host, clock.pause):
            pass
    assert len(clock.waits) == 1


def test_a_played_upstream_is_not_limited_unless_it_is_named(tmp_path, clock):
    for only_named, waits in ((True, 0), (False, 1)):
        manners = Manners(tmp_path / "hosts", Polite(), only_named=only_named, now=clock.now)
        for _ in range(6):
            with manners.turn("api.example", clock.pause):
                pass
        assert len(clock.waits) == waits


# Through the fetcher


@pytest.fixture
def asking(tmp_path, clock, fetcher, upstream):
    """Makes a fetcher whose waits pass on the clock, and a request to a limited host on
    loopback.
    """

    def make(**limits):
        manners = Manners(
            tmp_path / "hosts",
            Polite(hosts={HOST: HostLimits(**limits)}),
            now=clock.now,
            jitter=lambda: 1.0,
        )

        def sleep(seconds: float) -> None:
            clock.time += seconds + 1e-6

        settings = {
            "now": clock.now,
            "monotonic": clock.now,
            "sleep": sleep,
            "on_wait": clock.waits.append,
        }
        agent = fetcher(manners=manners, resolve=lambda _: ("127.0.0.1",), **settings)
        return agent, FetchRequest(url=upstream.url(host=HOST), hosts=(HOST, "cdn.example"))

    return make


def test_each_wait_is_told_and_is_no_part_of_the_request(asking, upstream, say, into, clock):
    upstream.answers(say.answer(body=b"x"))
    agent, request = asking(per_second=1)
    agent.fetch(request, into)
    got = agent.fetch(request, into)
    assert (
        [w.reason for w in got.waits]
        == ["polite: host allows 1 request a second"]
        == [w.reason for w in clock.waits]
    )
    assert got.waits[0].seconds == pytest.approx(1.0, abs=0.01)
    assert got.request_ms == 0


def test_after_a_429_the_fetch_and_its_neighbours_wait(asking, upstream, say, into, clock):
    upstream.answers(say.answer(429, Retry_After="7"), say.answer(body=b"x"))
    got = asking()[0].fetch(asking()[1], into)
    assert [(round(w.seconds), w.reason) for w in got.waits] == [(7, "http 429, asked to wait 7 s")]
    assert clock.time >= 1007


def test_growing_waits_after_429s_come_from_the_shared_note(asking, upstream, say, into, tmp_path):
    upstream.answers(say.answer(429), say.answer(429), say.answer(429), say.answer(body=b"x"))
    agent, request = asking()
    assert agent.fetch(request, into).attempts == 4
    # 1, 2, 4, and one success
    assert json.loads((tmp_path / "hosts" / f"{HOST}.json").read_text())["spacing"] == 2.0


def test_a_host_that_is_closed_for_long_is_not_asked_at_all(asking, upstream, say, into):
    upstream.answers(say.answer(429, Retry_After="600"))
    agent, request = asking()
    for asked in (1, 1):
        with pytest.raises(UpstreamUnavailable, match="asks to wait 600 seconds") as caught:
            agent.fetch(request, into)
        assert (
            caught.value.remedy
            == "Try again after 1970-01-01T00:26:40Z; a queued job waits until then."
        )
        assert len(upstream.asked) == asked


def test_a_place_is_held_until_the_body_is_whole_and_freed_after_trouble(
    asking, upstream, say, into, tmp_path
):
    held = []

    def slow(conn) -> None:
        conn.sendall(say.answer(body=b"", length=1))
        probe = Manners(
            tmp_path / "hosts", Polite(hosts={HOST: HostLimits(concurrency=1)}), now=lambda: 5000.0
        )
        held.append(isinstance(probe._try(HOST, HostLimits(concurrency=1)), Wait))
        conn.close()

    upstream.answers(slow, say.answer(body=b"x"))
    agent, request = asking(concurrency=1)
    assert agent.fetch(request, into).attempts == 2
    assert held == [True]
