"""What was asked beside the address of the request that is being answered."""

from urllib.parse import parse_qsl

from kfm.reader.visit import Visit

__all__ = ["query_of"]

_MOST = 50  # fields of a question


def query_of() -> dict[str, str]:
    """By name; of the same name the last counts."""
    text = Visit.now().query.decode("latin-1")
    return dict(parse_qsl(text)) if text.count("&") < _MOST else {}
