"""Whether columns may be called what they are called."""

import re
import unicodedata
from collections.abc import Collection

from kfm.connectors.base import MOST_COLUMNS, Refused
from kfm.connectors.read.characters import TURNING

__all__ = ["check_names"]

_UNNAMEABLE = re.compile(
    rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u200b\u200e\u200f\ufeff{TURNING}]"
)


def check_names(names: Collection[str]) -> None:
    """Refuse names that cannot be shown or told apart, and too many of them."""
    odd = next((n for n in names if not n.strip() or len(n) > 255 or _UNNAMEABLE.search(n)), None)
    if odd is None and len(names) <= MOST_COLUMNS and not all(map(str.isascii, names)):
        _check_spellings(names)
    if odd is not None or len(names) > MOST_COLUMNS:
        raise Refused(
            "schema.names",
            (
                f"The records have {len(names):,} columns or more."
                if odd is None
                else f"A column is named {odd[:80]!r}."
            ),
            expected=(
                f"at most {MOST_COLUMNS:,} columns, each with a name of 1 to 255 characters that"
                " can be shown"
            ),
            remedy=(
                "Look at the captured bytes; name the columns that are wanted in the schema of the"
                " registry entry, or in a connector."
            ),
        )


def _check_spellings(names: Collection[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(unicodedata.normalize("NFC", name), name)) != name:
            raise Refused(
                "schema.names",
                f"The columns {other!a} and {name!a} are one name in two spellings (equal in NFC).",
                expected="columns whose names can be told apart",
                remedy="Report it upstream, or rename one in a connector.",
            )
