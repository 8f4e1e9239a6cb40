"""Fetching: the only way out of kfm, and the words the rest of it uses for that."""

from kfm.fetch.base import (
    Fetched,
    Fetcher,
    FetchRequest,
    SecretEchoed,
    TooLarge,
    UpstreamRefused,
    Wait,
)

__all__ = [
    "FetchRequest",
    "Fetched",
    "Fetcher",
    "SecretEchoed",
    "TooLarge",
    "UpstreamRefused",
    "Wait",
]
