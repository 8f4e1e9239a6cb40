"""Kill a dataset's pipeline everywhere, resume it, compare with the uninterrupted run.

Works in throw-away copies fed from the last capture: no network, and this workspace is only read.
"""

import sys
from dataclasses import asdict
from typing import Any

from kfm.cli.call import Parser, emit
from kfm.cli.terminal import mask_home, say, sign
from kfm.drill.drill import DEFAULT_POINTS, Failure, Report, drill
from kfm.errors import UsageError
from kfm.workspace import open_workspace

__all__ = ["as_json", "configure", "main", "tell"]

_SHOWN = 10


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", metavar="DATASET", help="the dataset to drill; it must have been run once")
    parser.add_argument(
        "--points", default=str(DEFAULT_POINTS), metavar="N|all|journal", help=f"about how many points; default: {DEFAULT_POINTS}"
    )
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="passes at once; default: 2")


def _points(text: str) -> int | str:
    if text in ("all", "journal"):
        return text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise UsageError(f"--points is {text!r}.", expected="a number above 0, `all` or `journal`", remedy="Leave it out for the default.")


def main(args: Any) -> int:
    workspace = open_workspace(args.workspace)
    points = _points(args.points)
    live = sys.stderr.isatty() and not args.json
    if not args.json:
        print("Kill at every record, call and sync, resume, compare.       last capture, no network\n", flush=True)

    def told(group: str, done: int, of: int) -> None:
        if live:
            print(f"\r\x1b[K{sign('RUNNING', sys.stderr)} {group} {done} of {of}", end="", file=sys.stderr, flush=True)

    report = drill(workspace, args.dataset, points=points, jobs=args.jobs, told=told)
    if live:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if args.json:
        emit(as_json(report))
    else:
        tell(report)
    return 0 if report.ok else 1


def as_json(report: Report) -> dict[str, Any]:
    """The documented result."""
    groups = {name.replace(" ", "_"): {k: v for k, v in asdict(g).items() if k != "name"} for name, g in report.groups.items()}
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
        rest = f"   of {group.listed + group.unaimed:,} there are" if group.listed + group.unaimed > group.tried else ""
        print(f"  {group.name:<18} {group.equal:>5} of {group.tried:<5} {sign('PASS' if good else 'FAILED')}{rest}")
        _failures([f for f in report.failures if f.group == group.name])
    _failures([f for f in report.failures if f.group == "plain"])
    if report.strace:
        print(f"  {'system calls':<18} not tried: {report.strace}")
    equal = sum(g.equal for g in report.groups.values())
    print(f"\n{equal} of {report.points} byte-equal to the uninterrupted run. {report.seconds:>12.0f} s")
    print(
        f"versions {report.versions}, generations {report.generations}, ledger rows {report.ledger_rows}, partial files {report.partial_files}"
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
