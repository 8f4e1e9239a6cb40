"""Make an approved proposal official: it is judged again on the policy and labels of now, then its
generation is appended.
"""

import time

import msgspec

from kfm.access.boundary import located
from kfm.access.references import proposal_number
from kfm.acts.approve import earlier
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import heed_clock, offer
from kfm.cli.run import tell
from kfm.evidence.proposal import run_of
from kfm.jobs.promote_here import promote_run
from kfm.model import SAID_NO, Denied, Fenced, IntegrityError, KfmError, LedgerRow, UsageError
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome
from kfm.world.world import World

__all__ = ["Promoted", "promoted"]

WAITS = 7  # for a person


class Promoted(Outcome, Answer, frozen=True, kw_only=True):
    """What became of a proposal; it is told in words as it ends."""

    @property
    def code(self) -> int:
        return self.exit_code


def promoted(call: Call, what: str, clock_ok: bool) -> Promoted:
    workspace, began = open_workspace(call.workspace), time.monotonic()
    with open_world(workspace) as world:
        row = _row(world, workspace, what)
        if row.state != "PROPOSED":
            raise Denied(
                f"This proposal is {row.state}: {row.reason or 'it has ended'}.",
                expected="a proposal that waits",
                remedy="`kfm review` lists them.",
            )
        heed_clock(world, clock_ok, row.dataset_id)
        outcome = promote_run(world, row)
        if outcome.state == "PROPOSED":
            outcome = msgspec.structs.replace(
                outcome, reasons=(*outcome.reasons, *_changed(world, row))
            )
        if outcome.state == "COMMITTED":
            offer(call.workspace, world, row.dataset_id)
    outcome = _not_official(outcome)
    if not call.json:
        tell(outcome, time.monotonic() - began)
    return answering(Promoted, outcome)


def _not_official(outcome: Outcome) -> Outcome:
    """The outcome; whatever it is now, where it is not official and does not wait it is denied."""
    refused = any(reason["code"] == SAID_NO for reason in outcome.reasons)
    waits = outcome.state == "PROPOSED" and outcome.exit_code == WAITS and not refused
    broken = outcome.exit_code in (Fenced.exit_code, IntegrityError.exit_code)
    if outcome.state == "COMMITTED" or waits or broken:
        return outcome
    return msgspec.structs.replace(outcome, exit_code=Denied.exit_code)


def _row(world: World, workspace: Workspace, what: str) -> LedgerRow:
    if what.startswith("proposal/") or what.isdigit():
        return run_of(world, proposal_number(what))
    workspace.require(what)
    waiting = [
        r for _, r in world.store.read(lambda tx: tx.proposals.waiting()) if r.dataset_id == what
    ]
    if not waiting:
        raise UsageError(
            f"No proposal of {what} waits.",
            expected="a proposal",
            remedy=f"`kfm propose {what}` makes one.",
        )
    found: LedgerRow = waiting[-1]
    return found


def _changed(world: World, row: LedgerRow) -> list[dict[str, str]]:
    """What differs between this candidate and what people approved: earlier candidates on the same
    base, and what is official.
    """
    number = world.store.read(lambda tx: tx.proposals.number(row.run_id))
    found = []
    for other, judged in earlier(world, row):
        old = world.store.read(lambda tx: tx.proposals.number(other.run_id))
        said = (
            f"{judged.name} approved proposal {old}, not this"
            f" one{_difference(world, f'proposal/{old}', f'proposal/{number}')}"
        )
        found.append(
            {
                "code": "approval.other",
                "message": said,
                "remedy": f"kfm diff proposal/{old} proposal/{number}",
            }
        )
    head = world.store.read(lambda tx: tx.index.last_generation(row.dataset_id))
    if head is not None and head.version_id is not None:
        said = (
            f"Generation {head.generation} is official, not this"
            f" candidate{_difference(world, row.dataset_id, f'proposal/{number}')}"
        )
        found.append(
            {
                "code": "approval.difference",
                "message": said,
                "remedy": f"kfm diff {row.dataset_id} proposal/{number}",
            }
        )
    return found


def _difference(world: World, a: str, b: str) -> str:
    """The difference of two versions in one line, the first changed cells in full; left out when
    one of them cannot be read.
    """
    try:
        from kfm.diff.tables import diff_files  # with an extra: pyarrow

        old, new = located(world, a), located(world, b)
        diff = diff_files(
            old.files,
            new.files,
            new.business_key,
            limit=3,
            dataset_id=new.dataset_id,
            labels=(a, b),
        )
    except (KfmError, OSError, ImportError):
        return "."
    cells = [
        f"{', '.join(f'{k} {v}' for k, v in c.key.items())}: "
        + "; ".join(f"{name} {was} → {now}" for name, (was, now) in c.cells.items())
        for c in diff.samples
        if c.cells
    ]
    return f": {diff.added:,} rows added, {diff.removed:,} removed, {diff.changed:,} changed." + (
        " " + " | ".join(cells) if cells else ""
    )
