"""Kill a dataset's pipeline everywhere, resume it, compare with the uninterrupted run.

Works in throw-away copies fed from the last capture: no network, and this workspace is only read.

kfm drill --command NAME|all [--points 40]   kill a command that changes something at random system calls, each time in a fresh workspace
                                             made for it; `kfm resume` and the next run must finish or undo it, verify and doctor find nothing
--json with --command = {commands: {NAME: {calls, killed}}, killed, failures: [{command, point, wrong}]}.
"""

import sys
from argparse import Namespace
from dataclasses import asdict

from kfm.cli.call import Parser, emit
from kfm.cli.terminal import mask_home, say, sign
from kfm.drill.commands import SCENES, Killed, drill_commands
from kfm.drill.drill import DEFAULT_POINTS, Failure, Report, drill
from kfm.model import Json, UsageError
from kfm.workspace.folder import open_workspace

__all__ = ["as_json", "configure", "main", "tell"]

_SHOWN = 10
KILLS = 40


def configure(parser: Parser) -> None:
    parser.add_argument(
        "dataset",
        metavar="DATASET",
        nargs="?",
        help="the dataset to drill; it must have been run once",
    )
    parser.add_argument(
        "--command",
        dest="killed",
        metavar="NAME|all",
        help="kill this command instead: run, rollback, withdraw-erase, gc, …",
    )
    parser.add_argument(
        "--points",
        metavar="N|all|journal",
        help=f"about how many points; default: {DEFAULT_POINTS}, with --command {KILLS} for each",
    )
    parser.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="passes at once; default: 2"
    )


def _points(text: str) -> int | str:
    if text in ("all", "journal"):
        return text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise UsageError(
        f"--points is {text!r}.",
        expected="a number above 0, `all` or `journal`",
        remedy="Leave it out for the default.",
    )


def _commands(args: Namespace) -> int:
    """Kill commands instead of a pipeline."""
    kills = _points(args.points or str(KILLS))
    if not isinstance(kills, int):
        raise UsageError(
            f"--points is {kills!r}.",
            expected="a number above 0",
            remedy="Leave it out for the default.",
        )

    def told(killed: Killed) -> None:
        if killed.wrong and not args.json:
            print(
                f"  {sign('FAILED')} {killed.command} killed at {killed.point}\n      "
                f" {mask_home(killed.wrong)}",
                flush=True,
            )

    found = drill_commands(
        list(SCENES) if args.killed == "all" else [args.killed], kills, told=told
    )
    counts = {
        name: {"calls": calls, "killed": sum(k.command == name for k in found.killed)}
        for name, calls in found.listed.items()
    }
    if args.json:
        wrong = [{**asdict(k), "wrong": mask_home(k.wrong)} for k in found.failures]
        emit({"commands": counts, "killed": len(found.killed), "failures": wrong})
        return 0 if found.ok else 1
    for name, count in counts.items():
        bad = sum(k.command == name for k in found.failures)
        print(
            f"  {name:<18} {count['killed'] - bad:>5} of {count['killed']:<5}"
            f" {sign('FAILED' if bad else 'PASS')}   of {count['calls']:,} there are"
        )
    print(
        f"\n{len(found.killed) - len(found.failures)} of {len(found.killed)} were finished or"
        " undone."
    )
    return 0 if found.ok else 1


def main(args: Namespace) -> int:
    if args.killed:
        return _commands(args)
    if args.dataset is None:
        raise UsageError(
            "No dataset is named.",
            expected="kfm drill DATASET, or --command NAME",
            remedy="Name one; `kfm status` lists them.",
        )
    workspace = open_workspace(args.workspace)
    points = _points(args.points or str(DEFAULT_POINTS))
    live = sys.stderr.isatty() and not args.json
    if not args.json:
        print(
            "Kill at every record, call and sync, resume, compare.       last capture, no"
            " network\n",
            flush=True,
        )

    def told(group: str, done: int, of: int) -> None:
        if live:
            print(
                f"\r\x1b[K{sign('RUNNING', sys.stderr)} {group} {done} of {of}",
                end="",
                file=sys.stderr,
                flush=True,
            )

    report = drill(workspace, args.dataset, points=points, jobs=args.jobs, told=told)
    if live:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if args.json:
        emit(as_json(report))
    else:
        tell(report)
    return 0 if report.ok else 1


def as_json(report: Report) -> Json:
    """The documented result."""
    groups = {
        name.replace(" ", "_"): {k: v for k, v in asdict(g).items() if k != "name"}
        for name, g in report.groups.items()
    }
    return {
        "dataset_id": report.dataset_id,
        "points": report.points,
        "fired": report.fired,
        "unequal": report.unequal,
        "failures": [{k: mask_home(v) for k, v in asdict(f).items()} for f in report.failures],
        "listed": sum(g.listed + g.unaimed for g in report.groups.values()),
        "groups": groups,
        "versions": report.versions,
        "generations": report.generations,
        "ledger_rows": report.ledger_rows,
        "partial_files": report.partial_files,
        "not_tried": report.strace,
        "seconds": round(report.seconds, 1),
    }


def tell(report: Report) -> None:
    """Groups with their counts, the totals, and every failure by name."""
    for group in report.groups.values():
        good = group.tried == group.fired == group.equal
        rest = (
            f"   of {group.listed + group.unaimed:,} there are"
            if group.listed + group.unaimed > group.tried
            else ""
        )
        print(
            f"  {group.name:<18} {group.equal:>5} of {group.tried:<5}"
            f" {sign('PASS' if good else 'FAILED')}{rest}"
        )
        _failures([f for f in report.failures if f.group == group.name])
    _failures([f for f in report.failures if f.group == "plain"])
    if report.strace:
        print(f"  {'system calls':<18} not tried: {report.strace}")
    equal = sum(g.equal for g in report.groups.values())
    print(
        f"\n{equal} of {report.points} byte-equal to the uninterrupted run."
        f" {report.seconds:>12.0f} s"
    )
    print(
        f"versions {report.versions}, generations {report.generations}, ledger rows"
        f" {report.ledger_rows}, partial files {report.partial_files}"
    )
    sys.stdout.flush()
    if not report.ok:
        say("exit 1")


def _failures(found: list[Failure]) -> None:
    for failure in found[:_SHOWN]:
        print(f"     killed {failure.point}")
        print(f"       step      {failure.step}")
        print(f"       expected  {mask_home(failure.expected)}")
        print(f"       got       {mask_home(failure.got)}")
    if len(found) > _SHOWN:
        print(f"     and {len(found) - _SHOWN} more; --json lists them all")
