"""Remove what retention no longer keeps; without --apply only say what that is."""

from typing import Literal

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again, login
from kfm.cli.du import human
from kfm.cli.terminal import show, sign, write
from kfm.evidence.removed import Doomed
from kfm.jobs.base import JobResult, job_type, parameters_of, work
from kfm.model import JobRow, UsageError, ids
from kfm.model.window import seconds
from kfm.run.claim import check_switch
from kfm.upkeep.reindex import datasets_with_evidence
from kfm.upkeep.retention import doomed, freed
from kfm.upkeep.retention import hold as hold_version
from kfm.upkeep.retention import release as release_version
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.job_process import context_of
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Kept", "Released", "Removed", "kept", "released", "removed"]

TYPE = "maintenance.gc"


class Goes(msgspec.Struct, frozen=True, kw_only=True):
    """What of one dataset retention no longer keeps."""

    dataset_id: str
    items: list[Doomed]
    files: int
    bytes: int


class Removed(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """What was, or could be, removed."""

    status: Literal["dry", "failed", "removed", "nothing_to_do"]
    datasets: list[Goes]
    receipt: str | None
    error: str | None
    exit_code: int = 0
    reason: str  # of the job, in words

    @property
    def code(self) -> int:
        return self.exit_code

    def tell(self, call: Call) -> None:
        for row in self.datasets:
            for item in row.items:
                show(
                    f"  {sign('SUPERSEDED')} {row.dataset_id:<22} {item.kind:<10}"
                    f" {item.name[:12]:<13} {len(item.paths):>3} files  {item.why}"
                )
        if self.status != "dry":
            show(f"{sign('FAILED' if self.code else 'PASS')} {self.reason}")
            show(f"  {self.receipt}")
            return
        files, size = sum(r.files for r in self.datasets), sum(r.bytes for r in self.datasets)
        if not files:
            show(f"{sign('PASS')} nothing could be removed")
            return
        only = f" {self.datasets[0].dataset_id}" if len(self.datasets) == 1 else ""
        show(f"{files:,} files could be removed, {human(size)}.")
        write(f"\nNext  {again(call, f'gc{only} --apply')}")


class Kept(Answer, frozen=True, kw_only=True):
    """A version that stays, whatever its age."""

    status: Literal["held"]
    dataset_id: str
    version_id: str
    reason: str
    by: str
    at: str

    def tell(self, call: Call) -> None:
        ref = f"{self.dataset_id}@{self.version_id}"
        write(f"{ref} is on hold: {self.reason}\n\nNext  {again(call, f'gc release {ref}')}")


class Released(Answer, frozen=True, kw_only=True):
    """A hold that ended, or never was."""

    status: Literal["released", "not_held"]
    ref: str

    def tell(self, call: Call) -> None:
        held = "no longer" if self.status == "released" else "not"
        show(f"{self.ref} is {held} on hold")


def removed(call: Call, dataset: str | None, apply: bool, grace: str) -> Removed:
    workspace = open_workspace(call.workspace)
    seconds(grace)
    with open_world(workspace) as world:
        every = sorted({*workspace.registered(), *datasets_with_evidence(world)})
        if dataset is not None and dataset not in every:
            workspace.require(dataset)
        rows = [_goes(world, name, grace) for name in ([dataset] if dataset else every)]
        if not apply:
            return Removed(
                status="dry", datasets=rows, receipt=None, error=None, exit_code=0, reason=""
            )
        result = _applied(workspace, world, dataset or "", grace)
    code = result.exit_code or int(result.status == "failed")
    return Removed(
        status="failed" if code else "removed" if result.status == "succeeded" else "nothing_to_do",
        datasets=rows,
        receipt=result.receipt,
        error=result.error or None,
        exit_code=code,
        reason=result.reason,
    )


def _goes(world: World, dataset_id: str, grace: str) -> Goes:
    items = doomed(world, dataset_id, grace)
    return Goes(
        dataset_id=dataset_id,
        items=items,
        files=sum(len(item.paths) for item in items),
        bytes=freed(world, items),
    )


def kept(call: Call, hold: str, reason: str) -> Kept:
    if not reason.strip():
        raise UsageError(
            "A hold needs a reason.",
            expected='--reason "…"',
            remedy="Say why; it is recorded with your login name.",
        )
    with open_world(open_workspace(call.workspace)) as world:
        made = hold_version(world, hold, reason.strip(), login())
    return Kept(status="held", **msgspec.structs.asdict(made))


def released(call: Call, release: str) -> Released:
    with open_world(open_workspace(call.workspace)) as world:
        ended = release_version(world, release)
    return Released(status="released" if ended else "not_held", ref=release)


def _applied(workspace: Workspace, world: World, dataset_id: str, grace: str) -> JobResult:
    """The job, worked here and now."""
    kind = job_type(TYPE)
    world.store.read(lambda tx: check_switch(tx, dataset_id, TYPE))
    given = {"apply": True, "grace": grace}
    inputs = [{"kind": "dataset", "id": f"kfm://dataset/{dataset_id}"}] if dataset_id else []
    run_id = str(ids.new_run_id())
    job = JobRow(
        job_id=ids.job_id(TYPE, inputs, given, run_id),
        job_type=TYPE,
        dataset_id=dataset_id,
        partition="",
        win="",
        state="running",
        again=0,
        forced=0,
        generation=1,
        reason="kfm gc --apply",
        put_at="",
    )
    return work(kind, context_of(workspace, world, job, run_id, parameters_of(kind, given), "live"))
