"""Who may tell us something: the files of a workspace with their keys resolved, read again when one
of them has changed.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from kfm.fetch.credentials import look_up
from kfm.jobs.schedule.cadence import Timetable
from kfm.model import KfmError, UsageError, WebhookSource
from kfm.webhook.verify import Key, Scheme, key_bytes
from kfm.workspace.config import load_webhook, schedule_files
from kfm.workspace.folder import Workspace

__all__ = ["Problem", "Source", "Sources", "Table", "find_source", "read_sources", "scheme_of"]

FOLDER = "webhooks"  # of pipelines/orchestration
_LEAST_KEY = 16  # bytes; a shorter one can be guessed


class Problem(msgspec.Struct, frozen=True):
    """Something that a person has to mend; the rest is worked all the same."""

    source_id: str
    what: str
    remedy: str


class Source(msgspec.Struct, frozen=True):
    """A source that can be asked whether it signed something."""

    source_id: str
    told: WebhookSource
    scheme: Scheme
    keys: tuple[Key, ...]  # those that are there; none: everything is refused
    tables: tuple[Timetable, ...]  # of the datasets it starts


class Table(msgspec.Struct, frozen=True):
    """All sources as they are now."""

    sources: Mapping[str, Source]
    problems: tuple[Problem, ...]
    most_keys: int  # of any source: what every answer costs
    most_bytes: int  # that any source takes: the same for all until somebody signed


def scheme_of(told: WebhookSource) -> Scheme:
    return told.signature or ("github" if told.kind == "github" else "kfm")


def read_sources(workspace: Workspace, tables: Iterable[Timetable]) -> Table:
    """Every source of the workspace; what is wrong with one is a problem of its own."""
    by_dataset = {table.dataset: table for table in tables if table.dataset}
    found, problems = dict[str, Source](), list[Problem]()
    for path in schedule_files(workspace.path, FOLDER):
        try:
            told = load_webhook(path)
            starts = tuple(_timetable(workspace, name, by_dataset) for name in told.datasets)
        except KfmError as error:
            problems.append(Problem(path.stem, error.happened, error.remedy))
            continue
        keys = _keys(workspace, path.stem, told, problems)
        found[path.stem] = Source(path.stem, told, scheme_of(told), tuple(keys), starts)
    return Table(
        found,
        tuple(problems),
        max((len(source.keys) for source in found.values()), default=1),
        max((source.told.max_bytes for source in found.values()), default=1 << 20),
    )


def _timetable(workspace: Workspace, dataset_id: str, known: Mapping[str, Timetable]) -> Timetable:
    """When a dataset is asked for; one without a schedule is asked for by events alone."""
    entry = workspace.require(dataset_id)
    if dataset_id in known:
        return known[dataset_id]
    return Timetable(
        name=dataset_id,
        subject=dataset_id,
        cadence="",
        cron=None,
        every_s=None,
        dataset=dataset_id,
        partitions=entry.partitions or ("",),
        pool=entry.pool,
    )


def _keys(
    workspace: Workspace, source_id: str, told: WebhookSource, problems: list[Problem]
) -> Iterable[Key]:
    for reference in told.keys:
        try:
            secret = look_up(
                reference, f"key of the source {source_id}", workspace.config.credentials
            )
        except UsageError as error:
            problems.append(Problem(source_id, error.happened, error.remedy))
            continue
        key = key_bytes(scheme_of(told), secret)
        if len(key) >= _LEAST_KEY:
            yield Key(reference, key)
        else:
            what = f"The key {reference} of the source {source_id} is too short, or no base64."
            remedy = f"`kfm webhook keys {source_id} --new FILE` makes one of 32 bytes."
            problems.append(Problem(source_id, what, remedy))


def find_source(table: Table, source_id: str) -> Source:
    """A source by its name; any other is refused with the nearest one."""
    found = table.sources.get(source_id)
    if found is not None:
        return found
    for problem in table.problems:
        if problem.source_id == source_id:
            raise UsageError(problem.what, expected="a source", remedy=problem.remedy)
    import difflib

    near = difflib.get_close_matches(source_id, table.sources, 1)
    raise UsageError(
        f"There is no source {source_id}.",
        expected=f"pipelines/orchestration/webhooks/{source_id}.yml",
        remedy=f"Did you mean `{near[0]}`?" if near else "`kfm webhook keys` lists them.",
    )


class Sources:
    """The sources of a workspace, kept up to date."""

    def __init__(
        self,
        workspace: Workspace,
        tables: Callable[[Workspace], Iterable[Timetable]],
        open_again: Callable[[Path], Workspace],
    ) -> None:
        self._workspace, self._tables, self._open = workspace, tables, open_again
        self._seen: object = None
        self.table = Table({}, (), 1, 1 << 20)
        self.refresh()

    def refresh(self) -> bool:
        """Read everything again when a file has changed; whether one had."""
        seen = _stamp(self._workspace)
        if seen == self._seen:
            return False
        workspace = self._open(self._workspace.path)
        self.table = read_sources(workspace, self._tables(workspace))
        self._workspace, self._seen = workspace, seen
        return True


def _stamp(workspace: Workspace) -> Sequence[object]:
    """Names, times and sizes of what sources follow from: their files, the table of credentials,
    and the files it names.
    """
    orchestration = workspace.path / "pipelines" / "orchestration"
    files = [workspace.path / "kfm.yml"]
    for folder in (orchestration / FOLDER, orchestration / "schedules", _registry(workspace)):
        files += sorted(folder.glob("*")) if folder.is_dir() else []
    places = workspace.config.credentials.values()
    files += [Path(p.removeprefix("file:")) for p in places if p.startswith("file:")]
    return [(str(path), *_times(path)) for path in files]


def _registry(workspace: Workspace) -> Path:
    return workspace.path / "data" / "registry"


def _times(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)
