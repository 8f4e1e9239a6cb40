"""Grants: a steward's signed word that a person may use a dataset for a purpose, until a day."""

from typing import Any

import msgspec

from kfm.attest import statement
from kfm.errors import KfmError
from kfm.model import ids
from kfm.proposal import in_time
from kfm.world import World

__all__ = ["Grant", "grants_of", "granted", "write_grant"]


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
    for path in world.root.names(f"grants/{dataset_id}"):
        try:
            document, key = world.keys.verified_by(world.root.read(path), "approver")
            grant = msgspec.convert(document["predicate"], Grant)
        except (KfmError, msgspec.ValidationError) as error:
            found.append((Grant(dataset_id=dataset_id, person="", purpose="", steward="", expires=""), f"not valid: {error}"))
            continue
        late = not in_time(grant.expires, world.clock.now())
        mine = grant.dataset_id == dataset_id and grant.steward == key.name
        found.append((grant, "not valid: it speaks of another dataset or steward" if not mine else "expired" if late else "valid"))
    return found


def granted(world: World, dataset_id: str, purpose: str) -> Grant | None:
    """A valid grant for a purpose, None when there is none."""
    return next((g for g, state in grants_of(world, dataset_id) if state == "valid" and g.purpose == purpose), None)


def write_grant(world: World, grant: Grant, signer: Any) -> str:
    """Sign a grant with the steward's key; returns its path."""
    plain = msgspec.to_builtins(grant)
    signed = signer.sign(statement("grant", f"kfm://dataset/{grant.dataset_id}", ids.digest(msgspec.json.encode(plain))[7:], plain))
    path = f"grants/{grant.dataset_id}/{ids.digest(signed)[7:23]}.json"
    world.root.create(path, signed)
    return path
