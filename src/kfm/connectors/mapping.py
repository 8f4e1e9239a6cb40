"""`mapping.yml`: how the columns of a delimited file that somebody brings become the columns of a
dataset.
"""

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Literal

import msgspec

__all__ = ["CONVERSIONS", "MappedColumn", "Mapping", "column_names", "with_nulls"]

# (source unit, unit) -> what to add, what to multiply by, what to divide by. Only definitions: each
# is exact.
CONVERSIONS: dict[tuple[str, str], tuple[Decimal, Decimal, Decimal]] = {
    (source, unit): (Decimal(add), Decimal(by), Decimal(over))
    for source, unit, add, by, over in (
        ("ft", "m", "0", "0.3048", "1"),
        ("ft_us", "m", "0", "1200", "3937"),
        ("yd", "m", "0", "0.9144", "1"),
        ("km", "m", "0", "1000", "1"),
        ("mi", "km", "0", "1.609344", "1"),
        ("in", "mm", "0", "25.4", "1"),
        ("in", "cm", "0", "2.54", "1"),
        ("acre", "m2", "0", "4046.8564224", "1"),
        ("acre", "ha", "0", "0.40468564224", "1"),
        ("mi2", "km2", "0", "2.589988110336", "1"),
        ("ft3/s", "m3/s", "0", "0.028316846592", "1"),
        ("mi/h", "m/s", "0", "0.44704", "1"),
        ("kn", "m/s", "0", "1852", "3600"),
        ("lb", "kg", "0", "0.45359237", "1"),
        ("gal", "L", "0", "3.785411784", "1"),
        ("hPa", "Pa", "0", "100", "1"),
        ("degF", "Cel", "-32", "5", "9"),
        ("K", "Cel", "-273.15", "1", "1"),
    )
}

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*$", max_length=63)]
# a header, or a column counted from 1
Where = Annotated[int, msgspec.Meta(ge=1)] | Annotated[str, msgspec.Meta(min_length=1)]


class MappedColumn(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"source": "from"}
):
    """One column: where it comes from, what it becomes."""

    source: Where
    to: Name
    type: Literal["string", "integer", "number", "boolean", "timestamp", "date", "json"] = "string"
    unit: str | None = None
    source_unit: str | None = None  # when it differs from `unit`: values are converted
    # of dates and times, as strptime writes them; the first that fits; none: ISO 8601
    format: tuple[str, ...] = ()
    first_year: int | None = None  # two-digit years (%y) lie in the hundred years from here
    nulls: tuple[str, ...] = ()  # texts that mean "no value", beside those of the file
    required: bool = False

    def __post_init__(self) -> None:
        if self.source_unit is not None and (
            self.type != "number" or (self.source_unit, self.unit) not in CONVERSIONS
        ):
            known = ", ".join(f"{a} to {b}" for a, b in CONVERSIONS)
            raise ValueError(
                f"{self.to}: cannot convert {self.source_unit} to {self.unit}; numbers can go from"
                f" {known}"
            )
        if self.format and self.type not in ("date", "timestamp"):
            raise ValueError(f"{self.to}: `format` is for dates and times")
        if self.first_year is None and any("%y" in f for f in self.format):
            raise ValueError(f"{self.to}: a two-digit year (%y) needs `first_year`")


class Mapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole of `mapping.yml`."""

    columns: Annotated[tuple[MappedColumn, ...], msgspec.Meta(min_length=1)]
    encoding: str | None = None  # None: a byte order mark or UTF-8
    # None: the likeliest of , ; tab |
    delimiter: Annotated[str, msgspec.Meta(min_length=1, max_length=1)] | None = None
    # False or the names themselves: the first row is a record
    header: bool | tuple[str, ...] = True
    skip_rows: Annotated[int, msgspec.Meta(ge=0)] = 0  # before the header
    # rows that begin so are no records
    comment: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    nulls: tuple[str, ...] = ()  # texts that mean "no value"; a blank cell always does
    decimal: Literal[".", ","] = "."  # of numbers and coordinates
    # between groups of three digits; None: numbers have none
    thousands: Literal[",", ".", " ", "'", "_"] | None = None
    # columns of the file that are not named here
    unlisted: Literal["refuse", "keep", "drop"] = "refuse"
    crs: str | int | None = None  # of x and y, which become longitude and latitude on WGS 84
    x: Where | None = None
    y: Where | None = None
    geometry: Literal["point"] | None = None  # also a geometry column
    # of times written without one, such as America/Chicago; None: they are refused
    time_zone: str | None = None

    def __post_init__(self) -> None:
        if not (self.crs is None) == (self.x is None) == (self.y is None):
            raise ValueError(
                "crs, x and y go together; coordinates of an unknown system are ordinary columns"
            )
        if self.decimal == self.thousands:
            raise ValueError("decimal and thousands are the same mark")
        if self.geometry and self.crs is None:
            raise ValueError("geometry needs crs, x and y")
        names = [c.to for c in self.columns]
        taken = (
            {"longitude", "latitude", "source_crs", "source_x", "source_y", "geometry"}
            if self.crs is not None
            else set()
        )
        if twice := sorted({n for n in names if names.count(n) > 1 or n in taken}):
            raise ValueError(f"{', '.join(twice)}: a column is made twice")


def with_nulls(plain: object) -> object:
    """A mapping as read from YAML, with `nulls` under its older name too: `null`, which without
    quotes is no text at all.
    """
    if not isinstance(plain, dict):
        return plain
    listed = plain.get("columns")
    columns = {"columns": [with_nulls(c) for c in listed]} if isinstance(listed, list) else {}
    return {
        "nulls" if k in (None, "null") and "nulls" not in plain else "null" if k is None else k: v
        for k, v in plain.items()
    } | columns


def column_names(names: Iterable[str]) -> dict[str, str]:
    """Each name in snake case, in order; what would be the same is numbered, and what kfm adds
    itself is kept free.
    """
    taken = {"geometry", "source_crs", "source_x", "source_y"}
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "column"
        plain = plain if plain[0].isalpha() else f"c_{plain}"
        made, number = plain, 2
        while made in taken:
            made, number = f"{plain}_{number}", number + 1
        taken.add(made)
        found[name] = made
    return found
