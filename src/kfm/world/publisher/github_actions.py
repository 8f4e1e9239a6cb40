"""A publisher for GitHub Actions: files go to the workspace's zones, facts become step outputs."""

import os
from collections.abc import Mapping
from pathlib import Path

from kfm.model import canonical, new_run_id
from kfm.world.publisher.local import LocalPublisher
from kfm.zones.base import Zone

__all__ = ["GithubActionsPublisher"]


class GithubActionsPublisher:
    """Step outputs are appended to the file named by `GITHUB_OUTPUT`; without it they are left
    out.
    """

    def __init__(self, data: Zone, root: Zone, output: Path | None = None) -> None:
        self._inner = LocalPublisher(data, root)
        named = os.environ.get("GITHUB_OUTPUT")
        self._output = output or (Path(named) if named else None)

    def _set_output(self, name: str, value: str) -> None:
        if self._output is None:
            return
        fence = f"kfm_{new_run_id()}"  # a value cannot contain what it does not know
        with self._output.open("a", encoding="utf-8") as file:
            file.write(f"{name}<<{fence}\n{value}\n{fence}\n")

    def write_file(self, path: str, content: bytes | Path) -> str:
        return self._inner.write_file(path, content)

    def emit_event(self, name: str, payload: Mapping[str, object]) -> None:
        self._set_output(name.replace(".", "_"), canonical.dumps(dict(payload)).decode())

    def update_metadata(self, key: str, value: bytes) -> None:
        self._inner.update_metadata(key, value)

    def publish_release(self, tag: str, assets: Mapping[str, str]) -> bool:
        made = self._inner.publish_release(tag, assets)
        self._set_output("release", tag)
        return made

    def noop_guard(self) -> None:
        self._inner.noop_guard()
