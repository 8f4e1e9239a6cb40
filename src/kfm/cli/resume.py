"""Finish what was interrupted: every unfinished run whose holder is gone, from its own capture,
without asking upstream, and what people began: an erasure whose generation is there, what follows
from a rollback or a withdrawal."""

import time
from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, again, clock_flag, emit, heed_clock, offer
from kfm.cli.run import tell
from kfm.cli.terminal import progress, say, sign
from kfm.cli.wal import find_run
from kfm.evidence.acts import set_aside, settle
from kfm.jobs.resume import resume_run
from kfm.model import KfmError, LedgerRow
from kfm.model.window import seconds
from kfm.upkeep.erase import finish_erasure, plan_again
from kfm.upkeep.reindex import datasets_with_evidence
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import planned_of, resumed_target
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome
from kfm.world.world import World

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="only this run")
    parser.add_argument(
        "--wait",
        default="60s",
        metavar="60s",
        help="how long to wait for another run of the same dataset",
    )
    clock_flag(parser)


def _resumed(workspace: Workspace, world: World, row: LedgerRow, wait: float) -> Outcome:
    """What became of one run; an error of its own does not keep the others from going on."""
    try:
        return resume_run(world, resumed_target(workspace, row, planned_of(world, row)), row, wait)
    except KfmError as error:
        return Outcome(
            dataset_id=row.dataset_id,
            run_id=row.run_id,
            state="FENCED" if error.exit_code == 5 else "FAILED",
            reason=error.happened,
            exit_code=error.exit_code,
            remedy=error.remedy,
            partition=row.partition,
            window=row.win,
        )


def _acts(world: World, names: list[str], wait: float) -> tuple[list[dict[str, str]], int]:
    """Finish what people began: erasures, and what follows from rollbacks and withdrawals; the
    worst exit code.

    An error of one dataset (a run is in the way, its channel is damaged) does not keep the others
    from going on.
    """
    done, code = [], 0
    for name in names:
        try:
            for path in set_aside(world, name):
                say(
                    f"{name}: {path} is damaged and was set aside in ledger/quarantine; what the"
                    " channel shows is finished all the same."
                )
                plan_again(world, name)
            count = finish_erasure(world, name, wait)
            done += (
                []
                if count is None
                else [{"dataset_id": name, "done": f"erasure finished, {count} files destroyed"}]
            )
            done += [
                {"dataset_id": name, "done": f"{told} finished"} for told in settle(world, name)
            ]
        except KfmError as error:
            say(f"{name}: {error}")
            code = max(code, error.exit_code)
    return done, code


def main(args: Namespace) -> int:
    workspace, wait = open_workspace(args.workspace), float(seconds(args.wait))
    outcomes: list[Outcome] = []
    shown = progress(args)
    with open_world(workspace, echo=shown) as world:
        names = workspace.registered()
        acts, code = _acts(
            world, [] if args.run else sorted({*names, *datasets_with_evidence(world)}), wait
        )
        rows = [r for name in names for r in world.store.read(lambda tx: tx.runs.open_runs(name))]
        if args.run:
            wanted = find_run(world, args.run)
            rows = [r for r in rows if r.run_id == wanted.run_id]
        # for a person, not for a machine
        waiting = [r for r in rows if r.state == "PROPOSED" and not r.promo and r.intent is None]
        heed_clock(
            world, args.clock_ok, *dict.fromkeys(r.dataset_id for r in rows if r not in waiting)
        )
        for row in (r for r in rows if r not in waiting):
            now = world.store.read(lambda tx: tx.runs.get(row.run_id))
            if now is None or now.ended_at is not None:
                continue  # finished on the way, by a run before it
            began = time.monotonic()
            outcomes.append(_resumed(workspace, world, row, wait))
            shown.clear()
            if not args.json:
                tell(outcomes[-1], time.monotonic() - began)
        for name in dict.fromkeys(o.dataset_id for o in outcomes if o.state == "COMMITTED"):
            offer(args.workspace, world, name)
    if args.json:
        emit(
            {
                "runs": [msgspec.to_builtins(o) for o in outcomes],
                "waiting": len(waiting),
                "acts": acts,
            }
        )
    elif not outcomes and not acts:
        print("Nothing to resume.")
    for act in () if args.json else acts:
        print(f"  {sign('PASS')} {act['dataset_id']:<22} {act['done']}")
    if waiting and not args.json:
        print(f"{len(waiting)} wait for a person: {again(args, 'review')}")
    return max((code, *(o.exit_code for o in outcomes)))
