"""Fan-out: an event of a webhook starts workflows of a repository, by `repository_dispatch`. The
receiver is called github+dispatch://OWNER/NAME.
"""

import msgspec

from kfm.extras.github.client import Hub, once
from kfm.extras.github.opening import open_hub
from kfm.model import Denied, EventRow, Json, UsageError
from kfm.workspace.folder import open_workspace
from kfm.world.announcement import Announcement
from kfm.world.world import World

__all__ = ["EVENT", "Workflows", "dispatch", "open_receiver", "told_of"]

EVENT = "kfm-event"  # the type that rendered workflows listen to
_MOST_BYTES = 60_000
_LOOKED_THROUGH = 300  # of the newest runs


def dispatch(hub: Hub, key: str, event: Json, event_type: str = EVENT) -> bool:
    """Tell the repository of an event; False when it was told before.

    GitHub keeps no key of a dispatch. What it started does: the workflow's `run-name` is
    `client_payload.key`, and after a crash or a lost answer a run of that name is looked for. Where
    none can be seen it is sent again under the same key, and a run that finds nothing new is a NOOP.
    """
    if len(msgspec.json.encode(event)) > _MOST_BYTES:
        raise UsageError(
            "The event is larger than GitHub takes.",
            expected=f"at most {_MOST_BYTES:,} bytes",
            remedy="Map less of it in `webhooks` of kfm.yml.",
        )
    sent: list[bool] = []

    def make() -> bool:
        asked = {"event_type": event_type, "client_payload": {"key": key, "event": event}}
        hub.post("/dispatches", asked)
        sent.append(True)
        return True

    once(hub, lambda: _started(hub, key), make)
    return bool(sent)


class Workflows:
    """The workflows of a repository that listen to events."""

    def __init__(self, address: str) -> None:
        self._repository = address.partition("://")[2]

    def tell(self, world: World, told: Announcement) -> None:
        """Of generations they hear elsewhere."""

    def heed(self, world: World, event: EventRow, datasets: tuple[str, ...]) -> None:
        workspace = open_workspace(world.root.local("kfm.yml").parent)
        hub = open_hub(workspace, self._repository, patient=False)
        dispatch(hub, event.event_id, told_of(event, datasets))

    def close(self) -> None: ...


def open_receiver(address: str) -> Workflows:
    return Workflows(address)


def told_of(event: EventRow, datasets: tuple[str, ...]) -> Json:
    """What a repository hears: the event, its name here and the datasets it asks for. The signature
    stays here; what is said beside the event is left out where GitHub would not take it.
    """
    told: Json = msgspec.json.decode(event.event)
    told["integrity"] = {"version": told["integrity"]["version"]}
    told |= {"event_id": event.event_id, "datasets": list(datasets)}
    if len(msgspec.json.encode(told)) > _MOST_BYTES:
        told["metadata"] = {"left_out": ["metadata"]}
    return told


def _started(hub: Hub, key: str) -> bool | None:
    """True when a run of this key is there; None: none, or nobody may look."""
    try:
        for number, run in enumerate(
            hub.pages("/actions/runs", "workflow_runs", event="repository_dispatch")
        ):
            if key in str(run.get("display_title") or ""):
                return True
            if number >= _LOOKED_THROUGH:
                break
    except Denied:
        pass
    return None
