"""Permits: a person's signed word that a dataset may be public although its licence, or some of its
records, say less.
"""

from typing import Literal

import msgspec

from kfm.grants.grant import words_of, write_word
from kfm.keys.private_key import PersonKey
from kfm.world.world import World

__all__ = ["Permit", "permits_of", "permitted", "shown_despite", "write_permit"]


class Permit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The predicate of `permits/<dataset_id>/<n>.json`: about one licence, the records with one
    value in one column, or a column that is shown although it looks like, or holds, what is private
    (`value` says what)."""

    dataset_id: str
    about: Literal["licence", "records", "column"]
    licence: str = ""
    column: str = ""
    value: str = ""
    person: str
    reason: str
    proof: str | None = None  # digest of the file that was shown
    made_at: str

    @property
    def token(self) -> str:
        """What it permits, as gates compare it."""
        return (
            f"licence\n{self.licence}"
            if self.about == "licence"
            else f"{self.about}\n{self.column}\n{self.value}"
        )


def permits_of(world: World, dataset_id: str) -> list[tuple[Permit, str]]:
    """Every permit with its state: valid, or why it does not count."""
    found = []
    for permit, key, wrong in words_of(world, "permits", dataset_id, Permit):
        if permit is None or key is None:
            blank = Permit(dataset_id=dataset_id, about="licence", person="", reason="", made_at="")
            found.append((blank, f"not valid: {wrong}"))
            continue
        mine = permit.dataset_id == dataset_id and permit.person == key.name
        found.append(
            (permit, "valid" if mine else "not valid: it speaks of another dataset or person")
        )
    return found


def permitted(world: World, dataset_id: str) -> tuple[str, ...]:
    """The tokens of the valid permits of a dataset."""
    return tuple(
        permit.token for permit, state in permits_of(world, dataset_id) if state == "valid"
    )


def shown_despite(world: World, dataset_id: str) -> tuple[tuple[str, str], ...]:
    """(column, what was found) of every column that a steward shows all the same."""
    return tuple(
        (p.column, p.value)
        for p, state in permits_of(world, dataset_id)
        if state == "valid" and p.about == "column" and p.reason.strip()
    )


def write_permit(world: World, permit: Permit, signer: PersonKey) -> str:
    """Sign a permit with the person's key; returns its path."""
    return write_word(world, "permit", permit.dataset_id, permit, signer)
