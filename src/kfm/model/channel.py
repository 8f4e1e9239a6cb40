"""What a channel generation says."""

from typing import Literal

import msgspec

from kfm.model.canonical import Json

__all__ = ["GenerationPredicate", "Kind", "Lift", "Lifted", "RootAt"]

Kind = Literal["promote", "rollback", "withdraw", "void"]


class RootAt(msgspec.Struct, frozen=True, kw_only=True):
    """A trust root as it was when something was made."""

    fingerprint: str  # the digest of its first version
    version: int
    digest: str  # of that version's file


class Lifted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The predicate that a person signs to undo a withdrawal."""

    dataset_id: str
    generation: int  # the withdrawal
    digest: str  # of its file
    person: str
    reason: str
    made_at: str


class Lift(msgspec.Struct, frozen=True, kw_only=True):
    """A withdrawal that holds no longer."""

    generation: int
    act: str  # the person's signed statement, whole: whoever reads the channel can check it


class GenerationPredicate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The predicate of `catalog/channels/<id>/<generation:08>.json`."""

    dataset_id: str
    generation: int
    kind: Kind
    version_id: str | None
    version_digest: str | None
    receipts_digest: str | None
    run_id: str
    token: str  # "<epoch>.<number>"
    prev: str | None  # digest of the file before
    reason: str
    forced: bool = False  # a forced promote lifts the hold of a rollback on its content
    suppress: list[Json] = []  # a withdrawal carries its own rule
    root: RootAt | None = None  # the trust root it was made under; None: before roots were recorded
    # of what the registry asked for when it was promoted; "": made before approvals were recorded
    terms_digest: str = ""
    approvals_digest: str = ""  # of the record of who agreed
    lifts: Lift | None = None  # a rollback that undoes a withdrawal
