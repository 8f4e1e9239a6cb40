"""Kill a dataset's pipeline everywhere, resume it, compare with the uninterrupted run."""

import sys
from dataclasses import asdict

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import mask_home, sign, write
from kfm.drill.commands import SCENES, Killed, drill_commands
from kfm.drill.drill import DEFAULT_POINTS, Report, drill
from kfm.model import UsageError
from kfm.workspace.folder import open_workspace

__all__ = ["Drilled", "DrilledCommands", "drilled", "told"]

_SHOWN = 10
KILLS = 40


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A kill after which something was not as without it."""

    group: str
    point: str
    step: str
    expected: str
    got: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Points of one sort: how many there are, were tried, and came out equal."""

    listed: int
    unaimed: int
    tried: int
    fired: int
    equal: int


class Drilled(Answer, frozen=True, kw_only=True):
    """A pipeline killed everywhere, resumed and compared."""

    dataset_id: str
    points: int
    fired: int
    unequal: int
    failures: list[Failed]
    listed: int
    groups: dict[str, Group]
    versions: int
    generations: int
    ledger_rows: int
    partial_files: int
    not_tried: str
    seconds: float
    ok: bool

    @property
    def code(self) -> int:
        return 0 if self.ok else 1

    def tell(self, call: Call) -> None:
        for name, group in self.groups.items():
            good = group.tried == group.fired == group.equal
            there = group.listed + group.unaimed
            rest = f"   of {there:,} there are" if there > group.tried else ""
            write(
                f"  {name.replace('_', ' '):<18} {group.equal:>5} of {group.tried:<5}"
                f" {sign('PASS' if good else 'FAILED')}{rest}"
            )
            self._tell_failures(name.replace("_", " "))
        self._tell_failures("plain")
        if self.not_tried:
            write(f"  {'system calls':<18} not tried: {self.not_tried}")
        equal = sum(group.equal for group in self.groups.values())
        write(
            f"\n{equal} of {self.points} byte-equal to the uninterrupted run."
            f" {self.seconds:>12.0f} s"
        )
        write(
            f"versions {self.versions}, generations {self.generations}, ledger rows"
            f" {self.ledger_rows}, partial files {self.partial_files}"
        )

    def _tell_failures(self, group: str) -> None:
        found = [f for f in self.failures if f.group == group]
        for failure in found[:_SHOWN]:
            write(f"     killed {failure.point}")
            write(f"       step      {failure.step}")
            write(f"       expected  {failure.expected}")
            write(f"       got       {failure.got}")
        if len(found) > _SHOWN:
            write(f"     and {len(found) - _SHOWN} more; --json lists them all")


def told(report: Report) -> Drilled:
    """A report as it is answered."""
    return Drilled(
        dataset_id=report.dataset_id,
        points=report.points,
        fired=report.fired,
        unequal=report.unequal,
        failures=[
            Failed(**{k: mask_home(v) for k, v in asdict(f).items()}) for f in report.failures
        ],
        listed=sum(g.listed + g.unaimed for g in report.groups.values()),
        groups={
            name.replace(" ", "_"): Group(
                **{k: v for k, v in asdict(g).items() if k in Group.__struct_fields__}
            )
            for name, g in report.groups.items()
        },
        versions=report.versions,
        generations=report.generations,
        ledger_rows=report.ledger_rows,
        partial_files=report.partial_files,
        not_tried=report.strace,
        seconds=round(report.seconds, 1),
        ok=report.ok,
    )


class KilledOnce(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was killed, and what was wrong after it."""

    command: str
    point: str
    wrong: str


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """How many system calls a command makes, and how often it was killed."""

    calls: int
    killed: int


class DrilledCommands(Answer, frozen=True, kw_only=True):
    """Commands killed at random system calls."""

    commands: dict[str, Calls]
    killed: int
    failures: list[KilledOnce]

    @property
    def code(self) -> int:
        return 1 if self.failures or not self.killed else 0

    def tell(self, call: Call) -> None:
        for name, count in self.commands.items():
            bad = sum(k.command == name for k in self.failures)
            write(
                f"  {name:<18} {count.killed - bad:>5} of {count.killed:<5}"
                f" {sign('FAILED' if bad else 'PASS')}   of {count.calls:,} there are"
            )
        write(f"\n{self.killed - len(self.failures)} of {self.killed} were finished or undone.")


def drilled(
    call: Call, dataset: str | None, killed: str | None, points: str | None, jobs: int | None
) -> Drilled | DrilledCommands:
    if killed:
        return _commands(call, killed, points)
    if dataset is None:
        raise UsageError(
            "No dataset is named.",
            expected="kfm drill DATASET, or --command NAME",
            remedy="Name one; `kfm status` lists them.",
        )
    workspace, many = open_workspace(call.workspace), _points(points or str(DEFAULT_POINTS))
    live = sys.stderr.isatty() and not call.json
    if not call.json:
        write(
            "Kill at every record, call and sync, resume, compare.       last capture, no network\n"
        )
        sys.stdout.flush()

    def heard(group: str, done: int, of: int) -> None:
        if live:
            at = f"\r\x1b[K{sign('RUNNING', sys.stderr)} {group} {done} of {of}"
            print(at, end="", file=sys.stderr, flush=True)

    report = drill(workspace, dataset, points=many, jobs=jobs or 0, told=heard)
    if live:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return told(report)


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


def _commands(call: Call, named: str, points: str | None) -> DrilledCommands:
    """Kill commands instead of a pipeline."""
    kills = _points(points or str(KILLS))
    if not isinstance(kills, int):
        raise UsageError(
            f"--points is {kills!r}.",
            expected="a number above 0",
            remedy="Leave it out for the default.",
        )

    def heard(killed: Killed) -> None:
        if killed.wrong and not call.json:
            write(
                f"  {sign('FAILED')} {killed.command} killed at {killed.point}\n      "
                f" {mask_home(killed.wrong)}"
            )

    found = drill_commands(list(SCENES) if named == "all" else [named], kills, told=heard)
    return DrilledCommands(
        commands={
            name: Calls(calls=calls, killed=sum(k.command == name for k in found.killed))
            for name, calls in found.listed.items()
        },
        killed=len(found.killed),
        failures=[
            KilledOnce(command=k.command, point=k.point, wrong=mask_home(k.wrong))
            for k in found.failures
        ],
    )
