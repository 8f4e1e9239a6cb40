"""What the page of a change tells."""

from kfm.diff.base import Diff
from kfm.pages import addresses
from kfm.pages.difference import DiffPage
from kfm.pages.gather.asks import Asks
from kfm.reader.changes import NOTHING

__all__ = ["diff_page"]


def diff_page(asks: Asks, diff: Diff) -> DiffPage:
    """Of what the reader answers about a change."""
    new = asks.known(diff.b)
    old = f"generation {asks.known(diff.a).generation}" if diff.a != NOTHING else NOTHING
    told = f"{old} to" if old != NOTHING else f"{NOTHING} to generation"
    entry = asks.workspace.require(diff.dataset_id)
    return DiffPage(
        address=addresses.diff(diff.dataset_id, new.version_id),
        title=f"{entry.title}: {told} {new.generation}",
        command=f"kfm diff {diff.a} {diff.b}" if old != NOTHING else f"kfm show {diff.b}",
        dataset_id=diff.dataset_id,
        dataset_title=entry.title,
        generation=new.generation,
        before=old,
        diff=diff,
    )
