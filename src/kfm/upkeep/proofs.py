"""proofs: what a receipt must say of a promotion, so that someone outside can tell that no check
was left out.
"""

import re

import msgspec

from kfm.model import REQUIRED, GenerationPredicate, Json, Promotion

__all__ = ["missing_proofs"]


def missing_proofs(
    receipt: Json, made: GenerationPredicate, before: GenerationPredicate | None
) -> list[str]:
    """What nothing in the evidence of a promotion shows, in words; `before` is the promotion before
    it in the same channel.

    A generation that names no root was made before this was recorded; one that cannot have been is
    told with its approvals.
    """
    if made.root is None:
        return []
    try:
        seen = msgspec.convert(receipt["promotion"], Promotion)
    except (KeyError, TypeError, msgspec.ValidationError):
        return ["it does not say what was looked at before the generation was made"]
    found = [
        f"nothing says that the gate {gate} was asked"
        for gate in REQUIRED
        if gate not in seen.gates
    ]
    found += [f"the gate {gate} said no" for gate, word in seen.gates.items() if word == "deny"]
    if (
        seen.policy is None
        or not seen.policy.decision_id
        or not re.fullmatch(r"sha256:[0-9a-f]{64}", seen.policy.policy_digest)
    ):
        found.append("nothing says that the policy was asked")
    if seen.generation != made.generation:
        found.append(f"what was looked at was looked at for generation {seen.generation}")
    held, written, earlier = (
        _token(seen.lease),
        _token(made.token),
        _token(before.token) if before is not None else (0, 0),
    )
    if not earlier < held <= written:
        found.append("nothing says that the lease of the dataset was held")
    return found


def _token(text: str) -> tuple[int, int]:
    """(epoch, number); a lease that was taken has a number of at least 1. What is no token holds
    nothing.
    """
    told = re.fullmatch(r"(\d{1,18})\.(\d{1,18})", text)
    epoch, number = (int(told[1]), int(told[2])) if told is not None else (0, 0)
    return (epoch, number) if number else (0, 0)
