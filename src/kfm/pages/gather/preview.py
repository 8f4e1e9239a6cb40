"""What the page of a proposal as it would be tells."""

import msgspec

from kfm.access.boundary import Opened
from kfm.console.preview import base_of, preview_at, previewed
from kfm.model import Json, VersionFacts
from kfm.pages.gather.asks import Asks
from kfm.pages.preview import PreviewFile, PreviewPage
from kfm.reader.door import LEFT_OUT
from kfm.reader.rows import Question, rows_page

__all__ = ["preview_page"]

_FIRST = 25


def preview_page(asks: Asks, number: str) -> PreviewPage:
    with previewed(asks.asking, number) as (opened, facts):
        return _page(asks, int(number), opened, facts)


def _page(asks: Asks, number: int, opened: Opened, facts: VersionFacts) -> PreviewPage:
    entry = asks.workspace.readable(opened.dataset_id)
    base, at = _base(asks, opened.dataset_id), preview_at(number)
    links = {"Rows as JSON": f"{at}/rows", "Rows as CSV": f"{at}/rows?form=csv&limit=10000"}
    links |= {"What it changes": f"{at}/diff"}
    return PreviewPage(
        address=at,
        title=f"Proposal {number} as it would be",
        command=f"kfm show proposal/{number}",
        proposal=number,
        dataset_id=opened.dataset_id,
        dataset_title=entry.title if entry is not None else opened.dataset_id,
        label=entry.policy_label or entry.sensitivity if entry is not None else None,
        licence=entry.licence if entry is not None else None,
        version_id=opened.version_id,
        version_digest=opened.version_digest,
        base_generation=base,
        rows=facts.rows,
        bbox=facts.bbox,
        interval=facts.interval,
        columns=facts.schema,
        files=tuple(
            PreviewFile(
                name=name,
                digest=opened.digests[name],
                bytes=path.stat().st_size,
                href=f"{at}/files/{name}",
            )
            for name, path in sorted(opened.files.items())
        ),
        first=tuple(_first(asks, number, opened)),
        links=links,
    )


def _base(asks: Asks, dataset_id: str) -> int | None:
    try:
        found = base_of(asks.asking, dataset_id)
    except LEFT_OUT:
        return None
    return found.generation if found is not None else None


def _first(asks: Asks, number: int, opened: Opened) -> list[Json]:
    if not any(name.endswith(".parquet") for name in opened.files):
        return []
    at = preview_at(number)
    page = rows_page(asks.asking, opened, at, f"/proposals/{number}", Question(limit=_FIRST))
    plain: list[Json] = msgspec.json.decode(msgspec.json.encode(page.rows))
    return plain
