"""columns: what the rules of a release need of a table, and the words it is refused with."""

from collections.abc import Collection

from msgspec import UNSET

from kfm.connectors.base import Refused
from kfm.model import Release

__all__ = ["missing_of", "unfit"]


def missing_of(release: Release, there: Collection[str]) -> str:
    """Which columns the release names and a table does not have, in words; empty: none."""
    shown = () if release.show is UNSET else release.show
    for verb, named in (("withholds", release.withhold), ("shows", shown)):
        if missing := sorted({*named} - {*there}):
            told = ", ".join(map(repr, missing))
            return f"The release {verb} {told}, which the table does not have."
    return ""


def unfit(code: str, happened: str) -> Refused:
    """The refusal of a table that the rules cannot be applied to."""
    return Refused(
        code,
        happened,
        expected=(
            "rules whose columns the table has, each once, and columns that say where a record is"
        ),
        remedy=(
            "Upstream may have renamed a column; correct `release`, `location` or the withdrawal."
            " Nothing is published until then."
        ),
    )
