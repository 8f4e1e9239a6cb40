"""What is official, fresh, failed or waiting, and the next command for each.

--json = {"datasets": [{dataset_id, state, version_id, generation, fresh, last_run_id, reason, next}]},
state: official, proposed, denied, failed, running, waiting, withdrawn, none.
"""

import datetime as dt
from typing import Any

from kfm.cli.call import Parser, emit
from kfm.cli.terminal import sign
from kfm.status import dataset_status
from kfm.wiring import open_workspace, open_world

__all__ = ["configure", "main"]

_SIGNS = {"official": "PASS", "proposed": "PROPOSED", "denied": "REJECTED", "failed": "FAILED", "running": "RUNNING", "waiting": "PROPOSED"}


def configure(parser: Parser) -> None:
    parser.add_argument("dataset", nargs="*", metavar="DATASET", help="only these")


def main(args: Any) -> int:
    workspace = open_workspace(args.workspace)
    names = args.dataset or workspace.registered()
    for name in names:
        workspace.require(name)
    with open_world(workspace) as world:
        rows = [dataset_status(world, name) for name in names]
    if args.json:
        emit({"datasets": rows})
        return 0
    print(f"{len(rows)} datasets {dt.datetime.now().astimezone().strftime('%a %d %b %Y %H:%M %Z'):>65}\n")
    for row in rows:
        version = f"{row['version_id'][:9]}…  generation {row['generation']}" if row["version_id"] else "nothing official yet"
        fresh = "" if row["version_id"] is None else "fresh" if row["fresh"] else "late"
        print(f"  {sign(_SIGNS.get(row['state'], 'NOOP'))} {row['dataset_id']:<24} {row['state']:<10} {version:<28} {fresh}")
        if row["reason"]:
            print(f"      {row['reason']}")
        if row["next"]:
            print(f"      {row['next']}")
    return 0
