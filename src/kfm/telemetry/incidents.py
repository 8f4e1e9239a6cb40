"""Incidents: what is wrong with a dataset now, who was told of it, and when it was over.

Each is opened once, told once to everybody, told again to others when it lasts, and closed with a
word to those who were told. A dataset can be silenced for a while: what happens meanwhile is told
afterwards, if it lasts. What is known of each lies in the store, so that whoever leads goes on.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import msgspec

from kfm.model import rfc3339
from kfm.store.base import Store, Tx

__all__ = ["Incident", "Kind", "Message", "Silence", "Watch", "incidents", "silence", "silenced"]

Kind = Literal["stale", "failing", "burning"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
Word = Literal["opened", "lasts", "over"]


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with one dataset."""

    dataset_id: str
    kind: Kind
    opened_at: str
    reason: str
    over_at: str | None = None  # it is over, and not everybody was told
    told: dict[str, Word] = {}  # the last word each channel has

    @property
    def id(self) -> str:
        """The same for everything that is told of it."""
        return f"{self.dataset_id}/{self.kind}/{self.opened_at}"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What a channel is told: the body of a webhook, the input of a command, a mail."""

    id: str
    word: Word
    dataset_id: str
    kind: Kind
    opened_at: str
    at: str
    reason: str
    next: str


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody is told of a dataset until then."""

    dataset_id: str
    until: str
    reason: str
    by_whom: str


def _place(dataset_id: str, kind: str) -> str:
    return f"incident/{dataset_id}/{kind}"


def _get(tx: Tx, dataset_id: str, kind: Kind) -> Incident | None:
    said = tx.schedule.checkpoint(_place(dataset_id, kind))
    return msgspec.json.decode(said, type=Incident) if said else None


def _put(tx: Tx, incident: Incident) -> None:
    said = msgspec.json.encode(incident).decode()
    tx.schedule.set_checkpoint(_place(incident.dataset_id, incident.kind), said)


def incidents(store: Store, dataset_ids: Sequence[str]) -> list[Incident]:
    """Those that are open, or whose end not everybody knows."""

    def look(tx: Tx) -> list[Incident]:
        found = (_get(tx, name, kind) for name in dataset_ids for kind in _KINDS)
        return [each for each in found if each is not None]

    return store.read(look)


def silence(store: Store, wanted: Silence | None, dataset_id: str) -> None:
    """From now on; None: people are told again."""
    said = msgspec.json.encode(wanted).decode() if wanted is not None else None
    store.transaction(lambda tx: tx.schedule.set_checkpoint(f"silence/{dataset_id}", said))


def silenced(store: Store, dataset_id: str, now: dt.datetime) -> Silence | None:
    said = store.read(lambda tx: tx.schedule.checkpoint(f"silence/{dataset_id}"))
    found = msgspec.json.decode(said, type=Silence) if said else None
    return found if found is not None and found.until > rfc3339(now) else None


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told, and who is told as well when it lasts. Channels are known by their names."""

    to: tuple[str, ...]
    then_to: tuple[str, ...] = ()
    after: dt.timedelta = dt.timedelta(hours=1)

    def open_and_close(
        self, store: Store, dataset_id: str, wrong: Mapping[Kind, str], now: dt.datetime
    ) -> list[Incident]:
        """Write down what began and what is over; the incidents of a dataset as they are then."""

        def write(tx: Tx) -> list[Incident]:
            found = []
            for kind in _KINDS:
                known = _get(tx, dataset_id, kind)
                new = _now(known, dataset_id, kind, wrong.get(kind), rfc3339(now))
                if new is not None and new != known:
                    _put(tx, new)
                elif new is None and known is not None:
                    tx.schedule.set_checkpoint(_place(dataset_id, kind), None)
                found += [new] if new is not None else []
            return found

        return store.transaction(write)

    def owed(self, incident: Incident, now: dt.datetime) -> list[tuple[str, Message]]:
        """(channel, message) for everybody who does not have the last word."""
        lasts = dt.datetime.fromisoformat(incident.opened_at) + self.after <= now
        if incident.over_at is not None:
            words: dict[str, Word] = dict.fromkeys(incident.told, "over")
        else:
            words = dict.fromkeys(self.to, "opened")
            words |= dict.fromkeys(self.then_to if lasts else (), "lasts")
        return [
            (channel, _message(incident, word, now))
            for channel, word in words.items()
            if incident.told.get(channel) != word
        ]

    def told(self, store: Store, incident: Incident, channel: str, word: Word) -> Incident:
        """A channel has the word; who was the last to hear the end closes the incident."""
        known = msgspec.structs.replace(incident, told={**incident.told, channel: word})
        closed = known.over_at is not None and set(known.told.values()) == {"over"}

        def write(tx: Tx) -> None:
            if closed:
                tx.schedule.set_checkpoint(_place(known.dataset_id, known.kind), None)
            else:
                _put(tx, known)

        store.transaction(write)
        return known


def _now(
    known: Incident | None, dataset_id: str, kind: Kind, why: str | None, at: str
) -> Incident | None:
    """An incident as it is: new, going on, over, or (where nobody was told) none at all."""
    if why is not None:
        if known is None or known.over_at is not None:
            told = known.told if known is not None else {}
            # whoever has not heard that the last one was over hears of one that goes on
            opened = known.opened_at if known is not None and told else at
            return Incident(
                dataset_id=dataset_id, kind=kind, opened_at=opened, reason=why, told=told
            )
        return known
    if known is None or not known.told:
        return None
    return known if known.over_at is not None else msgspec.structs.replace(known, over_at=at)


_NEXT = {"stale": "kfm explain stale {}", "failing": "kfm explain run {}", "burning": "kfm slo {}"}


def _message(incident: Incident, word: Word, now: dt.datetime) -> Message:
    return Message(
        id=incident.id,
        word=word,
        dataset_id=incident.dataset_id,
        kind=incident.kind,
        opened_at=incident.opened_at,
        at=rfc3339(now),
        reason=incident.reason,
        next=_NEXT[incident.kind].format(incident.dataset_id),
    )
