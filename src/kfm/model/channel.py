"""What a channel generation says."""

from typing import Any, Literal

import msgspec

__all__ = ["GenerationPredicate", "Kind"]

Kind = Literal["promote", "rollback", "withdraw", "void"]


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
    suppress: list[dict[str, Any]] = []  # a withdrawal carries its own rule
