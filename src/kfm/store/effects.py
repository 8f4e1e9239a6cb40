"""Effects: what jobs wrote, by key and digest; and what waits to be announced, written with the
generation it tells of and marked when it was told.
"""

from collections.abc import Sequence

import msgspec

from kfm.model import OutboxRow, rfc3339
from kfm.store.view import View

__all__ = ["EffectView", "OutboxView"]


class EffectView(View):
    """An effect is written in the transaction that ends its job."""

    def put(self, key: str, job_id: str, digest: str) -> None:
        """A keyed effect, in the transaction that ends its job."""
        self._do(
            "effect_put",
            key=key,
            job_id=job_id,
            digest=digest,
            now=rfc3339(self._store.clock.now()),
        )

    def put_all(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Keyed effects (key, job_id, digest), in the transaction that ends their jobs."""
        first: dict[str, tuple[str, str, str]] = {}
        # one statement may not write a key twice
        again = [row for row in rows if first.setdefault(row[0], row) is not row]
        self._do(
            "effect_put_all",
            rows=msgspec.json.encode(list(first.values())).decode(),
            now=rfc3339(self._store.clock.now()),
        )
        for row in again:
            self.put(*row)

    def set(self, key: str, digest: str) -> None:
        """A keyed effect of no job, whatever it was before."""
        self._do("effect_drop", key=key)
        self.put(key, "", digest)

    def digest(self, key: str) -> str | None:
        """The digest of what was written under a key; None: nothing was."""
        row = self._one("effect_get", key=key)
        return str(row["digest"]) if row is not None else None

    def drop(self, key: str) -> None:
        self._do("effect_drop", key=key)

    def count(self) -> tuple[int, int]:
        """How many keys were written, and how many times in all."""
        row = self._one("effect_sum")
        return (int(row["keys"]), int(row["times"])) if row is not None else (0, 0)

    def receipts(self) -> list[tuple[str, str]]:
        """(path, digest) of every receipt that no channel names."""
        return [(r["key"], r["digest"]) for r in self._all("effect_receipts")]

    def loose_receipts(self, first: str, before: str) -> list[tuple[str, str]]:
        """(path, digest) of receipts that jobs wrote themselves, from `first` until before
        `before`; a pack is nobody's.
        """
        return [
            (r["key"], r["digest"]) for r in self._all("effect_loose", first=first, before=before)
        ]

    def receipts_packed(self, pack: str, digest: str, paths: Sequence[str]) -> None:
        """From now on one file stands for many."""
        self.put(pack, "", digest)
        for path in paths:
            self._do("effect_drop", key=path)


class OutboxView(View):
    """One announcement per run and generation."""

    def put(self, run_id: str, dataset_id: str, generation: int, payload: str) -> None:
        self._do(
            "outbox_put",
            run_id=run_id,
            dataset_id=dataset_id,
            generation=generation,
            payload=payload,
        )

    def waiting(self) -> list[OutboxRow]:
        return [OutboxRow(**dict(r)) for r in self._all("outbox_waiting")]

    def delivered(self, dataset_id: str) -> list[OutboxRow]:
        return [OutboxRow(**dict(r)) for r in self._all("outbox_delivered", dataset_id=dataset_id)]

    def mark(self, run_id: str, generation: int, state: str) -> None:
        self._do("outbox_mark", run_id=run_id, generation=generation, state=state)
