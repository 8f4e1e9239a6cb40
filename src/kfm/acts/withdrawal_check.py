"""withdrawal_check: a withdrawal takes away only; what it left is compared with the version before
it, row by row.
"""

from typing import NamedTuple

import msgspec

from kfm.model import KfmError, canonical
from kfm.model.paths import version_path
from kfm.zones.base import Zone

__all__ = ["Compared", "taken_away"]


class Compared(NamedTuple):
    """What a withdrawal left, beside what there was."""

    wrong: str = ""  # what it brought
    not_compared: str = ""  # why nobody can tell


class _Named(msgspec.Struct, frozen=True):
    name: str


class _Step(msgspec.Struct, frozen=True):
    step: str = ""


class _Facts(msgspec.Struct, frozen=True):
    """What is compared of version.json: one that lacks the rest is looked at all the same."""

    schema: tuple[_Named, ...]
    steps: tuple[_Step, ...] = ()


def _facts(zone: Zone, dataset_id: str, version_id: str) -> _Facts:
    raw = zone.read(version_path(dataset_id, version_id, "version.json"))
    return msgspec.convert(canonical.loads(raw), _Facts)


def taken_away(zone: Zone, dataset_id: str, before: str, left: str, path: str) -> Compared:
    """Whether every row of a table that a withdrawal left was in that table before, as it is."""
    try:
        from kfm.diff.tables import diff_files

        old, new = (_facts(zone, dataset_id, version) for version in (before, left))
        if any(step.step != "suppress" for step in new.steps):
            return Compared(
                not_compared="its rows stand for groups of records, and change with them"
            )
        more = sorted({c.name for c in new.schema} - {c.name for c in old.schema})
        if more:
            return Compared(wrong=f"it has a column that the version before it has not: {more[0]}")
        files = [
            {path: zone.local(version_path(dataset_id, version, path))}
            for version in (before, left)
        ]
        found = diff_files(files[0], files[1], (), limit=0, dataset_id=dataset_id)
    except ImportError:
        return Compared(not_compared="what reads Parquet is not installed")
    except (KfmError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return Compared(not_compared="one of the two cannot be read")
    return Compared(
        wrong=(
            f"{found.added:,} of its rows are not in the version before it, or not like this"
            if found.added
            else ""
        )
    )
