"""Show what a run would do; changes nothing."""

from pathlib import Path
from typing import Literal

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.run import window_of
from kfm.cli.terminal import show
from kfm.model import Plan, plan_hash
from kfm.model.plan import export, order
from kfm.run.claim import check_kept
from kfm.run.plan import look_and_plan
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world

__all__ = ["Plans", "plans"]


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What would be done with one part, and whether anything would."""

    plan: Plan
    plan_hash: str
    would_run: bool


class Plans(Answer, frozen=True, kw_only=True):
    """The plans for what upstream has now."""

    plans: list[Planned]

    def tell(self, call: Call) -> None:
        for found in self.plans:
            plan, end = found.plan, "would run" if found.would_run else "would be a NOOP"
            part = f"/{plan.partition}" if plan.partition else ""
            show(f"{plan.dataset_id}{part}  plan {found.plan_hash[:12]}…  {end}\n")
            for source in plan.inputs:
                show(f"  input  {source.uri}  {source.content_hash[:19]}…  {source.size:,} bytes")
            steps = {s.id: s for s in plan.steps}
            for step in (steps[step_id] for step_id in order(plan.steps)):
                after = ", ".join(step.needs) or "nothing"
                show(f"  {step.phase:<8} {step.id:<10} {step.effect:<6} after {after}")


def plans(
    call: Call,
    dataset: str,
    window: str | None,
    since: str | None,
    until: str | None,
    upstream: str | None,
    format: Literal["text", "json", "yaml", "msgpack"],
    output: Path | None,
) -> Plans | None:
    workspace = open_workspace(call.workspace)
    found: list[Planned] = []
    for target in targets_of(workspace, dataset, win=window_of(window, since, until)):
        check_kept(target.entry)
        with open_world(workspace, upstream=upstream, dry_run=dataset) as world:
            plan, would = look_and_plan(world, target)
        found.append(Planned(plan=plan, plan_hash=plan_hash(plan), would_run=would))
    if call.json or format == "text":
        return Plans(plans=found)
    for each in found:
        raw = export(each.plan, format)
        if output:
            output.write_bytes(raw)
        else:
            print(raw.decode() if format != "msgpack" else raw.hex())
    return None
