"""Fetching: the only way out of kfm, and the words the rest of it uses for that."""

from kfm.fetch.base import Fetched, Fetcher, FetchRequest, TooLarge, UpstreamRefused, Wait

__all__ = ["FetchRequest", "Fetched", "Fetcher", "TooLarge", "UpstreamRefused", "Wait"]
