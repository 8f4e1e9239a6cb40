"""Rendered files in a workspace: written, found to be current, or left alone because a person
changed them.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from kfm.model import UsageError
from kfm.zones.durable import replace_durably

__all__ = ["File", "marked", "state_of", "write"]

State = Literal["current", "missing", "differs", "changed by hand"]
_MARK = re.compile(r"(?:#|//) Rendered by `kfm runner render [a-z]+`, sha256:([0-9a-f]{64})\.\n")


class File(msgspec.Struct, frozen=True):
    """A file of a runner, and how it stands in the workspace."""

    path: str
    state: State


def marked(runner: str, texts: Mapping[str, str]) -> dict[str, bytes]:
    """What is written: each text under a line that says where it comes from and what it was. JSON
    has no such line.
    """
    return {
        path: (text if path.endswith(".json") else _head(runner, path, text) + text).encode()
        for path, text in texts.items()
    }


def _head(runner: str, path: str, text: str) -> str:
    digest, sign = hashlib.sha256(text.encode()).hexdigest(), "//" if path.endswith("js") else "#"
    return (
        f"{sign} Rendered by `kfm runner render {runner}`, sha256:{digest}.\n"
        f"{sign} Change kfm.yml or the registry and render again; a file that was changed by hand"
        " is not replaced.\n"
    )


def state_of(folder: Path, path: str, content: bytes) -> File:
    """How a file that would be `content` stands."""
    if not (folder / path).is_file():
        return File(path, "missing")
    found = (folder / path).read_bytes()
    if found == content:
        return File(path, "current")
    return File(path, "differs" if _is_ours(found.decode(errors="replace")) else "changed by hand")


def _is_ours(text: str) -> bool:
    """Whether nobody touched it since it was rendered."""
    mark = _MARK.match(text)
    rest = text.split("\n", 2)[-1].encode()
    return mark is not None and hashlib.sha256(rest).hexdigest() == mark[1]


def write(folder: Path, files: Mapping[str, bytes], *, force: bool = False) -> list[File]:
    """Bring every file up to date; how each stood before. All or none: what a person changed is
    refused before anything is written.
    """
    before = [state_of(folder, path, content) for path, content in files.items()]
    changed = [file.path for file in before if file.state == "changed by hand"]
    if changed and not force:
        raise UsageError(
            f"{changed[0]} was not rendered, or was changed since.",
            expected="a file that rendering may replace",
            remedy="Move what you changed elsewhere, or replace it with --force.",
        )
    for file in before:
        if file.state != "current":
            replace_durably(folder / file.path, files[file.path])
    return before
