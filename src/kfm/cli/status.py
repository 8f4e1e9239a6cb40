"""What is official, fresh, failed or waiting, and the next command for each.

--json = {"datasets": [{dataset_id, state, version_id, generation, fresh, last_run_id, reason, next,
origin}], "attention": [{kind, what, why, next}], "pools": [{name, slots, running, queued, later,
wait_ms, paused}], "freshness": {dataset_id: delta_minutes}}, state: official, proposed, denied,
failed, running, waiting, retired, withdrawn, none. The newest look decides what is said of
upstream; a proposal that waits, and a denial on the head, always show. With DATASET only what is
about it is told.
"""

import datetime as dt
from argparse import Namespace

from kfm.cli.call import Parser, again, emit
from kfm.cli.terminal import show, sign
from kfm.evidence.status import DatasetStatus, dataset_status
from kfm.model import KfmError
from kfm.model.origin import told
from kfm.upkeep.attention import attention, freshness
from kfm.upkeep.pools import pool_rows
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]

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
}

_ROWS = {"stale", "waiting", "denied", "failed"}


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", nargs="*", metavar="DATASET", help="only these")


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    every = workspace.registered()
    only = [name.removeprefix("kfm://dataset/") for name in args.dataset]
    for name in only:
        if name not in every:
            workspace.require(name)  # a typing mistake gets the nearest name
    names = only or every
    with open_world(workspace) as world:
        found = [_row(workspace, world, name) for name in names]
        needs = attention(world, [row for row, _ in found], only=only)
        pools = world.store.read(lambda tx: pool_rows(tx, world.store.now_ms())) if not only else []
        late = {
            name: freshness(world, name) for name in names if workspace.readable(name) is not None
        }
    rows, code = [row for row, _ in found], max((code for _, code in found), default=0)
    if args.json:
        emit(
            {
                "datasets": rows,
                "attention": needs,
                "pools": pools,
                "freshness": late,
            }
        )
        return code
    print(
        f"{len(rows)} dataset{'s' if len(rows) != 1 else ' '}"
        f" {dt.datetime.now().astimezone().strftime('%a %d %b %Y %H:%M %Z'):>65}\n"
    )
    for row in rows:
        version = (
            f"{row.version_id[:9]}…  generation {row.generation}"
            if row.version_id
            else "nothing official yet"
        )
        fresh = (
            ""
            if row.version_id is None or row.state == "retired"
            else "fresh"
            if row.fresh
            else "late"
        )
        from_where = f"  {told(row.origin)}" if row.origin else ""
        show(
            f"  {sign(_SIGNS.get(row.state, 'NOOP'))} {row.dataset_id:<24} {row.state:<10}"
            f" {version:<28} {fresh}{from_where}"
        )
        if row.reason:
            show(f"      {row.reason}")
        if row.next:
            print(f"      {again(args, row.next.removeprefix('kfm '))}")
    shown = {row.dataset_id for row in rows}
    # what the rows above have said is not said twice
    for need in [a for a in needs if a.what not in shown or a.kind not in _ROWS]:
        show(
            f"\n  {sign(_NEEDS[need.kind])} {need.kind:<9} {need.what}\n      {need.why}\n     "
            f" {again(args, need.next.removeprefix('kfm '))}"
        )
    return code


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
