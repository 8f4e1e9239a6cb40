"""What is shown of a version, in words that need no library."""

import msgspec

__all__ = ["Map", "Profile", "Shown"]


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a column holds, over all rows."""

    name: str
    type: str
    missing: int
    distinct: int | None  # None: of geometries nobody counts them
    lowest: object = None
    highest: object = None
    shape: list[int] = []  # of numbers and times: how many lie in each of equal steps
    common: list[tuple[object, int]] = []  # of texts that come again: the commonest


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a version."""

    rows: int
    columns: list[Profile]
    first: list[dict[str, object]]
    bbox: list[float] | None


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """How many places lie in each spot, the northern ones first."""

    bbox: tuple[float, float, float, float]
    spots: list[list[int]]
