"""Finish what was interrupted: runs whose holder is gone, and what people began."""

import time

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again, heed_clock, offer
from kfm.cli.run import tell
from kfm.cli.terminal import progress, say, show, sign
from kfm.cli.wal import find_run
from kfm.evidence.intended_acts import set_aside, settle
from kfm.jobs.resume import resume_run
from kfm.model import KfmError, LedgerRow
from kfm.model.window import seconds
from kfm.upkeep.erase import finish_erasure, plan_again
from kfm.upkeep.reindex import datasets_with_evidence
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import request_of, resumed_target
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome
from kfm.world.world import World

__all__ = ["Resumed", "resumed"]


def _resumed(workspace: Workspace, world: World, row: LedgerRow, wait: float) -> Outcome:
    """What became of one run; an error of its own does not keep the others from going on."""
    try:
        return resume_run(world, resumed_target(workspace, row, request_of(world, row)), row, wait)
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


class Resumed(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """What was finished; runs are told in words as they end."""

    runs: list[Outcome]
    waiting: int  # for a person
    acts: list[dict[str, str]]
    exit_code: int = 0

    @property
    def code(self) -> int:
        return self.exit_code

    def tell(self, call: Call) -> None:
        if not self.runs and not self.acts:
            show("Nothing to resume.")
        for act in self.acts:
            show(f"  {sign('PASS')} {act['dataset_id']:<22} {act['done']}")
        if self.waiting:
            show(f"{self.waiting} wait for a person: {again(call, 'review')}")


def resumed(call: Call, run: str | None, wait: str, clock_ok: bool) -> Resumed:
    workspace, wait_s = open_workspace(call.workspace), float(seconds(wait))
    outcomes: list[Outcome] = []
    shown = progress(call)
    with open_world(workspace, echo=shown) as world:
        names = workspace.registered()
        acts, code = _acts(
            world, [] if run else sorted({*names, *datasets_with_evidence(world)}), wait_s
        )
        rows = [r for name in names for r in world.store.read(lambda tx: tx.runs.open_runs(name))]
        if run:
            wanted = find_run(world, run)
            rows = [r for r in rows if r.run_id == wanted.run_id]
        # for a person, not for a machine
        waiting = [r for r in rows if r.state == "PROPOSED" and not r.promo and r.intent is None]
        rows = [r for r in rows if r not in waiting]
        heed_clock(world, clock_ok, *dict.fromkeys(r.dataset_id for r in rows))
        for row in rows:
            now = world.store.read(lambda tx: tx.runs.get(row.run_id))
            if now is None or now.ended_at is not None:
                continue  # finished on the way, by a run before it
            began = time.monotonic()
            outcomes.append(_resumed(workspace, world, row, wait_s))
            shown.clear()
            if not call.json:
                tell(outcomes[-1], time.monotonic() - began)
        for name in dict.fromkeys(o.dataset_id for o in outcomes if o.state == "COMMITTED"):
            offer(call.workspace, world, name)
    return Resumed(
        runs=outcomes,
        waiting=len(waiting),
        acts=acts,
        exit_code=max((code, *(o.exit_code for o in outcomes))),
    )
