"""What the page of a change tells."""

from collections import OrderedDict
from threading import Lock

from kfm.access.boundary import Opened
from kfm.access.references import generations_of
from kfm.diff.base import Diff
from kfm.pages import addresses
from kfm.pages.difference import DiffPage
from kfm.pages.gather.asks import Asks
from kfm.reader.door import Hidden
from kfm.reader.versions import which_of

__all__ = ["diff_of", "diff_page"]

_SAMPLES = 24


def diff_page(asks: Asks, dataset_id: str, which: str) -> DiffPage:
    ref = asks.known(which_of(dataset_id, which))
    rows = generations_of(asks.world, dataset_id)
    before = [
        g.generation
        for g in rows
        if g.generation < ref.generation and g.version_id not in (None, ref.version_id)
    ]
    if ref.generation == 1:
        raise Hidden  # the first changed nothing
    # made again as it was, it differs in nothing from itself
    before = before or [ref.generation - 1]
    old = asks.data(f"{dataset_id}@{before[-1]}")
    new = asks.data(f"{dataset_id}@{ref.generation}")
    entry = asks.workspace.require(dataset_id)
    return DiffPage(
        address=addresses.diff(dataset_id, ref.version_id),
        title=f"{entry.title}: generation {before[-1]} to {ref.generation}",
        command=f"kfm diff {dataset_id}@{before[-1]} {dataset_id}@{ref.generation}",
        dataset_id=dataset_id,
        dataset_title=entry.title,
        generation=ref.generation,
        before=before[-1],
        diff=diff_of(old, new),
    )


_kept: OrderedDict[tuple[str, str], Diff] = OrderedDict()
_lock = Lock()
_KEPT = 16


def diff_of(old: Opened, new: Opened) -> Diff:
    """What changed between two that the boundary let out; compared once for their digests."""
    key = (old.version_digest, new.version_digest)
    with _lock:
        if key in _kept:
            return _kept[key]
    from kfm.diff.tables import diff_files  # pyarrow: only where tables are compared

    found = diff_files(
        old.files,
        new.files,
        new.business_key or old.business_key,
        limit=_SAMPLES,
        dataset_id=new.dataset_id,
        labels=(old.label, new.label),
    )
    with _lock:
        _kept[key] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return found
