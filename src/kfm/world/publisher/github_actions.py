"""A publisher for GitHub Actions: files go to the workspace's zones, facts become outputs of the step
and words on the job's page; when the process ends, what its runs left is uploaded.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kfm.model import Json, canonical, new_run_id
from kfm.world.publisher.local import LocalPublisher
from kfm.zones.base import Zone

__all__ = ["GithubActionsPublisher", "add_summary", "group_of", "set_output"]

_HEAD = "| dataset | run | ended | took |\n|---|---|---|---|\n"


def group_of(dataset_id: str) -> str:
    """The concurrency group of a dataset's runs in a workflow, and the name of their artifact. It is
    a convenience of one runner; the lease is what keeps runs apart everywhere.
    """
    return f"pipelines-updater-{dataset_id}"


def set_output(name: str, value: str, file: Path | None = None) -> None:
    """A step's output, in the file that `GITHUB_OUTPUT` names; without one it is left out."""
    fence = f"kfm_{new_run_id()}"  # a value cannot contain what it does not know
    _append(file, "GITHUB_OUTPUT", f"{name}<<{fence}\n{value}\n{fence}\n")


def add_summary(text: str, file: Path | None = None) -> None:
    """Words on the page of the job, in the file that `GITHUB_STEP_SUMMARY` names."""
    _append(file, "GITHUB_STEP_SUMMARY", text)


def _append(file: Path | None, variable: str, text: str) -> None:
    named = os.environ.get(variable)
    path = file or (Path(named) if named else None)
    if path is not None:
        with path.open("a", encoding="utf-8") as opened:
            opened.write(text)


class GithubActionsPublisher:
    """Outputs, words, and at the end a report of the runs that ended: what they left is uploaded
    with the job's own token, and the comment of the pull request kept up to date.
    """

    def __init__(
        self,
        data: Zone,
        root: Zone,
        output: Path | None = None,
        summary: Path | None = None,
    ) -> None:
        self._inner = LocalPublisher(data, root)
        self._output, self._summary = output, summary
        self._ended: list[Json] = []

    def write_file(self, path: str, content: bytes | Path) -> str:
        return self._inner.write_file(path, content)

    def emit_event(self, name: str, payload: Mapping[str, object]) -> None:
        event = dict(payload)
        set_output(name.replace(".", "_"), canonical.dumps(event).decode(), self._output)
        if name != "updater.run" or "dataset" not in event:
            return
        set_output("concurrency_group", group_of(str(event["dataset"])), self._output)
        cells = ("dataset", "run_id", "idempotency_state", "duration_ms")
        line = " | ".join(str(event.get(cell, "")) for cell in cells)
        add_summary(f"{'' if self._ended else _HEAD}| {line} ms |\n", self._summary)
        self._ended.append(event)

    def update_metadata(self, key: str, value: bytes) -> None:
        self._inner.update_metadata(key, value)

    def publish_release(self, tag: str, assets: Mapping[str, str]) -> bool:
        made = self._inner.publish_release(tag, assets)
        set_output("release", tag, self._output)
        return made

    def noop_guard(self) -> None:
        self._inner.noop_guard()

    def finish(self, report: Callable[[Sequence[Json]], None]) -> None:
        ended, self._ended = self._ended, []
        if ended:
            report(ended)
