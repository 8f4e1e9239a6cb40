"""How a command was called, and what it answers."""

from pathlib import Path
from typing import TypeVar

import msgspec

__all__ = ["Answer", "Call", "answering"]


class Call(msgspec.Struct, frozen=True):
    """How a command was called: where, and how it is to be answered."""

    workspace: Path | None = None  # as it was named; None: the folder one is in
    json: bool = False
    verbose: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a command found or did: `--json` is its encoding, `tell` says it in words."""

    def tell(self, call: Call) -> None:
        """Print it for people."""

    @property
    def code(self) -> int:
        """The exit code."""
        return 0


A = TypeVar("A", bound=Answer)


def answering(kind: type[A], found: msgspec.Struct, **more: object) -> A:
    """What a room below found, as the answer that has its members, and `more`."""
    return kind(**msgspec.structs.asdict(found), **more)
