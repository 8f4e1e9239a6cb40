"""Stop an updater, a dataset or a type of job at once, and let it go on.

kfm switch off NAME --reason "…"
kfm switch on NAME
kfm switch list

Every turn is a line of ledger/switches.jsonl: when, what, who, why. list --json = {"switches":
[{name, reason, by_whom, at}]}.
"""

from argparse import Namespace

import msgspec

from kfm.cli.call import Parser, emit, login
from kfm.cli.jobcall import store_of
from kfm.cli.terminal import say, show, sign
from kfm.jobs import JOB_MODULES
from kfm.model import SystemClock, UsageError, masked, rfc3339
from kfm.store.base import Store
from kfm.workspace.folder import Workspace, open_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("off", "on", "list"))
    parser.add_argument(
        "name",
        nargs="?",
        default="",
        metavar="NAME",
        help="a dataset, an updater (kind.dataset) or a type of job",
    )
    parser.add_argument(
        "--reason",
        default="",
        help="why; recorded with your login name and shown to whoever meets it",
    )


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    with store_of(workspace) as store:
        if args.action == "list":
            return _list(store, args)
        name = _known(workspace, args.name)
        if args.action == "off":
            if not args.reason:
                raise UsageError(
                    "A switch needs a reason.",
                    expected='--reason "…"',
                    remedy="Say why; whoever meets it reads it.",
                )
            store.transaction(lambda tx: tx.switches.off(name, args.reason, login()))
            _record(workspace, name, "off", args.reason)
            print(
                f"{sign('REJECTED')} {name} is off: nothing of it starts. What runs goes on; `kfm"
                " jobs cancel` stops it."
            )
        elif store.transaction(lambda tx: tx.switches.on(name)):
            _record(workspace, name, "on", args.reason)
            print(f"{sign('PASS')} {name} is on.")
        else:
            say(f"{name} was not off.")
    return 0


def _record(workspace: Workspace, name: str, state: str, reason: str) -> None:
    """A line that stays when the switch is long on again: what, who, when, why."""
    line = {
        "at": rfc3339(SystemClock().now()),
        "name": name,
        "state": state,
        "by": login(),
        "reason": reason,
    }
    with (workspace.ledger / "switches.jsonl").open("ab") as lines:
        lines.write(masked(msgspec.json.encode(line).decode()).encode() + b"\n")


def _known(workspace: Workspace, name: str) -> str:
    """A dataset id for datasets and their updaters, else a type of job; anything else would stop
    nothing.
    """
    dataset_id = name.rpartition(".")[2]
    if name in JOB_MODULES:
        return name
    if not name:
        raise UsageError(
            "Nothing is named.",
            expected="a dataset, an updater or a type of job",
            remedy="`kfm dataset list` shows datasets.",
        )
    entry = workspace.require(dataset_id)
    if name not in (dataset_id, f"{entry.source.kind}.{dataset_id}"):
        raise UsageError(
            f"There is no updater {name}.",
            expected=f"{entry.source.kind}.{dataset_id}",
            remedy="Name the dataset alone.",
        )
    return dataset_id


def _list(store: Store, args: Namespace) -> int:
    found = store.read(lambda tx: tx.switches.listing())
    if args.json:
        emit({"switches": msgspec.to_builtins(found)})
        return 0
    for switch in found:
        show(
            f"  {sign('REJECTED')} {switch.name:<24} off since {switch.at[:19]} by"
            f" {switch.by_whom}: {switch.reason}"
        )
    if not found:
        say("Everything is on.")
    return 0
