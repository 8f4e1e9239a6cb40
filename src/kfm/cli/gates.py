"""Judge a reference by every gate, as things are now; nothing is fetched and nothing is changed.

A proposal (proposal/N), a dataset (its newest candidate that is not official, else the official
version), or one version. Exit 0: every gate passes. 3: denied, each reason with what clears it. 6:
bytes are damaged. 7: a person must look.
"""

from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, again, emit
from kfm.cli.terminal import say, show, sign
from kfm.evidence.references import dataset_of, proposal_number
from kfm.model import UsageError
from kfm.upkeep.judge_again import Judgement, judge_ref
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["configure", "main", "tell"]

_SIGNS = {"pass": "PASS", "deny": "REJECTED", "review": "PROPOSED"}


def configure(parser: Parser) -> None:
    parser.add_argument(
        "ref", metavar="REF", help="DATASET, DATASET@vHEX, DATASET@GENERATION or proposal/N"
    )
    parser.add_argument(
        "--only",
        metavar="GATE",
        action="append",
        default=[],
        help="show this gate only; repeatable",
    )


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    ref = args.ref
    if ref.startswith("proposal/") or ref.isdigit():
        ref = f"proposal/{proposal_number(ref)}"
    else:
        workspace.require(dataset_of(ref))
    with open_world(workspace) as world:
        found = judge_ref(world, ref)
    known = [v.gate for v in found.verdicts]
    for name in args.only:
        if name not in known:
            raise UsageError(
                f"There is no gate {name}.", expected=", ".join(known), remedy="Choose one of them."
            )
    if args.only:
        found = msgspec.structs.replace(
            found, verdicts=tuple(v for v in found.verdicts if v.gate in args.only)
        )
    if args.json:
        plain = msgspec.to_builtins(found)
        plain["verdicts"] = [
            {"gate": v.gate, "verdict": v.word, **msgspec.to_builtins(v)} for v in found.verdicts
        ]
        emit(plain)
    else:
        tell(found, args)
    return found.exit_code


def tell(found: Judgement, args: Namespace) -> None:
    """The table of gates, the approvals, the next command."""
    base = f", base generation {found.base_generation}" if found.base_generation is not None else ""
    print(f"{found.dataset_id}, {found.what}, version {(found.version_id or '-')[:9]}…{base}\n")
    for verdict in found.verdicts:
        reasons = (*verdict.reasons, *verdict.review)
        first = f"{reasons[0].code}: {reasons[0].message}" if reasons else verdict.note
        show(f"  {sign(_SIGNS[verdict.word])} {verdict.gate:<12} {first}")
        for number, reason in enumerate(reasons):
            if number:
                print(f"    {'':<12} {reason.code}: {reason.message}")
            print(f"    {'':<12}   {reason.remedy}")
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
    print(f"\n{count}")
    for void in (j for j in found.approvals if not j.valid):
        print(f"  void: {void.name}: {void.why}")
    for name in found.one_account:
        print(
            f"  {name} approved from the account that holds the builder's key: two keys, one"
            " account"
        )
    following = _next(found)
    if following:
        print(f"\nNext\n  {again(args, following)}")
    if found.exit_code:
        say(f"exit {found.exit_code}")


def _next(found: Judgement) -> str | None:
    if found.exit_code == 7:
        return f"approve {found.proposal} --key NAME"
    if found.state == "PROPOSED" and not found.exit_code:
        return f"promote {found.proposal}"
    if found.state == "REJECTED" and not found.exit_code:
        return f"run {found.dataset_id}"
    return None
