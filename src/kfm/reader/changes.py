"""What changed between two versions that the boundary let out: compared once."""

from collections import OrderedDict
from dataclasses import replace
from threading import Lock

from kfm.access.boundary import Opened
from kfm.data.libraries import library
from kfm.diff.base import Diff
from kfm.reader.files import tables_of

__all__ = ["NOTHING", "SAMPLES", "diff_of", "nothing_before"]

SAMPLES = 50  # rows that differ, where nobody says how many
NOTHING = "nothing"  # the name of what a first version is compared with
_KEPT = 16
_kept: OrderedDict[tuple[object, ...], Diff] = OrderedDict()
_lock = Lock()


def diff_of(old: Opened, new: Opened, limit: int = SAMPLES) -> Diff:
    """Compared once for everything that the answer depends on, and only while the tables are those of
    their digests.
    """
    before, after = tables_of(old), tables_of(new)
    labels, key = (old.label, new.label), new.business_key or old.business_key
    asked = (new.dataset_id, old.version_digest, new.version_digest, labels, key, limit)
    with _lock:
        if asked in _kept:
            _kept.move_to_end(asked)
            return _kept[asked]
    library("pyarrow", "reads Parquet")
    from kfm.diff.tables import diff_files

    found = diff_files(before, after, key, limit=limit, dataset_id=new.dataset_id, labels=labels)
    with _lock:
        _kept[asked] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return found


def nothing_before(new: Opened) -> Opened:
    """What something is compared with that is the first of its dataset."""
    return replace(new, label=NOTHING, version_id="", version_digest="", files={}, digests={})
