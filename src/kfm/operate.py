"""operate: what people do to a channel. Each act appends one generation and leaves every version where it is."""

from pathlib import Path
from typing import Any

from kfm.channel import withdrawn_inside
from kfm.errors import Denied, IntegrityError, UsageError
from kfm.model import ids
from kfm.model.channel import GenerationPredicate
from kfm.model.ledger import Generation
from kfm.projection import project
from kfm.raw import checksums, parse_checksums
from kfm.world import World

__all__ = ["rollback", "void", "withdraw"]


def void(world: World, dataset_id: str, number: int, token: str, reason: str) -> bool:
    """Append a generation that repeats the version before it, so that nobody else can have its number."""
    channel = world.channel(dataset_id)
    before = channel.predicate(number - 1) if number > 1 else None
    return channel.append(
        GenerationPredicate(
            dataset_id=dataset_id,
            generation=number,
            kind="void",
            version_id=before.version_id if before else None,
            version_digest=before.version_digest if before else None,
            receipts_digest=None,
            run_id="",
            token=token,
            prev=ids.digest(world.data.read(channel.path(number - 1))) if number > 1 else None,
            reason=reason,
        )
    )


def rollback(world: World, dataset_id: str, version_id: str | None, reason: str) -> GenerationPredicate:
    """Append a generation that points at an earlier version and holds what it left."""
    return _operate(world, dataset_id, "rollback", lambda head: _rollback_to(world, dataset_id, head, version_id), reason)


def withdraw(world: World, dataset_id: str, partition: str, reason: str) -> GenerationPredicate:
    """Append a generation without this content that itself carries the rule keeping it out for ever."""
    return _operate(world, dataset_id, "withdraw", lambda head: _without(world, dataset_id, head, partition), reason)


def _operate(world: World, dataset_id: str, kind: Any, choose: Any, reason: str) -> GenerationPredicate:
    channel = world.channel(dataset_id)
    while True:
        head: Generation = world.store.transaction(lambda tx: channel.head(tx))
        version_id, full, suppress = choose(head)
        predicate = GenerationPredicate(
            dataset_id=dataset_id,
            generation=head.generation + 1,
            kind=kind,
            version_id=version_id,
            version_digest=full,
            receipts_digest=None,
            run_id="",
            token="0.0",
            prev=head.file_digest or None,
            reason=reason,
            suppress=suppress,
        )
        if channel.append(predicate):  # else a promote took the number: look again
            project(world, dataset_id)
            return predicate


def _rollback_to(world: World, dataset_id: str, head: Generation, version_id: str | None) -> tuple[str, str, list[dict[str, Any]]]:
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    earlier = [g for g in rows if g.version_id is not None and g.version_id != head.version_id and g.kind != "withdraw"]
    if version_id is not None:
        earlier = [g for g in rows if g.version_id == version_id]
    if not earlier or (version_id is not None and version_id == head.version_id):
        raise UsageError(
            f"{dataset_id} has no {'such' if version_id else 'earlier'} version to go back to.",
            expected="an earlier official version",
            remedy=f"`kfm runs {dataset_id}` lists what there is.",
        )
    found = earlier[-1]
    gone = withdrawn_inside(head, found)
    if gone is not None:
        raise Denied(
            f"{found.version_id} holds what generation {gone} withdrew.", expected="a version that may be shown", remedy="Choose another."
        )
    folder = f"processed/{dataset_id}/{found.version_id}"
    for path, digest in parse_checksums(world.data.read(f"{folder}/checksums.sha256")).items():
        stored = world.data.stat(f"{folder}/{path}")
        if stored is None or stored.digest != digest:
            raise IntegrityError(
                f"{folder}/{path} is damaged.", expected=digest, remedy="Restore it from a backup before going back to it."
            )
    return str(found.version_id), str(found.version_digest), []


def _without(world: World, dataset_id: str, head: Generation, partition: str) -> tuple[str | None, str | None, list[dict[str, Any]]]:
    if partition not in head.contents or head.version_id is None:
        raise UsageError(f"{dataset_id} has nothing official for partition {partition!r}.", remedy="`kfm status` shows what is official.")
    rule = [{"content": partition, "mark": head.contents[partition], "version_id": head.version_id}]
    base = f"processed/{dataset_id}/{head.version_id}"
    left = {
        p: d for p, d in parse_checksums(world.data.read(f"{base}/checksums.sha256")).items() if p != f"{partition or dataset_id}.parquet"
    }
    if not left:
        return None, None, rule
    row = world.store.read(lambda tx: tx.runs.get(head.run_id)) if head.run_id else None
    full = ids.version_digest(left, row.transform_hash if row else "", row.updater_version if row else "")
    folder = f"processed/{dataset_id}/{ids.version_id(full)}"
    files: dict[str, bytes | Path] = {f"{folder}/{p}": world.data.local(f"{base}/{p}") for p in left}
    world.data.create_all(files)
    world.data.create(f"{folder}/checksums.sha256", checksums(left))
    return str(ids.version_id(full)), full, rule
