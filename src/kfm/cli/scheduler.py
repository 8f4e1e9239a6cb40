"""Put jobs by schedule, until it is stopped. Any number may run: one leads, another takes over when
it dies.
"""

import contextlib
import datetime as dt
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import say, sign, write
from kfm.fetch.url import parse_url
from kfm.jobs import JOB_MODULES
from kfm.jobs.base import job_type, parameters_of
from kfm.jobs.schedule.cadence import Timetable
from kfm.jobs.schedule.scheduler import Scheduler, Ticked
from kfm.model import KfmError, UsageError, bounds, rfc3339
from kfm.telemetry.background import start_beside
from kfm.workspace.config import implicit_schedule, load_schedule, planned_by, schedule_files
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = [
    "Problem",
    "Tables",
    "TickedOnce",
    "make_scheduler",
    "scheduled",
    "ticked",
    "timetable_files",
]


class Problem(msgspec.Struct, frozen=True):
    """A file that says something wrong."""

    file: str
    what: str
    remedy: str


class Tables:
    """The timetables of a workspace, read again when a file has changed."""

    def __init__(self, workspace: Workspace, toolchain: Callable[[], str] = lambda: "") -> None:
        self._workspace, self._toolchain = workspace, toolchain
        self._seen: object = None
        self._found: tuple[list[Timetable], list[Problem]] = ([], [])

    def __call__(self) -> list[Timetable]:
        return self._load()[0]

    @property
    def problems(self) -> list[Problem]:
        """Files that say something wrong; the others are worked all the same."""
        return self._load()[1]

    def named(self, name: str) -> Timetable:
        """A schedule by its name or its dataset; any other is refused with the nearest one."""
        found = {t.dataset: t for t in self()} | {t.name: t for t in self()}
        if name not in found:
            import difflib

            near = difflib.get_close_matches(name, found, 1)
            remedy = f"Did you mean `{near[0]}`?" if near else "`kfm schedule list` shows them."
            raise UsageError(
                f"There is no schedule {name}.",
                expected="the name of a schedule or a dataset",
                remedy=remedy,
            )
        return found[name]

    def _load(self) -> tuple[list[Timetable], list[Problem]]:
        seen = _stamp(self._workspace)
        if seen != self._seen:
            self._found, self._seen = self._read(), seen
        return self._found

    def _read(self) -> tuple[list[Timetable], list[Problem]]:
        workspace, tables, problems, broken = (
            self._workspace,
            dict[str, Timetable](),
            list[Problem](),
            set[str](),
        )
        for path in schedule_files(workspace.path):
            try:
                table = load_schedule(workspace.path, path, self._mark)
                if not table.dataset:
                    _check_job(table)
                if table.window_s is not None:
                    # refused where windows mean nothing
                    targets_of(workspace, table.dataset, win=next(table.windows(table.start)).text)
                if table.subject in tables:
                    raise UsageError(
                        f"{path.name}: {table.subject} has a schedule,"
                        f" {tables[table.subject].name}.",
                        expected="one for each dataset",
                        remedy="Remove one.",
                    )
                tables[table.subject] = table
            except KfmError as error:
                # what its file wants to say is not known: the registry does not stand in for it
                broken |= {path.stem, *planned_by(path)}
                problems.append(_problem(path, error))
        for dataset_id in workspace.registered():
            try:
                entry = workspace.require(dataset_id)
                if entry.retired is not None:
                    tables.pop(dataset_id, None)
                elif dataset_id not in {*tables, *broken} and entry.cadence is not None:
                    tables[dataset_id] = implicit_schedule(entry, self._mark)
            except KfmError as error:
                problems.append(
                    Problem(f"data/registry/{dataset_id}", error.happened, error.remedy)
                )
        return sorted(tables.values(), key=lambda t: t.name), problems

    def _mark(self, dataset_id: str) -> str:
        """What a static dataset was made with: it runs again when its spec or the tools change."""
        return f"{targets_of(self._workspace, dataset_id)[0].spec_hash} {self._toolchain()}"


def _check_job(table: Timetable) -> None:
    """Refuse a job that could only ever fail."""
    kind = job_type(table.job_type)
    if kind.name in JOB_MODULES and not kind.name.startswith("maintenance."):
        raise UsageError(
            f"job_type is {kind.name!r}, which wants a dataset.",
            expected="maintenance.compact or maintenance.gc",
            remedy="Datasets are scheduled by `dataset`; the rest follows from an ingest.",
        )
    try:
        parameters_of(kind, table.parameters)
    except UsageError as error:
        raise UsageError(
            error.happened, expected=error.expected, remedy="`kfm jobs types` lists what it takes."
        ) from error


_KEY = re.compile(
    r"(?i)(?:unknown field|no key) `([^`]+)`|`\$\.(\w+)|^(?!there)(\w+) (?:is |')|The (cron) line|no (job"
    r" type|dataset) "
)
_WRITTEN = {"cron": "cadence", "job type": "job_type"}


def _problem(path: Path, error: KfmError) -> Problem:
    """What is wrong with a file, the line where it is known, and what to do."""
    what, line = error.happened.removeprefix(f"{path.name}: "), ""
    named = _KEY.search(what)
    key = next(filter(None, named.groups())) if named is not None else ""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        rows = enumerate(path.read_text().splitlines(), 1) if key else ()
        line = next(
            (
                f"line {n}: "
                for n, row in rows
                if row.partition(":")[0].strip(" \"'{") == _WRITTEN.get(key, key)
            ),
            "",
        )
    remedy = f"Expected {error.expected}. {error.remedy}"
    return Problem(f"schedules/{path.name}", line + what, remedy)


def timetable_files(workspace: Workspace) -> Iterator[str]:
    """Everything a timetable follows from: folders, and the files in them."""
    for folder in (
        "data/registry",
        "pipelines/orchestration/schedules",
        "policy",
        "scripts/connectors",
    ):
        for where, _, files in os.walk(workspace.path / folder):
            yield where
            yield from (os.path.join(where, n) for n in files if not n.endswith(".pyc"))


def _stamp(workspace: Workspace) -> object:
    """Names, times and sizes of all that."""
    found = []
    for path in timetable_files(workspace):
        # a link to nowhere is told about when it is read
        with contextlib.suppress(OSError):
            s = os.stat(path)
            found.append((path, s.st_mtime_ns, s.st_size))
    return sorted(found)


def _held(workspace: Workspace) -> Callable[[str], dt.datetime | None]:
    """Until when the host of a dataset has asked to be left alone: a 429 or a Retry-After that the
    fetcher wrote down.
    """

    @cache
    def host_of(url: str) -> str:
        return parse_url(url.replace("{", "").replace("}", "")).host

    def held(dataset_id: str) -> dt.datetime | None:
        entry = workspace.readable(dataset_id)
        if entry is None or not entry.source.url:
            return None
        try:
            raw = (
                workspace.ledger / "hosts" / f"{host_of(entry.source.url).replace(':', '_')}.json"
            ).read_bytes()
            until = float(msgspec.json.decode(raw)["until"])
        except (OSError, KfmError, msgspec.DecodeError, KeyError, TypeError, ValueError):
            return None
        return dt.datetime.fromtimestamp(until, dt.UTC) if until else None

    return held


def make_scheduler(
    workspace: Workspace, world: World, tell: Callable[..., None] = lambda event, **fields: None
) -> tuple[Scheduler, Tables]:
    """The scheduler of a workspace, and its timetables."""
    tables = Tables(workspace, world.toolchain_digest)

    def watch() -> None:
        if workspace.config.alerts.channels:
            start_beside(["kfm", "-w", str(workspace.path.absolute()), "alerts", "check"])

    return Scheduler(world, tables, held=_held(workspace), say=tell, watch=watch), tables


class TickedOnce(Answer, frozen=True, kw_only=True):
    """What one tick put."""

    leads: bool
    puts: int
    skips: int
    next_at: str | None
    problems: list[Problem]

    @property
    def code(self) -> int:
        return 1 if self.problems else 0

    def tell(self, call: Call) -> None:
        if not self.leads:
            write("Another scheduler leads; nothing was put.")
            return
        left = f", {self.skips} windows left out by their policy" if self.skips else ""
        write(f"{self.puts} jobs put{left}; next {self.next_at or 'never'}")


def scheduled(call: Call, once: bool, until: str | None) -> TickedOnce | None:
    workspace, end = open_workspace(call.workspace), _until(until)

    def tell(event: str, **fields: object) -> None:
        say(
            f"{dt.datetime.now(dt.UTC).strftime('%H:%M:%S')} {event:<18}"
            f" {' '.join(f'{k}={v}' for k, v in fields.items())}"
        )

    with open_world(workspace) as world:
        scheduler, tables = make_scheduler(workspace, world, tell)
        _complain(tables.problems)
        if not once:
            scheduler.run(end)
            return None
        done = ticked(scheduler)
        return TickedOnce(
            leads=done.leads,
            puts=done.puts,
            skips=done.skips,
            next_at=rfc3339(done.next_at) if done.next_at is not None else None,
            problems=list(tables.problems),
        )


def _until(text: str | None) -> dt.datetime | None:
    if text is None:
        return None
    return dt.datetime.fromisoformat(bounds("1970-01-01", text).partition("/")[2])


def ticked(scheduler: Scheduler) -> Ticked:
    """Tick until nothing more is due."""
    puts = skips = 0
    try:
        while True:
            done = scheduler.tick()
            puts, skips = puts + done.puts, skips + done.skips
            if not done.more:
                return Ticked(done.leads, puts, skips, done.next_at)
    finally:
        scheduler.release()


def _complain(problems: Sequence[Problem]) -> None:
    told: set[str] = set()
    for problem in problems:
        if problem.what not in told:
            told.add(problem.what)
            say(f"  {sign('FAILED', sys.stderr)} {problem.file}: {problem.what} {problem.remedy}")
