"""What is official, fresh, failed or waiting, and the next command for each."""

import datetime as dt

from kfm.access.denied import reason_in_words
from kfm.access.status import DatasetStatus, dataset_status
from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.terminal import show, sign, table, when, write
from kfm.evidence.run_files import started_at
from kfm.model import KfmError, rfc3339
from kfm.model.origin import told
from kfm.model.paths import quarantine_folder
from kfm.upkeep.attention import Attention, attention, freshness, tried_again
from kfm.upkeep.pools import Pool, pool_rows
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Status", "status"]

_SIGNS = {
    "official": "PASS",
    "proposed": "PROPOSED",
    "denied": "REJECTED",
    "failed": "FAILED",
    "running": "RUNNING",
    "waiting": "PROPOSED",
}

_NEEDS = {
    "stuck": "FAILED",
    "dead": "FAILED",
    "failed": "FAILED",
    "failing": "LATE",
    "denied": "REJECTED",
    "waiting": "PROPOSED",
    "stale": "LATE",
    "off": "REJECTED",
    "aside": "PROPOSED",
}

_ROWS = {"stale", "waiting", "denied", "failed"}


class Status(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """How datasets stand, and what somebody should look at."""

    datasets: list[DatasetStatus]
    attention: list[Attention]
    pools: list[Pool]
    freshness: dict[str, int | None]
    words: dict[str, str] = {}  # of a denied dataset what its reason means
    exit_code: int = 0

    @property
    def code(self) -> int:
        return self.exit_code

    def tell(self, call: Call) -> None:
        rows = self.datasets
        show(
            f"{len(rows)} dataset{'s' if len(rows) != 1 else ' '}"
            f" {dt.datetime.now().astimezone().strftime('%a %d %b %Y %H:%M %Z'):>65}\n"
        )
        heads = ("", "dataset", "state", "version", "gen", "fresh", "last run", "origin")
        lines = table(heads, [_cells(row) for row in rows], right=("gen",))
        tried = tried_again(self.attention)
        for line, row in zip(lines[1:], rows):
            if row is rows[0]:
                show(lines[0])
            show(line)
            if row.reason:
                show(f"      {self.words.get(row.dataset_id, row.reason)}")
            if row.dataset_id in tried:
                show(f"      {tried[row.dataset_id].why.partition(': ')[0]}")
            if row.next:
                write(f"      {again(call, row.next.removeprefix('kfm '))}")
        shown = {row.dataset_id for row in rows}
        # what the rows above have said is not said twice
        needs = [a for a in self.attention if a.what not in shown or a.kind not in _ROWS]
        for need in [a for a in needs if a not in tried.values()]:
            write(
                f"\n  {sign(_NEEDS[need.kind])} {need.kind:<9} {need.what}\n      {need.why}\n     "
                f" {again(call, need.next.removeprefix('kfm '))}"
            )


def status(call: Call, dataset: list[str]) -> Status:
    workspace = open_workspace(call.workspace)
    every = workspace.registered()
    only = [name.removeprefix("kfm://dataset/") for name in dataset]
    for name in only:
        if name not in every:
            workspace.require(name)  # a typing mistake gets the nearest name
    names = only or every
    with open_world(workspace) as world:
        found = [_row(workspace, world, name) for name in names]
        needs = attention(world, [row for row, _ in found], only=only)
        needs += [a for name in names for a in _aside(world, name)]
        pools = world.store.read(lambda tx: pool_rows(tx, world.store.now_ms())) if not only else []
        words = {
            row.dataset_id: reason_in_words(world, row) for row, _ in found if row.state == "denied"
        }
        late = {
            name: freshness(world, name) for name in names if workspace.readable(name) is not None
        }
    return Status(
        datasets=[row for row, _ in found],
        attention=needs,
        pools=pools,
        freshness=late,
        words=words,
        exit_code=max((code for _, code in found), default=0),
    )


def _aside(world: World, name: str) -> list[Attention]:
    """Rows that lie in quarantine undecided; that a capture does, its dataset says itself."""
    if not any(world.data.names(quarantine_folder(name))):
        return []
    from kfm.quarantine.desk import waiting  # most have nothing there

    try:
        found = [item for item in waiting(world, name) if item.kind == "rows"]
    except KfmError as error:  # it does not hide the others
        return [Attention(kind="aside", what=name, why=error.happened, next="kfm doctor")]
    return [Attention(kind="aside", what=name, why=i.waits, next=i.next) for i in found]


def _cells(row: DatasetStatus) -> tuple[str, ...]:
    """A dataset as a line of the table."""
    began = started_at(row.last_run_id) if row.last_run_id else None
    official = row.version_id is not None
    return (
        sign(_SIGNS.get(row.state, "NOOP")),
        row.dataset_id,
        row.state,
        f"{row.version_id[:9]}…" if row.version_id else "nothing yet",
        str(row.generation) if official else "",
        "" if not official or row.state == "retired" else "fresh" if row.fresh else "late",
        when(rfc3339(began)) if began is not None and began.timestamp() else "",
        told(row.origin) if row.origin else "",
    )


def _row(workspace: Workspace, world: World, name: str) -> tuple[DatasetStatus, int]:
    """One dataset; what is wrong with it does not hide the others."""
    try:
        workspace.require(name)
        return dataset_status(world, name), 0
    except KfmError as error:
        row = DatasetStatus(
            dataset_id=name, state="failed", reason=error.happened, next="kfm doctor"
        )
        return row, error.exit_code
