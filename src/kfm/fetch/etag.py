"""Entity tags (RFC 9110, 8.8.3): which of them prove that bytes are equal."""

import re

__all__ = ["strong_etag", "weak_etag"]

# Bytes above 0x7e are legal but have no agreed character set, so they count as malformed: unknown, never unchanged.
_OPAQUE = r'"[\x21\x23-\x7e]*"'
_STRONG = re.compile(_OPAQUE)
_WEAK = re.compile(f"W/{_OPAQUE}")


def strong_etag(value: str | None) -> str | None:
    """`value` when it is a well-formed strong tag, quotes included."""
    return value if value is not None and _STRONG.fullmatch(value) else None


def weak_etag(value: str | None) -> str | None:
    """`value` when it is a well-formed weak tag, `W/` included."""
    return value if value is not None and _WEAK.fullmatch(value) else None
