"""What waits to be announced: written with the generation it tells of, marked when it was told."""

from kfm.model.ledger import OutboxRow
from kfm.store.view import View

__all__ = ["OutboxView"]


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
