"""How far long work is: told on a terminal, hidden of private data, gone when there is something else
to say, and free where nobody watches.
"""

import os
from collections.abc import Iterator

import pytest

from kfm.cli.meter import Far, Meter, told
from kfm.model import ticks
from kfm.model.ticks import Tick, tick, watch


@pytest.mark.parametrize(
    ("far", "said"),
    [
        (Far("verify", seconds=0.4), "verify"),
        (Far("verify", seconds=12.3), "verify        12 s"),
        (
            Far("download", "wells", 48_200_000, 120_000_000, "bytes", False, 9, 3_100_000.0),
            "download      wells                 48.2 MB of 120 MB  40 %  3.1 MB/s  23 s left",
        ),
        (
            Far("transform", "wells", 12_000, 15_000, "rows", True, 9, 50.0),
            "transform     wells                 12,000 of about 15,000 rows  80 %  50 rows/s"
            "  60 s left",
        ),
        # more than last time: nobody knows how much there is
        (
            Far("transform", "wells", 16_000, 15_000, "rows", True, 9, 50.0),
            "transform     wells                 16,000 rows  50 rows/s",
        ),
        (
            Far("backfill", "", 500, 9_000, "partitions", False, 50, 1.0),
            "backfill      500 of 9,000 partitions  5 %  1 partitions/s  2 h 21 min left",
        ),
        (
            Far("backup", "", 900, 900, "bytes", False, 3),
            "backup        900 B of 900 B  100 %  3 s",
        ),
    ],
)
def test_it_tells_how_much_how_fast_and_how_long(far: Far, said: str) -> None:
    assert told(far) == said


@pytest.fixture
def unwatched() -> Iterator[None]:
    yield
    watch(None)


@pytest.mark.usefixtures("unwatched")
def test_of_many_ticks_few_are_heard_and_the_last_one_always() -> None:
    heard: list[Tick] = []
    tick("download", 1, 9)  # nobody is there
    watch(heard.append)
    for n in range(1, 10_001):
        tick("download", n, 10_000)
    assert heard[-1] == Tick("download", 10_000, 10_000, "bytes", False) and len(heard) < 1_000
    child = os.fork()
    if child == 0:  # whoever watches is not there
        os._exit(0 if ticks._watcher is None else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def line() -> Iterator[tuple[Meter, int]]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    meter = Meter("run", write)
    yield meter, read
    meter.end()
    os.close(read)
    os.close(write)


def drawn(fd: int) -> str:
    return os.read(fd, 1 << 16).decode().split("\r\x1b[K")[-1]


def test_of_private_data_no_count_is_drawn(line: tuple[Meter, int]) -> None:
    meter, fd = line
    meter.tick(Tick("download", 5, 9, "bytes", True))
    assert "download" in drawn(fd), "whose it is nobody knows yet"
    meter.event({"stage": "watch", "dataset_id": "wells", "withheld": True, "read": 7})
    meter.tick(Tick("download", 5, 9, "bytes", True))
    assert "wells" in (said := drawn(fd)) and not any(c.isdigit() for c in said)
    meter.tick(Tick("twins", 1, 3, "builds", False))
    assert "1 of 3 builds" in drawn(fd), "how often it is tried tells nothing"
    meter.event({"stage": "watch", "dataset_id": "trees", "withheld": False})
    meter.tick(Tick("download", 5, 9, "bytes", True))
    assert "trees" in (said := drawn(fd)) and "5 B of 9 B" in said
    meter.rest()
    meter.tick(Tick("download", 6, 9, "bytes", True))
    assert "6 B" not in drawn(fd), "the next one may be private"


def test_the_line_makes_way(line: tuple[Meter, int]) -> None:
    meter, fd = line
    meter.event({"stage": "watch", "dataset_id": "wells"})
    meter.spoke("a result\n")
    assert drawn(fd) == "" and not meter.drawn
    meter.spoke("Really? [y/N] ")
    meter.draw()
    with pytest.raises(BlockingIOError):  # a question is not written over
        os.read(fd, 1)
    meter.spoke("\n")
    meter.draw()
    assert "watch" in drawn(fd)
