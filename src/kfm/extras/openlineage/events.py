"""How runs go, as OpenLineage has it, and what jobs make of versions."""

import msgspec
from msgspec.structs import replace

from kfm.catalog.lineage.openlineage import About, EventType, Output, completed, event
from kfm.evidence.events import about_run, cleaned
from kfm.evidence.journal import asked_of, done_of, fold
from kfm.evidence.lineage import known_lineage
from kfm.evidence.run_files import run_journal
from kfm.model import SAID_NO, Assembled, Json, LedgerRow, denial_codes, placeless
from kfm.world.announcement import RunNews
from kfm.world.world import World

__all__ = ["made_events", "run_event"]


def run_event(world: World, news: RunNews) -> tuple[EventType, bytes] | None:
    """What is told of a moment of a run; None: nothing, for what it made is told instead."""
    row = news.run
    records = run_journal(world, row)
    veil = world.veil(row.dataset_id)
    asked = asked_of(records, veil)
    spec = _spec_now(world, row) if asked is None else asked.spec or None
    about = about_run(world, row, spec)
    if not about.closed and world.is_withheld(row.dataset_id):  # until people agree to less
        about = replace(about, closed=True, inputs=())
    if news.moment == "began":
        return "START", cleaned(world, event("START", row.timestamp, about))
    judged = fold(records).get("assemble")
    if news.moment == "goes on":
        at = judged.ts if judged is not None else row.timestamp
        # what ended before it was judged never went on
        made = row.version_id is not None or row.state == "PROPOSED"
        return ("RUNNING", cleaned(world, event("RUNNING", at, about))) if made else None
    kind = _ending(row)
    if kind is None:
        return None
    found = done_of(records, "assemble", veil, Assembled) if kind == "FAIL" else None
    denied = found.verdicts if found is not None and row.state == "REJECTED" else ()
    error = "" if kind == "COMPLETE" else _why(world, row)
    ended = row.ended_at or row.timestamp
    return kind, cleaned(world, event(kind, ended, about, error=error, verdicts=denied))


def made_events(world: World, run_id: str) -> list[tuple[EventType, bytes]]:
    """What is told of a job that made something of a version; nothing of one that was erased."""
    record = world.store.read(lambda tx: known_lineage(tx, run_id))
    if record is None:
        return []
    about = About(
        run_id=record.run_id,
        dataset_id=record.dataset_id,
        updater_id=f"{record.updater_id}.{record.dataset_id}",
        updater_version=record.updater_version,
        inputs=record.inputs,
        spec=None,
        closed=world.is_withheld(record.dataset_id),
    )
    none = Output(schema=(), profile={}, artifacts={}, verdicts=(), columns=())
    told = completed(record, record.started_at, about, none)
    return [
        ("START", cleaned(world, event("START", record.started_at, about))),
        ("COMPLETE", cleaned(world, told)),
    ]


def _ending(row: LedgerRow) -> EventType | None:
    """How it ended, in their words; None: what it made is official, which is told of that."""
    if row.state == "REJECTED":
        return "ABORT" if SAID_NO in denial_codes(row.reason) else "FAIL"
    endings: dict[str, EventType] = {"FAILED": "FAIL", "SUPERSEDED": "ABORT", "NOOP": "COMPLETE"}
    return endings.get(row.state)


def _why(world: World, row: LedgerRow) -> str:
    """The reason: of what was denied its codes, without a person's name and words; of a private
    dataset nothing but that.
    """
    if row.state == "REJECTED":
        return "; ".join(denial_codes(row.reason))
    return row.state if world.is_withheld(row.dataset_id) else placeless(row.reason) or row.state


def _spec_now(world: World, row: LedgerRow) -> Json | None:
    """Of a run that failed before it was planned: the entry as it is."""
    entry = world.registry(row.dataset_id)
    return {"registry": msgspec.to_builtins(entry)} if entry is not None else None
