"""collect: what the parts of a backfill come to together, as the journal tells it of any
transform.
"""

from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from kfm.connectors.base import Books, InputFile, TransformResult
from kfm.connectors.operations import Collect
from kfm.evidence.captures import render_raw
from kfm.evidence.journal import Journal
from kfm.model import Column, Generation, PartDone, Pinned, Pins, Stored
from kfm.release.by_rule import open_table, store_table
from kfm.run.staged_parts import AGAIN, table_path
from kfm.run.tables import Parts, base_table
from kfm.run.work import Reached, Work
from kfm.zones.base import Zone, room

__all__ = ["collect"]


def collect(
    work: Work, wal: Journal, head: Generation, pins: Pins, parts: Sequence[PartDone]
) -> Generator[Reached, None, Parts]:
    """The parts on the base they were pinned with: merged into one table, or each in the place of
    its partition.
    """
    world, target = work.world, work.target
    done = _kept_part(world.data, wal)
    if done is None:
        done = _collected(work, wal, pins, parts)
        yield Reached.PARTS_COLLECTED
        wal.done("EXECUTE", "transform", done)
        wal.intend("EXECUTE", "assemble")
        yield Reached.PART_DONE
    render_raw(world.data, target.dataset_id, world.publish(work.log).update_metadata)
    own = {target.artifact: done.stored} if done.stored else _own(world.data, pins)
    return Parts(wal, head, own, done.result, placed=True)


def _kept_part(data: Zone, wal: Journal) -> PartDone | None:
    """What an earlier attempt collected, if its bytes are still what the journal says."""
    done = wal.payload("transform", PartDone)
    if done is None or not done.stored:
        return done
    return done if data.holds(done.stored["from"], done.stored["digest"]) else None


def _own(data: Zone, pins: Pins) -> Stored:
    """Each part in the place of its partition; of several windows of one the last counts."""
    own: Stored = {
        p.artifact: {"digest": p.part, "rows": p.rows, "from": table_path(pins.dataset_id, p)}
        for p in pins.parts
    }
    for table in own.values():
        table["size"] = data.require(table["from"], table["digest"], AGAIN).size
    return own


def _collected(work: Work, wal: Journal, pins: Pins, parts: Sequence[PartDone]) -> PartDone:
    """What the parts come to together, as the journal tells it of any transform."""
    world, entry, results = work.world, work.target.entry, [p.result for p in parts]
    books, stored, result = _sum(results), None, results[-1]
    if entry.merge != "partition":
        with world.data.scratch() as scratch:
            merged = _merged(work, wal, pins, results, scratch)
            table = scratch / "merged" / work.target.artifact
            stored = store_table(
                world, work, pins.dataset_id, table, seal=False, scratch=scratch, rows=merged.rows
            )
        dropped = {
            k: books.dropped.get(k, 0) + merged.books.dropped.get(k, 0)
            for k in {**books.dropped, **merged.books.dropped}
        }
        written, unchanged = merged.books.written, merged.books.unchanged
        books = msgspec.structs.replace(
            books, written=written, unchanged=unchanged, dropped=dropped
        )
        result = msgspec.structs.replace(
            merged, key=result.key, invalid_geometries=sum(r.invalid_geometries for r in results)
        )
    result = msgspec.structs.replace(result, books=books)
    companions = {n: c for p in parts for n, c in (p.companions or {}).items()}
    if len(parts) > 1 and entry.merge != "partition":
        companions = {n: c for n, c in companions.items() if n in result.files}
    return PartDone(
        part=stored["digest"] if stored else str(wal.run.part),
        stored=stored,
        artifact=work.target.artifact,
        books=books,
        schema=result.schema,
        content_id=result.content_id,
        bbox=result.bbox,
        warnings=tuple(dict.fromkeys(w for r in (*results, result) for w in r.warnings)),
        max_quarantined=entry.max_quarantined,
        result=result,
        companions=companions,
        unconfined=next(
            (r.unconfined for r in (*results, result) if r.unconfined is not UNSET), UNSET
        ),
    )


def _merged(
    work: Work, wal: Journal, pins: Pins, results: Sequence[TransformResult], scratch: Path
) -> TransformResult:
    """One child process for all parts, so that they are read one after the other."""
    world, entry = work.world, work.target.entry
    base = wal.require("pin", Pinned).base_version
    kept = (
        base_table(world, work.target, base)
        if entry.merge == "upsert" or pins.parts[0].window
        else None
    )
    inputs = []
    if kept is not None:
        opened = open_table(world, pins.dataset_id, kept, scratch)
        inputs.append(InputFile(source_id="base", path=str(opened), digest=kept["digest"]))
    for part in pins.parts:
        path = open_table(
            world,
            pins.dataset_id,
            {"from": table_path(pins.dataset_id, part), "digest": part.part},
            scratch,
        )
        inputs.append(InputFile(source_id="part", path=str(path.absolute()), digest=part.part))
    whole = [r.books.quarantined == 0 for r in results]
    job = Collect(
        dataset_id=pins.dataset_id,
        source_kind=entry.source.kind,
        inputs=tuple(inputs),
        windows=tuple(_window(p.window) if ok else ("", "") for p, ok in zip(pins.parts, whole)),
        schema=_columns(results),
        business_key=entry.business_key or results[-1].key,
        time_column=entry.source.time_column,
        artifact=work.target.artifact,
    )
    return msgspec.structs.replace(world.merge(job, room(scratch, "merged"), None), steps=())


def _window(text: str) -> tuple[str, str]:
    since, _, until = text.partition("/")
    return since, until


def _columns(results: Sequence[TransformResult]) -> tuple[Column, ...]:
    """The columns of all parts in the order of their first, each as the last part has it."""
    return tuple({c.name: c for r in results for c in r.schema}.values())


def _sum(results: Sequence[TransformResult]) -> Books:
    dropped: dict[str, int] = {}
    for r in results:
        for rule, count in r.books.dropped.items():
            dropped[rule] = dropped.get(rule, 0) + count
    counts = {
        k: sum(getattr(r.books, k) for r in results)
        for k in ("read", "written", "unchanged", "quarantined")
    }
    return Books(dropped=dropped, **counts)
