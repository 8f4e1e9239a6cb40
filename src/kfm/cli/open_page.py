"""Open the page of a dataset, a version, a run or a proposal in the browser, where one is served."""

import contextlib
import os
import re
import sys
import webbrowser

from kfm.access.references import dataset_of, proposal_number, resolve
from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import write
from kfm.cli.wal import find_run
from kfm.evidence.proposal import run_of
from kfm.model import UsageError
from kfm.pages import addresses
from kfm.reader.served_now import Noted, readers
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Opened", "opened"]


class Opened(Answer, frozen=True, kw_only=True):
    """Where the page is, and whether a browser was told."""

    address: str
    browser: bool

    def tell(self, call: Call) -> None:
        write(self.address)


def opened(call: Call, ref: str | None) -> Opened:
    workspace = open_workspace(call.workspace)
    found = readers(workspace.path)
    if not found:
        raise UsageError(
            "Nothing shows this workspace now.",
            expected="a reader that runs",
            remedy="Start `kfm up`, which keeps it fresh too, or `kfm serve --console`.",
        )
    reader = found[0]
    address = f"{reader.url}{_path(workspace, reader, ref)}"
    return Opened(address=address, browser=_told(address))


def _path(workspace: Workspace, reader: Noted, ref: str | None) -> str:
    if ref is None:
        return "/" if reader.console else "/datasets"
    name, _, which = ref.removeprefix("kfm://dataset/").partition("@")
    with open_world(workspace, asks=True) as world:
        if re.fullmatch(r"(proposal/)?[0-9]{1,9}", ref):
            number = proposal_number(ref)
            run_of(world, number)  # says so where there is none
            return _inside(reader, addresses.proposal(number))
        if re.fullmatch(r"[0-9a-f-]{8,36}", ref) and name not in workspace.registered():
            return _inside(reader, addresses.run(find_run(world, ref).run_id))
        workspace.require(dataset_of(ref))  # a typing mistake gets the nearest name
        if which:
            return addresses.version(name, resolve(world, f"{name}@{which}").generation)
        return addresses.dataset(name) if _is_official(world, name) else _why_not(reader, name)


def _is_official(world: World, name: str) -> bool:
    with contextlib.suppress(UsageError):
        return bool(resolve(world, name))
    return False


def _why_not(reader: Noted, name: str) -> str:
    """Nothing is official: the page that says why, for who may look at it."""
    return addresses.decision(name) if reader.console else addresses.dataset(name)


def _inside(reader: Noted, path: str) -> str:
    """An address that only who runs things may look at."""
    if not reader.console:
        raise UsageError(
            "What is served here shows no runs and no proposals.",
            expected="the console",
            remedy="Start `kfm up` or `kfm serve --console`.",
        )
    return path


def _told(address: str) -> bool:
    """Whether a browser with a window was told; one that would take the terminal is not."""
    seen = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in seen):
        return False
    with contextlib.suppress(webbrowser.Error, OSError):
        return webbrowser.open(address)
    return False
