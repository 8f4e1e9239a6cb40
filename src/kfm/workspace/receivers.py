"""Receivers of a workspace: addresses of kfm.yml become somebody who is told."""

import importlib
from collections.abc import Callable

from kfm.model import MissingExtra, UsageError
from kfm.store.address import address_if_set, stated_address
from kfm.workspace.folder import Workspace
from kfm.world.world import Receiver, Receivers

__all__ = ["GROUP", "RECEIVERS", "Configured", "graph_address"]

# how an address begins -> the module whose `open_receiver(address)` opens it; packages of others
# offer theirs by the entry point group
RECEIVERS = {
    "github": "kfm.extras.github.receiver",
    "github+dispatch": "kfm.extras.github.dispatch",
    "bolt": "kfm.extras.neo4j.receiver",
    "bolt+s": "kfm.extras.neo4j.receiver",
    "neo4j": "kfm.extras.neo4j.receiver",
    "neo4j+s": "kfm.extras.neo4j.receiver",
    "openlineage+http": "kfm.extras.openlineage.receiver",
    "openlineage+https": "kfm.extras.openlineage.receiver",
    "openlineage+file": "kfm.extras.openlineage.receiver",
}
_OF_RUNS = "openlineage+"  # whose addresses begin so, hears how runs go
_OF_EVENTS = "github+dispatch:"  # and who hears what the world tells
GROUP = "kfm.receivers"
Opener = Callable[[str], Receiver]


class Configured(Receivers):
    """Those that `receivers` of kfm.yml names, each opened when it is first told something."""

    def __init__(self, workspace: Workspace) -> None:
        self._named = workspace.config.receivers
        self._known: dict[str, Receiver] = {}

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._named))

    def of_runs(self) -> tuple[str, ...]:
        return self._at(_OF_RUNS)

    def of_events(self) -> tuple[str, ...]:
        return self._at(_OF_EVENTS)

    def _at(self, begins: str) -> tuple[str, ...]:
        return tuple(
            name
            for name, said in sorted(self._named.items())
            if address_if_set(said).startswith(begins)
        )

    def opened(self, name: str) -> Receiver:
        if name not in self._known:
            self._known[name] = _open(name, self._address(name))
        return self._known[name]

    def close(self) -> None:
        for receiver in self._known.values():
            receiver.close()
        self._known.clear()

    def _address(self, name: str) -> str:
        said = self._named.get(name)
        if said is None:
            raise UsageError(
                f"kfm.yml names no receiver {name}, and something waits for it.",
                expected="its address under `receivers`",
                remedy="Name it again, or drop what waits with `kfm doctor --fix`.",
            )
        return stated_address(said, "kfm doctor --fix")


def graph_address(workspace: Workspace, said: str | None) -> str:
    """Where a graph is: as it is said, under the name of a receiver, or the only one there is."""
    named = workspace.config.receivers
    graphs = {n: stated_address(a) for n, a in named.items() if n == said or not said}
    found = graphs.get(said or "") or (stated_address(said) if said else "")
    if not said:
        known = [a for a in graphs.values() if _is_graph(a)]
        found = known[0] if len(known) == 1 else ""
    if not _is_graph(found):
        raise UsageError(
            f"{said or 'kfm.yml'} names no graph.",
            expected="neo4j://HOST:PORT, bolt://HOST:PORT, env:NAME, or the name of a receiver",
            remedy="Say --to ADDRESS, or name one graph under `receivers` in kfm.yml.",
        )
    return found


def _is_graph(address: str) -> bool:
    return RECEIVERS.get(address.partition("://")[0]) == RECEIVERS["neo4j"]


def _open(name: str, address: str) -> Receiver:
    scheme = address.partition("://")[0]
    opener = _shipped(scheme) if scheme in RECEIVERS else _offered(scheme)
    if opener is None:
        raise UsageError(
            f"The receiver {name} is at {scheme}://, which nothing here can open.",
            expected=f"one of {', '.join(sorted(RECEIVERS))}, or what an installed package offers",
            remedy="Change `receivers` in kfm.yml.",
        )
    return opener(address)


def _shipped(scheme: str) -> Opener:
    try:
        opener: Opener = importlib.import_module(RECEIVERS[scheme]).open_receiver
        return opener
    except ImportError as error:
        raise MissingExtra(
            f"Receivers at {scheme}:// need {error.name}, which is not installed.",
            expected=f"the extra `{RECEIVERS[scheme].split('.')[2]}`",
            remedy=f"pip install 'kfm[{RECEIVERS[scheme].split('.')[2]}]'",
        ) from error


def _offered(scheme: str) -> Opener | None:
    from importlib.metadata import entry_points  # 20 ms that nobody needs for one of ours

    found = tuple(entry_points(group=GROUP, name=scheme))
    if not found:
        return None
    opener: Opener = found[0].load()
    return opener
