"""Addresses that kfm.yml states, of stores and of others: where they are to be read, which are
files, which are servers, what password they hold, how they are shown.
"""

import os
from urllib.parse import parse_qsl, urlsplit

from kfm.model import UsageError, keep_secret

__all__ = [
    "KEEPER",
    "LINES",
    "SERVERS",
    "address_if_set",
    "is_lines",
    "is_server",
    "password_in",
    "shown",
    "stated_address",
]

# how the address of a server begins -> the module whose `open_server` keeps a store there
SERVERS = dict.fromkeys(("postgresql://", "postgres://"), "kfm.extras.postgres.store")

LINES = "jsonl"  # how the address of a store in lines of JSON begins
KEEPER = "kfm.extras.jsonl.keeper"  # the module that keeps the promise of `FileKeeper` for it


def is_lines(url: str) -> bool:
    """Whether a store at this address is a file of lines."""
    return url.startswith(f"{LINES}:")


def is_server(url: str) -> bool:
    """Whether a store at this address is kept by a server; else it is a file."""
    return url.startswith(tuple(SERVERS))


def password_in(url: str) -> str:
    """The password an address holds, else nothing."""
    parts = urlsplit(url)
    return parts.password or dict(parse_qsl(parts.query)).get("password", "")


def shown(url: str) -> str:
    """An address without its credentials."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "")
    return f"postgresql://{host.lstrip('/')}{parts.path}"


def address_if_set(said: str) -> str:
    """What kfm.yml says, or what the variable holds that it names: a secret, whole and its password
    alone. Nothing where the variable is not set.
    """
    if not said.startswith("env:"):
        return said
    address = os.environ.get(said.removeprefix("env:"), "")
    keep_secret(address)
    keep_secret(password_in(address))
    return address


def stated_address(said: str, then: str = "") -> str:
    """The same, where there has to be one; `then` is what to do once the variable is set."""
    address = address_if_set(said)
    if said.startswith("env:") and not address:
        raise UsageError(
            f"kfm.yml takes an address from {said}, which is not set.",
            expected="an address in that variable",
            remedy=f"export {said.removeprefix('env:')}=…{f', then `{then}`' if then else ''}.",
        )
    return address
