"""Bring datasets up to date: look upstream, capture, transform, judge, publish; or say that nothing
changed.
"""

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import heed_clock, login, offer, understood
from kfm.cli.terminal import Progress, say, show, sign, write
from kfm.jobs.drive import run_target
from kfm.jobs.promote_here import promote_run
from kfm.model import INGEST, KfmError, LedgerRow, SystemClock, UsageError, bounds
from kfm.model.change import told
from kfm.model.window import seconds, window
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import World

if TYPE_CHECKING:
    from kfm.cli.side_by_side import Gone

__all__ = [
    "Ran",
    "Wanted",
    "check_reason",
    "run",
    "run_dataset",
    "run_datasets",
    "still_kept",
    "tell",
    "window_of",
]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a run, beside the dataset, and how it is told."""

    where: Path | None = None  # the workspace, as it was named
    as_json: bool = False
    verbose: bool = False
    win: str = ""
    wait_s: float = 60.0
    upstream: str | None = None
    spec: Path | None = None
    dry_run: bool = False
    force: bool = False
    accept_change: bool = False
    reason: str = ""
    propose_only: bool = False
    clock_ok: bool = False

    def progress(self) -> Progress:
        return Progress(self.verbose, self.as_json)


class Ran(Answer, frozen=True, kw_only=True):
    """How the runs ended; each is told in words as it ends."""

    runs: list[Outcome]

    @property
    def code(self) -> int:
        return max((outcome.exit_code for outcome in self.runs), default=0)


def window_of(given: str | None, since: str | None, until: str | None) -> str:
    """The window that flags name; "" for none."""
    if given and (since or until):
        raise UsageError(
            "--window and --since/--until exclude one another.",
            expected="one of them",
            remedy="Drop one.",
        )
    if since and until:
        return bounds(since, until)
    if since or until:
        raise UsageError(
            "--since and --until go together.", expected="both", remedy="Add the other one."
        )
    return window(given, SystemClock().now()) if given else ""


def check_reason(flag: str, given: bool, reason: str) -> None:
    """What goes beyond the usual is done for a reason."""
    if given and not reason.strip():
        raise UsageError(
            f"{flag} needs a reason.", expected='--reason "…"', remedy="Say why; it is recorded."
        )


def run(
    call: Call,
    dataset: list[str],
    all: bool,
    window: str | None,
    since: str | None,
    until: str | None,
    dry_run: bool,
    force: bool,
    accept_change: bool,
    reason: str,
    wait: str,
    at_once: int | None,
    upstream: str | None,
    spec: Path | None,
    clock_ok: bool,
) -> Ran:
    workspace = open_workspace(call.workspace)
    names = workspace.registered() if all else list(dict.fromkeys(dataset))
    if not names:
        raise UsageError(
            "No dataset is named.",
            expected="DATASET… or --all",
            remedy="`kfm dataset list` shows what there is.",
        )
    check_reason("--force", force, reason)
    check_reason("--accept-change", accept_change, reason)
    if all and accept_change:
        raise UsageError(
            "--accept-change is said of one dataset at a time.",
            expected="DATASET",
            remedy="`kfm review` lists what waits.",
        )
    wanted = Wanted(
        where=call.workspace,
        as_json=call.json,
        verbose=call.verbose,
        win=window_of(window, since, until),
        wait_s=float(seconds(wait)),
        upstream=upstream,
        spec=spec,
        dry_run=dry_run,
        force=force,
        accept_change=accept_change,
        reason=reason,
        clock_ok=clock_ok,
    )
    if all:
        names = still_kept(workspace, names)
    else:
        for name in names:
            workspace.require(name)  # a typing mistake is found before anything runs
    beside = at_once if at_once is not None else 1
    if all and at_once is None:
        from kfm.cli.side_by_side import cores  # a NOOP starts faster without it

        beside = cores()
    return Ran(runs=run_datasets(workspace, names, wanted, at_once=beside, go_on=all or beside > 1))


def still_kept(workspace: Workspace, names: list[str]) -> list[str]:
    """`names` without those that are retired, which are left out with a word."""
    entries = ((name, workspace.readable(name)) for name in names)
    retired = {
        name: entry.retired
        for name, entry in entries
        if entry is not None and entry.retired is not None
    }
    for name, why in retired.items():
        say(f"  {sign('NOOP', sys.stderr)} {name:<22} left out, it is retired: {why}")
    return [name for name in names if name not in retired]


def run_datasets(
    workspace: Workspace,
    names: list[str],
    wanted: Wanted,
    *,
    at_once: int,
    go_on: bool = True,
) -> list[Outcome]:
    """Every partition of every dataset, in the order of `names`; what is made from others of them
    is worked after them.

    `go_on`: one that cannot be used does not keep the others from running.
    """

    def work(name: str, shown: Progress) -> list[Outcome]:
        try:
            return run_dataset(workspace, name, wanted, shown)
        except Exception as error:
            if not go_on or isinstance(error, BrokenPipeError):
                raise
            failure = understood(error)
            shown.clear()
            if failure is not error:
                from kfm.jobs.base import stack_of  # a NOOP starts faster without it

                # what the system refused is said in words, and they are enough
                keep(name, failure.happened, stack_of(error), not isinstance(error, OSError))
            return failed(name, failure.happened, failure.remedy, failure.exit_code)

    def keep(name: str, happened: str, stack: str, shown: bool = True) -> None:
        from kfm.jobs.job_log import JobLog  # a NOOP starts faster without it

        if not wanted.dry_run:
            log = JobLog(workspace.path / "ledger" / "logs", SystemClock())
            log.fell(INGEST, name, happened, stack)
        if shown and not wanted.as_json:
            say(stack.rstrip())

    def failed(name: str, reason: str, remedy: str, exit_code: int) -> list[Outcome]:
        outcome = Outcome(
            dataset_id=name,
            run_id="",
            state="FAILED",
            reason=reason,
            exit_code=exit_code,
            remedy=remedy,
        )
        if not wanted.as_json:
            tell(outcome, 0.0)
        return [outcome]

    def lost(name: str, gone: "Gone") -> list[Outcome]:
        happened = f"The process that worked it is gone: {gone.how}."
        if gone.stack:
            keep(name, happened, gone.stack)
        return failed(name, happened, "`kfm resume` goes on from where it was.", 1)

    def made_from(name: str) -> tuple[str, ...]:
        entry = workspace.readable(name)
        return entry.source.datasets if entry is not None else ()

    if len(names) == 1:
        return work(names[0], wanted.progress())
    from kfm.cli.side_by_side import inputs_first, side_by_side  # the same

    found = side_by_side(inputs_first(names, made_from), work, lost, at_once, wanted.progress())
    return [outcome for name in names for outcome in found[name]]


def run_dataset(
    workspace: Workspace,
    name: str,
    wanted: Wanted,
    shown: Progress | None = None,
) -> list[Outcome]:
    """Every partition of one dataset, told as it ends."""
    shown, found = shown or wanted.progress(), []
    for target in targets_of(
        workspace, name, win=wanted.win, spec_file=wanted.spec, trigger=f"manual:{login()}"
    ):
        began = time.monotonic()
        try:
            with open_world(
                workspace,
                upstream=wanted.upstream,
                dry_run=name if wanted.dry_run else None,
                echo=shown,
            ) as world:
                world.propose_only = wanted.propose_only
                heed_clock(world, wanted.clock_ok, name)
                seen = _waiting(world, target) if wanted.accept_change else None
                outcome = run_target(
                    world, target, forced=wanted.force, reason=wanted.reason, wait_s=wanted.wait_s
                )
                if outcome.exit_code == 7 and wanted.accept_change:
                    outcome = _accepted(world, target, outcome, seen, wanted.reason, wanted.wait_s)
                outcome = _noted(world, outcome)
        except BrokenPipeError:
            raise  # whoever listened to us went away
        except (KfmError, OSError) as error:
            failure = understood(error)
            outcome = Outcome(
                dataset_id=name,
                run_id="",
                state="FENCED" if failure.exit_code == 5 else "FAILED",
                reason=failure.happened,
                exit_code=failure.exit_code,
                remedy=failure.remedy,
                partition=target.partition,
                window=wanted.win,
            )
        shown.clear()
        outcome = msgspec.structs.replace(outcome, dry_run=wanted.dry_run)
        found.append(outcome)
        if not wanted.as_json:
            tell(outcome, time.monotonic() - began, wanted.dry_run)
    entry = workspace.readable(name)
    if (
        entry is not None
        and entry.derive
        and not wanted.dry_run
        and any(o.state == "COMMITTED" for o in found)
    ):
        with open_world(workspace) as world:
            offer(wanted.where, world, name)
    return found


def _waiting(world: World, target: Target) -> LedgerRow | None:
    """The run whose proposal waits for a word in the place of this target."""
    rows = [row for _, row in world.store.read(lambda tx: tx.proposals.waiting())]
    mine = (target.dataset_id, target.partition, target.win)
    return next((r for r in rows if (r.dataset_id, r.partition, r.win) == mine), None)


def _accepted(
    world: World, target: Target, outcome: Outcome, seen: LedgerRow | None, reason: str, wait: float
) -> Outcome:
    """What became of a version that waited for nothing but a word on its change; any other goes on
    waiting.

    Where one was `seen` waiting, the word is about that: what changes more than it did must be
    looked at first.
    """
    from kfm.acts.approve import accept  # a NOOP starts faster without it
    from kfm.evidence.proposal import change_of

    row = _waiting(world, target)
    if row is None:
        return outcome
    if seen is not None and seen.version_id != row.version_id:
        now, then = change_of(world, row), change_of(world, seen)
        if now is None or then is None or not now.within(then):
            why = (
                f"more changes now than in what waited, {told(then)}: {outcome.reason}"
                if then is not None
                else outcome.reason
            )
            return msgspec.structs.replace(outcome, reason=why)
    if accept(world, row, login(), reason):
        return promote_run(world, row, wait)
    why = f"{outcome.reason}; --accept-change does not suffice, others must approve it"
    return msgspec.structs.replace(outcome, reason=why)


def _noted(world: World, outcome: Outcome) -> Outcome:
    """A new version with the columns that the one before it did not have; any other outcome as it
    is.
    """
    number = outcome.generation or 0
    if outcome.state != "COMMITTED" or number < 2:
        return outcome
    from kfm.judge.candidate import columns_added  # a NOOP starts faster without it

    # it is official whatever can be read of the one before
    with contextlib.suppress(KfmError, OSError):
        if new := columns_added(world, outcome.dataset_id, number):
            return msgspec.structs.replace(outcome, names=new)
    return outcome


_WARNINGS = 5  # shown by name
_WORDS = {
    "COMMITTED": "new version",
    "NOOP": "unchanged",
    "REJECTED": "denied",
    "FAILED": "failed",
    "SUPERSEDED": "superseded",
    "FENCED": "waiting",
    "PROPOSED": "proposed",
    "STAGED": "staged",
}


def tell(outcome: Outcome, took: float, dry_run: bool = False) -> None:
    """One line for what happened, and for a no the reasons and the next command."""
    name = f"{outcome.dataset_id}{'/' + outcome.partition if outcome.partition else ''}"
    word = _WORDS.get(outcome.state, outcome.state.lower())
    if outcome.state == "COMMITTED":
        rows = outcome.change or f"{outcome.rows:,} row{'' if outcome.rows == 1 else 's'}"
        detail = f"{(outcome.version_id or '')[:9]}…  generation {outcome.generation}  {rows}"
        if outcome.quarantined:
            detail += f", {outcome.quarantined:,} quarantined: kfm quarantine show {outcome.run_id}"
        detail += f", {outcome.names}" if outcome.names else ""
    else:
        detail = outcome.reason if outcome.reason != "unchanged" else outcome.names
        detail += (
            f", {outcome.quarantined:,} quarantined: kfm quarantine show {outcome.run_id}"
            if outcome.quarantined
            else ""
        )
    prefix = "dry run: " if dry_run else ""
    show(f"  {sign(outcome.state)} {name:<22} {prefix}{word:<12} {detail}  {took:.2f} s")
    for warning in outcome.warnings[:_WARNINGS]:
        say(f"      warning: {warning}")
    if len(outcome.warnings) > _WARNINGS:
        say(
            f"      and {len(outcome.warnings) - _WARNINGS} more warnings: kfm explain run"
            f" {outcome.dataset_id}"
        )
    for reason in outcome.reasons:
        write(f"      {reason['code']}: {reason['message']}")
        write(f"        {reason['remedy']}")
    if outcome.exit_code and outcome.remedy and not outcome.reasons:
        asks = f" `kfm run {outcome.dataset_id}` asks again."
        say(f"      {outcome.remedy}{asks if outcome.exit_code == 4 else ''}")
    sys.stdout.flush()
