"""Look for incidents and tell people: once when one begins, when it lasts, and when it is over."""

import datetime as dt

from kfm.access.status import dataset_status
from kfm.cli.answer import Answer, Call
from kfm.cli.call import again, login
from kfm.cli.terminal import say, show, sign, table, when, write
from kfm.model import KfmError, UsageError, rfc3339
from kfm.model.window import seconds
from kfm.telemetry.channels import tell_channel
from kfm.telemetry.incidents import (
    Incident,
    Kind,
    Silence,
    Watch,
    incidents,
    silence,
    silenced,
)
from kfm.telemetry.standing import standing_of
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Checked", "Listed", "Silenced", "checked", "listed", "silenced_for", "unsilenced"]


class Checked(Answer, frozen=True, kw_only=True):
    """What is wrong now, how many messages were sent, and which could not be."""

    incidents: tuple[Incident, ...]
    sent: int
    problems: tuple[str, ...]

    @property
    def code(self) -> int:
        return 1 if self.problems else 0

    def tell(self, call: Call) -> None:
        _show(self.incidents)
        say(f"{self.sent} messages sent.")
        for problem in self.problems:
            say(f"{sign('FAILED')} {problem}")


def checked(call: Call) -> Checked:
    workspace = open_workspace(call.workspace)
    watch, problems, sent, left = _watch(workspace), [], 0, []
    with open_world(workspace) as world:
        for name in workspace.registered():
            now = world.clock.now()
            wrong = _wrong(workspace, world, name)
            found = watch.open_and_close(world.store, name, wrong, now)
            quiet = silenced(world.store, name, now) is not None
            for incident in found:
                known = incident
                for channel, message in () if quiet else watch.owed(incident, now):
                    try:
                        tell_channel(workspace.config.alerts.channels[channel], message)
                    except KfmError as error:
                        problems.append(f"{channel}: {error.happened}")
                        continue
                    known = watch.told(world.store, known, channel, message.word)
                    sent += 1
                left += [known] if known.over_at is None else []
    return Checked(incidents=tuple(left), sent=sent, problems=tuple(problems))


def _watch(workspace: Workspace) -> Watch:
    alerts = workspace.config.alerts
    unknown = {*alerts.to, *alerts.then_to} - alerts.channels.keys()
    if unknown:
        raise UsageError(
            f"kfm.yml: alerts names {', '.join(sorted(unknown))}, which is no channel.",
            expected=f"one of {', '.join(sorted(alerts.channels)) or 'none'}",
            remedy="Name it under `alerts.channels`.",
        )
    to = alerts.to or tuple(sorted(alerts.channels.keys() - set(alerts.then_to)))
    after = dt.timedelta(seconds=seconds(alerts.after))
    return Watch(to=to, then_to=alerts.then_to, after=after)


def _wrong(workspace: Workspace, world: World, dataset_id: str) -> dict[Kind, str]:
    """Kind -> why, for what is wrong with a dataset now; nothing of its records is said."""
    entry = workspace.entry(dataset_id)
    if entry is None or entry.retired is not None:
        return {}
    status = dataset_status(world, dataset_id)
    found: dict[Kind, str] = {}
    if status.version_id is not None and not status.fresh:
        found["stale"] = f"it is older than {entry.freshness}"
    if status.state == "failed":
        found["failing"] = "its last run failed"
    standing = standing_of(world.store, entry, world.clock.now(), fresh=bool(status.fresh))
    burning = next((rate for rate in standing.rates if rate.burning), None)
    if burning is not None:
        found["burning"] = (
            f"its error budget burns {burning.rate:g} times as fast as it may, over {burning.window}"
        )
    return found


# ---- what there is -------------------------------------------------------------------------------
class Listed(Answer, frozen=True, kw_only=True):
    """Incidents that are open, and who is silenced."""

    incidents: tuple[Incident, ...]
    silences: tuple[Silence, ...]

    def tell(self, call: Call) -> None:
        _show(self.incidents)
        for each in self.silences:
            write(
                f"{each.dataset_id} is silenced until {each.until} by {each.by_whom}: {each.reason}"
            )
        if self.incidents:
            write(f"\nNext  {again(call, f'explain {self.incidents[0].dataset_id}')}")


def listed(call: Call) -> Listed:
    workspace = open_workspace(call.workspace)
    with open_world(workspace) as world:
        names, now = workspace.registered(), world.clock.now()
        quiet = (silenced(world.store, name, now) for name in names)
        return Listed(
            incidents=tuple(incidents(world.store, names)),
            silences=tuple(each for each in quiet if each is not None),
        )


def _show(found: tuple[Incident, ...]) -> None:
    if not found:
        write("Nothing is wrong.")
        return
    rows = [
        (
            sign("FAILED"),
            each.dataset_id,
            each.kind,
            when(each.opened_at),
            ", ".join(sorted(each.told)) or "nobody",
            each.reason,
        )
        for each in found
    ]
    for line in table(("", "dataset", "what", "since", "told", "why"), rows):
        show(line)


# ---- silence -------------------------------------------------------------------------------------
class Silenced(Answer, frozen=True, kw_only=True):
    """Whether people are told of a dataset."""

    dataset_id: str
    until: str | None

    def tell(self, call: Call) -> None:
        if self.until is None:
            write(f"{sign('PASS')} People are told of {self.dataset_id}.")
        else:
            write(f"{sign('PROPOSED')} Nobody is told of {self.dataset_id} until {self.until}.")


def silenced_for(call: Call, dataset: str, length: str, reason: str) -> Silenced:
    workspace = open_workspace(call.workspace)
    workspace.require(dataset)
    if not reason.strip():
        raise UsageError(
            "A silence needs a reason.", expected="--reason TEXT", remedy="Say why, and call again."
        )
    with open_world(workspace) as world:
        until = rfc3339(world.clock.now() + dt.timedelta(seconds=seconds(length)))
        wanted = Silence(dataset_id=dataset, until=until, reason=reason, by_whom=login())
        silence(world.store, wanted, dataset)
    return Silenced(dataset_id=dataset, until=until)


def unsilenced(call: Call, dataset: str) -> Silenced:
    workspace = open_workspace(call.workspace)
    workspace.require(dataset)
    with open_world(workspace) as world:
        silence(world.store, None, dataset)
    return Silenced(dataset_id=dataset, until=None)
