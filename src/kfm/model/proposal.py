"""What waits for people: a candidate by the digests of all its evidence, and how it was judged."""

import msgspec
from msgspec import UNSET, UnsetType

from kfm.model import canonical
from kfm.model.verdict import Reason, Verdict

__all__ = ["Proposal"]


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/proposals/<run_id>/proposal.json`: everything an approval speaks of, by digest."""

    proposal: int  # its number
    run_id: str
    dataset_id: str
    version_id: str | None
    version_digest: str | None
    base_generation: int | None
    policy_digest: str
    registry_digest: str
    labels: dict[str, str | None]
    # candidate.json, records of the version and PROV, below the folder of the proposal -> digest
    files: dict[str, str]
    receipts: dict[str, str]  # records of the run, below its folder -> digest
    verdicts: tuple[Verdict, ...]
    leak: tuple[Reason, ...] | None  # what withheld values do to public bytes; None: not looked for
    approvals: int  # how many people must approve
    canary: bool | UnsetType = UNSET

    @property
    def asked(self) -> list[Reason]:
        """What a person must look at."""
        return [r for v in self.verdicts for r in v.review]

    def written(self) -> bytes:
        """The bytes of the file."""
        return canonical.dumps(msgspec.to_builtins(self)) + b"\n"
