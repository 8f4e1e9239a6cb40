"""Receivers of OpenLineage events: openlineage+http://HOST/api/v1/lineage posts them, and
openlineage+file:///FOLDER keeps each as a file of that folder.

The event of what became official was written with the version and is sent as it lies there. The run
id and the type are what a collector knows a repetition by.
"""

import contextlib
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from kfm.extras.openlineage.events import made_events, run_event
from kfm.fetch.post import post
from kfm.model import UpstreamUnavailable
from kfm.model.paths import run_path
from kfm.world.announcement import Announcement, RunNews
from kfm.world.world import World
from kfm.zones.durable import create_durably

__all__ = ["OpenLineage", "open_receiver"]


class Way(Protocol):
    """How an event gets there."""

    def send(self, run_id: str, kind: str, event: bytes) -> None: ...


class OpenLineage:
    """A collector, told of every run by the way its address names."""

    def __init__(self, way: Way) -> None:
        self._way = way

    def tell(self, world: World, told: Announcement) -> None:
        event = world.data.read(run_path(told.dataset_id, told.run_id, "openlineage.json"))
        self._way.send(told.run_id, "COMPLETE", event)

    def hear(self, world: World, news: RunNews) -> None:
        if (found := run_event(world, news)) is not None:
            self._way.send(news.run.run_id, *found)

    def take(self, world: World, run_id: str) -> None:
        for kind, event in made_events(world, run_id):
            self._way.send(run_id, kind, event)

    def close(self) -> None: ...


class Posted:
    """An address that takes one event at a time."""

    def __init__(self, url: str) -> None:
        self._url = url

    def send(self, run_id: str, kind: str, event: bytes) -> None:
        post(self._url, event, headers={"Content-Type": "application/json"})


class Filed:
    """A folder; an event is a file that appears whole, once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def send(self, run_id: str, kind: str, event: bytes) -> None:
        try:
            with contextlib.suppress(FileExistsError):
                create_durably(self._folder / f"{run_id}-{kind.lower()}.json", event)
        except OSError as error:
            raise UpstreamUnavailable(
                f"An event could not be kept in {self._folder.name}: {error.strerror or error}.",
                expected="a folder that can be written",
                remedy="It is tried again later; `kfm doctor --fix` does so at once.",
            ) from error


def open_receiver(address: str) -> OpenLineage:
    plain = address.removeprefix("openlineage+")
    if plain.startswith("file:"):
        return OpenLineage(Filed(Path(unquote(urlsplit(plain).path))))
    return OpenLineage(Posted(plain))
