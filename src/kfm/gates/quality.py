"""The quality gate: counts, nulls, extents and geometry against thresholds, and drift against the
last version.
"""

import datetime as dt
from collections.abc import Iterable, Mapping

from kfm.model import CHANGE, FEW, Column, ColumnProfile, Evidence, Reason, Verdict, change_limits
from kfm.model.change import told

__all__ = ["new_columns", "quality"]

_NAMED = 12  # columns in a note


def quality(e: Evidence) -> Verdict:
    """Beyond a threshold the answer is no; beyond an expected change a person must look."""
    if e.entry is None:
        return Verdict(gate="quality")
    reasons, review = (
        [*_counts(e), *_nulls(e), *_extent(e), *_geometry(e)],
        [*(drift := _drift(e)), *_changed(e, alone=all(r.code in CHANGE for r in drift))],
    )
    before = (
        "" if e.before is None else f", {_change(e.before.rows, e.rows)} against the last version"
    )
    new = new_columns(e.before.schema, e.schema) if e.before is not None else ""
    return Verdict(
        gate="quality",
        reasons=tuple(reasons),
        review=tuple(review),
        note=f"{e.rows:,} rows{before}{new and f'; {new}'}",
    )


def _no(e: Evidence, code: str, message: str, key: str) -> Reason:
    assert e.entry is not None
    name = e.entry.dataset_id
    remedy = f"See `kfm diff {name}`; ask upstream, or change `{key}` in data/registry/{name}.yml."
    return Reason(code=f"quality.{code}", message=message, remedy=remedy)


def _counts(e: Evidence) -> list[Reason]:
    assert e.entry is not None
    q, found = e.entry.quality, []
    if e.rows < q.min_rows:
        found.append(
            _no(
                e, "rows", f"{e.rows:,} rows, at least {q.min_rows:,} expected.", "quality.min_rows"
            )
        )
    if q.max_rows is not None and e.rows > q.max_rows:
        found.append(
            _no(e, "rows", f"{e.rows:,} rows, at most {q.max_rows:,} expected.", "quality.max_rows")
        )
    return found


def _shares(profile: Mapping[str, ColumnProfile], rows: int) -> dict[str, float]:
    return {name: column.nulls / rows for name, column in profile.items()} if rows else {}


def _nulls(e: Evidence) -> list[Reason]:
    assert e.entry is not None
    shares, found = _shares(e.profile, e.rows), []
    for column, limit in e.entry.quality.max_null_share.items():
        if shares.get(column, 1.0) > limit:
            message = (
                f"{shares.get(column, 1.0):.1%} of {column} is missing, at most {limit:.1%}"
                " expected."
            )
            found.append(_no(e, "nulls", message, f"quality.max_null_share.{column}"))
    for required in (c.name for c in e.entry.schema if not c.nullable):
        if required in e.profile and e.profile[required].nulls:
            found.append(
                _no(
                    e,
                    "nulls",
                    f"{required} may not be missing and is, {e.profile[required].nulls:,} times.",
                    "schema",
                )
            )
    return found


def _extent(e: Evidence) -> list[Reason]:
    assert e.entry is not None
    extent, found = e.entry.extent, []
    if extent is None:
        return []
    if extent.bbox is not None and e.bbox is not None:
        w, s, east, n = extent.bbox
        if e.bbox[0] < w or e.bbox[1] < s or e.bbox[2] > east or e.bbox[3] > n:
            found.append(
                _no(
                    e,
                    "coverage",
                    f"Records lie outside the registered extent: {list(e.bbox)} is not within"
                    f" {list(extent.bbox)}.",
                    "extent.bbox",
                )
            )
    if e.interval is not None:
        start, end = e.interval
        if (extent.start and _at(start) < _at(extent.start)) or (
            extent.end and _at(end) > _at(extent.end)
        ):
            found.append(
                _no(
                    e,
                    "coverage",
                    f"Records lie outside the registered time: {start} to {end}.",
                    "extent.start and extent.end",
                )
            )
    return found


def _geometry(e: Evidence) -> list[Reason]:
    assert e.entry is not None
    if not e.invalid_geometries or not e.entry.quality.valid_geometry:
        return []
    return [
        _no(
            e,
            "geometry",
            f"{e.invalid_geometries:,} geometries cross themselves or do not close.",
            "quality.valid_geometry",
        )
    ]


def _at(text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _change(before: int, now: int) -> str:
    return f"{(now - before) / before:+.1%}" if before else "new"


def new_columns(before: Iterable[Column], now: Iterable[Column]) -> str:
    """Columns that the last version did not have: they pass, and are named."""
    known = {c.name for c in before}
    new = [c.name for c in now if c.name not in known] if known else []
    more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
    return f"new columns: {', '.join(new[:_NAMED])}{more}" if new else ""


def _decide(e: Evidence, take: str = "") -> str:
    """What a person who looks does next; what is no proposal has no number to name."""
    assert e.entry is not None
    if e.proposal is None:
        return "`kfm review` lists what waits for a person."
    take = take or f"`kfm approve {e.proposal}`"
    return (
        f"`kfm diff {e.entry.dataset_id} proposal/{e.proposal}` shows it; {take} takes it, `kfm"
        f" reject {e.proposal}` does not."
    )


def _changed(e: Evidence, *, alone: bool) -> list[Reason]:
    """Whether so much changes at once that half a file, a thin answer or another table may have
    come instead of the next one.
    """
    assert e.entry is not None
    change, limits, name = e.change, change_limits(e.entry), e.entry.dataset_id
    remedy = _decide(
        e,
        take=(
            "" if e.entry.approvals or not alone else f"`kfm run {name} --accept-change --reason …`"
        ),
    )
    found = []
    if e.older:
        found.append(
            (
                "older_release",
                (
                    f"Upstream made this answer at {e.older[0]}, before the official one of"
                    f" {e.older[1]}."
                ),
            )
        )
    if change is None or change.other_rules or not change.before:
        return [
            Reason(code=f"quality.{code}", message=message, remedy=remedy)
            for code, message in found
        ]

    def over(count: int, of: int, limit: float | None) -> bool:
        return limit is not None and count > FEW and of > 0 and count / of > limit

    if over(change.fall, change.before, limits.rows):
        found.append(
            (
                "rows_fell",
                f"{told(change)}: more than the {limits.rows:.0%} fewer rows that pass alone.",
            )
        )
    if over(change.changed, change.before, limits.cells):
        found.append(
            (
                "rows_replaced",
                (
                    f"{change.changed:,} of {change.before:,} rows hold other values, more than the"
                    f" {limits.cells:.0%} that pass alone."
                ),
            )
        )
    if over(change.gone, change.before, limits.deletions) and not any(
        code.startswith("rows") for code, _ in found
    ):
        found.append(
            (
                "rows_deleted",
                (
                    f"{change.gone:,} of {change.before:,} rows would be deleted, more than the"
                    f" {limits.deletions:.0%} that pass alone."
                ),
            )
        )
    elif over(change.absent, change.covered, limits.deletions):
        message = (
            f"{change.absent:,} of the {change.covered:,} rows in the time upstream answered for"
            " are missing in its answer and would be deleted."
        )
        found.append(("rows_deleted", message))
    return [
        Reason(code=f"quality.{code}", message=message, remedy=remedy) for code, message in found
    ]


def _drift(e: Evidence) -> list[Reason]:
    assert e.entry is not None
    q = e.entry.quality
    if e.before is None:
        return []
    before, found, remedy = e.before.rows, [], _decide(e)
    # a fall is the guard's business
    if q.max_row_change is not None and before and (e.rows - before) / before > q.max_row_change:
        message = (
            f"Rows {_change(before, e.rows)}, more than the {q.max_row_change:.0%} that passes"
            f" alone ({before:,} to {e.rows:,})."
        )
        found.append(Reason(code="quality.rows_changed", message=message, remedy=remedy))
    was, now = _shares(e.before.profile, before), _shares(e.profile, e.rows)
    for column in sorted(set(was) & set(now)) if q.max_null_change is not None else ():
        if abs(now[column] - was[column]) > (q.max_null_change or 0):
            message = (
                f"Missing values of {column} went from {was[column]:.1%} to {now[column]:.1%}."
            )
            found.append(Reason(code="quality.nulls_changed", message=message, remedy=remedy))
    gone = sorted({c.name for c in e.before.schema} - {c.name for c in e.schema})
    types = {c.name: c.type for c in e.schema}
    retyped = [c.name for c in e.before.schema if types.get(c.name, c.type) != c.type]
    if retyped:
        found.append(
            Reason(
                code="quality.columns_retyped",
                message=f"The columns {', '.join(retyped)} have another type.",
                remedy=remedy,
            )
        )
    if gone:
        found.append(
            Reason(
                code="quality.columns_gone",
                message=f"The columns {', '.join(gone)} are gone.",
                remedy=remedy,
            )
        )
    return found
