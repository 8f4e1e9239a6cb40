"""part: capture, check, plan, transform. Intent, effect, read back, DONE; a part that is there
already is kept.
"""

from collections.abc import Generator
from functools import partial
from pathlib import Path

import msgspec
from msgspec import UNSET

from kfm.connectors.base import TransformResult
from kfm.connectors.operations import Join, Read
from kfm.evidence.captures import capture_files, parse_checksums, render_raw
from kfm.evidence.journal import Journal
from kfm.keys.commitments import SEALED
from kfm.model import Captured as CaptureKept
from kfm.model import (
    IntegrityError,
    Json,
    LedgerRow,
    PartDone,
    Replays,
    Stored,
    believable,
    with_stamp,
)
from kfm.model.paths import capture_folder, part_folder
from kfm.quarantine.check import check_input
from kfm.quarantine.decisions import is_lifted
from kfm.release.transform_inputs import known_columns, known_words, transform_job
from kfm.run.look import Captured
from kfm.run.plan import journal_plan
from kfm.run.work import Reached, Work
from kfm.store.base import Tx
from kfm.world.publisher.base import Publisher
from kfm.zones.base import Zone, hash_file, room

__all__ = ["make_part", "part_fields"]


def make_part(
    work: Work, wal: Journal, captured: Captured, scratch: Path
) -> Generator[Reached, None, TransformResult]:
    """capture, check, then the PLAN and its transform: intent, effect, read back, DONE."""
    # The time of the run that captured it; a resumed run has the same row. Merging asks for it too,
    # also where the part is there already.
    captured_by = work.target.again.row if work.target.again is not None else wal.run
    work.target = target = msgspec.structs.replace(work.target, captured_at=captured_by.timestamp)
    world = work.world
    kept = _kept_part(work, wal)
    if kept is not None:
        return kept
    if target.connector is None:
        world.prepare(world.is_private(target.dataset_id))
    if wal.state("capture") != "DONE" or not _capture_intact(work, captured):
        _store_capture(work, captured, scratch)
        yield Reached.CAPTURE_STORED
        wal.done("EXECUTE", "capture", CaptureKept(capture_id=captured.capture_id))
    wal.intend("EXECUTE", "check")
    if captured.refused is not None:
        raise captured.refused
    yield Reached.CHECK_INTENDED
    if is_lifted(world, target, captured.input_hash):
        work.target = target = msgspec.structs.replace(target, max_quarantined=1.0)
    job = _transform_job(work, captured, wal.run.base_version)
    work.log.say("input.validating", stage="validate", capture_id=captured.capture_id)
    out, told = room(scratch, "out"), partial(_progress, work, _rows_before(work))
    result = check_input(world, target, work.log, job, wal.run.base_version, out, told)
    hashed = journal_plan(wal, target, captured)
    work.log.say("plan.journaled", stage="transform", plan=hashed)
    yield Reached.TRANSFORM_INTENDED
    part = _store_part(work, wal, result, out, captured)
    yield Reached.PART_STORED
    wal.done("EXECUTE", "transform", part)
    if target.staged:
        return result
    fields = part_fields(part, wal.run) | (_untold(work, part) if work.private else {})
    wal.commit(lambda tx, page: page.move(tx, "CLAIMED", **fields))
    yield Reached.PART_DONE
    return result


def _untold(work: Work, part: PartDone) -> Json:
    """What the ledger says of private records: that there are some. Their counts are in the
    journal, which is sealed.
    """
    return {
        "rows_read": 0,
        "rows_written": 0,
        "content_id": work.world.stand_in(work.target.dataset_id, part.content_id),
    }


def _rows_before(work: Work) -> Json:
    """How many rows the official version was made of, where the same was asked for and somebody
    watches: about as many will come.
    """
    if work.world.echo is None or work.private:
        return {}

    def read(tx: Tx) -> int:
        head = tx.index.last_generation(work.target.dataset_id)
        made = (
            tx.runs.maker_of(work.target.dataset_id, head.version_id)
            if head is not None and head.version_id is not None
            else None
        )
        same = made is not None and made.partition == work.target.partition
        return made.rows_read if made is not None and same and made.win == work.target.win else 0

    found = work.world.store.read(read)
    return {"of": found, "about": True} if found else {}


def _progress(work: Work, before: Json, event: Json) -> None:
    if event.get("op") == "log" and event.get("event") != "child.start" and not work.private:
        work.log.say(f"connector.{event.get('event')}", stage="transform", said=event.get("fields"))
    if work.world.echo is not None:
        event = {} if work.private else event
        work.world.echo(
            {
                "event": "step.progress",
                "stage": "transform",
                "dataset_id": work.target.dataset_id,
                **event,
                **(before if event.get("op") == "progress" else {}),
            }
        )


def _kept_part(work: Work, wal: Journal) -> TransformResult | None:
    """The part of an earlier attempt, if its bytes are still what the journal says."""
    part = wal.payload("transform", PartDone)
    if part is None:
        return None
    folder = part_folder(work.target.dataset_id, part.part)
    if not work.world.data.holds(f"{folder}/{part.artifact}", part.part):
        return None
    for made in (part.companions or {}).values():
        if not work.world.data.holds(made["from"], made["digest"]):
            return None
    work.log.say("step.kept", stage="transform", step_id="transform", part=part.part)
    return part.result


def _capture_intact(work: Work, captured: Captured) -> bool:
    folder = capture_folder(work.target.dataset_id, captured.capture_id)
    if not work.world.data.exists(f"{folder}/checksums.sha256"):
        return False
    listed = parse_checksums(work.world.data.read(f"{folder}/checksums.sha256"))
    return all(work.world.data.holds(f"{folder}/{name}", digest) for name, digest in listed.items())


def _store_capture(work: Work, captured: Captured, scratch: Path) -> None:
    files, sources = captured.files, captured.sources
    if work.private:
        folder = capture_folder(work.target.dataset_id, captured.capture_id)
        # of a run that was killed, or forced
        there = {name: work.world.data.local(f"{folder}/{name}{SEALED}") for name in files}
        files = {
            name + SEALED: _sealed(work, path, scratch, there[name]) for name, path in files.items()
        }
        kept = [hash_file(path) for path in files.values()]
        sources = tuple(
            {"source_id": s["source_id"], "digest": k.digest, "size": k.size}
            for s, k in zip(sources, kept)
        )
    publisher = work.world.publish(work.log)
    expected = {name: s["digest"] for name, s in zip(files, sources)}
    for path, content in capture_files(
        work.target.dataset_id, captured.capture_id, files, sources
    ).items():
        _written(
            work.world.data,
            path,
            publisher.write_file(path, content),
            expected.get(path.rpartition("/")[2]),
        )
    # thousands of captures would list each other; the assembling run lists them once
    if not work.target.staged:
        render_raw(work.world.data, work.target.dataset_id, publisher.update_metadata)


def _sealed(work: Work, path: Path, scratch: Path, like: Path | None = None) -> Path:
    """`path` sealed with the key of this dataset; a key that was lost is not quietly replaced."""
    world, dataset_id = work.world, work.target.dataset_id
    assert world.vaults is not None
    world.require_key(dataset_id)
    into = scratch / (path.name + SEALED)
    world.vaults.seal(dataset_id, path, into, like)
    return into


def _transform_job(work: Work, captured: Captured, base: str | None) -> Read | Join:
    folder = capture_folder(work.target.dataset_id, captured.capture_id)
    stored = {
        name: path if work.private else work.world.data.local(f"{folder}/{name}")
        for name, path in captured.files.items()
    }
    inputs = {
        s["source_id"]: (stored[n], s["digest"]) for n, s in zip(captured.files, captured.sources)
    }
    job = transform_job(work.target, inputs, known_columns(work.world, work.target, base))
    lifted = work.target.max_quarantined == 1.0  # a person saw this very capture
    if lifted or isinstance(job, Join):
        return job
    words = known_words(work.world.data, work.target, base)
    return msgspec.structs.replace(job, known_words=words)


def _store_part(
    work: Work, wal: Journal, result: TransformResult, out: Path, captured: Captured
) -> PartDone:
    world, target = work.world, work.target
    publisher = world.publish(work.log)
    made = _sealed(work, out / result.artifact, out) if work.private else out / result.artifact
    digest = hash_file(made).digest
    path = f"{part_folder(target.dataset_id, digest)}/{made.name}"
    work.make_room(path, digest)
    _written(world.data, path, publisher.write_file(path, made), digest)
    companions = _store_companions(work, result, out, publisher)
    work.log.say(
        "transform.normalise",
        stage="transform",
        input=wal.run.input_hash,
        output=result.content_id,
        rows=result.books.read,
    )
    work.log.say(
        "transform.convert",
        stage="transform",
        input=result.content_id,
        output=digest,
        rows=result.books.written,
    )
    return PartDone(
        part=digest,
        artifact=made.name,
        books=result.books,
        schema=result.schema,
        content_id=result.content_id,
        bbox=result.bbox,
        warnings=(*captured.warnings, *_disbelieved(result, wal.run), *_placed(result)),
        max_quarantined=(
            target.entry.max_quarantined
            if target.max_quarantined is None
            else target.max_quarantined
        ),
        result=result,
        companions=companions,
        unconfined=result.unconfined,
        replays=(
            Replays(run_id=again.row.run_id, onto=again.onto)
            if (again := target.again) and again.only
            else UNSET
        ),
    )


def _store_companions(
    work: Work, result: TransformResult, out: Path, publisher: Publisher
) -> Stored:
    """The files that belong to the table, beside it."""
    found = {}
    for name in result.files:
        stored = hash_file(out / name)
        path = f"{part_folder(work.target.dataset_id, stored.digest)}/{name}"
        work.make_room(path, stored.digest)
        _written(work.world.data, path, publisher.write_file(path, out / name), stored.digest)
        found[name] = {"digest": stored.digest, "size": stored.size, "from": path}
    return found


def _written(data: Zone, path: str, got: str, expected: str | None = None) -> None:
    """Read after write: a sink that loses or changes bytes is caught before DONE."""
    if (expected is not None and got != expected) or not data.exists(path):
        raise IntegrityError(
            f"{path} is not there after it was written.",
            expected=expected or got,
            remedy="Check the disk, then run again.",
        )


def _placed(result: TransformResult) -> list[str]:
    """What a transform warned of, with the first line it is about where one is known."""
    lines = {} if result.lines is UNSET else result.lines
    return [
        f"{said.removesuffix('.')}: {lines[said]} for one." if said in lines else said
        for said in result.warnings
    ]


def _disbelieved(result: TransformResult, row: LedgerRow) -> tuple[str, ...]:
    stamp = "" if result.stamp is UNSET else result.stamp
    if not stamp or believable(stamp, row.timestamp):
        return ()
    return (
        (
            f"Upstream says that its answer was made at {stamp}, which had not come when it was"
            " captured; that is not believed."
        ),
    )


def part_fields(part: PartDone, row: LedgerRow) -> Json:
    """What the ledger says of a part."""
    stamp = part.result.stamp
    said = (
        {"source_metadata": with_stamp(row.source_metadata, stamp)}
        if stamp and believable(stamp, row.timestamp)
        else {}
    )
    return said | {
        "part": part.part,
        "rows_read": part.books.read,
        "rows_written": part.books.written,
        "content_id": part.content_id,
    }
