"""Backfills: a past range in partitions, staged by workers in parallel, assembled into one version.

plan    what it would take: partitions, requests, bytes, time; nothing is written
start   begin it; workers do it (`kfm worker run`), or this process with --inline
status  counts, grid, rate, what fails and the next command; resume  only what is missing or failed
cancel  hand out nothing more, change nothing official; list  every backfill

--json of plan = {name, plan, estimate}; of start, resume, cancel = {status, backfill}; of status
and list = {backfills: […]}.
"""

from argparse import Namespace
from functools import partial
from pathlib import Path

import msgspec

from kfm.cli.call import Parser, again, clock_flag, emit, heed_clock, login, upstream_flag
from kfm.cli.terminal import progress, say, show, sign
from kfm.jobs import backfill_told
from kfm.jobs import backfill_windows as backfill
from kfm.jobs.backfill_spans import OVER
from kfm.model import BackfillPlan, BackfillRow, Bucket, Estimate, UsageError, grid_of, plan_from
from kfm.model.backfill import Status
from kfm.workspace import config
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome
from kfm.world.world import World

__all__ = ["configure", "load_plan", "main"]

FOLDER = Path("pipelines") / "orchestration" / "backfills"
_SIGNS = {
    "running": "RUNNING",
    "assembling": "RUNNING",
    "stopped": "FAILED",
    "incomplete": "FAILED",
    "waiting": "PROPOSED",
    "denied": "REJECTED",
    "done": "PASS",
    "cancelled": "NOOP",
}
_CODES = {"stopped": 1, "incomplete": 1, "denied": 3, "waiting": 7}
_CELLS = (("FAILED", "FAILED"), ("STAGED", "PASS"), ("COMMITTED", "COMMITTED"), ("NOOP", "NOOP"))


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("plan", "start", "status", "resume", "cancel", "list"))
    parser.add_argument(
        "what",
        nargs="?",
        metavar="NAME|FILE|DATASET",
        help=f"a plan in {FOLDER}, another file, or a dataset with the flags below",
    )
    parser.add_argument(
        "--since", metavar="TIME", help="of a dataset: start of the range, RFC 3339 or a day"
    )
    parser.add_argument("--until", metavar="TIME", help="of a dataset: end of the range, exclusive")
    parser.add_argument(
        "--window",
        default="1d",
        metavar="1d",
        help="of a dataset: length of one window; whole days are days of its time zone",
    )
    parser.add_argument(
        "--batch", type=int, default=50, metavar="N", help="of a dataset: partitions per job"
    )
    parser.add_argument(
        "--assemble-every",
        type=int,
        default=0,
        metavar="N",
        help="of a dataset: a version after so many parts; default: one at the end",
    )
    parser.add_argument(
        "--pool",
        metavar="POOL",
        help="of a dataset: the pool of its jobs; default: that of the registry",
    )
    parser.add_argument(
        "--concurrency", type=int, default=None, metavar="N", help="of a dataset: jobs at once"
    )
    parser.add_argument(
        "--per-second",
        type=float,
        default=None,
        metavar="N",
        help="of a dataset: requests a second at the most",
    )
    parser.add_argument(
        "--again", action="store_true", help="start: although this very plan was done before"
    )
    parser.add_argument(
        "--inline",
        action="store_true",
        help="start, resume: work it in this process, without a worker",
    )
    parser.add_argument("--reason", default="", help="cancel: why; recorded")
    upstream_flag(parser, "with --inline: where bytes come from")
    clock_flag(parser)


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    if args.action in ("plan", "start") or (args.action in ("resume", "cancel") and not args.what):
        _named(args)
    with open_world(
        workspace, upstream=args.upstream, echo=progress(args) if args.inline else None
    ) as world:
        heed_clock(world, args.clock_ok)
        if args.action == "plan":
            return _plan(workspace, world, args)
        if args.action == "start":
            return _start(workspace, world, args)
        if args.action in ("status", "list"):
            return _status(world, args)
        row = backfill.find(world, args.what)
        if args.action == "cancel":
            return _cancel(world, row, args)
        targets = partial(targets_of, workspace)
        found = backfill.resume(world, row, login(), put=not args.inline, targets=targets)
        return _begun(
            workspace, world, found, "already_done" if found.state == "done" else "resumed", args
        )


def _named(args: Namespace) -> None:
    if not args.what:
        raise UsageError(
            "No backfill is named.",
            expected=f"kfm backfill {args.action} NAME|FILE|DATASET",
            remedy="`kfm backfill list` shows them.",
        )


# ---- plan, start ---------------------------------------------------------------------------------
def load_plan(workspace: Workspace, args: Namespace) -> tuple[str, BackfillPlan]:
    """(name, plan): from the workspace's folder, another file, or a dataset and flags."""
    for path in (workspace.path / FOLDER / f"{args.what}.yml", Path(args.what)):
        if path.is_file():
            return path.stem, plan_from(config.parse(path.read_bytes(), path.name), path.name)
    if args.what not in workspace.registered():
        near = (
            ", ".join(sorted(p.stem for p in (workspace.path / FOLDER).glob("*.yml"))) or "none yet"
        )
        raise UsageError(
            f"There is no plan and no dataset {args.what}.",
            expected=f"a plan ({near}), a file or a dataset",
            remedy="Correct the name.",
        )
    if not args.since or not args.until:
        raise UsageError(
            "A backfill says which past it is about.",
            expected="--since TIME --until TIME",
            remedy=f"Or write {FOLDER}/NAME.yml.",
        )
    entry = workspace.require(args.what)
    given = {
        "dataset": args.what,
        "since": args.since,
        "until": args.until,
        "partitioning": {"window": args.window},
        "expected_runtime": "0",
        "pool": args.pool or entry.pool,
        "acceptance": {"gates": "all"},
        "batch": args.batch,
        "concurrency": args.concurrency,
        "assemble": f"every {args.assemble_every}" if args.assemble_every else "once",
        **({"rate": {"per_second": args.per_second}} if args.per_second is not None else {}),
    }
    return args.what, plan_from(given, "the flags")


def _plan(workspace: Workspace, world: World, args: Namespace) -> int:
    name, plan = load_plan(workspace, args)
    target = targets_of(
        workspace, plan.dataset, win=_any_window(world, workspace, plan), canary=False
    )[0]
    found, (plan, _) = backfill.estimate(world, plan, target), backfill.settle(world, plan, target)
    if args.json:
        emit(
            {
                "name": name,
                "plan": msgspec.to_builtins(plan),
                "estimate": msgspec.to_builtins(found),
            }
        )
        return 0
    pools = {"default", *workspace.config.pools}
    _tell_plan(
        name,
        plan,
        found,
        "" if plan.pool in pools else ", which kfm.yml does not name: nothing limits it",
    )
    print(f"\nNext  {again(args, f'backfill start {_repeat(args)}')}")
    return 0


def _any_window(world: World, workspace: Workspace, plan: BackfillPlan) -> str:
    """A window of the plan, so that a dataset without windows is refused."""
    return grid_of(plan, workspace.require(plan.dataset)).at(0)[0]


def _repeat(args: Namespace) -> str:
    given = {
        "since": None,
        "until": None,
        "window": "1d",
        "batch": 50,
        "assemble_every": 0,
        "pool": None,
        "concurrency": None,
        "per_second": None,
    }
    flags = [
        f"--{k.replace('_', '-')} {getattr(args, k)}"
        for k, usual in given.items()
        if getattr(args, k) != usual
    ]
    return " ".join([str(args.what), *flags])


def _tell_plan(name: str, plan: BackfillPlan, found: Estimate, about_pool: str) -> None:
    asked = (
        f"{plan.rate.per_second:g} a second at the most" if plan.rate else "as politeness allows"
    )
    size = f", about {_bytes(found.bytes)}" if found.bytes is not None else ""
    why = (
        f"as {found.measured} runs took; expected {plan.expected_runtime}"
        if found.measured
        else (
            "as the plan expects; no run was measured yet"
            if found.seconds
            else "no run was measured yet"
        )
    )
    show(f"{name}: {plan.dataset}, {plan.since} to {plan.until}\n")
    show(f"  partitions  {found.partitions:>12,}   windows of {plan.partitioning.window}")
    show(
        f"  jobs        {found.jobs:>12,}   {plan.batch} partitions each, pool"
        f" {plan.pool}{about_pool}"
    )
    show(f"  requests    {found.requests:>12,}   {asked}{size}")
    show(f"  time        {_time(found.seconds):>12}   {why}")
    gates = "every gate" if plan.acceptance.gates == "all" else ", ".join(plan.acceptance.gates)
    show(
        f"  assembled   {plan.assemble:>12}   accepted by {gates}, at most"
        f" {plan.acceptance.max_failed:.0%} failed"
    )


def _start(workspace: Workspace, world: World, args: Namespace) -> int:
    name, plan = load_plan(workspace, args)
    target = targets_of(
        workspace, plan.dataset, win=_any_window(world, workspace, plan), canary=False
    )[0]
    row, new = backfill.start(
        world, name, plan, target, login(), put=not args.inline, again=args.again
    )
    word = "started" if new else "already_done" if row.state == "done" else "already_started"
    return _begun(workspace, world, row, word, args)


def _begun(workspace: Workspace, world: World, row: BackfillRow, word: str, args: Namespace) -> int:
    """Say what was begun; with --inline do it."""
    if args.inline and row.state not in OVER:
        row, outcome = backfill.work_here(world, row.backfill_id, partial(targets_of, workspace))
        _reasons(outcome)
    if args.json:
        emit({"status": word, "backfill": msgspec.to_builtins(backfill_told.status(world, row))})
    else:
        print(
            f"{word.replace('_', ' ').capitalize()}: backfill {row.backfill_id} of"
            f" {row.dataset_id}, {row.total:,} partitions"
        )
        if args.inline or word == "already_done":
            _tell(backfill_told.status(world, row))
        print(
            f"{_next(args, backfill_told.next_command(row), row)}\n     "
            f" {again(args, f'backfill status {row.name}')}"
        )
    return _CODES.get(row.state, 0) if args.inline else 0


def _next(args: Namespace, command: str, of: BackfillRow | Status) -> str:
    """The next command; of what was denied why it was, and how to go on once that is mended."""
    then = (
        f"\n      {again(args, f'backfill resume {of.name}')}   once that is mended"
        if of.state == "denied"
        else ""
    )
    return f"\nNext  {again(args, command.removeprefix('kfm '))}{then}"


def _reasons(outcome: Outcome | None) -> None:
    for reason in outcome.reasons if outcome is not None else ():
        say(f"      {reason['code']}: {reason['message']}\n        {reason['remedy']}")


def _cancel(world: World, row: BackfillRow, args: Namespace) -> int:
    if not args.reason.strip():
        raise UsageError(
            "Cancelling needs a reason.", expected='--reason "…"', remedy="Say why; it is recorded."
        )
    found = backfill.cancel(world, row, login(), args.reason.strip())
    word = (
        "already_done"
        if found.state == "done"
        else "already_cancelled"
        if row.state == "cancelled"
        else "cancelled"
    )
    status = backfill_told.status(world, found)
    if args.json:
        emit({"status": word, "backfill": msgspec.to_builtins(status)})
        return 0
    print(
        f"{word.replace('_', ' ').capitalize()}: backfill {found.backfill_id} of"
        f" {found.dataset_id}; nothing official changed"
    )
    if word == "cancelled" and (staged := status.counts.get("STAGED")):
        print(
            f"      {staged:,} parts stay staged until a new start makes them again, or `kfm gc`"
            " finds them older than retention"
        )
    return 0


# ---- status --------------------------------------------------------------------------------------
def _status(world: World, args: Namespace) -> int:
    if args.what:
        rows = [backfill.find(world, args.what)]
    else:
        rows = world.store.read(lambda tx: tx.backfill.listing())
        rows = rows if args.action == "list" else [row for row in rows if row.state not in OVER]
    if args.action == "list":
        return _list(rows, args)
    found = [backfill_told.status(world, row) for row in rows]
    if args.json:
        emit({"backfills": [msgspec.to_builtins(status) for status in found]})
        return 0
    for status in found:
        _tell(status)
        if status.next:
            print(f"{_next(args, status.next, status)}\n")
    if not found:
        print(f"No backfill is going on.\n\nNext  {again(args, 'backfill list')}")
    return 0


def _list(rows: list[BackfillRow], args: Namespace) -> int:
    if args.json:
        emit(
            {
                "backfills": [
                    {**msgspec.to_builtins(row), "plan": msgspec.to_builtins(row.read_plan())}
                    for row in rows
                ]
            }
        )
        return 0
    for row in rows:
        show(
            f"  {sign(_SIGNS[row.state])} {row.backfill_id}  {row.name:<24} {row.dataset_id:<24}"
            f" {row.state:<10} {row.total:>9,}  {row.reason}"
        )
    if not rows:
        print(f"No backfill was started.\n\nNext  {again(args, 'backfill plan NAME')}")
    return 0


def _tell(found: Status) -> None:
    counts = ", ".join(
        f"{found.counts[state]:,} {state.lower()}"
        for state, _ in reversed(_CELLS)
        if found.counts.get(state)
    )
    show(
        f"  {sign(_SIGNS[found.state])} {found.name}  {found.dataset_id}  {found.state} "
        f" {found.reason}".rstrip()
    )
    show(f"      {found.since} to {found.until}")
    show(
        f"      {found.total:,} partitions: {counts + ', ' if counts else ''}{found.missing:,} to"
        f" do, {found.handed_out:,} of them handed out"
    )
    if found.lost:
        show(f"      {found.lost} batches were given up by their jobs: resume hands them out again")
    if found.per_second:
        left = f", about {_time(found.eta_seconds)} left" if found.eta_seconds is not None else ""
        show(f"      {found.per_second:,.1f} a second{left}")
    if found.state == "running" and found.idle_seconds > 300:
        show(
            f"      no partition has ended for {_time(found.idle_seconds)}: is a worker running?"
            " `kfm worker list` shows them"
        )
    if found.version_id:
        show(
            f"      version {found.version_id[:9]}…  generation {found.generation}  run"
            f" {found.run_id}"
        )
    if len(found.grid) > 1:
        show(
            f"\n      {''.join(map(_cell, found.grid))}   {found.grid[0].partitions:,} partitions"
            " each"
        )
    for part in found.failing:
        name = f"{part['window']} {part['partition']}".strip()
        show(
            f"  {sign('FAILED')} {part['n']:,}  {name}  {part['attempts']}"
            f" {'try' if part['attempts'] == 1 else 'tries'}  {part['reason']}"
        )


def _cell(bucket: Bucket) -> str:
    """The worst that is in it; a blank while nothing is."""
    if 0 < sum(bucket.counts.values()) < bucket.partitions and not bucket.counts.get("FAILED"):
        return sign("RUNNING")
    return next((sign(shown) for state, shown in _CELLS if bucket.counts.get(state)), " ")


def _bytes(number: int) -> str:
    for size, word in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if number >= size:
            return f"{number / size:,.1f} {word}"
    return f"{number} bytes"


def _time(number: int | None) -> str:
    for size, word in ((86_400, "days"), (3600, "h"), (60, "min")):
        if number is not None and number >= 2 * size:
            return f"{number / size:,.1f} {word}"
    return "not known" if number is None else f"{number} s"
