"""Make an approved proposal official: it is judged again on the policy and labels of now, then its
generation is appended.

Without enough valid approvals it waits on (exit 7), and what differs from what people approved is
shown; denied it is exit 3.
"""

import time
from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, clock_flag, emit, heed_clock, offer
from kfm.cli.run import tell
from kfm.evidence.proposal import earlier, run_of
from kfm.evidence.references import proposal_number
from kfm.jobs.promote_here import promote_run
from kfm.judge.boundary import located
from kfm.model import SAID_NO, Denied, Fenced, IntegrityError, KfmError, LedgerRow, UsageError
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]

WAITS = 7  # for a person


def configure(parser: Parser) -> None:
    parser.add_argument(
        "what",
        metavar="N|DATASET",
        help="a proposal, or the dataset whose newest proposal is meant",
    )
    clock_flag(parser)


def main(args: Namespace) -> int:
    workspace, began = open_workspace(args.workspace), time.monotonic()
    with open_world(workspace) as world:
        row = _row(world, workspace, args.what)
        if row.state != "PROPOSED":
            raise Denied(
                f"This proposal is {row.state}: {row.reason or 'it has ended'}.",
                expected="a proposal that waits",
                remedy="`kfm review` lists them.",
            )
        heed_clock(world, args.clock_ok, row.dataset_id)
        outcome = promote_run(world, row)
        if outcome.state == "PROPOSED":
            outcome = msgspec.structs.replace(
                outcome, reasons=(*outcome.reasons, *_changed(world, row))
            )
        if outcome.state == "COMMITTED":
            offer(args.workspace, world, row.dataset_id)
    refused = any(reason["code"] == SAID_NO for reason in outcome.reasons)
    waits = outcome.state == "PROPOSED" and outcome.exit_code == WAITS and not refused
    if (
        outcome.state != "COMMITTED"
        and not waits
        and outcome.exit_code not in (Fenced.exit_code, IntegrityError.exit_code)
    ):
        # whatever it is now, it is not official
        outcome = msgspec.structs.replace(outcome, exit_code=Denied.exit_code)
    if args.json:
        emit(msgspec.to_builtins(outcome))
    else:
        tell(outcome, time.monotonic() - began)
    return outcome.exit_code


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
