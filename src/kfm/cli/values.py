"""What an argument may be: each kind makes a value of a text, or refuses it and says why."""

from collections.abc import Callable
from pathlib import Path

__all__ = ["KINDS", "Unfit", "with_underscores"]


class Unfit(ValueError):
    """A text that is no such value; its words say why."""


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Unfit(f"{text!r} is no whole number") from None


def _at_least_one(text: str) -> int:
    found = _whole(text)
    if found < 1:
        raise Unfit(f"{found} is too few: 1 or more")
    if found > 1_000_000_000:
        raise Unfit(f"{found} is too many: a billion at the most")
    return found


def _count_or_all(text: str) -> int | None:
    if text == "all":
        return None
    if not text.removeprefix("-").isdecimal():
        raise Unfit(f"{text!r} is no whole number, nor `all`")
    return _at_least_one(text)


def _real(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise Unfit(f"{text!r} is no number") from None
    if not 0 < found < float("inf"):
        raise Unfit(f"{text} is no number above 0")
    return found


def _port(text: str) -> int:
    found = _whole(text)
    if not 0 <= found <= 65535:
        raise Unfit(f"{found} is no port: 0 to 65535")
    return found


KINDS: dict[str, Callable[[str], object]] = {
    "text": str,
    "path": Path,
    "number": _whole,
    "count": _at_least_one,
    "count_or_all": _count_or_all,
    "real": _real,
    "port": _port,
}


def with_underscores(name: str) -> str:
    """The other spelling of a flag."""
    return f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name
