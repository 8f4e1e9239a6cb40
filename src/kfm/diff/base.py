"""What a comparison of two versions says, and how its values are written."""

from typing import Literal

import msgspec

from kfm.model import Json

__all__ = [
    "Change",
    "Columns",
    "Diff",
    "Measure",
    "Place",
    "Value",
    "number",
    "plain",
    "shown",
    "title",
    "to_json",
]

Place = tuple[float, float]  # longitude, latitude
Value = int | float | str | None  # of a profile


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One row that differs."""

    kind: Literal["added", "removed", "changed"]
    key: Json = {}  # empty when rows were compared whole
    # column -> old, new; of a changed row only what changed
    cells: dict[str, tuple[object, object]] = {}
    # great-circle metres between the two centroids, when the geometry changed
    moved_m: float | None = None
    old_at: Place | None = None
    new_at: Place | None = None


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the profile; `missing` is a share of the rows, `change` is None where it is not a
    number.
    """

    measure: str  # rows, missing, lowest, highest, earliest, latest, west, south, east, north
    column: str = ""
    before: Value = None
    after: Value = None
    change: int | float | None = None


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """How the schema changed; rows are compared over the columns both versions have."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    retyped: dict[str, tuple[str, str]] = {}
    common: int = 0


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from `a` to `b`. The counts are of all rows, `samples` are as many as were asked
    for.
    """

    dataset_id: str = ""
    a: str
    b: str
    key: tuple[str, ...]
    # False: no key, or not in both versions; rows were compared whole, so none is `changed`
    keyed: bool
    rows_a: int
    rows_b: int
    added: int
    removed: int
    changed: int
    equal: int
    moved: int = 0
    # rows whose key another row of the same version has too: those are compared whole
    duplicates: tuple[int, int] = (0, 0)
    columns: Columns
    touched: dict[str, int] = {}  # column -> rows in which it changed
    samples: tuple[Change, ...] = ()
    profile: tuple[Measure, ...] = ()
    reencoded: bool = False  # the files differ, what they say does not

    @property
    def differences(self) -> int:
        return self.added + self.removed + self.changed

    @property
    def same(self) -> bool:
        """No row and no column differs."""
        return not (
            self.differences or self.columns.added or self.columns.removed or self.columns.retyped
        )

    @property
    def remarks(self) -> list[tuple[str, str, str]]:
        """Each column that came, went or changed: kind, name, what of it."""
        columns = self.columns
        found = [("added", n, "added") for n in columns.added] + [
            ("removed", n, "removed") for n in columns.removed
        ]
        found += [
            ("changed", n, f"type {old} → {new}") for n, (old, new) in columns.retyped.items()
        ]
        return found + [("changed", n, f"{count:,} rows") for n, count in self.touched.items()]

    @property
    def shifts(self) -> list[Measure]:
        """The lines of the profile that changed, of what both versions have."""
        gone = {*self.columns.added, *self.columns.removed}
        return [m for m in self.profile if m.before != m.after and m.column not in gone]


def to_json(diff: Diff) -> Json:
    """The comparison as plain JSON values."""
    found: Json = msgspec.to_builtins(diff)
    return found


def plain(text: str) -> str:
    """Text of others without what would steer a terminal or turn the reading direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown(value: object) -> str:
    """A value as people read it."""
    return (
        "null"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else plain(str(value))
    )


def title(measure: Measure) -> str:
    """What a line of the profile is called."""
    edge = "" if measure.column or measure.measure == "rows" else " edge"
    return f"{plain(measure.column)} {measure.measure}{edge}".strip()


def number(measure: Measure, value: Value, *, signed: bool = False) -> str:
    """A value of the profile: grouped by comma, a share in per cent, a change with its sign."""
    if value is None or isinstance(value, str):
        return shown(value) if value else ""
    sign = "" if value == 0 else "+ " if value > 0 else "− "
    value = abs(value) if signed else value
    if measure.measure == "missing":
        return f"{sign}{100 * value:.4g}" if signed else f"{100 * value:.4g} %"
    digits = f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"
    return sign + digits if signed else digits
