"""Show what a run would do: the plan for what upstream has now, and whether anything would happen
at all. Changes nothing.
"""

from argparse import Namespace
from pathlib import Path

import msgspec

from kfm.cli.call import Parser, emit, upstream_flag
from kfm.cli.run import _window
from kfm.model import Plan, plan_hash
from kfm.model.plan import export, order
from kfm.run.claim import check_kept
from kfm.run.plan import look_and_plan
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", metavar="DATASET")
    parser.add_argument("--window", metavar="7d|DAY|SINCE/UNTIL", help="only this window")
    parser.add_argument("--since", metavar="TIME")
    parser.add_argument("--until", metavar="TIME")
    upstream_flag(parser)
    parser.add_argument(
        "--format",
        choices=("text", "json", "yaml", "msgpack"),
        default="text",
        help="how to print the plan",
    )
    parser.add_argument(
        "-o", "--output", type=Path, default=None, metavar="FILE", help="write the plan there"
    )


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    found: list[tuple[Plan, bool]] = []
    for target in targets_of(workspace, args.dataset, win=_window(args)):
        check_kept(target.entry)
        with open_world(workspace, upstream=args.upstream, dry_run=args.dataset) as world:
            found.append(look_and_plan(world, target))
    if args.json:
        emit(
            {
                "plans": [
                    {"plan": msgspec.to_builtins(p), "plan_hash": plan_hash(p), "would_run": would}
                    for p, would in found
                ]
            }
        )
        return 0
    for plan, would in found:
        if args.format != "text":
            raw = export(plan, args.format)
            if args.output:
                args.output.write_bytes(raw)
            else:
                print(raw.decode() if args.format != "msgpack" else raw.hex())
            continue
        print(
            f"{plan.dataset_id}{'/' + plan.partition if plan.partition else ''}  plan"
            f" {plan_hash(plan)[:12]}…  {'would run' if would else 'would be a NOOP'}\n"
        )
        for source in plan.inputs:
            print(f"  input  {source.uri}  {source.content_hash[:19]}…  {source.size:,} bytes")
        steps = {s.id: s for s in plan.steps}
        for step_id in order(plan.steps):
            step = steps[step_id]
            print(
                f"  {step.phase:<8} {step.id:<10} {step.effect:<6} after"
                f" {', '.join(step.needs) or 'nothing'}"
            )
    return 0
