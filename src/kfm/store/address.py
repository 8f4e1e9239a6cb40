"""Addresses of servers that keep a store: which they are, what password they hold, how they are
shown.
"""

from urllib.parse import parse_qsl, urlsplit

__all__ = ["SERVERS", "password_in", "shown"]

SERVERS = ("postgresql://", "postgres://")


def password_in(url: str) -> str:
    """The password an address holds, else nothing."""
    parts = urlsplit(url)
    return parts.password or dict(parse_qsl(parts.query)).get("password", "")


def shown(url: str) -> str:
    """An address without its credentials."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "")
    return f"postgresql://{host.lstrip('/')}{parts.path}"
