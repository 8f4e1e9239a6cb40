"""Grants: a steward's signed word that a person may use a dataset for a purpose, until a day."""

from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from kfm.attest import statement
from kfm.errors import KfmError
from kfm.model import ids
from kfm.proposal import in_time
from kfm.world import World

__all__ = ["Grant", "grants_of", "granted", "words_of", "write_grant", "write_word"]

T = TypeVar("T")


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The predicate of `grants/<dataset_id>/<n>.json`."""

    dataset_id: str
    person: str
    purpose: str
    steward: str
    expires: str


def grants_of(world: World, dataset_id: str) -> list[tuple[Grant, str]]:
    """Every grant with its state: valid, expired, or why it does not count."""
    found = []
    for grant, name, wrong in words_of(world, "grants", dataset_id, Grant):
        if grant is None:
            found.append((Grant(dataset_id=dataset_id, person="", purpose="", steward="", expires=""), f"not valid: {wrong}"))
            continue
        late = not in_time(grant.expires, world.clock.now())
        mine = grant.dataset_id == dataset_id and grant.steward == name
        found.append((grant, "not valid: it speaks of another dataset or steward" if not mine else "expired" if late else "valid"))
    return found


def granted(world: World, dataset_id: str, purpose: str) -> Grant | None:
    """A valid grant for a purpose, None when there is none."""
    return next((g for g, state in grants_of(world, dataset_id) if state == "valid" and g.purpose == purpose), None)


def write_grant(world: World, grant: Grant, signer: Any) -> str:
    """Sign a grant with the steward's key; returns its path."""
    return write_word(world, "grant", grant.dataset_id, grant, signer)


# ---- what people sign about a dataset, beside a version of it ----------------------------------------------------------
def words_of(world: World, folder: str, dataset_id: str, kind: type[T]) -> Iterator[tuple[T | None, str, str]]:
    """Every signed word in a folder: (what was said, or None; who signed; why it does not count)."""
    for path in world.root.names(f"{folder}/{dataset_id}"):
        try:
            document, key = world.keys.verified_by(world.root.read(path), "approver")
            yield msgspec.convert(document["predicate"], kind), key.name, ""
        except (KfmError, msgspec.ValidationError, KeyError) as error:
            yield None, "", str(error)


def write_word(world: World, kind: str, dataset_id: str, word: Any, signer: Any) -> str:
    """Sign a word with a person's key and keep it with the others of its kind; returns its path."""
    plain = msgspec.to_builtins(word)
    signed = signer.sign(statement(kind, f"kfm://dataset/{dataset_id}", ids.digest(msgspec.json.encode(plain))[7:], plain))
    path = f"{kind}s/{dataset_id}/{ids.digest(signed)[7:23]}.json"
    world.root.create(path, signed)
    return path
