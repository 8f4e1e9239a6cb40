"""status: what is official, fresh, failed or waiting, and the next command for each."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kfm.channel.chain import EMPTY, last_act
from kfm.evidence.version_records import origin_of
from kfm.model import INGEST, UNCHANGED, Generation, LedgerRow
from kfm.model.window import seconds
from kfm.reading.approval_count import not_agreed
from kfm.reading.generations import generations_of
from kfm.reading.memory import recall
from kfm.store.base import Store, Tx
from kfm.world.world import World

__all__ = ["DatasetStatus", "Shown", "dataset_status", "shown"]

FRESH_S = 24 * 3600
NEWEST = 200
_PASSED_OVER = ("NOOP", "SUPERSEDED", "STAGED")  # they say nothing about what may be published


@dataclass(frozen=True)
class Shown:
    """What is said of a dataset, and the run it is said of."""

    state: str
    reason: str = ""
    next: str | None = None
    row: LedgerRow | None = None


class DatasetStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `kfm status --json`."""

    dataset_id: str
    state: str
    version_id: str | None = None
    generation: int = 0
    fresh: bool = False
    last_run_id: str | None = None
    reason: str = ""
    next: str | None = None
    origin: list[str] = []


def dataset_status(world: World, dataset_id: str) -> DatasetStatus:
    """How a dataset stands."""
    made = generations_of(world, dataset_id)
    head = made[-1] if made else EMPTY(dataset_id)
    check = world.store.read(lambda tx: tx.index.latest_check(dataset_id))
    age = (
        None
        if check is None
        else (world.clock.now() - dt.datetime.fromisoformat(check.checked_at)).total_seconds()
    )
    entry = world.registry(dataset_id)
    fresh = (
        head.version_id is not None
        and age is not None
        and age <= (seconds(entry.freshness) if entry is not None else FRESH_S)
    )
    found = shown(world, head, fresh)
    return DatasetStatus(
        dataset_id=dataset_id,
        state=found.state,
        version_id=head.version_id,
        generation=head.generation,
        fresh=fresh,
        last_run_id=found.row.run_id if found.row is not None else None,
        reason=found.reason,
        next=found.next,
        origin=recall(
            world,
            ("origin", dataset_id, head.version_id),
            lambda: origin_of(world.data, dataset_id, head.version_id),
        ),
    )


def shown(world: World, head: Generation, fresh: bool = True) -> Shown:
    """What is said of the dataset whose head this is. The newest look decides what is said of
    upstream; what waits for a person, and what was denied on this head, is said whatever upstream
    does."""
    dataset_id = head.dataset_id
    entry = world.registry(dataset_id)
    many = NEWEST + 4 * len(entry.partitions if entry is not None else ())
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(dataset_id, many))
    last = next((r for r in rows if r.state not in _PASSED_OVER), None)
    act: Generation = world.store.read(lambda tx: last_act(tx, head))
    if act.version_id is None and act.kind == "withdraw":
        return Shown(
            "withdrawn",
            f"withdrawn by generation {act.generation}",
            f"kfm explain {dataset_id}",
            last,
        )
    why = recall(
        world,
        ("not agreed", dataset_id, head.generation),
        lambda: not_agreed(world, generations_of(world, dataset_id), head.generation),
    )
    if why is not None:
        return Shown(
            "denied", f"what is official was not agreed to: {why}", f"kfm gates {dataset_id}", last
        )
    if _working(world.store, dataset_id):
        return Shown("running", row=last)
    if entry is not None and entry.retired is not None:
        return Shown("retired", f"retired: {entry.retired}", row=last)
    news = _news(world.store, head, rows, entry.partitions if entry is not None else ())
    if news:
        also = [f"{n.state}: {n.reason}" for n in news[1:] if n.state != news[0].state]
        first = news[0]
        return Shown(first.state, "; ".join([first.reason, *also]), first.next, first.row)
    staged = world.store.read(lambda tx: _waiting_parts(tx, dataset_id))
    if staged:
        state = "official" if head.version_id else "waiting"
        return Shown(state, f"{staged:,} parts wait to be assembled", "kfm backfill status", last)
    state = "official" if head.version_id else "none"
    return Shown(
        state,
        next=None if state == "official" and fresh else _look_again(world.store, dataset_id),
        row=last,
    )


def _look_again(store: Store, dataset_id: str) -> str:
    """The command that has upstream looked at, from where the dataset is: what is switched off does
    not run.
    """
    off = [
        s.name
        for s in store.read(lambda tx: tx.switches.listing())
        if s.name in (dataset_id, INGEST)
    ]
    return f"kfm switch on {off[0]}" if off else f"kfm run {dataset_id}"


def _news(
    store: Store, head: Generation, rows: Sequence[LedgerRow], partitions: Sequence[str]
) -> list[Shown]:
    """What is said beside "official", the most pressing first: of each partition what became of its
    newest run and its newest look.
    """
    opened: list[LedgerRow] = store.read(lambda tx: tx.runs.open_runs(head.dataset_id))
    found = [s for row in reversed(opened) if (s := _open(store, head, row)) is not None]
    order = {"proposed": 0, "denied": 1, "waiting": 2, "failed": 3}
    ended: dict[str, list[LedgerRow]] = {}
    known = {"", *partitions}
    for row in rows:
        if row.partition in known and row.state not in (
            "SUPERSEDED",
            "STAGED",
            "CLAIMED",
            "PROPOSED",
        ):
            ended.setdefault(row.partition, []).append(row)
    # what is assembled from many parts belongs to none of them
    for partition, mine in ended.items():
        look = store.read(lambda tx: tx.looks.newest(head.dataset_id, partition))
        found += [s for s in (_denied(head, mine, look), _failed(mine, look)) if s is not None]
    return sorted(found, key=lambda s: order[s.state])


def _named(row: LedgerRow, reason: str) -> str:
    return f"{row.partition}: {reason}" if row.partition else reason


def _open(store: Store, head: Generation, row: LedgerRow) -> Shown | None:
    """A run that has not ended."""
    if row.state == "CLAIMED":
        return Shown("waiting", _named(row, "interrupted"), "kfm resume", row)
    number = store.read(lambda tx: tx.proposals.number(row.run_id))
    if row.promo or row.intent is not None:  # approved, or asks nobody: it was left on its way
        return Shown(
            "proposed",
            _named(row, row.reason or "approved, and not yet official"),
            "kfm resume",
            row,
        )
    if row.pinned != head.generation:  # nobody can make it official any more
        said = f"proposal {number} was made on generation {row.pinned}; the next run makes it again"
        return Shown("waiting", _named(row, said), _look_again(store, row.dataset_id), row)
    said = row.reason or f"proposal {number} waits for a person"
    return Shown(
        "proposed", _named(row, said), f"kfm review {number}" if number else "kfm review", row
    )


def _denied(
    head: Generation, rows: Sequence[LedgerRow], look: tuple[str, str] | None
) -> Shown | None:
    """What was denied on this head, unless upstream has gone back to what is official."""
    last = next((r for r in rows if r.state not in ("NOOP", "FAILED")), None)
    if last is None or last.state != "REJECTED" or last.base_version != head.version_id:
        return None
    if look is not None and look[1] == UNCHANGED:
        return None
    return Shown("denied", _named(last, last.reason), f"kfm explain deny {last.dataset_id}", last)


def _failed(rows: Sequence[LedgerRow], look: tuple[str, str] | None) -> Shown | None:
    """The newest run failed, and nobody has looked since; a look that found nothing new is no
    run.
    """
    last = rows[0] if rows else None
    if last is None or last.state != "FAILED" or (look is not None and look[0] != last.run_id):
        return None
    return Shown("failed", _named(last, last.reason), f"kfm explain run {last.dataset_id}", last)


def _waiting_parts(tx: Tx, dataset_id: str) -> int:
    """The parts that will be assembled; those of a cancelled backfill are not."""
    counts: dict[str, int] = tx.runs.staged_counts(dataset_id)
    return sum(
        parts
        for name, parts in counts.items()
        if getattr(tx.backfill.get(name), "state", "") != "cancelled"
    )


def _working(store: Store, dataset_id: str) -> bool:
    """Whether a living process holds a lease of this dataset."""
    held = store.read(lambda tx: tx.leases.held())
    return any(
        not h.lapsed and (h.name == dataset_id or h.name.startswith(f"{dataset_id}/")) for h in held
    )
