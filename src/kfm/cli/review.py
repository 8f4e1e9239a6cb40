"""List the proposals that wait for a person, or show one: its gates, what it changes, who approved,
what you would sign.
"""

from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, again, emit
from kfm.cli.gates import tell
from kfm.cli.terminal import sign
from kfm.evidence.proposal import count, load, members, run_of
from kfm.evidence.references import proposal_number
from kfm.model import KfmError, LedgerRow
from kfm.upkeep.judge_again import judge_ref
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument(
        "number", nargs="?", metavar="N", help="a proposal; without it, all that wait"
    )


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    with open_world(workspace) as world:
        return _list(world, args) if args.number is None else _one(world, args)


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal that waits for a person."""

    proposal: int
    dataset_id: str
    version_id: str | None
    since: str
    approvals: int
    needed: int | None
    asked: list[str]
    problem: str  # why it cannot be read


def _list(world: World, args: Namespace) -> int:
    waiting: list[tuple[int, LedgerRow]] = world.store.read(lambda tx: tx.proposals.waiting())
    rows = [_row(world, number, row) for number, row in waiting]
    if args.json:
        emit({"proposals": rows})
        return 0
    for r in rows:
        said = r.problem or f"{r.approvals} of {r.needed} approvals  {'; '.join(r.asked)}"
        print(
            f"  {sign('FAILED' if r.problem else 'PROPOSED')} {r.proposal:<5}"
            f" {r.dataset_id:<22} {said}"
        )
    print(f"{len(rows)} wait")
    if rows:
        following = f"review {rows[0].proposal}"
        print(f"\nNext  {again(args, following)}")
    return 0


def _row(world: World, number: int, row: LedgerRow) -> Waiting:
    """A line of the list; one that cannot be read says why, and keeps no other from being shown."""
    valid, needed, asked, problem = 0, None, list[str](), ""
    try:
        valid, needed = count(world, row)
        asked = [r.message for r in load(world, row)[0].asked]
    except (KfmError, OSError) as error:
        problem = (
            getattr(error, "happened", "")
            or f"It cannot be read: {getattr(error, 'strerror', None) or 'damaged'}."
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        problem = "Its proposal.json is damaged."
    return Waiting(
        proposal=number,
        dataset_id=row.dataset_id,
        version_id=row.version_id,
        since=row.timestamp,
        approvals=valid,
        needed=needed,
        asked=asked,
        problem=problem,
    )


def _one(world: World, args: Namespace) -> int:
    number = proposal_number(args.number)
    found = judge_ref(world, f"proposal/{number}")
    row = run_of(world, number)
    proposal, digest = load(world, row)
    signed = members(world, row, proposal, digest)
    if args.json:
        emit({"judgement": found, "you_sign": signed, "state": row.state})
        return found.exit_code
    print("You would sign exactly this:\n")
    for name, value in signed.items():
        print(f"  {name:<17} {value}")
    print(f"\nWhat changes   {again(args, f'diff {row.dataset_id} proposal/{number}')}\n")
    tell(found, args)
    return found.exit_code
