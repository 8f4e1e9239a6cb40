"""What a promotion is judged on, and the verdict that carries every reason."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kfm.model.dataset import DatasetEntry

__all__ = ["Evidence", "Gate", "Reason", "Verdict", "denied", "judge_all"]


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    remedy: str


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    gate: str
    reasons: tuple[Reason, ...] = ()  # none: it passes

    @property
    def ok(self) -> bool:
        return not self.reasons


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a gate may look at; bytes come as the digests read back from the zone."""

    entry: DatasetEntry | None
    expected: dict[str, str]  # artifact path -> digest, as the candidate lists them
    found: dict[str, str | None]  # the same paths, read back from the zone
    schema: tuple[dict[str, Any], ...]  # of the candidate
    books: dict[str, Any]
    partial: bool = False
    suppressed: str | None = None  # the generation whose withdrawal keeps this content out
    rows: int = 0


Gate = Callable[[Evidence], Verdict]


def judge_all(gates: Sequence[Gate], evidence: Evidence) -> tuple[Verdict, ...]:
    # No gates is a wiring mistake, not a free pass: an empty list would
    # otherwise promote anything.
    if not gates:
        return (Verdict(gate="gates", reasons=(Reason(code="gates.none", message="No gate is configured.", remedy="Configure gates."),)),)
    return tuple(gate(evidence) for gate in gates)


def denied(verdicts: Sequence[Verdict]) -> list[Reason]:
    return [reason for verdict in verdicts for reason in verdict.reasons]
