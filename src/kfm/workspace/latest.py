"""The stable address of each dataset: `data/published/<id>/latest` leads to the folder of the official
version while everybody may have it, decided as `kfm get` decides it. And `artifacts`, which leads to
the files of the newest run.

A projection of the channel: never read to decide, and made anew by `kfm doctor --fix`. It is taken
away before records are withdrawn, and by the first command after a label, a rule or a key was
changed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from kfm.model import Denied, UsageError, ids
from kfm.model.paths import artifacts_path, channel_folder, latest_path, run_path, version_folder
from kfm.policy.base import Evaluator
from kfm.world.world import Latest, World
from kfm.zones.links import Links
from kfm.zones.local import LocalZone

__all__ = ["Published"]

_AS_OF = "latest/as-of"  # what the store knows the decisions behind the links by
_IN_DOUBT = "in doubt"  # whoever comes next looks again


class Published(Latest):
    """The links of one workspace."""

    def __init__(
        self, data: LocalZone, root: LocalZone, rules: Callable[[], Evaluator], home: Path
    ) -> None:
        # `rules` are those of the moment they are asked for
        self._home, self._links, self._rules = home, Links(data), rules
        self._root = root
        self._rules_seen = self._seen("policy")

    def hide(self, world: World, dataset_id: str) -> None:
        # whoever dies before anything is withdrawn leaves nothing else that tells of it
        world.store.transaction(lambda tx: tx.index.put_meta(_AS_OF, _IN_DOUBT))
        self._links.clear(latest_path(dataset_id))

    def show(self, world: World, dataset_id: str) -> bool:
        with suppress(Exception):  # a zone that nobody may write to, a store that does not answer
            return self._point(world, dataset_id)
        return False

    def is_stale(self, world: World, dataset_id: str) -> bool:
        with suppress(Exception):
            return not self._links.leads(latest_path(dataset_id), self._wanted(world, dataset_id))
        return True

    def follow(self, world: World) -> None:
        with suppress(Exception):
            here = world.data.local(latest_path("x")).parent.parent
            if not here.is_dir():
                return  # nothing was ever shown
            now = self._as_of()
            if _known(world) == now:
                return
            for name in _folders(here, world.data.local(channel_folder("x")).parent):
                self._point(world, name)
            _know(world, now)

    def ran(self, world: World, dataset_id: str, run_id: str) -> None:
        with suppress(Exception):  # a folder that nobody may write to
            place = world.data.local(run_path(dataset_id, run_id, "artifacts"))
            Links(self._root).point_for_now(artifacts_path(), place)

    def shown_run(self) -> str | None:
        with suppress(OSError):
            return Path(os.readlink(self._root.local(artifacts_path()))).parent.name
        return None

    def _point(self, world: World, dataset_id: str) -> bool:
        path, changed = latest_path(dataset_id), False
        while True:
            # What we decide by may change while we decide: then we look again before we leave. Who
            # changes it after that looks after us.
            now = self._as_of(), _last(world, dataset_id)
            try:
                wanted = self._wanted(world, dataset_id)
            except Exception:
                self._links.clear(path)
                _know(world, _IN_DOUBT)
                raise
            if not self._links.leads(path, wanted):
                if _known(world) is None:
                    _know(world, now[0])
                if wanted is None:
                    self._links.clear(path)
                else:
                    self._links.point(path, wanted)
                changed = True
            if wanted is None or now == (self._as_of(), _last(world, dataset_id)):
                return changed

    def _wanted(self, world: World, dataset_id: str) -> str | None:
        """The folder that everybody may have now; None: there is none, or it is not for
        everybody.
        """
        from kfm.access.boundary import folder_of  # a NOOP shows nothing new

        try:
            with self._asking(world) as asked:
                opened = folder_of(asked, dataset_id)
        except (Denied, UsageError):
            return None
        return version_folder(dataset_id, opened.version_id)

    @contextmanager
    def _asking(self, world: World) -> Iterator[World]:
        """The world with the rules of now: one that has been open for long may know older ones."""
        if world.policy is not None and self._seen("policy") == self._rules_seen:
            yield world
            return
        rules = self._rules()
        try:
            yield replace(world, policy=rules)
        finally:
            rules.close()

    def _as_of(self) -> str:
        """What every decision is made of, without reading it: labels and licences, rules, keys."""
        seen = [self._seen(name) for name in ("data/registry", "policy", "keys/root", "kfm.yml")]
        return ids.digest(repr(seen).encode())

    def _seen(self, name: str) -> list[tuple[str, int, int, int, int]]:
        """The files of a folder, or one file, as they change when somebody changes them."""
        place = self._home / name
        files = sorted(os.scandir(place), key=lambda e: e.name) if place.is_dir() else [place]
        found = []
        for file in files:
            with suppress(FileNotFoundError):
                at = file.stat()
                # the time of the last change of all cannot be set back, as that of the bytes can
                marks = (at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino)
                found.append((file.name, *marks))
        return found


def _known(world: World) -> str | None:
    told: str | None = world.store.read(lambda tx: tx.index.meta(_AS_OF))
    return told


def _know(world: World, as_of: str) -> None:
    """What a power cut makes the store forget is looked at once more."""
    world.store.transaction(lambda tx: tx.index.put_meta(_AS_OF, as_of), durable=False)


def _last(world: World, dataset_id: str) -> int:
    """The newest generation of a dataset."""
    head = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    return int(head.generation)


def _folders(*places: Path) -> list[str]:
    """The datasets that have a folder in one of these places."""
    entries = (entry for place in places if place.is_dir() for entry in os.scandir(place))
    return sorted({entry.name for entry in entries if entry.is_dir()})
