"""Backfills: a past range in partitions, staged by workers in parallel, assembled into one version."""

import datetime as dt
from functools import partial
from pathlib import Path

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import heed_clock, login
from kfm.cli.terminal import progress, say, show, sign, table, write
from kfm.jobs import backfill_progress
from kfm.jobs import backfill_windows as backfill
from kfm.jobs.backfill_plan import BackfillPlan, grid_of, plan_from, read_plan
from kfm.jobs.backfill_records import Bucket, Estimate, Status
from kfm.jobs.backfill_registry import agree, differences, range_of
from kfm.jobs.backfill_spans import OVER
from kfm.model import BackfillRow, UsageError
from kfm.workspace import config
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import World

__all__ = [
    "Backfills",
    "Begun",
    "Cancelled",
    "Listing",
    "Planned",
    "backfills",
    "cancelled",
    "listing",
    "planned",
    "resumed",
    "started",
]

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


# ---- plan ----------------------------------------------------------------------------------------
class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Which past, and how, as flags say it; what is left out is the registry's, or usual."""

    since: str | None
    until: str | None
    window: str | None
    batch: int
    assemble_every: int | None
    pool: str | None
    concurrency: int | None
    per_second: float | None

    def repeated(self) -> str:
        """The flags that say it once more."""
        said = msgspec.structs.asdict(self)
        if self.batch == 50:
            said["batch"] = None
        return "".join(
            f" --{name.replace('_', '-')} {value}"
            for name, value in said.items()
            if value is not None
        )


class Planned(Answer, frozen=True, kw_only=True):
    """What a backfill would take."""

    name: str
    plan: BackfillPlan
    estimate: Estimate
    stated: list[str]  # what the registry says otherwise
    limited: bool  # kfm.yml names the pool
    next: str

    def tell(self, call: Call) -> None:
        unlimited = "" if self.limited else ", which kfm.yml does not name: nothing limits it"
        _tell_plan(self.name, self.plan, self.estimate, unlimited)
        if self.stated:
            write(f"  the registry says {', '.join(self.stated)}")
        write(f"\nNext  {self.next}")


def planned(
    call: Call,
    what: str,
    since: str | None,
    until: str | None,
    window: str | None,
    batch: int,
    assemble_every: int | None,
    pool: str | None,
    concurrency: int | None,
    per_second: float | None,
) -> Planned:
    workspace = open_workspace(call.workspace)
    asked = Range(
        since=since,
        until=until,
        window=window,
        batch=batch,
        assemble_every=assemble_every,
        pool=pool,
        concurrency=concurrency,
        per_second=per_second,
    )
    with open_world(workspace) as world:
        name, plan, target = _load(workspace, what, asked, world.clock.now())
        found, (plan, _) = (
            backfill.estimate(world, plan, target),
            backfill.settle(world, plan, target),
        )
    return Planned(
        name=name,
        plan=plan,
        estimate=found,
        stated=list(differences(plan, workspace.require(plan.dataset))),
        limited=plan.pool in {"default", *workspace.config.pools},
        next=f"kfm backfill start {what}{asked.repeated()}",
    )


def _load(
    workspace: Workspace, what: str, asked: Range, now: dt.datetime
) -> tuple[str, BackfillPlan, Target]:
    """(name, plan, target): from the workspace's folder, another file, or a dataset and flags; it
    agrees with what the registry states about the past.
    """
    name, plan = _given_plan(workspace, what, asked, now)
    entry = workspace.require(plan.dataset)
    agree(plan, entry)
    # a window of the plan, so that a dataset without windows is refused
    win = grid_of(plan, entry).at(0)[0]
    return name, plan, targets_of(workspace, plan.dataset, win=win, canary=False)[0]


def _given_plan(
    workspace: Workspace, what: str, asked: Range, now: dt.datetime
) -> tuple[str, BackfillPlan]:
    for path in (workspace.path / FOLDER / f"{what}.yml", Path(what)):
        if path.is_file():
            return path.stem, plan_from(config.parse(path.read_bytes(), path.name), path.name)
    if what not in workspace.registered():
        near = (
            ", ".join(sorted(p.stem for p in (workspace.path / FOLDER).glob("*.yml"))) or "none yet"
        )
        raise UsageError(
            f"There is no plan and no dataset {what}.",
            expected=f"a plan ({near}), a file or a dataset",
            remedy="`kfm dataset list` shows the datasets.",
        )
    entry = workspace.require(what)
    given = {
        "dataset": what,
        **range_of(entry, now, since=asked.since, until=asked.until, window=asked.window),
        "pool": asked.pool or entry.pool,
        "acceptance": {"gates": "all"},
        "batch": asked.batch,
        "concurrency": asked.concurrency,
        "assemble": f"every {asked.assemble_every}" if asked.assemble_every else "once",
        **({"rate": {"per_second": asked.per_second}} if asked.per_second is not None else {}),
    }
    return what, plan_from(given, "the flags")


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
    write(f"{name}: {plan.dataset}, {plan.since} to {plan.until}\n")
    write(f"  partitions  {found.partitions:>12,}   windows of {plan.partitioning.window}")
    write(
        f"  jobs        {found.jobs:>12,}   {plan.batch} partitions each, pool"
        f" {plan.pool}{about_pool}"
    )
    write(f"  requests    {found.requests:>12,}   {asked}{size}")
    write(f"  time        {_time(found.seconds):>12}   {why}")
    gates = "every gate" if plan.acceptance.gates == "all" else ", ".join(plan.acceptance.gates)
    write(
        f"  assembled   {plan.assemble:>12}   accepted by {gates}, at most"
        f" {plan.acceptance.max_failed:.0%} failed"
    )


# ---- start, resume, cancel -----------------------------------------------------------------------
class Begun(Answer, frozen=True, kw_only=True):
    """A backfill that was started or goes on; with --inline it is worked."""

    status: str
    backfill: Status
    worked: bool  # in this process
    next: str

    @property
    def code(self) -> int:
        return _CODES.get(self.backfill.state, 0) if self.worked else 0

    def tell(self, call: Call) -> None:
        found = self.backfill
        write(
            f"{self.status.replace('_', ' ').capitalize()}: backfill {found.backfill_id} of"
            f" {found.dataset_id}, {found.total:,} partitions"
        )
        if self.worked or self.status == "already_done":
            _tell(found)
        write(f"{_following(self.next, found)}\n      kfm backfill status {found.name}")


def started(
    call: Call,
    what: str,
    since: str | None,
    until: str | None,
    window: str | None,
    batch: int,
    assemble_every: int | None,
    pool: str | None,
    concurrency: int | None,
    per_second: float | None,
    again: bool,
    inline: bool,
    upstream: str | None,
    clock_ok: bool,
) -> Begun:
    workspace = open_workspace(call.workspace)
    asked = Range(
        since=since,
        until=until,
        window=window,
        batch=batch,
        assemble_every=assemble_every,
        pool=pool,
        concurrency=concurrency,
        per_second=per_second,
    )
    echo = progress(call) if inline else None
    with open_world(workspace, upstream=upstream, echo=echo) as world:
        heed_clock(world, clock_ok)
        name, plan, target = _load(workspace, what, asked, world.clock.now())
        row, new = backfill.start(world, name, plan, target, login(), put=not inline, again=again)
        word = "started" if new else "already_done" if row.state == "done" else "already_started"
        return _begun(workspace, world, row, word, inline)


def resumed(call: Call, what: str, inline: bool, upstream: str | None, clock_ok: bool) -> Begun:
    workspace = open_workspace(call.workspace)
    echo = progress(call) if inline else None
    with open_world(workspace, upstream=upstream, echo=echo) as world:
        heed_clock(world, clock_ok)
        row, targets = backfill.find(world, what), partial(targets_of, workspace)
        found = backfill.resume(world, row, login(), put=not inline, targets=targets)
        word = "already_done" if found.state == "done" else "resumed"
        return _begun(workspace, world, found, word, inline)


def _begun(workspace: Workspace, world: World, row: BackfillRow, word: str, inline: bool) -> Begun:
    """Say what was begun; with --inline do it."""
    if inline and row.state not in OVER:
        row, outcome = backfill.work_here(world, row.backfill_id, partial(targets_of, workspace))
        _reasons(outcome)
    return Begun(
        status=word,
        backfill=backfill_progress.status(world, row),
        worked=inline,
        next=backfill_progress.next_command(row),
    )


def _following(command: str, of: Status) -> str:
    """The next command; of what was denied why it was, and how to go on once that is mended."""
    mended = f"\n      kfm backfill resume {of.name}   once that is mended"
    return f"\nNext  {command}{mended if of.state == 'denied' else ''}"


def _reasons(outcome: Outcome | None) -> None:
    for reason in outcome.reasons if outcome is not None else ():
        say(f"      {reason['code']}: {reason['message']}\n        {reason['remedy']}")


class Cancelled(Answer, frozen=True, kw_only=True):
    """A backfill that hands out nothing more."""

    status: str
    backfill: Status

    def tell(self, call: Call) -> None:
        found = self.backfill
        write(
            f"{self.status.replace('_', ' ').capitalize()}: backfill {found.backfill_id} of"
            f" {found.dataset_id}; nothing official changed"
        )
        if self.status == "cancelled" and (staged := found.counts.get("STAGED")):
            write(
                f"      {staged:,} parts stay staged until a new start makes them again, or `kfm"
                " gc` finds them older than retention"
            )


def cancelled(call: Call, what: str, reason: str) -> Cancelled:
    if not reason.strip():
        raise UsageError(
            "Cancelling needs a reason.", expected='--reason "…"', remedy="Say why; it is recorded."
        )
    with open_world(open_workspace(call.workspace)) as world:
        row = backfill.find(world, what)
        found = backfill.cancel(world, row, login(), reason.strip())
        before = "already_cancelled" if row.state == "cancelled" else "cancelled"
        return Cancelled(
            status="already_done" if found.state == "done" else before,
            backfill=backfill_progress.status(world, found),
        )


# ---- status, list --------------------------------------------------------------------------------
class Backfills(Answer, frozen=True, kw_only=True):
    """How backfills are going."""

    backfills: list[Status]

    def tell(self, call: Call) -> None:
        for status in self.backfills:
            _tell(status)
            if status.next:
                write(f"{_following(status.next, status)}\n")
        if not self.backfills:
            write("No backfill is going on.\n\nNext  kfm backfill list")


def backfills(call: Call, what: str | None) -> Backfills:
    with open_world(open_workspace(call.workspace)) as world:
        rows: list[BackfillRow] = (
            [backfill.find(world, what)]
            if what
            else world.store.read(lambda tx: tx.backfill.listing())
        )
        kept = [row for row in rows if what or row.state not in OVER]
        return Backfills(backfills=[backfill_progress.status(world, row) for row in kept])


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A backfill and its plan."""

    backfill_id: str
    name: str
    dataset_id: str
    state: str
    plan: BackfillPlan
    transform_hash: str
    total: int
    put_by: str
    put_at: str
    began_ms: int
    touched_ms: int
    next_n: int
    retry_n: int
    ended_at: str | None
    run_id: str
    version_id: str | None
    generation: int | None
    reason: str


class Listing(Answer, frozen=True, kw_only=True):
    """Every backfill."""

    backfills: list[Listed]

    def tell(self, call: Call) -> None:
        cells = [
            (
                sign(_SIGNS[row.state]),
                row.backfill_id,
                row.name,
                row.dataset_id,
                row.state,
                f"{row.total:,}",
                row.reason,
            )
            for row in self.backfills
        ]
        heads = ("", "backfill", "name", "dataset", "state", "partitions", "why")
        for line in table(heads, cells, right=("partitions",)) if cells else ():
            show(line)
        if not cells:
            write(
                "No backfill was started.\n\nNext  kfm backfill plan DATASET --since TIME"
                " --until TIME"
            )


def listing(call: Call) -> Listing:
    with open_world(open_workspace(call.workspace)) as world:
        rows: list[BackfillRow] = world.store.read(lambda tx: tx.backfill.listing())
    return Listing(
        backfills=[Listed(**msgspec.structs.asdict(r) | {"plan": read_plan(r)}) for r in rows]
    )


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
