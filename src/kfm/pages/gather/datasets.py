"""What the page of all datasets tells."""

from collections.abc import Iterator

from kfm.access.status import DatasetStatus, Statuses
from kfm.evidence.append_times import appended_at
from kfm.model import DatasetEntry, Generation, KfmError
from kfm.pages import addresses
from kfm.pages.datasets import Choice, DatasetRow, DatasetsPage
from kfm.pages.gather.asks import Asks
from kfm.pages.gather.standing import standing_of

__all__ = ["datasets_page"]


def datasets_page(asks: Asks, choice: Choice) -> DatasetsPage:
    every = list(_rows(asks))
    shown = tuple(row for row in every if _fits(row, choice))
    return DatasetsPage(
        address=_address(choice),
        title="Datasets",
        command="kfm status",
        datasets=shown,
        choice=choice,
        labels=tuple(sorted({row.label for row in every if row.label})),
        licences=tuple(sorted({row.licence for row in every if row.licence})),
        among=len(every),
    )


def _address(choice: Choice) -> str:
    from urllib.parse import urlencode

    asked = {
        name: text
        for name in ("q", "label", "licence", "freshness")
        if (text := getattr(choice, name))
    }
    return f"/datasets?{urlencode(asked)}" if asked else "/datasets"


def _rows(asks: Asks) -> Iterator[DatasetRow]:
    statuses = Statuses(asks.world)
    for name in asks.workspace.registered():
        seen = asks.seen(name)
        if seen is None and not asks.is_operator:
            continue
        entry = asks.workspace.readable(name)
        try:
            status = statuses.of(name)
        except KfmError as error:
            status = DatasetStatus(dataset_id=name, state="failed", reason=error.happened)
        yield _row(asks, name, entry, status, known=seen is not None)


def _row(
    asks: Asks, name: str, entry: DatasetEntry | None, status: DatasetStatus, *, known: bool
) -> DatasetRow:
    world = asks.world
    head: Generation | None = world.store.read(lambda tx: tx.index.last_generation(name))
    facts = asks.facts(name) if known else None
    told = standing_of(world, status, entry, operator=asks.is_operator)
    return DatasetRow(
        dataset_id=name,
        title=entry.title if entry is not None else name,
        description=entry.description if entry is not None else "",
        label=entry.policy_label or entry.sensitivity if entry is not None else None,
        licence=entry.licence if entry is not None else None,
        state=told.state,
        word=told.word,
        note=told.note,
        rows=facts.rows if facts is not None else None,
        generation=status.generation or None,
        official_at=appended_at(world, head) if head is not None and known else None,
        spatial=facts is not None and facts.bbox is not None,
        href=addresses.dataset(name) if known else addresses.decision(name),
    )


def _fits(row: DatasetRow, choice: Choice) -> bool:
    words = f"{row.dataset_id} {row.title} {row.description}".lower()
    fresh = {"fresh": ("new", "noop"), "late": ("late",), "other": ("denied", "failed", "wait")}
    return (
        all(word in words for word in choice.q.lower().split())
        and (not choice.label or row.label == choice.label)
        and (not choice.licence or row.licence == choice.licence)
        and (not choice.freshness or row.state in fresh.get(choice.freshness, ()))
    )
