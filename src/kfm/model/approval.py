"""What people sign about a version, what a registry entry asks of them, and the record of both that
a generation names.
"""

import msgspec
from msgspec import UNSET, UnsetType

from kfm.model.canonical import Json

__all__ = ["ACCEPT", "Approval", "Recorded", "Terms"]

ACCEPT = "accept-change"  # the verdict of an operator where nobody else has to approve


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The predicate of `work/<id>/proposals/<run_id>/approvals/<keyid>.json`: a person's word on
    exactly these bytes.
    """

    dataset_id: str
    channel: str
    proposal: int
    run_id: str
    version_digest: str
    candidate_digest: str  # of proposal.json: artifacts, catalogs, receipts and verdicts
    policy_digest: str
    registry_digest: str
    labels: dict[str, str | None]
    base_generation: int
    expires: str
    name: str
    reason: str
    verdict: str = "approve"
    # of a canary: the digest of comparison.json; of a private dataset a commitment to it, for it
    # counts rows
    comparison: str = ""
    # the digest of what the registry asks for; not stated: signed before that was recorded
    terms: str | UnsetType = UNSET
    # stands for the account it was signed from: equal ones are the same account
    account: str | UnsetType = UNSET
    # when it was signed, by the clock of who signed; not stated: before that was recorded
    made_at: str | UnsetType = UNSET


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a registry entry asks of whoever publishes: the part of it that everybody may read."""

    dataset_id: str
    approvals: int
    sensitivity: str | None
    policy_label: str | None
    care_label: str | None
    licence: str | None
    custodian: str | None
    release: str  # digest of the rules it is released by; "": there are none
    # "best_effort": its code may run where the kernel cannot hold it
    isolation: str | UnsetType = UNSET


class Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`catalog/approvals/<id>/run_<run_id>.json`: who agreed that a version becomes official, and
    what was asked for.
    """

    dataset_id: str
    run_id: str
    version_digest: str
    generation: int
    at: str  # what had expired by then did not count
    terms: tuple[Terms, ...]  # of the dataset, then of everything it is made from
    asked: tuple[str, ...]  # what gates wanted a person to look at
    canary: bool
    signed: Json  # what every approval speaks of
    approvals: tuple[Json, ...]  # the envelopes
    acceptances: tuple[Json, ...]
    grants: tuple[Json, ...]
