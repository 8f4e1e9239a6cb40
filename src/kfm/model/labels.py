"""Labels are obligations: what must have happened to records before anyone may read what is made of
them.
"""

from collections.abc import Iterable
from typing import Protocol

from msgspec import UNSET

from kfm.model.canonical import Json
from kfm.model.dataset import DatasetEntry, Release

__all__ = [
    "CARE_LABELS",
    "NEW_COLUMNS",
    "OBLIGATIONS",
    "Labelled",
    "discharged",
    "explains",
    "is_private",
    "made_columns",
    "obligations",
    "release_steps",
    "unknown_labels",
    "unshown",
]

# sensitivity classes, and the policy labels of the same names
OBLIGATIONS: dict[str, tuple[str, ...]] = {
    "public": (),
    "aggregate-only": ("aggregate",),
    "sensitive-location": ("generalise",),
    "restricted": ("aggregate", "generalise", "grant"),
}
# what a run says of columns that upstream did not have before
NEW_COLUMNS = "new columns are withheld until `release.show` names them"
CARE_LABELS: dict[str, tuple[str, ...]] = {  # the community's statement; compared without case
    "open": (),
    "attribution": (),
    "generalised only": ("generalise",),
    "restricted / by request": ("grant",),
    "restricted": ("aggregate", "generalise", "grant"),
}


class Labelled(Protocol):
    """A registry entry, or the part of it that says how it is labelled."""

    @property
    def sensitivity(self) -> str | None: ...
    @property
    def policy_label(self) -> str | None: ...
    @property
    def care_label(self) -> str | None: ...


def obligations(entries: Iterable[Labelled]) -> tuple[str, ...]:
    """The union over a dataset and everything it is made from; the strictest label of each
    decides.
    """
    found: set[str] = set()
    for entry in entries:
        found |= set(OBLIGATIONS.get(entry.sensitivity or "", ()))
        found |= set(OBLIGATIONS.get(entry.policy_label or "", ()))
        found |= set(CARE_LABELS.get((entry.care_label or "").lower(), ()))
    return tuple(sorted(found))


def discharged(entry: DatasetEntry) -> tuple[str, ...]:
    """What the registered release does away with; each of its parts exactly one obligation."""
    release = entry.release
    if release is None:
        return ()
    parts = (
        ("aggregate", release.aggregate is not None),
        ("generalise", release.h3_resolution is not None),
    )
    return tuple(name for name, there in parts if there)


def explains(release: Release | None) -> bool:
    """Whether rows of a release stand for k records or more; one that only withholds columns shows
    the records themselves.
    """
    return release is not None and (
        release.h3_resolution is not None or release.aggregate is not None
    )


def release_steps(release: Release | None) -> tuple[Json, ...]:
    """What a release does, step by step, in the words of the registry: settings, never a count."""
    if release is None:
        return ()
    steps: list[Json] = []
    if release.show is not UNSET:
        steps.append({"step": "show", "columns": list(release.show)})
    elif release.withhold:  # as releases were written before they said what they show
        steps.append({"step": "withhold", "columns": list(release.withhold)})
    k = {"min_records": release.min_records}
    if release.h3_resolution is not None:
        settings = {"resolution": release.h3_resolution, **k, "min_area_km2": release.min_area_km2}
        steps.append({"step": "h3_generalise", "discharges": "generalise", **settings})
    if (groups := release.aggregate) is not None:
        steps.append(
            {
                "step": "aggregate",
                "discharges": "aggregate",
                "by": list(groups.by),
                "collect": list(groups.collect),
                **k,
            }
        )
    return tuple(steps)


def made_columns(release: Release) -> tuple[str, ...]:
    """The columns that a release makes itself: cell, outline and band. They hold nothing of a
    record.
    """
    cells = ("h3_cell", "geometry") if release.h3_resolution is not None else ()
    return (*cells, *(("records",) if release.aggregate is not None else ()))


def unshown(release: Release, columns: Iterable[str]) -> tuple[str, ...]:
    """Which columns of a table a release lets nobody see; how places are shown is another
    question.
    """
    listed = tuple(columns)
    return tuple(
        c
        for c in listed
        if c in release.withhold or (release.show is not UNSET and c not in release.show)
    )


def is_private(entries: Iterable[DatasetEntry]) -> bool:
    """Whether records themselves must stay on the restricted side: sealed at rest, named in public
    by commitments only.
    """
    listed = list(entries)
    return bool(obligations(listed)) or any(e.release is not None for e in listed)


def unknown_labels(entry: DatasetEntry) -> list[tuple[str, str]]:
    """(field, value) of every label that has no meaning here; nothing is published under one."""
    found = []
    if entry.policy_label and entry.policy_label not in OBLIGATIONS:
        found.append(("policy_label", entry.policy_label))
    if entry.care_label and entry.care_label.lower() not in CARE_LABELS:
        found.append(("care_label", entry.care_label))
    return found
