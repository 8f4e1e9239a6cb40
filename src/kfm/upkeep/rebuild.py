"""rebuild: make the outputs of a receipt again from what was captured, and compare them byte for
byte.
"""

from pathlib import Path

import msgspec

from kfm.channel.generations import EMPTY
from kfm.connectors.base import TransformResult
from kfm.evidence.run_files import read_run_file
from kfm.evidence.version_records import placed, read_facts
from kfm.model import Denied, IntegrityError, Json, Receipt
from kfm.model.paths import run_path
from kfm.release.by_rule import (
    explained_before,
    govern_job,
    open_table,
    records_of_version,
    suppress_rules,
)
from kfm.release.transform_inputs import known_columns, transform_job
from kfm.run.answers import capture_name
from kfm.run.look import captured_file, is_capture
from kfm.run.tables import merge_tables, says_newer
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import hash_file, room

__all__ = ["Rebuilt", "captured_inputs", "rebuild", "record_of_receipt"]


def record_of_receipt(world: World, receipt: Receipt) -> Json:
    """The run record a receipt sealed."""
    raw = read_run_file(world.data, receipt.dataset_id, receipt.run_id, "run_record.json")
    if raw is None:
        raise Denied(
            f"The record of run {receipt.run_id} is not in this workspace.",
            expected=f"data/{run_path(receipt.dataset_id, receipt.run_id, 'run_record.json')}",
            remedy="Rebuild where the run was made.",
        )
    found: Json = msgspec.json.decode(raw)
    return found


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """A table that was made again: equal digests are equal bytes."""

    path: str
    expected: str | None  # as the receipt has it
    made: str
    equal: bool
    then: dict[str, str]  # tool -> version
    now: dict[str, str]


def rebuild(world: World, receipt: Receipt, record: Json, target: Target) -> Rebuilt:
    """Make the table of this run again, and compare."""
    target = msgspec.structs.replace(target, captured_at=record["started_at"])
    expected = {o.id.rsplit("/", 1)[-1]: o.checksum for o in receipt.outputs}
    with world.data.scratch() as scratch:
        known = known_columns(
            world,
            msgspec.structs.replace(target, transform_hash=record["transform_hash"]),
            record["base_version"],
        )
        inputs, _ = captured_inputs(world, record, target, room(scratch, "in"))
        job = transform_job(target, inputs, known)
        result = world.transform(job, room(scratch, "out"), None)
        table, result = _merged(
            world, record, target, scratch / "out" / result.artifact, result, scratch
        )
        head = world.store.read(
            lambda tx: tx.index.generation(target.dataset_id, record["base_generation"])
        ) or EMPTY(target.dataset_id)
        rules = suppress_rules(world, target.dataset_id, head.suppressed)
        if target.entry.release is not None or rules:
            before = explained_before(
                world,
                target.entry,
                record.get("records", {}).get(target.artifact),
                room(scratch, "before"),
            )
            release = govern_job(
                target.entry,
                table,
                target.artifact,
                result.schema,
                rules,
                hash_file(table).digest,
                before=before,
            )
            world.transform(release, room(scratch, "released"), None)
            table = scratch / "released" / target.artifact
        made = hash_file(table).digest
    return Rebuilt(
        path=target.artifact,
        expected=expected.get(target.artifact),
        made=made,
        equal=made == expected.get(target.artifact),
        then=record["tool_versions"],
        now=dict(world.toolchain()),
    )


def captured_inputs(
    world: World, record: Json, target: Target, scratch: Path
) -> tuple[dict[str, tuple[Path, str]], str]:
    """The files that a run captured, each compared with its digest, and the name of the capture.
    Raises `Denied` where they are not here.
    """
    sources = record["sources"]
    names = {f"{s['source_id']}.{target.entry.source.format}": s for s in sources}
    capture = sources[0].get("capture") or capture_name(
        world, target.dataset_id, {n: s["digest"] for n, s in names.items()}
    )
    found = {}
    for name, source in names.items():
        path = captured_file(world.data, world.vaults, target.dataset_id, capture, name, scratch)
        if path is None:
            raise Denied(
                f"The capture {capture} is not here.",
                expected=name,
                remedy="Restore it, or rebuild where it is.",
            )
        if not is_capture(world, target.dataset_id, path, source["digest"]):
            raise IntegrityError(
                f"{name} of {capture} is damaged.",
                expected=source["digest"],
                remedy="Restore it from a backup.",
            )
        found[source["source_id"]] = (path, source["digest"])
    return found, capture


def _merged(
    world: World,
    record: Json,
    target: Target,
    part: Path,
    result: TransformResult,
    scratch: Path,
) -> tuple[Path, TransformResult]:
    base = record["base_version"]
    rule = "upsert" if target.entry.merge == "replace" and target.win else target.entry.merge
    if base is None or rule != "upsert":
        return part, result
    kept = placed(read_facts(world.data, target.dataset_id, base), target.dataset_id, base)
    if world.is_private(target.dataset_id):
        kept = records_of_version(world, target.dataset_id, base, kept, record.get("records"))
    if target.artifact not in kept:
        return part, result
    table = open_table(world, target.dataset_id, kept[target.artifact], room(scratch, "base"))
    newer = says_newer(msgspec.json.encode(record["sources"]).decode())
    merged = merge_tables(
        world.merge, target, (table, ""), (part, ""), result, room(scratch, "merged"), newer=newer
    )
    return scratch / "merged" / target.artifact, merged
