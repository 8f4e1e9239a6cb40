"""What a content is known by: its place, the mark of what it was made from, and the keys under
which generations keep it out.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

__all__ = [
    "EVERYTHING",
    "InputKey",
    "KeptOut",
    "Key",
    "MadeKey",
    "Mark",
    "NameKey",
    "Place",
    "RuleKey",
    "VersionKey",
    "key_of",
    "rules_in",
]

EVERYTHING = "*"  # the name under which a whole dataset is withdrawn: no partition can be called so


class Place(msgspec.Struct, frozen=True):
    """Where a content belongs: a partition, and the window of it that was asked for; written
    `partition|window`.
    """

    partition: str
    window: str = ""

    @classmethod
    def parse(cls, text: str) -> "Place":
        partition, _, window = text.partition("|")
        return cls(partition, window)

    def __str__(self) -> str:
        return f"{self.partition}|{self.window}" if self.window else self.partition


class Mark(msgspec.Struct, frozen=True):
    """What a content was made from, by which transform, under which spec; written
    `input:transform:spec`.
    """

    input_hash: str
    transform_hash: str
    spec_hash: str

    @classmethod
    def parse(cls, text: str) -> "Mark":
        """The mark as it is written down; of an erased content nothing but that word is left."""
        input_hash, transform_hash, spec_hash = (*text.split(":", 2), "", "")[:3]
        return cls(input_hash, transform_hash, spec_hash)

    def __str__(self) -> str:
        return f"{self.input_hash}:{self.transform_hash}:{self.spec_hash}".rstrip(":")


class VersionKey(msgspec.Struct, frozen=True):
    """A version, whatever it was made from."""

    version_id: str

    def __str__(self) -> str:
        return self.version_id


class NameKey(msgspec.Struct, frozen=True):
    """Whatever comes under the name of a partition, or under any."""

    name: str

    def __str__(self) -> str:
        return f"whole\n{self.name}"


class RuleKey(msgspec.Struct, frozen=True):
    """The records or the area that a rule names; the rule itself is kept on the restricted side,
    here is its commitment.
    """

    commitment: str

    def __str__(self) -> str:
        return f"rule\n{self.commitment}"


class InputKey(msgspec.Struct, frozen=True):
    """An input at its place, however it is transformed: what a withdrawal is about."""

    place: Place
    input_hash: str

    def __str__(self) -> str:
        return f"{self.place}\n{self.input_hash}"


class MadeKey(msgspec.Struct, frozen=True):
    """What a transform made of an input at its place: what a rollback is about."""

    place: Place
    input_hash: str
    transform_hash: str

    def __str__(self) -> str:
        return f"{self.place}\n{self.input_hash}:{self.transform_hash}".rstrip(":")


Key = VersionKey | NameKey | RuleKey | InputKey | MadeKey


def key_of(text: str) -> Key:
    """What a key of `held` or `suppressed` means. Partitions may be called `whole` and `rule`, too:
    what follows tells them apart.
    """
    first, line, rest = text.partition("\n")
    if not line:
        return VersionKey(text)
    if first == "rule" and rest.startswith("hmac-sha256:"):
        return RuleKey(rest)
    if first == "whole" and not re.fullmatch(r"[0-9a-f]{64}(:.*)?", rest):
        return NameKey(rest)
    input_hash, colon, transform_hash = rest.partition(":")
    return (
        MadeKey(Place.parse(first), input_hash, transform_hash)
        if colon
        else InputKey(Place.parse(first), input_hash)
    )


def rules_in(suppressed: Mapping[str, str]) -> Iterator[tuple[RuleKey, str]]:
    """The rules about records or an area that still hold, each with the generation that signed
    it.
    """
    return (
        (key, by) for text, by in suppressed.items() if isinstance(key := key_of(text), RuleKey)
    )


class KeptOut(msgspec.Struct, frozen=True):
    """A content that may not come back, and the generation that says so."""

    # by a rollback, until it is forced; by a withdrawal, until that is undone
    how: Literal["held", "suppressed"]
    generation: str
