"""Stop an updater, a dataset or a type of job at once, and let it go on."""

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import login
from kfm.cli.jobcall import store_of
from kfm.cli.terminal import say, show, sign, table, when
from kfm.jobs import JOB_MODULES
from kfm.model import SystemClock, UsageError, masked, rfc3339
from kfm.workspace.folder import Workspace, open_workspace

__all__ = ["Switched", "Switches", "off", "on", "switches"]


class Switched(Answer, frozen=True, kw_only=True):
    """A switch as it is now."""

    name: str
    on: bool
    turned: bool  # by this call

    def tell(self, call: Call) -> None:
        if not self.turned:
            say(f"{self.name} was not off.")
        elif self.on:
            show(f"{sign('PASS')} {self.name} is on.")
        else:
            show(
                f"{sign('REJECTED')} {self.name} is off: nothing of it starts. What runs goes on;"
                " `kfm jobs cancel` stops it."
            )


class Off(msgspec.Struct, frozen=True):
    """What is off, why and since when."""

    name: str
    reason: str
    by_whom: str
    at: str


class Switches(Answer, frozen=True, kw_only=True):
    """Everything that is off."""

    switches: list[Off]

    def tell(self, call: Call) -> None:
        rows = [(sign("REJECTED"), s.name, when(s.at), s.by_whom, s.reason) for s in self.switches]
        for line in table(("", "off", "since", "by", "why"), rows) if rows else ():
            show(line)
        if not rows:
            say("Everything is on.")


def off(call: Call, name: str, reason: str) -> Switched:
    workspace = open_workspace(call.workspace)
    name = _known(workspace, name)
    if not reason:
        raise UsageError(
            "A switch needs a reason.",
            expected='--reason "…"',
            remedy="Say why; whoever meets it reads it.",
        )
    with store_of(workspace) as store:
        store.transaction(lambda tx: tx.switches.off(name, reason, login()))
    _record(workspace, name, "off", reason)
    return Switched(name=name, on=False, turned=True)


def on(call: Call, name: str, reason: str) -> Switched:
    workspace = open_workspace(call.workspace)
    name = _known(workspace, name)
    with store_of(workspace) as store:
        turned = store.transaction(lambda tx: tx.switches.on(name))
    if turned:
        _record(workspace, name, "on", reason)
    return Switched(name=name, on=True, turned=turned)


def switches(call: Call) -> Switches:
    with store_of(open_workspace(call.workspace)) as store:
        found = store.read(lambda tx: tx.switches.listing())
    return Switches(switches=[Off(s.name, s.reason, s.by_whom, s.at) for s in found])


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
    entry = workspace.require(dataset_id)
    if name not in (dataset_id, f"{entry.source.kind}.{dataset_id}"):
        raise UsageError(
            f"There is no updater {name}.",
            expected=f"{entry.source.kind}.{dataset_id}",
            remedy="Name the dataset alone.",
        )
    return dataset_id
