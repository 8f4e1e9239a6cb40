"""Addresses of servers that keep a store: which they are, what password they hold, how they are
shown.
"""

from urllib.parse import parse_qsl, urlsplit

__all__ = ["SERVERS", "is_server", "password_in", "shown"]

# how the address of a server begins -> the module whose `open_server` keeps a store there
SERVERS = dict.fromkeys(("postgresql://", "postgres://"), "kfm.extras.postgres.store")


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
