"""What the page of one row tells."""

import shlex

from kfm.pages import addresses
from kfm.pages.gather.asks import Asks
from kfm.pages.row import RowPage
from kfm.reader.ask import Said
from kfm.reader.door import LEFT_OUT
from kfm.story.blame import Blame

__all__ = ["row_page"]

_CAME_FROM = "where does it come from"


def row_page(asks: Asks, blame: Blame) -> RowPage:
    """Of what the reader answers about a row."""
    dataset_id = blame.dataset_id
    ref = asks.known(blame.ref)
    generation = ref.generation
    newest = max((cell.given_by for cell in blame.cells), default=blame.last_seen)
    key = [f"{name}={value}" for name, value in blame.key.items()]
    words = " ".join(f"--key {shlex.quote(each)}" for each in key)
    return RowPage(
        address=addresses.row(dataset_id, generation, blame.key),
        title=f"A row of {asks.workspace.require(dataset_id).title}",
        command=f"kfm blame {dataset_id}@{generation} {words}",
        blame=blame,
        dataset_id=dataset_id,
        dataset_title=asks.workspace.require(dataset_id).title,
        generation=generation,
        given_by=newest,
        came=_came(asks, dataset_id, newest) if newest is not None else None,
    )


def _came(asks: Asks, dataset_id: str, generation: int) -> Said | None:
    """Where a generation was had from, as far as this viewer may know."""
    try:
        return asks.focus(dataset_id, str(generation), _CAME_FROM).answers[0]
    except LEFT_OUT:
        return None
