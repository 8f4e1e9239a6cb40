"""publish: everything of a version before ★: its folder, its lineage and outbox, approvals, receipts."""

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from kfm.evidence.captures import checksums
from kfm.evidence.events import complete_event
from kfm.evidence.journal import Journal, Page
from kfm.evidence.lineage import indexed, lineage_files, lineage_of
from kfm.evidence.proposal import load, record_approvals
from kfm.evidence.receipts import seal
from kfm.judge.intact import check_version_folder
from kfm.model import (
    Appending,
    Assembled,
    Candidate,
    IntegrityError,
    LedgerRow,
    LineageKept,
    VersionKept,
    canonical,
    is_record,
)
from kfm.model.paths import announcements_folder, proposal_path, run_path, version_folder
from kfm.release.by_rule import keep_precise, open_table
from kfm.run.work import Reached
from kfm.store.base import Tx
from kfm.world.run_log import RunLog
from kfm.world.world import World

__all__ = ["Sealed", "publish"]


class Sealed(NamedTuple):
    """Digests of what the next generation will name."""

    receipts: str
    approvals: str
    terms: str


def publish(
    world: World, wal: Journal, log: RunLog, candidate: Candidate
) -> Generator[Reached, None, Sealed]:
    """UPSERT the version, then lineage and outbox in one commit, then the receipts: all before
    ★.
    """
    row, channel = wal.run, world.channel(wal.run.dataset_id)
    # where it will be announced, once ★ has happened
    world.root.local(f"{announcements_folder(row.dataset_id)}/{row.intent}")
    if candidate.precise:
        keep_precise(world, row.dataset_id, str(row.version_id), candidate.precise)
    _write_version(world, row, log, candidate)
    yield Reached.VERSION_WRITTEN
    spec = wal.asked.spec or None
    record = lineage_of(world, row, spec, candidate.digests)
    judged = wal.payload("assemble", Assembled)
    verdicts = judged.verdicts if judged is not None else ()
    event = complete_event(world, record, row, spec, candidate, verdicts)
    for name, content in {**lineage_files(record), "openlineage.json": event}.items():
        path = run_path(row.dataset_id, row.run_id, name)
        if not world.data.exists(path):  # an earlier attempt's stands, and another kfm's
            world.publish(log).write_file(path, content)
    yield Reached.CYPHER_WRITTEN
    told = indexed(record)
    wal.done("UPSERT", "version", VersionKept(version_id=row.version_id))
    wal.done("LINEAGE", "lineage", LineageKept(edges=len(told.edges)))
    payload = canonical.dumps({"version_id": row.version_id, "assets": candidate.digests}).decode()

    def rows(tx: Tx, page: Page) -> None:
        page.make(
            "LINEAGE",
            "channel",
            "IN_PROGRESS",
            Appending(generation=row.intent, path=channel.path(int(row.intent or 0))),
        )
        tx.lineage.put(told)
        tx.outbox.put(row.run_id, row.dataset_id, int(row.intent or 0), payload)
        tx.deliveries.put(row.run_id, row.dataset_id, int(row.intent or 0), world.receivers.names())

    wal.commit(rows)
    yield Reached.LINEAGE
    approvals, terms = record_approvals(world, row)
    yield Reached.APPROVALS_RECORDED
    receipts = seal(world, row, wal.records)
    yield Reached.RECEIPTS_SEALED
    return Sealed(receipts, approvals, terms)


def _write_version(world: World, row: LedgerRow, log: RunLog, candidate: Candidate) -> None:
    """Artifacts and records first, `checksums.sha256` last: a folder without it is not a
    version.
    """
    data = world.data
    folder = version_folder(row.dataset_id, row.version_id)
    artifacts = candidate.digests
    if data.exists(f"{folder}/checksums.sha256"):
        check_version_folder(world, row, artifacts)
        return
    proposal, _ = load(world, row)
    records = {path: digest for path, digest in proposal.files.items() if is_record(path)}
    for path, digest in records.items():
        left = data.stat(f"{folder}/{path}")
        if left is not None and left.digest != digest:
            data.remove(f"{folder}/{path}")  # of a run that never got as far as its checksums
    publisher = world.publish(log)
    for path, digest in (artifacts | records).items():
        target = f"{folder}/{path}"
        if path in artifacts and candidate.artifacts[path]["from"] == target:
            continue
        with _content(world, row, candidate, path) as content:
            got = publisher.write_file(target, content)
        if got != digest:
            raise IntegrityError(
                f"{target} is damaged.", expected=digest, remedy="Run again with --force."
            )
    publisher.write_file(f"{folder}/checksums.sha256", checksums(artifacts | records))
    check_version_folder(world, row, artifacts)
    log.say("version.written", stage="publish", version_id=row.version_id, artifacts=len(artifacts))


@contextlib.contextmanager
def _content(
    world: World, row: LedgerRow, candidate: Candidate, path: str
) -> Iterator[bytes | Path]:
    """An artifact or record of the candidate as it becomes official."""
    artifact = candidate.artifacts.get(path)
    if artifact is None:
        yield world.kept(proposal_path(row.dataset_id, row.run_id, path))
    elif "at_rest" not in artifact:
        yield world.data.local(artifact["from"])
    else:
        with world.data.scratch() as scratch:
            yield open_table(world, row.dataset_id, artifact, scratch)
