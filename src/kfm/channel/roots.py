"""roots: which version of the trust root this workspace has seen, so that an older one is noticed
when it comes back.
"""

from typing import Protocol

import msgspec

from kfm.keys.key_folder import KeyFolder
from kfm.model import IntegrityError, RootAt
from kfm.store.base import Store, Tx

__all__ = [
    "adopt_root",
    "check_root",
    "keep_root",
    "known_root",
    "record_root",
    "rolled_back",
    "root_problem",
    "unlike",
]

_KEY = "root"


def known_root(tx: Tx) -> RootAt | None:
    """The newest root the store has seen; None: none was recorded yet."""
    told: str | None = tx.index.meta(_KEY)
    return None if told is None else msgspec.json.decode(told, type=RootAt)


def root_problem(tx: Tx, keys: KeyFolder) -> str | None:
    """Why the root that is here cannot be the one this workspace goes by; None: it is that one, or
    a later version of it.
    """
    return unlike(known_root(tx), keys)


def unlike(known: RootAt | None, keys: KeyFolder) -> str | None:
    """`root_problem` by what the store has said already."""
    if known is None:
        return None
    trust = keys.trust()
    if trust is None or trust.fingerprint != known.fingerprint:
        what = "there is none" if trust is None else f"this one is {trust.fingerprint}"
        return (
            f"the store knows version {known.version} of the root {known.fingerprint}, and {what}"
        )
    if trust.version < known.version:
        return (
            f"the store knows its version {known.version}, and version {trust.version} is the"
            " newest one here"
        )
    return (
        None
        if trust.digests[known.version] == known.digest
        else f"its version {known.version} is not the one the store knows"
    )


def check_root(tx: Tx, keys: KeyFolder) -> None:
    """Refuse a root that is older than the one the store has seen, or another; remember a newer
    one.
    """
    why = root_problem(tx, keys)
    if why is not None:
        raise rolled_back(why)
    trust = keys.trust()
    if trust is not None and trust.at != known_root(tx):
        keep_root(tx, trust.at)


def keep_root(tx: Tx, at: RootAt | None) -> None:
    """Let the store know `at` as the newest root."""
    tx.index.put_meta(_KEY, msgspec.json.encode(at).decode())


class Rooted(Protocol):
    """What has a store and a trust root: a workspace that is open."""

    @property
    def store(self) -> Store: ...
    @property
    def keys(self) -> KeyFolder: ...


def record_root(world: Rooted) -> RootAt | None:
    """Let the store know the root of this workspace, as every change of it and every look at a
    channel does; None: there is no root.

    Raises `IntegrityError` when the store knows a newer one, or another.
    """
    world.store.transaction(lambda tx: check_root(tx, world.keys))
    return world.store.read(known_root)


def adopt_root(world: Rooted) -> tuple[RootAt, bool]:
    """From now on the root that is here is the one this workspace goes by: for a new one, made
    after the old one was lost. With it, whether the workspace went by another one before.

    An older version of the root it goes by already is refused: that is what is not to come back.
    """
    at = world.keys.require_trust().at
    assert at is not None

    def adopt(tx: Tx) -> bool:
        known = known_root(tx)
        another = known is not None and known.fingerprint != at.fingerprint
        if not another:
            check_root(tx, world.keys)
        keep_root(tx, at)
        return another

    return at, world.store.transaction(adopt)


def rolled_back(why: str) -> IntegrityError:
    return IntegrityError(
        f"The trust root in keys/root is not the newest: {why}.",
        expected="every version of the root that anything was made under; a root only goes forward",
        remedy=(
            "Put the missing files back (`kfm keys restore FILE`, or from a bundle). Only where the"
            " root was lost and this one is new and yours: `kfm keys adopt-root`. Nothing was"
            " changed."
        ),
    )
