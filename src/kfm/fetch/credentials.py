"""Credentials: references become values here, at send time, and nowhere else."""

import os
import re
from collections.abc import Container, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote, unquote_plus

from kfm.fetch.url import check_reference, is_reference, names_a_secret, reference_in
from kfm.model import UsageError, keep_secret

__all__ = [
    "Table",
    "check_value",
    "look_up",
    "query_references",
    "resolve_headers",
    "resolve_query",
]

Table = Mapping[str, str]  # `credentials` of kfm.yml: name -> env:NAME, file:PATH or cmd:COMMAND
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]+")
_SECRET_HEADER = re.compile(
    r"authorization|token|key|secret|cookie|password|credential|signature", re.IGNORECASE
)
_OURS = {
    "host",
    "connection",
    "accept-encoding",
    "content-length",
    "transfer-encoding",
    "te",
    "upgrade",
    "expect",
    "trailer",
    "range",
}
_MAX_SECRET = 64 * 1024
_COMMAND_SECONDS = 10.0
_REMEDIES = {
    "env": "Set the variable.",
    "file": "Write the file, readable by this user.",
    "cmd": (
        f"Run the command yourself: it must print the value within {_COMMAND_SECONDS:g} seconds and"
        " end with 0."
    ),
}


def resolve_headers(
    headers: Mapping[str, str], table: Table = MappingProxyType({})
) -> dict[str, str]:
    """The headers as they are sent, references `env:NAME` and `credential:NAME` replaced by what
    they name.

    Raises `UsageError` for an inline secret, a reference to nothing, or a header the fetcher sets
    itself; never says a value.
    """
    return {name: _resolve_header(name, value, table) for name, value in headers.items()}


def resolve_query(query: str, allowed: Container[str], table: Table = MappingProxyType({})) -> str:
    """The query as it is sent: the `allowed` references in fields named like a secret replaced by
    what they name.
    """
    return "&".join(_resolve_field(field, allowed, table) for field in query.split("&"))


def query_references(query: str) -> set[str]:
    """The references in fields named like a secret, and those to a credential in any field."""
    fields = [field.partition("=") for field in query.split("&")]
    return {
        unquote_plus(value)
        for name, _, value in fields
        if is_reference(unquote_plus(value)) and _holds(unquote_plus(name), unquote_plus(value))
    }


def _holds(name: str, value: str) -> bool:
    return names_a_secret(name) or value.startswith("credential:")


def check_value(name: str, value: str) -> None:
    """Refuse what a header cannot carry; a line break would let a value add headers of its own."""
    if not _VALUE.fullmatch(value):
        raise UsageError(
            f"The value of header {name} is empty or has characters a header cannot carry.",
            expected="one line of text",
            remedy=f"Correct what `source.headers.{name}` refers to.",
        )


def _resolve_header(name: str, value: str, table: Table) -> str:
    _check_name(name)
    if (found := reference_in(value)) is not None:
        scheme, reference = found
        value = look_up(reference, f"header {name}", table)
        if scheme:
            value = f"{scheme} {_encoded(value) if scheme == 'Basic' else value}"
            keep_secret(value)
    elif _SECRET_HEADER.search(name):
        raise UsageError(
            f"The header {name} holds an inline secret.",
            expected="a reference: `env:NAME` or `credential:NAME`, also behind `Bearer` or `Basic`",
            remedy=(
                "Put the value in the environment, or say where it is under `credentials` in"
                f" kfm.yml; name it in `source.headers.{name}`."
            ),
        )
    check_value(name, value)
    return value


def _encoded(value: str) -> str:
    """User and password as Basic carries them."""
    from base64 import b64encode

    return b64encode(value.encode()).decode()


def _check_name(name: str) -> None:
    lower = name.lower()
    if not _NAME.fullmatch(name) or lower in _OURS or lower.startswith(("if-", "proxy-")):
        raise UsageError(
            f"The header {name!r} cannot be set.",
            expected="a header name the fetcher does not use itself",
            remedy="Remove it from `source.headers`.",
        )


def _resolve_field(field: str, allowed: Container[str], table: Table) -> str:
    name, _, value = field.partition("=")
    if unquote_plus(value) not in allowed or not _holds(unquote_plus(name), unquote_plus(value)):
        return field
    return f"{name}={quote(look_up(unquote_plus(value), f'query field {unquote_plus(name)}', table), safe='')}"


def look_up(reference: str, where: str, table: Table) -> str:
    """What `env:NAME` or `credential:NAME` holds; from here on nothing says it."""
    check_reference(reference, where)
    kind, _, place = _listed(reference, where, table).partition(":")
    value = (
        os.environ.get(place)
        if kind == "env"
        else _printed(place)
        if kind == "cmd"
        else _read(Path(place))
    )
    if value:
        keep_secret(value)
    else:
        raise UsageError(
            f"The {where} refers to {reference}, which is missing or empty.",
            expected="a reference that holds the value",
            remedy=_REMEDIES[kind],
        )
    return value


def _listed(reference: str, where: str, table: Table) -> str:
    """What the table says, where a reference names one of it."""
    kind, _, name = reference.partition(":")
    if kind != "credential":
        return reference
    if name not in table:
        raise UsageError(
            f"The {where} refers to the credential {name!r}, which kfm.yml does not have.",
            expected=f"one of {', '.join(sorted(table))}" if table else "it under `credentials`",
            remedy=(
                f"Add `credentials: {{{name}: env:NAME}}` (or file:PATH, cmd:COMMAND) to kfm.yml."
            ),
        )
    return table[name]


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SECRET).decode().rstrip("\r\n")
    except (OSError, ValueError):
        # the caller says which reference it was; a decoding error would quote the bytes
        return None


@cache
def _printed(command: str) -> str | None:
    """What a command prints, asked once per process; no shell, and what it says on stderr is
    nobody's business.
    """
    import shlex
    import subprocess  # here, because most sources need no command

    try:
        done = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_COMMAND_SECONDS,
            check=True,
        )
        return done.stdout[:_MAX_SECRET].decode().strip()
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None
