"""Sign what runs in a workspace under a version, and check that without network."""

import datetime as dt
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import program, show, sign, write
from kfm.keys.key_folder import KeyFolder
from kfm.model import Denied, UsageError
from kfm.model.paths import released_folder
from kfm.telemetry.recent import of_release
from kfm.upkeep.front_matter import Stamp
from kfm.upkeep.releases import check, make, released_files, versions
from kfm.workspace.folder import open_workspace
from kfm.workspace.secrets import scan_file
from kfm.workspace.wiring import open_world

__all__ = ["Checked", "Made", "checked", "first", "made"]

FIRST = "v1.0.0"


class Made(Answer, frozen=True, kw_only=True):
    """A release."""

    status: str
    version: str
    folder: str
    files: dict[str, str]

    def tell(self, call: Call) -> None:
        before = "Nothing to do: " if self.status != "released" else ""
        write(f"{before}{self.version} is released, {len(self.files)} files in {self.folder}")
        write(f"\nNext  {program()} release check")


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """Why a release does not hold."""

    version: str
    what: str


class Checked(Answer, frozen=True, kw_only=True):
    """The releases here, and what is wrong with them."""

    releases: list[str]
    problems: list[Wrong]

    @property
    def code(self) -> int:
        return 6 if self.problems else 0

    def tell(self, call: Call) -> None:
        for one in self.problems:
            show(f"  {sign('FAILED')} {one.version}: {one.what}")
        bad = {one.version for one in self.problems}
        many = "release" if len(self.releases) == 1 else "releases"
        mark = sign("FAILED" if bad else "PASS")
        show(f"{mark} {len(self.releases)} {many}, {len(self.releases) - len(bad)} good")


def made(call: Call, version: str, note: str) -> Made:
    workspace = open_workspace(call.workspace)
    _no_secrets(workspace.path)
    with open_world(workspace) as world:
        telemetry = of_release(world, version)
    return _make(workspace.path, version, note, telemetry)


def first(root: Path) -> None:
    """The release that a new workspace begins with; nothing ran yet."""
    if not versions(root):
        _make(root, FIRST, "made with the workspace", of_release(None, FIRST))


def checked(call: Call) -> Checked:
    root = open_workspace(call.workspace).path
    problems = [Wrong(version=v, what=w) for v, w in check(root, KeyFolder(root / "keys"))]
    return Checked(releases=versions(root), problems=problems)


def _make(root: Path, version: str, note: str, telemetry: Mapping[str, bytes]) -> Made:
    if not note.strip():
        raise UsageError(
            "The note is empty.",
            expected="what changed, in a few words",
            remedy='Say it: --note "…".',
        )
    stamp = Stamp(version, dt.datetime.now(dt.UTC).date(), _commit(root), note)
    found = make(root, KeyFolder(root / "keys"), stamp, telemetry)
    return Made(
        status=found.status,
        version=version,
        folder=released_folder(version),
        files=found.files,
    )


def _no_secrets(root: Path) -> None:
    for path in released_files(root):
        for found in scan_file(path):
            raise Denied(
                f"{path.relative_to(root)}, line {found.line}, looks like a credential"
                f" ({found.rule}).",
                expected="nothing secret in what is released",
                remedy="Take it out and name where it is kept (`env:NAME`), then release again.",
            )


def _commit(root: Path) -> str:
    """The commit that is checked out; "" where there is no version control."""
    said = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--verify", "-q", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() if not said.returncode else ""
