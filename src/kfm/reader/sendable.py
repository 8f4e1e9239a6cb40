"""What a connection can send without reading it."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

__all__ = ["SENDS_FILES", "SendFile", "Sendable"]

SENDS_FILES = "kfm.files"  # the extension of ASGI by which a connection takes a file


class Sendable(NamedTuple):
    """A part of an open file."""

    descriptor: int
    first: int
    end: int
    is_same: Callable[[], bool]  # whether the bytes are those that were checked


SendFile = Callable[[Sendable], Awaitable[int]]  # how many bytes went out
