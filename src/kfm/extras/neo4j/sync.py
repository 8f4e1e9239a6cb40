"""A graph built from nothing, or brought in step again, and shown to be what the index says.

What was written is marked in the same transaction, so a sync that was killed, or whose graph was,
goes on where the graph really is. Everything is merged: what is written twice is there once.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import msgspec

from kfm.extras.neo4j.batch import batch_of
from kfm.extras.neo4j.receiver import Neo4j
from kfm.extras.neo4j.sums import Sums, of_records
from kfm.lineage.published import Page, Told
from kfm.model import Json, UpstreamUnavailable
from kfm.world.world import World

__all__ = ["Synced", "sync"]

T = TypeVar("T")
BATCH = 500  # runs in one transaction
_LONGEST = 5.0  # seconds between two tries


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """What a sync did, and what both sides hold after it."""

    runs: int  # that were written
    forgotten: int  # runs that the graph knew and is not told of any more
    retries: int  # times that the graph did not answer
    ours: Sums
    graph: Sums

    @property
    def equal(self) -> bool:
        return self.ours == self.graph


class _Patient:
    """Tries again while a graph does not answer, as long as that is less than a time without any
    answer.
    """

    def __init__(self, seconds: float, wait: Callable[[float], None]) -> None:
        self._seconds, self._wait = seconds, wait
        self.retries = 0

    def __call__(self, work: Callable[[], T]) -> T:
        until, pause = time.monotonic() + self._seconds, 0.25
        while True:
            try:
                return work()
            except UpstreamUnavailable:
                if time.monotonic() + pause > until:
                    raise
                self.retries += 1
                self._wait(pause)
                pause = min(_LONGEST, 2 * pause)


def sync(
    world: World,
    graph: Neo4j,
    *,
    batch: int = BATCH,
    patience_s: float = 60.0,
    wait: Callable[[float], None] = time.sleep,
    say: Callable[[int], None] = lambda runs: None,
) -> Synced:
    """Bring a graph in step: forget what may not be told any more, write what is missing, compare.

    Raises `UpstreamUnavailable` when it did not answer for `patience_s`; the next sync goes on from
    there.
    """
    patient, told = _Patient(patience_s, wait), Told(world)
    there = patient(graph.runs)
    forgotten = _forget(told, graph, patient, there)
    runs, reached = 0, patient(graph.reached)
    # a graph that is empty or unfinished is another, without being read
    both = _both(world, graph, patient) if there and not reached else None
    # what went on from a mark may have missed what came before it meanwhile: then all of it again
    for after in dict.fromkeys([reached, ""]):
        if both and both[0] == both[1]:
            break
        runs += _write(told, graph, patient, after, batch, say)
        patient(graph.finished)
        both = _both(world, graph, patient)
    ours, found = both or _both(world, graph, patient)
    return Synced(runs=runs, forgotten=forgotten, retries=patient.retries, ours=ours, graph=found)


def _forget(told: Told, graph: Neo4j, patient: _Patient, there: Mapping[str, set[str]]) -> int:
    gone = 0
    for dataset_id, runs in sorted(there.items()):
        kept = {record.run_id for record in told.of(dataset_id)}
        if not runs <= kept:
            gone += patient(lambda: graph.forget(dataset_id, kept))
    return gone


def _both(world: World, graph: Neo4j, patient: _Patient) -> tuple[Sums, Sums]:
    """What the index holds now, where what was withdrawn meanwhile is seen, and what the graph
    holds.
    """
    ours = of_records(record for page in Told(world).pages() for record in page.records)
    return ours, patient(graph.sums)


def _write(
    told: Told, graph: Neo4j, patient: _Patient, after: str, batch: int, say: Callable[[int], None]
) -> int:
    runs = 0
    for ready in _made_ready(told.pages(after, batch)):
        patient(lambda: graph.put(ready.batch, ready.last))
        runs += ready.runs
        say(runs)
    return runs


class _Ready(NamedTuple):
    """A page as it is written."""

    batch: Json
    last: str
    runs: int


def _made_ready(pages: Iterator[Page]) -> Iterator[_Ready]:
    """Each page is read and made ready while the graph takes the one before it."""

    def following() -> _Ready | None:
        page = next(pages, None)
        if page is None:
            return None
        return _Ready(batch_of(page.records), page.last, len(page.records))

    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(following)
        while ready := coming.result():
            coming = beside.submit(following)
            yield ready
