"""plan: what a run will do, written before it does anything. Pure: the same inputs always give the
same bytes.
"""

from kfm.evidence.journal import Journal, Page
from kfm.model import Plan, Planned, SourceRef, Transforming
from kfm.model.paths import (
    captures_folder,
    channel_folder,
    parts_folder,
    proposals_folder,
    version_folder,
    versions_folder,
)
from kfm.model.plan import Step
from kfm.run.claim import keep_plan
from kfm.run.look import Captured, look, source_refs
from kfm.run.noop import is_noop
from kfm.store.base import Tx
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["journal_plan", "look_and_plan", "make_plan", "parts_plan"]


def make_plan(target: Target, inputs: tuple[SourceRef, ...]) -> Plan:
    """One part from these inputs, and the version it belongs to."""
    capture = Step(
        id="capture",
        phase="EXECUTE",
        effect="keyed",
        targets=tuple(captures_folder(target.dataset_id) for _ in inputs[:1]),
    )
    transform = Step(
        id="transform",
        phase="EXECUTE",
        effect="keyed",
        needs=("capture",),
        targets=(f"{parts_folder(target.dataset_id)}/{target.artifact}",),
    )
    version = version_folder(target.dataset_id, target.artifact)
    return _plan(target, inputs, (capture, transform), version)


def parts_plan(target: Target, input_hash: str) -> Plan:
    """A version from parts that are there. It names what they hold, not the list of them: that
    tells who made them, and a repeat has other run ids.
    """
    inputs = (SourceRef(uri="parts", content_hash=input_hash, source_id="parts"),)
    transform = Step(
        id="transform", phase="EXECUTE", effect="keyed", targets=(parts_folder(target.dataset_id),)
    )
    return _plan(target, inputs, (transform,), versions_folder(target.dataset_id))


def _plan(
    target: Target, inputs: tuple[SourceRef, ...], first: tuple[Step, ...], version: str
) -> Plan:
    """The steps that make parts, then those that every version takes."""
    steps = (
        *first,
        Step(
            id="assemble",
            phase="EXECUTE",
            effect="keyed",
            needs=("transform",),
            targets=(proposals_folder(target.dataset_id),),
        ),
        Step(id="version", phase="UPSERT", effect="keyed", needs=("assemble",), targets=(version,)),
        Step(
            id="lineage", phase="LINEAGE", effect="keyed", needs=("version",), targets=("lineage",)
        ),
        Step(
            id="channel",
            phase="LINEAGE",
            effect="keyed",
            needs=("lineage",),
            targets=(channel_folder(target.dataset_id),),
        ),
    )
    return Plan(
        dataset_id=target.dataset_id,
        partition=target.partition,
        updater_id=target.updater_id,
        updater_version=target.pipeline_version,
        spec_hash=target.spec_hash,
        inputs=inputs,
        steps=steps,
    )


def journal_plan(wal: Journal, target: Target, captured: Captured) -> str:
    """Write the PLAN, once the input has passed its checks; its hash. What they made lies in scratch,
    so a resumed run repeats them; its plan stays.
    """
    plan = make_plan(target, source_refs(target, captured))

    def journal(tx: Tx, page: Page) -> None:
        if wal.state("plan") is None:
            hashed = keep_plan(tx, plan, page.run.input_hash, page.run.base_version)
            page.make("PLAN", "plan", "DONE", Planned(plan=plan, plan_hash=hashed))
        page.make("EXECUTE", "transform", "IN_PROGRESS", Transforming(artifact=target.artifact))

    wal.done("EXECUTE", "check")
    wal.commit(journal)
    return wal.require("plan", Planned).plan_hash


def look_and_plan(world: World, target: Target) -> tuple[Plan, bool]:
    """The plan for what upstream has now, and whether running it would do anything."""
    with world.data.scratch() as scratch:
        captured = look(world, target, world.log(target.dataset_id), scratch, conditional=False)
        plan = make_plan(target, source_refs(target, captured))

        def would(tx: Tx) -> bool:
            head = world.channel(target.dataset_id).head(tx)
            return is_noop(tx, world, target, captured, head, []) is None

        return plan, world.store.transaction(would)
