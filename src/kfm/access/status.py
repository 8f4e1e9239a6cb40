"""status: what is official, fresh, failed or waiting, and the next command for each."""

import datetime as dt
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from kfm.access.approval_count import not_agreed
from kfm.access.history import generations_of
from kfm.access.memory import recall, recall_store
from kfm.access.missing_file import lacking
from kfm.channel.generations import EMPTY, last_act
from kfm.evidence.version_records import origin_of
from kfm.model import (
    INGEST,
    UNCHANGED,
    DatasetEntry,
    Generation,
    HeadKey,
    IntegrityError,
    KfmError,
    LedgerRow,
)
from kfm.model.window import seconds
from kfm.store.base import Tx
from kfm.store.leases import HeldLease
from kfm.world.world import World

__all__ = ["DatasetStatus", "Shown", "Statuses", "dataset_status", "shown"]

FRESH_S = 24 * 3600
NEWEST = 200
_PASSED_OVER = ("NOOP", "SUPERSEDED", "STAGED")  # they say nothing about what may be published
_UNTOLD = ("SUPERSEDED", "STAGED", "CLAIMED", "PROPOSED")  # nor these about how a run ended


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


class _Stands(NamedTuple):
    """What files say of a dataset."""

    head: Generation
    entry: DatasetEntry | None
    not_agreed: str | None
    lacking: str  # which file of the official version is missing or damaged
    origin: list[str]


class _Ran(NamedTuple):
    """What the store says of a dataset, as of one moment."""

    rows: list[LedgerRow]  # the newest run of each partition and state, the newest first
    act: Generation
    opened: list[tuple[LedgerRow, int | None]]  # runs that have not ended, and their proposals
    looks: dict[str, tuple[str, str] | None]  # by partition, of which something ended
    staged: int
    check: HeadKey | None
    off: list[str]  # what a person has switched off


class Statuses:
    """How datasets stand, one after the other; who is at work is looked up once for all of them, and
    what the store says of those in `ahead`, too.
    """

    def __init__(self, world: World, ahead: Sequence[str] = ()) -> None:
        self._world = world
        self._held: list[HeldLease] = world.store.read(lambda tx: tx.leases.held())
        self._ran = _ran_ahead(world, [self._stands(each) for each in ahead])

    def _stands(self, dataset_id: str) -> "_Stands | KfmError":
        world = self._world
        try:
            return recall(world, ("stands", dataset_id), lambda: _stands(world, dataset_id))
        except KfmError as error:  # whoever asks for it is told
            return error

    def of(self, dataset_id: str) -> DatasetStatus:
        return self.checked(dataset_id)[0]

    def checked(self, dataset_id: str) -> tuple[DatasetStatus, str | None]:
        """How a dataset stands, and when its source was last looked at."""
        world = self._world
        stands = self._stands(dataset_id)
        if isinstance(stands, KfmError):
            raise stands
        head, entry = stands.head, stands.entry
        ran = self._ran.get(_read_as(head, entry)) or _ran_of(world, head, entry)
        at = None if ran.check is None else ran.check.checked_at
        age = (
            None
            if at is None
            else (world.clock.now() - dt.datetime.fromisoformat(at)).total_seconds()
        )
        fresh = (
            head.version_id is not None
            and not stands.lacking
            and age is not None
            and age <= (seconds(entry.freshness) if entry is not None else FRESH_S)
        )
        found = _shown(stands, ran, self._held, fresh)
        status = DatasetStatus(
            dataset_id=dataset_id,
            state=found.state,
            version_id=head.version_id,
            generation=head.generation,
            fresh=fresh,
            last_run_id=found.row.run_id if found.row is not None else None,
            reason=found.reason,
            next=found.next,
            origin=stands.origin,
        )
        return status, at


def dataset_status(world: World, dataset_id: str) -> DatasetStatus:
    """How a dataset stands."""
    return Statuses(world).of(dataset_id)


def shown(world: World, head: Generation, fresh: bool = True) -> Shown:
    """What is said of the dataset whose head this is. The newest look decides what is said of
    upstream; what waits for a person, and what was denied on this head, is said whatever upstream
    does."""
    stands = _stands_on(world, head)
    held: list[HeldLease] = world.store.read(lambda tx: tx.leases.held())
    return _shown(stands, _ran_of(world, head, stands.entry), held, fresh)


def _stands(world: World, dataset_id: str) -> _Stands:
    made = generations_of(world, dataset_id)
    return _stands_on(world, made[-1] if made else EMPTY(dataset_id))


def _stands_on(world: World, head: Generation) -> _Stands:
    dataset_id = head.dataset_id
    return _Stands(
        head=head,
        entry=world.registry(dataset_id),
        not_agreed=not_agreed(world, generations_of(world, dataset_id), head.generation),
        lacking=(why := lacking(world, head)),
        origin=[] if why else origin_of(world.data, dataset_id, head.version_id),
    )


class _ReadAs(NamedTuple):
    """What decides, beside the store, what is read of it of a dataset."""

    dataset_id: str
    generation: int
    file_digest: str
    partitions: tuple[str, ...]


def _read_as(head: Generation, entry: DatasetEntry | None) -> _ReadAs:
    partitions = tuple(entry.partitions) if entry is not None else ()
    return _ReadAs(head.dataset_id, head.generation, head.file_digest, partitions)


def _ran_ahead(world: World, stood: Sequence[_Stands | KfmError]) -> dict[_ReadAs, _Ran]:
    """Of many datasets at once: that somebody has committed is so often, and a transaction for each
    costs more than what is read in it.
    """
    heads = {
        _read_as(each.head, each.entry): each.head for each in stood if isinstance(each, _Stands)
    }

    def read(tx: Tx) -> dict[_ReadAs, _Ran]:
        found, off = dict[_ReadAs, _Ran](), [s.name for s in tx.switches.listing()]
        for key, head in heads.items():
            with suppress(IntegrityError):  # whoever asks for it is told
                found[key] = _ran(tx, head, key.partitions, off)
        return found

    if not heads:
        return {}
    return recall_store(world, ("ran", *heads), lambda: world.store.read(read))


def _ran_of(world: World, head: Generation, entry: DatasetEntry | None) -> _Ran:
    key = _read_as(head, entry)

    def read(tx: Tx) -> _Ran:
        return _ran(tx, head, key.partitions, [s.name for s in tx.switches.listing()])

    return recall_store(world, ("ran of", key), lambda: world.store.read(read))


def _ran(tx: Tx, head: Generation, partitions: tuple[str, ...], off: Sequence[str]) -> _Ran:
    dataset_id = head.dataset_id
    rows = tx.runs.newest(dataset_id, NEWEST + 4 * len(partitions))
    known = {"", *partitions}
    ended = {r.partition for r in rows if r.partition in known and r.state not in _UNTOLD}
    opened = tx.runs.open_runs(dataset_id)
    return _Ran(
        rows=rows,
        act=last_act(tx, head),
        opened=[(row, tx.proposals.number(row.run_id)) for row in reversed(opened)],
        looks={name: tx.looks.newest(dataset_id, name) for name in sorted(ended)},
        staged=_waiting_parts(tx, dataset_id),
        check=tx.index.latest_check(dataset_id),
        off=[name for name in off if name in (dataset_id, INGEST)],
    )


def _shown(stands: _Stands, ran: _Ran, held: Sequence[HeldLease], fresh: bool) -> Shown:
    head, entry, act = stands.head, stands.entry, ran.act
    dataset_id = head.dataset_id
    last = next((r for r in ran.rows if r.state not in _PASSED_OVER), None)
    if act.version_id is None and act.kind == "withdraw":
        return Shown(
            "withdrawn",
            f"withdrawn by generation {act.generation}",
            f"kfm explain {dataset_id}",
            last,
        )
    why = stands.not_agreed
    if why is not None:
        return Shown(
            "denied", f"what is official was not agreed to: {why}", f"kfm gates {dataset_id}", last
        )
    if stands.lacking:
        said = f"{stands.lacking}, so nobody can have it"
        return Shown("failed", said, f"kfm verify {dataset_id}", last)
    if _working(held, dataset_id):
        return Shown("running", row=last)
    if entry is not None and entry.retired is not None:
        return Shown("retired", f"retired: {entry.retired}", row=last)
    news = _news(head, ran)
    if news:
        also = [f"{n.state}: {n.reason}" for n in news[1:] if n.state != news[0].state]
        first = news[0]
        return Shown(first.state, "; ".join([first.reason, *also]), first.next, first.row)
    if ran.staged:
        state = "official" if head.version_id else "waiting"
        said = f"{ran.staged:,} parts wait to be assembled"
        return Shown(state, said, "kfm backfill status", last)
    state = "official" if head.version_id else "none"
    following = None if state == "official" and fresh else _look_again(ran, dataset_id)
    return Shown(state, next=following, row=last)


def _look_again(ran: _Ran, dataset_id: str) -> str:
    """The command that has upstream looked at, from where the dataset is: what is switched off does
    not run.
    """
    return f"kfm switch on {ran.off[0]}" if ran.off else f"kfm run {dataset_id}"


def _news(head: Generation, ran: _Ran) -> list[Shown]:
    """What is said beside "official", the most pressing first: of each partition what became of its
    newest run and its newest look.
    """
    found = [_open(ran, head, row, number) for row, number in ran.opened]
    order = {"proposed": 0, "denied": 1, "waiting": 2, "failed": 3}
    # what is assembled from many parts belongs to none of them
    for partition, look in ran.looks.items():
        mine = [r for r in ran.rows if r.partition == partition and r.state not in _UNTOLD]
        found += [s for s in (_denied(head, mine, look), _failed(mine, look)) if s is not None]
    return sorted(found, key=lambda s: order[s.state])


def _named(row: LedgerRow, reason: str) -> str:
    return f"{row.partition}: {reason}" if row.partition else reason


def _open(ran: _Ran, head: Generation, row: LedgerRow, number: int | None) -> Shown:
    """A run that has not ended, and its proposal."""
    if row.state == "CLAIMED":
        return Shown("waiting", _named(row, "interrupted"), "kfm resume", row)
    if row.promo or row.intent is not None:  # approved, or asks nobody: it was left on its way
        return Shown(
            "proposed",
            _named(row, row.reason or "approved, and not yet official"),
            "kfm resume",
            row,
        )
    if row.pinned != head.generation:  # nobody can make it official any more
        said = f"proposal {number} was made on generation {row.pinned}; the next run makes it again"
        return Shown("waiting", _named(row, said), _look_again(ran, row.dataset_id), row)
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


def _working(held: Sequence[HeldLease], dataset_id: str) -> bool:
    """Whether a living process holds a lease of this dataset."""
    return any(
        not h.lapsed and (h.name == dataset_id or h.name.startswith(f"{dataset_id}/")) for h in held
    )
