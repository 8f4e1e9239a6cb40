"""Effects: what jobs wrote, by key and digest; and what waits to be announced, written with the
generation it tells of and marked when it was told.
"""

from collections.abc import Sequence

import msgspec

from kfm.model import DeliveryRow, OutboxRow, rfc3339
from kfm.store.view import View

__all__ = ["EVENT", "DeliveryView", "EffectView", "OutboxView"]

EVENT = "event/"  # how what stands for a run begins, where an event is told


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

    def payload(self, run_id: str, generation: int) -> str:
        """What is announced of a generation. Raises `LookupError` where nothing is."""
        row = self._one("outbox_payload", run_id=run_id, generation=generation)
        if row is None:
            raise LookupError(f"run {run_id} announces nothing as generation {generation}")
        return str(row["payload"])

    def waiting(self) -> list[OutboxRow]:
        return [OutboxRow(**dict(r)) for r in self._all("outbox_waiting")]

    def delivered(self, dataset_id: str) -> list[OutboxRow]:
        return [OutboxRow(**dict(r)) for r in self._all("outbox_delivered", dataset_id=dataset_id)]

    def mark(self, run_id: str, generation: int, state: str) -> None:
        self._do("outbox_mark", run_id=run_id, generation=generation, state=state)


class DeliveryView(View):
    """What each receiver outside is still to be told: a row for every generation and receiver, and
    for who hears of runs one for each moment of a run, which is gone when it was told. Moments have
    numbers below any generation: -3 it began, -2 it goes on, -1 it ended. What a job made of a
    version has the number -4; an event of the world has -5, and `event/<event_id>` stands in the
    place of its run.
    """

    def put(self, run_id: str, dataset_id: str, generation: int, receivers: Sequence[str]) -> None:
        """In the transaction that puts the announcement; one that is there stays as it is."""
        for receiver in receivers:
            self._do(
                "delivery_put",
                run_id=run_id,
                dataset_id=dataset_id,
                generation=generation,
                receiver=receiver,
            )

    def put_run(self, run_id: str, dataset_id: str, receivers: Sequence[str]) -> None:
        """In the transaction that begins a run: every moment of it, each due when it has come."""
        for moment in (-3, -2, -1):
            self.put(run_id, dataset_id, moment, receivers)

    def put_event(self, event_id: str, dataset_id: str, receivers: Sequence[str]) -> None:
        """In the transaction that keeps an event: it is told once it is there."""
        self.put(f"{EVENT}{event_id}", dataset_id, -5, receivers)

    def over(self, row: DeliveryRow) -> None:
        """A moment of a run was told, or there is nothing to tell of it."""
        self._do("delivery_over", **_key(row))

    def due(self, dataset_id: str) -> list[DeliveryRow]:
        """What may be tried now: moments of runs, then generations, oldest first."""
        return [DeliveryRow(**dict(r)) for r in self._all("delivery_due", dataset_id=dataset_id)]

    def due_datasets(self) -> list[str]:
        return [str(row["dataset_id"]) for row in self._all("delivery_due_datasets")]

    def left(self) -> list[DeliveryRow]:
        """What waits, and what was given up."""
        return [DeliveryRow(**dict(r)) for r in self._all("delivery_left")]

    def mark(self, row: DeliveryRow, state: str, error: str = "") -> None:
        """It ended: delivered, dropped or failed."""
        self._do("delivery_mark", **_key(row), state=state, error=error)

    def later(self, row: DeliveryRow, wait_s: float, error: str) -> None:
        """It is tried again after a pause."""
        self._do("delivery_later", **_key(row), wait_ms=int(wait_s * 1000), error=error)

    def again(self, dataset_id: str) -> int:
        """Everything open is tried at once; how many there are."""
        return self._do("delivery_again", dataset_id=dataset_id)


def _key(row: DeliveryRow) -> dict[str, object]:
    return {"run_id": row.run_id, "generation": row.generation, "receiver": row.receiver}
