"""What a card to share tells of a version."""

from kfm.evidence.append_times import appended_at
from kfm.pages.card import Card
from kfm.pages.gather.asks import Asks
from kfm.pages.gather.dataset import made_of, preview
from kfm.reader.versions import which_of

__all__ = ["card_of"]


def card_of(asks: Asks, dataset_id: str, which: str) -> Card:
    ref = asks.known(which_of(dataset_id, which))
    text = f"{dataset_id}@{ref.generation}"
    facts, opened = asks.facts(text), asks.data(text)
    entry = asks.entry(dataset_id)
    made = made_of(asks.world, ref)
    check = asks.world.store.read(lambda tx: tx.index.latest_check(dataset_id))
    return Card(
        title=entry.title,
        dataset_id=dataset_id,
        generation=ref.generation,
        version_id=ref.version_id,
        rows=facts.rows,
        columns=len(facts.schema),
        licence=entry.licence,
        label=entry.policy_label or entry.sensitivity,
        official_at=appended_at(asks.world, made) if made is not None else None,
        looked_at=check.checked_at if check is not None and which == "latest" else None,
        places=preview(opened, facts)[1],
    )
