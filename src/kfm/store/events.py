"""What the world told: events, and by which signed name a delivery is known for a replay."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from kfm.model import EventRow
from kfm.store.view import Row, View

__all__ = ["Claim", "EventView"]

_SOME = 16  # rows of one statement
_AFTER = "\U0010ffff"  # sorts behind every other character


class Claim(NamedTuple):
    """A delivery that is to be the first of its name."""

    source_id: str
    replay_id: str
    event_id: str
    kept_ms: int  # how long others of this name are replays


class EventView(View):
    """Replays are known by (source, replay id) for as long as was said when it was claimed."""

    def known(self, names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
        """The events that deliveries of these (source, replay id) told first."""
        rows = self._all("replay_known", rows=_json(names))
        return {(r["source_id"], r["replay_id"]): str(r["event_id"]) for r in rows}

    def claim(self, claims: Sequence[Claim]) -> set[str]:
        """The events that are new; of the others somebody was first. No name twice, and in the
        order of names, so that two who claim the same wait for each other one way round.
        """
        if self._store.served:
            rows = self._all("replay_claim", rows=_json(sorted(claims)))
            return {str(r["event_id"]) for r in rows}
        now = self._store.now_ms()
        given = sorted((*claim[:3], now + claim.kept_ms) for claim in claims)
        return {str(r["event_id"]) for r in self._some("replay_claim_some", given, now)}

    def put(self, rows: Sequence[EventRow]) -> None:
        """A server is told all at once; in a file SQLite would write a row of JSON out again for
        every column that is taken from it.
        """
        given = [msgspec.structs.astuple(row) for row in rows]
        if self._store.served:
            self._do("event_put_all", rows=_json(given))
        else:
            self._some("event_put_some", given)

    def _some(self, query: str, rows: Sequence[tuple[object, ...]], *more: object) -> list[Row]:
        """Insert rows, some with one call: between two calls other threads want their turn."""
        first, returned = 0, list[Row]()
        while first < len(rows):
            many = _SOME if len(rows) - first >= _SOME else 1
            group = f"({', '.join('?' * len(rows[0]))})"
            sql = self._store.sql[query].replace("(?)", ", ".join([group] * many))
            given = [*chain.from_iterable(rows[first : first + many]), *more]
            returned += self._db.execute(sql, given).fetchall()
            first += many
        return returned

    def like(self, start: str) -> list[EventRow]:
        """The events whose ids begin so, two at the most."""
        return [EventRow(**r) for r in self._all("event_like", first=start, after=start + _AFTER)]

    def listing(self, source_id: str | None = None, limit: int = 50) -> list[EventRow]:
        """Newest first."""
        rows = self._all("event_list", source_id=source_id, limit=limit)
        return [EventRow(**r) for r in rows]

    def keys(self, source_id: str) -> dict[str, tuple[int, str]]:
        """By key: how many events it signed, and when the last came."""
        rows = self._all("event_keys", source_id=source_id)
        return {r["key_id"]: (int(r["events"]), str(r["last_at"])) for r in rows}

    def count(self) -> int:
        row = self._one("event_count")
        return 0 if row is None else int(row["events"])

    def restarted(self, event_id: str, started: str) -> None:
        """A person had it ask once more."""
        self._do("event_restart", event_id=event_id, started=started)

    def forget(self, before_ms: int, limit: int = 1000) -> int:
        """Drop replay ids that are known no longer, and the oldest events of before a moment."""
        self._do("replay_forget")
        return self._do("event_forget", before=before_ms, limit=limit)


def _json(rows: object) -> str:
    return msgspec.json.encode(rows).decode()
