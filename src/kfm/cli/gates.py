"""Judge a reference by every gate, as things are now; nothing is fetched and nothing is changed."""

from typing import Literal

import msgspec

from kfm.access.references import dataset_of, proposal_number
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import again
from kfm.cli.terminal import show, sign, write
from kfm.model import UsageError, Verdict
from kfm.upkeep.judge_again import Judgement, judge_ref
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Gates", "gates", "tell"]

_SIGNS = {"pass": "PASS", "deny": "REJECTED", "review": "PROPOSED"}


class Worded(Verdict, frozen=True, kw_only=True, omit_defaults=True):
    """What a gate says, and that in one word."""

    verdict: Literal["pass", "review", "deny"]


class Gates(Judgement, Answer, frozen=True, kw_only=True):
    """What every gate says of one reference."""

    verdicts: tuple[Worded, ...]

    @property
    def code(self) -> int:
        return self.exit_code

    def tell(self, call: Call) -> None:
        tell(self, call)


def gates(call: Call, ref: str, only: list[str]) -> Gates:
    workspace = open_workspace(call.workspace)
    if ref.startswith("proposal/") or ref.isdigit():
        ref = f"proposal/{proposal_number(ref)}"
    else:
        workspace.require(dataset_of(ref))
    with open_world(workspace) as world:
        found = judge_ref(world, ref)
    known = [v.gate for v in found.verdicts]
    for name in only:
        if name not in known:
            raise UsageError(
                f"There is no gate {name}.", expected=", ".join(known), remedy="Choose one of them."
            )
    chosen = tuple(
        Worded(**msgspec.structs.asdict(v), verdict=v.word)
        for v in found.verdicts
        if not only or v.gate in only
    )
    return answering(Gates, msgspec.structs.replace(found, verdicts=chosen))


def tell(found: Judgement, call: Call) -> None:
    """The table of gates, the approvals, the next command."""
    base = f", base generation {found.base_generation}" if found.base_generation is not None else ""
    write(f"{found.dataset_id}, {found.what}, version {(found.version_id or '-')[:9]}…{base}\n")
    for verdict in found.verdicts:
        reasons = (*verdict.reasons, *verdict.review)
        first = f"{reasons[0].code}: {reasons[0].message}" if reasons else verdict.note
        show(f"  {sign(_SIGNS[verdict.word])} {verdict.gate:<12} {first}")
        for number, reason in enumerate(reasons):
            if number:
                write(f"    {'':<12} {reason.code}: {reason.message}")
            write(f"    {'':<12}   {reason.remedy}")
    words = [v.word for v in found.verdicts]
    count = (
        f"{words.count('pass')} pass, {words.count('review')} need a person, {words.count('deny')}"
        " deny."
    )
    valid = [j for j in found.approvals if j.valid]
    if found.needed:
        count += f" Approvals {len(valid)} of {found.needed}" + (
            f" ({', '.join(j.name for j in valid)})." if valid else "."
        )
    write(f"\n{count}")
    for void in (j for j in found.approvals if not j.valid):
        write(f"  void: {void.name}: {void.why}")
    for name in found.one_account:
        write(
            f"  {name} approved from the account that holds the builder's key: two keys, one"
            " account"
        )
    following = _next(found)
    if following:
        write(f"\nNext\n  {again(call, following)}")


def _next(found: Judgement) -> str | None:
    if found.exit_code == 7:
        return f"approve {found.proposal} --key NAME"
    if found.state == "PROPOSED" and not found.exit_code:
        return f"promote {found.proposal}"
    if found.state == "REJECTED" and not found.exit_code:
        return f"run {found.dataset_id}"
    return None
