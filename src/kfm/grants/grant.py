"""Grants: a steward's signed word that a person may use a dataset for a purpose, until a day."""

from collections.abc import Iterator
from typing import TypeVar

import msgspec

from kfm.keys.approvals import in_time, may_speak
from kfm.keys.private_key import PersonKey
from kfm.keys.trust import TrustedKey, statement
from kfm.model import Clock, Denied, KfmError, ids, obligations
from kfm.world.world import World

__all__ = [
    "Grant",
    "granted",
    "grantors",
    "grants_of",
    "publish_grants",
    "words_of",
    "write_grant",
    "write_word",
]

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
    for grant, key, wrong in words_of(world, "grants", dataset_id, Grant):
        if grant is None or key is None:
            found.append(
                (
                    Grant(dataset_id=dataset_id, person="", purpose="", steward="", expires=""),
                    f"not valid: {wrong}",
                )
            )
            continue
        found.append((grant, _state(world.clock, dataset_id, grant, key)))
    return found


def _state(clock: Clock, dataset_id: str, grant: Grant, key: TrustedKey) -> str:
    if grant.dataset_id != dataset_id or grant.steward != key.name:
        return "not valid: it speaks of another dataset or steward"
    return "valid" if in_time(grant.expires, clock.now()) else "expired"


def _publishing(world: World, dataset_id: str) -> list[tuple[str, str]]:
    """(path, key) of the grants that let what is restricted be published; none where no label asks
    for one.
    """
    if "grant" not in obligations(world.family(dataset_id)):
        return []
    found = []
    for path in world.root.names(f"grants/{dataset_id}"):
        grant, key, _ = _word(world, path, dataset_id, Grant)
        if (
            grant is not None
            and key is not None
            and grant.purpose == "publish"
            and _state(world.clock, dataset_id, grant, key) == "valid"
        ):
            found.append((path, key.keyid))
    return found


def publish_grants(world: World, dataset_id: str) -> list[bytes]:
    """The signed grants that let what is restricted be published."""
    return [world.root.read(path) for path, _ in _publishing(world, dataset_id)]


def grantors(world: World, dataset_id: str) -> frozenset[str]:
    """The keys of those who signed them."""
    return frozenset(keyid for _, keyid in _publishing(world, dataset_id))


def granted(world: World, dataset_id: str, purpose: str) -> Grant | None:
    """A valid grant for a purpose, None when there is none."""
    return next(
        (
            g
            for g, state in grants_of(world, dataset_id)
            if state == "valid" and g.purpose == purpose
        ),
        None,
    )


def write_grant(world: World, grant: Grant, signer: PersonKey) -> str:
    """Sign a grant with the steward's key; returns its path."""
    return write_word(world, "grant", grant.dataset_id, grant, signer)


# ---- what people sign about a dataset, beside a version of it ------------------------------------
def words_of(
    world: World, folder: str, dataset_id: str, kind: type[T]
) -> Iterator[tuple[T | None, TrustedKey | None, str]]:
    """Every signed word in a folder: (what was said, or None; who signed; why it does not
    count).
    """
    for path in world.root.names(f"{folder}/{dataset_id}"):
        yield _word(world, path, dataset_id, kind)


def _word(
    world: World, path: str, dataset_id: str, kind: type[T]
) -> tuple[T | None, TrustedKey | None, str]:
    try:
        document, key = world.keys.verified_by(world.root.read(path), "approver")
        said = msgspec.convert(document["predicate"], kind)
    except (KfmError, msgspec.ValidationError, KeyError) as error:
        return None, None, str(error)
    entry = world.registry(dataset_id)
    if entry is not None and not may_speak(key, entry):
        return None, None, f"{key.name} is no steward of {entry.custodian}"
    return said, key, ""


def write_word(
    world: World, kind: str, dataset_id: str, word: msgspec.Struct, signer: PersonKey
) -> str:
    """Sign a word with a person's key and keep it with the others of its kind; returns its path."""
    plain, entry = msgspec.to_builtins(word), world.registry(dataset_id)
    trust = world.keys.trust()
    key = trust.keys.get(signer.keyid) if trust is not None else None
    if entry is not None and key is not None and not may_speak(key, entry):
        raise Denied(
            f"{key.name} is no steward of {entry.custodian}, and {dataset_id} is not public.",
            expected="the key of a steward of its custodian",
            remedy=(
                "`kfm keys new` or `kfm keys enrol` with --role steward --for CUSTODIAN makes one."
            ),
        )
    signed = signer.sign(
        statement(
            kind, f"kfm://dataset/{dataset_id}", ids.digest(msgspec.json.encode(plain))[7:], plain
        )
    )
    path = f"{kind}s/{dataset_id}/{ids.digest(signed)[7:23]}.json"
    world.root.create(path, signed)
    return path
