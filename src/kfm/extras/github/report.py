"""What runs in a job of GitHub Actions leave there: their logs as an artifact, one comment each."""

import os
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import msgspec

from kfm.extras.github.actions import event_of, in_actions, pull_number, warn
from kfm.extras.github.artifacts import Kept, Results, keep_artifact, open_results, zipped
from kfm.extras.github.client import attempts
from kfm.extras.github.comments import keep_comment
from kfm.extras.github.opening import carrier_of, open_hub, refuse_strangers
from kfm.model import Json, KfmError
from kfm.model.paths import run_path, runs_folder
from kfm.workspace.folder import Workspace
from kfm.world.publisher.github_actions import group_of
from kfm.world.world import World

__all__ = ["Uploaded", "report", "upload"]

_LEFT = ("run.jsonl", "event_log.jsonl", "idempotency.json", "publisher_trace.jsonl")


class Uploaded(msgspec.Struct, frozen=True, kw_only=True):
    """The artifact of one dataset's runs; no artifact where there was nothing to tell."""

    dataset_id: str
    runs: list[str]
    artifact: Kept | None = None
    why_not: str = ""


def report(workspace: Workspace, world: World, runs: Sequence[Json]) -> None:
    """Upload what these runs left, and keep the comment up to date. They have ended and stand: what
    fails here is written into their logs and told on the job's page.
    """
    of: dict[str, list[Json]] = {}
    for run in runs:
        of.setdefault(str(run["dataset"]), []).append(run)
    for dataset_id, ended in of.items():
        ids = [str(run["run_id"]) for run in ended]
        try:
            if os.environ.get("ACTIONS_RUNTIME_TOKEN"):
                upload(workspace, world, dataset_id, ids)
            _comment(workspace, world, dataset_id, ended)
        except (KfmError, OSError) as error:
            _recorded(world, dataset_id, ids, error)


def upload(
    workspace: Workspace, world: World, dataset_id: str, ids: Sequence[str] = ()
) -> Uploaded:
    """Let the job have the logs of these runs; without `ids` those of the runs that began since the
    job did, and outside of a job of the last one.
    """
    runs = sorted(ids) or _runs(world, dataset_id)
    if world.is_withheld(dataset_id):
        return Uploaded(dataset_id=dataset_id, runs=runs, why_not="it is not public")
    files = {
        f"{run_id}/{name}": world.data.read(path)
        for run_id in runs
        for name in _LEFT
        if world.data.exists(path := run_path(dataset_id, run_id, f"artifacts/{name}"))
    }
    if not files:
        return Uploaded(dataset_id=dataset_id, runs=runs, why_not="no run left anything")
    with world.root.scratch() as scratch:
        zipped(files, archive := Path(scratch) / "artifact.zip")
        kept = keep_artifact(_results(workspace), group_of(dataset_id), archive)
    return Uploaded(dataset_id=dataset_id, runs=runs, artifact=kept)


def _results(workspace: Workspace) -> Results:
    return open_results(carrier_of(workspace), attempts())


def _runs(world: World, dataset_id: str) -> list[str]:
    """Runs by their ids, which tell when they began."""
    folder = runs_folder(dataset_id)
    known = sorted({p.removeprefix(f"{folder}/").split("/")[0] for p in world.data.names(folder)})
    began = _job_began()
    if began is None:
        return known[-1:]
    return [run_id for run_id in known if UUID(run_id).int >> 80 >= began]


def _job_began() -> int | None:
    """Milliseconds since 1970: when the runner wrote down what the job is for."""
    path = os.environ.get("GITHUB_EVENT_PATH", "")
    if not in_actions() or not path or not Path(path).exists():
        return None
    return int(Path(path).stat().st_mtime * 1000)


def _comment(workspace: Workspace, world: World, dataset_id: str, ended: Sequence[Json]) -> None:
    """Only where kfm.yml asks for it, and only in a pull request of this repository."""
    number = pull_number() if workspace.config.github.comments else None
    if number is None:
        return
    refuse_strangers()
    words = _words(world, dataset_id, ended)
    keep_comment(open_hub(workspace), number, f"runs:{dataset_id}", words)


def _words(world: World, dataset_id: str, ended: Sequence[Json]) -> str:
    lines = [f"**{dataset_id}**", "", "| run | ended | version | why |", "|---|---|---|---|"]
    for run in ended:
        row = world.store.read(lambda tx: tx.runs.get(str(run["run_id"])))
        # of what is not public, that it ended and how is all that is said
        told = row is not None and not world.is_withheld(dataset_id)
        why = (row.version_id or "", _plain(row.reason)) if told and row is not None else ("", "")
        cells = (str(run["run_id"]), str(run["idempotency_state"]), *why)
        lines.append("| " + " | ".join(f"`{cell}`" if cell else "" for cell in cells) + " |")
    commit = (((event_of().get("pull_request") or {}).get("head")) or {}).get("sha")
    of = f", commit {commit}" if commit else ""
    return "\n".join([*lines, "", f"Logs: artifact `{group_of(dataset_id)}`{of}"])


def _plain(text: str) -> str:
    """Words of others inside of a table and a code span, where they mean nothing to GitHub."""
    return " ".join(text.replace("`", "'").replace("|", "/").split())[:300]


def _recorded(world: World, dataset_id: str, ids: Sequence[str], error: Exception) -> None:
    why = error.happened if isinstance(error, KfmError) else str(error)
    warn(f"{dataset_id}: {why}")
    for run_id in ids:
        log = world.log(dataset_id)
        log.bind(run_id)
        log.say("report.failed", stage="publish", level="error", reason=why)
