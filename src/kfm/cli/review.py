"""List the proposals that wait for a person, or show one: its gates, what it changes, who approved,
what you would sign.
"""

import msgspec

from kfm.access.references import proposal_number
from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.gates import tell
from kfm.cli.terminal import show, sign, table, when, write
from kfm.evidence.proposal import count, load, members, run_of
from kfm.model import Json, KfmError, LedgerRow
from kfm.upkeep.judge_again import Judgement, judge_ref
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Reviewed", "Waits", "review"]


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


class Waits(Answer, frozen=True, kw_only=True):
    """The proposals that wait for a person."""

    proposals: list[Waiting]

    def tell(self, call: Call) -> None:
        cells = [
            (
                sign("FAILED" if r.problem else "PROPOSED"),
                str(r.proposal),
                r.dataset_id,
                when(r.since),
                "" if r.problem else f"{r.approvals} of {r.needed} approvals",
                r.problem or "; ".join(r.asked),
            )
            for r in self.proposals
        ]
        heads = ("", "proposal", "dataset", "since", "approved", "why")
        for line in table(heads, cells, right=("proposal",)) if cells else ():
            show(line)
        show(f"{len(cells)} wait")
        if cells:
            write(f"\nNext  {again(call, f'review {self.proposals[0].proposal}')}")


class Reviewed(Answer, frozen=True, kw_only=True):
    """One proposal: what the gates say, and what an approval would sign."""

    judgement: Judgement
    you_sign: Json
    state: str
    proposal: int

    @property
    def code(self) -> int:
        return self.judgement.exit_code

    def tell(self, call: Call) -> None:
        if self.state == "PROPOSED":
            show("You would sign exactly this:\n")
        else:
            show(f"This proposal has ended ({self.state}); nobody signs it any more. It was:\n")
        for name, value in self.you_sign.items():
            if value not in ("", None):
                show(f"  {name:<17} {_plain(value)}")
        change = f"diff {self.judgement.dataset_id} proposal/{self.proposal}"
        show(f"\nWhat changes   {again(call, change)}\n")
        tell(self.judgement, call)


def _plain(value: object) -> str:
    """A value as a person reads it; of a mapping what is stated."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} {inner}" for name, inner in value.items() if inner is not None)


def review(call: Call, number: str | None) -> Waits | Reviewed:
    with open_world(open_workspace(call.workspace)) as world:
        if number is not None:
            return _one(world, proposal_number(number))
        waiting: list[tuple[int, LedgerRow]] = world.store.read(lambda tx: tx.proposals.waiting())
        return Waits(proposals=[_row(world, n, row) for n, row in waiting])


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


def _one(world: World, number: int) -> Reviewed:
    found, row = judge_ref(world, f"proposal/{number}"), run_of(world, number)
    proposal, digest = load(world, row)
    signed = members(world, row, proposal, digest)
    return Reviewed(judgement=found, you_sign=signed, state=row.state, proposal=number)
