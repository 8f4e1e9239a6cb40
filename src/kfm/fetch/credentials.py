"""Credentials: references become values here, at send time, and nowhere else."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote_plus

from kfm.errors import UsageError
from kfm.fetch.url import is_reference, names_a_secret

__all__ = ["resolve_headers", "resolve_query"]

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]+")
_SECRET_HEADER = re.compile(r"authorization|token|key|secret|cookie|password|credential|signature", re.IGNORECASE)
_OURS = {"host", "connection", "accept-encoding", "content-length", "transfer-encoding", "te", "upgrade", "expect", "trailer", "range"}
_MAX_SECRET = 64 * 1024


def resolve_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers as they are sent, references `env:NAME` and `file:PATH` replaced by what they name.

    Raises `UsageError` for an inline secret, a reference to nothing, or a header the fetcher sets itself; never says a value.
    """
    return {name: _resolve_header(name, value) for name, value in headers.items()}


def resolve_query(query: str) -> str:
    """The query as it is sent: references in fields named like a secret replaced by what they name."""
    return "&".join(_resolve_field(field) for field in query.split("&"))


def _resolve_header(name: str, value: str) -> str:
    _check_name(name)
    if is_reference(value):
        value = _look_up(value, f"header {name}")
    elif _SECRET_HEADER.search(name):
        raise UsageError(
            f"The header {name} holds an inline secret.",
            expected="a reference to the whole value: `env:NAME` or `file:PATH`",
            remedy=f"Put the value in the environment or a file and name it in `source.headers.{name}`.",
        )
    if not _VALUE.fullmatch(value):  # a line break would let a value add headers of its own
        raise UsageError(
            f"The value of header {name} is empty or has characters a header cannot carry.",
            expected="one line of text",
            remedy=f"Correct what `source.headers.{name}` refers to.",
        )
    return value


def _check_name(name: str) -> None:
    lower = name.lower()
    if not _NAME.fullmatch(name) or lower in _OURS or lower.startswith(("if-", "proxy-")):
        raise UsageError(
            f"The header {name!r} cannot be set.",
            expected="a header name the fetcher does not use itself",
            remedy="Remove it from `source.headers`.",
        )


def _resolve_field(field: str) -> str:
    name, _, value = field.partition("=")
    if not names_a_secret(unquote_plus(name)) or not is_reference(unquote_plus(value)):
        return field
    return f"{name}={quote(_look_up(unquote_plus(value), f'query field {unquote_plus(name)}'), safe='')}"


def _look_up(reference: str, where: str) -> str:
    kind, _, place = reference.partition(":")
    value = os.environ.get(place) if kind == "env" else _read(Path(place))
    if not value:
        raise UsageError(
            f"The {where} refers to {reference}, which is missing or empty.",
            expected="a reference that holds the value",
            remedy="Set the variable." if kind == "env" else "Write the file, readable by this user.",
        )
    return value


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SECRET).decode().rstrip("\r\n")
    except (OSError, ValueError):  # the caller says which reference it was; a decoding error would quote the bytes
        return None
