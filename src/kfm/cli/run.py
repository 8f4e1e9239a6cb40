"""Bring datasets up to date: look upstream, capture, transform, judge, publish; or say that nothing
changed.
"""

import contextlib
import sys
import time
from argparse import Namespace
from pathlib import Path

import msgspec

from kfm.cli.beside import Gone, at_once_flag, cores, inputs_first, side_by_side
from kfm.cli.call import (
    Parser,
    clock_flag,
    emit,
    heed_clock,
    login,
    offer,
    understood,
    upstream_flag,
)
from kfm.cli.terminal import Progress, say, show, sign
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

__all__ = ["Wanted", "configure", "main", "run_dataset", "run_datasets", "still_kept", "tell"]


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


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", nargs="*", metavar="DATASET", help="datasets to run")
    parser.add_argument(
        "--all", action="store_true", help="every registered dataset that is not retired"
    )
    parser.add_argument(
        "--window",
        metavar="7d|DAY|SINCE/UNTIL",
        help="only this window; a length looks back from now",
    )
    parser.add_argument("--since", metavar="TIME", help="start of the window, RFC 3339")
    parser.add_argument("--until", metavar="TIME", help="end of the window, RFC 3339, exclusive")
    parser.add_argument(
        "--dry-run", action="store_true", help="do everything in a throw-away copy; change nothing"
    )
    parser.add_argument(
        "--force", action="store_true", help="run although nothing changed; gates still apply"
    )
    parser.add_argument(
        "--accept-change",
        action="store_true",
        help="publish although so much changes at once; signed with this workspace's key",
    )
    parser.add_argument(
        "--reason", default="", help="why it is forced or the change accepted; recorded"
    )
    parser.add_argument(
        "--wait",
        default="60s",
        metavar="60s",
        help="how long to wait for another run of the same dataset",
    )
    at_once_flag(parser)
    upstream_flag(parser)
    parser.add_argument(
        "--spec",
        type=Path,
        default=None,
        metavar="FILE",
        help="a governed run spec; its hash is recorded",
    )
    clock_flag(parser)


def _window(args: Namespace) -> str:
    if args.window and (args.since or args.until):
        raise UsageError(
            "--window and --since/--until exclude one another.",
            expected="one of them",
            remedy="Drop one.",
        )
    if bool(args.since) != bool(args.until):
        raise UsageError(
            "--since and --until go together.", expected="both", remedy="Add the other one."
        )
    if args.since:
        return bounds(args.since, args.until)
    return window(args.window, SystemClock().now()) if args.window else ""


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    names = workspace.registered() if args.all else list(dict.fromkeys(args.dataset))
    if not names:
        raise UsageError(
            "No dataset is named.",
            expected="DATASET… or --all",
            remedy="`kfm dataset list` shows what there is.",
        )
    for flag, given in (
        ("--force", args.force),
        ("--accept-change", args.accept_change),
    ):
        if given and not args.reason.strip():
            raise UsageError(
                f"{flag} needs a reason.",
                expected='--reason "…"',
                remedy="Say why; it is recorded.",
            )
    if args.all and args.accept_change:
        raise UsageError(
            "--accept-change is said of one dataset at a time.",
            expected="DATASET",
            remedy="`kfm review` lists what waits.",
        )
    if args.at_once is not None and args.at_once < 1:
        raise UsageError(
            f"--at-once {args.at_once} works nothing.",
            expected="1 or more",
            remedy="1 works one after the other.",
        )
    wanted = Wanted(
        where=args.workspace,
        as_json=args.json,
        verbose=args.verbose,
        win=_window(args),
        wait_s=float(seconds(args.wait)),
        upstream=args.upstream,
        spec=args.spec,
        dry_run=args.dry_run,
        force=args.force,
        accept_change=args.accept_change,
        reason=args.reason,
        clock_ok=args.clock_ok,
    )
    if not args.all:
        for name in names:
            workspace.require(name)  # a typing mistake is found before anything runs
    at_once = args.at_once if args.at_once is not None else cores() if args.all else 1
    if args.all:
        names = still_kept(workspace, names)
    outcomes = run_datasets(
        workspace, names, wanted, at_once=at_once, go_on=args.all or at_once > 1
    )
    if args.json:
        emit({"runs": outcomes})
    return max((o.exit_code for o in outcomes), default=0)


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

    def lost(name: str, gone: Gone) -> list[Outcome]:
        happened = f"The process that worked it is gone: {gone.how}."
        if gone.stack:
            keep(name, happened, gone.stack)
        return failed(name, happened, "`kfm resume` goes on from where it was.", 1)

    def made_from(name: str) -> tuple[str, ...]:
        entry = workspace.readable(name)
        return entry.source.datasets if entry is not None else ()

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
    from kfm.evidence.proposal import accept, change_of  # a NOOP starts faster without it

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
    return promote_run(world, row, wait) if accept(world, row, login(), reason) else outcome


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
        rows = outcome.change or f"{outcome.rows:,} rows"
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
        print(f"      {reason['code']}: {reason['message']}")
        print(f"        {reason['remedy']}")
    if outcome.exit_code:
        if outcome.remedy and not outcome.reasons:
            say(f"      {outcome.remedy}")
        say(f"exit {outcome.exit_code}")
    sys.stdout.flush()
