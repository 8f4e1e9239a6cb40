"""What the pages of backfills tell; for operators. Nothing is written: what a backfill still has to
follow in the ledger is followed by its commands.
"""

from itertools import pairwise
from typing import NamedTuple

from kfm.jobs.backfill_plan import BackfillPlan, Grid, grid_of, read_plan
from kfm.jobs.backfill_progress import next_command
from kfm.model import BackfillRow, PartRow, ids
from kfm.pages import addresses
from kfm.pages.backfill import (
    PART_STATES,
    Backfill,
    BackfillLine,
    BackfillPage,
    BackfillsPage,
    Part,
    Range,
)
from kfm.pages.gather.asks import Asks
from kfm.pages.gather.backfill_cells import FEW, blocks_of, borders_of, label_of, named
from kfm.reader.door import BadQuestion, Hidden, whole_number
from kfm.store.base import Tx

__all__ = ["backfill_page", "backfills_page"]

_LIMIT = 200
_FAILED = 20  # that are named at once
_HANDED = 256  # batches that are looked at; more are never handed out at once


def backfills_page(asks: Asks) -> BackfillsPage:
    rows: list[BackfillRow] = asks.world.store.read(lambda tx: tx.backfill.listing(_LIMIT))
    return BackfillsPage(
        address="/backfills",
        title="Backfills",
        command="kfm backfill list",
        backfills=tuple(_line(asks, row) for row in rows),
        limit=_LIMIT,
    )


def _line(asks: Asks, row: BackfillRow) -> BackfillLine:
    plan = read_plan(row)
    return BackfillLine(
        backfill_id=row.backfill_id,
        name=row.name,
        dataset_id=row.dataset_id,
        title=_title(asks, row.dataset_id),
        state=row.state,
        since=plan.since,
        until=plan.until,
        partitions=row.total,
        put_by=row.put_by,
        put_at=row.put_at,
        reason=row.reason,
    )


def _title(asks: Asks, dataset_id: str) -> str:
    entry = asks.workspace.readable(dataset_id)
    return entry.title if entry is not None else dataset_id


# ---- one -----------------------------------------------------------------------------------------
class _Handed(NamedTuple):
    """A batch that somebody has: which partitions, and whether they are worked at."""

    first: int
    last: int
    working: bool


class _Found(NamedTuple):
    """What the store says of a range."""

    sums: list[tuple[int, str, int, int]]  # which range, state, how many, how many of them lately
    handed: list[tuple[_Handed, set[int]]]  # and which of it ended already
    failing: list[PartRow]
    parts: list[PartRow]


def backfill_page(asks: Asks, backfill_id: str, query: dict[str, str]) -> BackfillPage:
    row: BackfillRow | None = asks.world.store.read(lambda tx: tx.backfill.find(backfill_id))
    if row is None:
        raise Hidden
    plan = read_plan(row)
    grid = grid_of(plan)
    first = _whole(query, "first", 0, row.total - 1)
    last = first + _whole(query, "count", row.total - first, row.total - first, least=1)
    after = _whole(query, "failed", first, row.total)
    few = last - first <= FEW
    borders, names = ([first, last], [""]) if few else borders_of(grid, first, last)
    found: _Found = asks.world.store.read(
        lambda tx: _look(tx, row, borders, max(first, after), few)
    )
    counts = _counted(found, borders)
    failing = [p for p in found.failing if p.n < last]
    whole: dict[str, int] = {}
    for each in counts:
        for name, many in each.items():
            whole[name] = whole.get(name, 0) + many
    return BackfillPage(
        address=addresses.backfill(
            row.backfill_id, *((first, last - first) if last - first < row.total else ())
        ),
        title=f"{_title(asks, row.dataset_id)}, backfill {row.name}",
        command=f"kfm backfill status {row.backfill_id}",
        of=_about(asks, row, plan),
        first=first,
        partitions=last - first,
        range_name=named(grid, first, last),
        counts=_ordered(whole),
        eta_seconds=_eta(row, found, whole) if last - first == row.total else None,
        ranges=()
        if few
        else tuple(
            Range(name=name, first=a, partitions=b - a, counts=_ordered(each))
            for name, (a, b), each in zip(names, pairwise(borders), counts, strict=True)
        ),
        blocks=blocks_of(grid, first, last) if few and last - first > 1 else (),
        parts=tuple(_cells(grid, first, last, found)) if few else (),
        failing=tuple(_part(grid, p) for p in failing[:_FAILED]),
        failing_after=failing[_FAILED].n if len(failing) > _FAILED else None,
        next=_next(row, whole),
    )


def _whole(query: dict[str, str], name: str, usual: int, most: int, least: int = 0) -> int:
    """A number of the question."""
    text = query.get(name, "")
    if not text:
        return usual
    found = whole_number(text)
    if found is None or found < least:
        raise BadQuestion(f"{name} is no number that means a partition here.", field=name)
    return min(found, most)


def _about(asks: Asks, row: BackfillRow, plan: BackfillPlan) -> Backfill:
    return Backfill(
        backfill_id=row.backfill_id,
        name=row.name,
        dataset_id=row.dataset_id,
        dataset_title=_title(asks, row.dataset_id),
        dataset_page=asks.page_of(row.dataset_id),
        state=row.state,
        reason=row.reason,
        since=plan.since,
        until=plan.until,
        step=plan.partitioning.window,
        total=row.total,
        plan_digest=ids.digest(row.plan.encode()),
        pool=plan.pool,
        assemble=plan.assemble,
        put_by=row.put_by,
        put_at=row.put_at,
        version_id=row.version_id,
        generation=row.generation,
        run_id=row.run_id,
    )


def _look(tx: Tx, row: BackfillRow, borders: list[int], failed_from: int, few: bool) -> _Found:
    name, first, last = row.backfill_id, borders[0], borders[-1]
    handed = []
    for begin, amount, job_id in tx.backfill.outs(name)[:_HANDED]:
        job = tx.jobs.of(job_id) if job_id else None
        if job is None or job.state == "ended" or begin >= last or begin + amount <= first:
            continue
        each = _Handed(max(first, begin), min(last, begin + amount), job.state == "running")
        ended = {p.n for p in tx.backfill.within(name, each.first, each.last)}
        handed.append((each, ended))
    return _Found(
        tx.backfill.grid(name, borders, row.began_ms),
        handed,
        tx.backfill.failing(name, _FAILED + 1, failed_from),
        tx.backfill.within(name, first, last) if few else [],
    )


def _counted(found: _Found, borders: list[int]) -> list[dict[str, int]]:
    """How many are in which state, for each range."""
    counts: list[dict[str, int]] = [{} for _ in borders[1:]]
    for at, state, many, _ in found.sums:
        counts[at][state] = many
    for at, (a, b) in enumerate(pairwise(borders)):
        missing = b - a - sum(counts[at].values())
        for each, ended in found.handed:
            inside = range(max(a, each.first), min(b, each.last))
            open_ = len(inside) - sum(n in inside for n in ended)
            name = "WORKING" if each.working else "QUEUED"
            counts[at][name] = counts[at].get(name, 0) + open_
            missing -= open_
        counts[at]["MISSING"] = missing
    return counts


def _ordered(counts: dict[str, int]) -> dict[str, int]:
    return {name: counts[name] for name in PART_STATES if counts.get(name)}


def _eta(row: BackfillRow, found: _Found, counts: dict[str, int]) -> int | None:
    fresh = sum(since for _, state, _, since in found.sums if state != "FAILED")
    took = (row.touched_ms - row.began_ms) / 1000
    if row.state != "running" or took <= 0 or not fresh:
        return None
    done = sum(counts.get(name, 0) for name in ("COMMITTED", "STAGED", "NOOP"))
    return int((row.total - done) * took / fresh)


def _cells(grid: Grid, first: int, last: int, found: _Found) -> list[Part]:
    known = {p.n: p for p in found.parts}
    open_ = {
        n: "WORKING" if each.working else "QUEUED"
        for each, ended in found.handed
        for n in range(each.first, each.last)
        if n not in ended
    }
    return [
        _part(grid, known[n]) if n in known else _unbegun(grid, n, open_.get(n, "MISSING"))
        for n in range(first, last)
    ]


def _part(grid: Grid, row: PartRow) -> Part:
    window, partition = grid.at(row.n)
    return Part(
        n=row.n,
        label=label_of(grid, row.n),
        window=window,
        partition=partition,
        state=row.state if row.state in PART_STATES else "MISSING",
        run_id=row.run_id,
        attempts=row.attempts,
        reason=row.reason,
    )


def _unbegun(grid: Grid, n: int, state: str) -> Part:
    window, partition = grid.at(n)
    return Part(n=n, label=label_of(grid, n), window=window, partition=partition, state=state)


def _next(row: BackfillRow, counts: dict[str, int]) -> tuple[str, ...]:
    failed_once = row.state == "done" and counts.get("FAILED")
    first = f"kfm backfill resume {row.name}" if failed_once else next_command(row)
    return (first,) if first else ()
