"""lineage: where a version comes from, written down beside its run before ★, and read again from
there.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from kfm.catalog.lineage.columns import ColumnLineage, columns_of
from kfm.catalog.lineage.cypher import cypher
from kfm.catalog.lineage.graph import edges_of, version_name
from kfm.catalog.lineage.record import Facts, LineageRecord, read, record_of
from kfm.evidence.version_records import read_facts, version_listing
from kfm.model import Column, IntegrityError, Json, LedgerRow
from kfm.model.paths import run_path
from kfm.store.base import Tx
from kfm.store.lineage import Indexed
from kfm.world.world import World

__all__ = [
    "LINEAGE",
    "column_lineage",
    "indexed",
    "known_lineage",
    "lineage_files",
    "lineage_of",
    "made_by",
]

LINEAGE = "lineage.json"  # in the folder of its run


def lineage_of(
    world: World, row: LedgerRow, spec: Json | None, artifacts: Mapping[str, str]
) -> LineageRecord:
    """As an earlier attempt wrote it down; else from what the run's evidence says."""
    path = run_path(row.dataset_id, row.run_id, LINEAGE)
    if world.data.exists(path):
        try:
            return read(world.data.read(path))
        except msgspec.DecodeError:
            pass  # damaged, which is said where its receipt names it
    return record_of(world.stand_in, row, Facts(spec, artifacts, _records(world, row)))


def _records(world: World, row: LedgerRow) -> dict[str, str]:
    """The records of the version a run made, path -> digest; none where retention removed it."""
    try:
        return version_listing(world.data, row.dataset_id, str(row.version_id))[1]
    except (FileNotFoundError, UnicodeDecodeError, ValueError):
        return {}


def lineage_files(record: LineageRecord) -> dict[str, bytes]:
    """What lies in the folder of the run: the record, and how other tools want to be told."""
    return {LINEAGE: record.written() + b"\n", "lineage.cypher": cypher(record).encode()}


def indexed(record: LineageRecord) -> Indexed:
    """The record as the index holds it."""
    return Indexed(
        run_id=record.run_id,
        dataset_id=record.dataset_id,
        generation=record.generation,
        record=record.written().decode(),
        at_ms=int(dt.datetime.fromisoformat(record.started_at).timestamp() * 1000),
        edges=edges_of(record, parts=False),
    )


def column_lineage(
    world: World, record: LineageRecord, spec: Json | None, schema: Sequence[Column]
) -> tuple[ColumnLineage, ...]:
    """Where the columns of a version come from; a commitment stands for a name that nobody may
    know. Nothing where a reader has to have been granted it.
    """
    if record.owed:
        return ()
    behind: dict[str, list[str]] = {}
    for used in record.inputs:
        if used.version:
            dataset_id, _, version_id = used.version.partition("@")
            with suppress(FileNotFoundError, IntegrityError):  # retention may have removed it
                facts = read_facts(world.data, dataset_id, version_id)
                behind[used.uri] = [c.name for c in facts.schema]

    def hidden(name: str) -> str:
        return world.stand_in(record.dataset_id, name)

    return columns_of(spec, schema, record.inputs, behind, hidden)


def known_lineage(tx: Tx, run_id: str) -> LineageRecord | None:
    """What a run used and made, as the index has it: the one way to ask for that. None: it became
    nothing official, or was erased.
    """
    raw = tx.lineage.get(run_id)
    return None if raw is None else read(raw)


def made_by(tx: Tx, version: str) -> LineageRecord | None:
    """Of the newest run that made DATASET@VERSION; None: no run did, or it is not known."""
    node = tx.lineage.node(version_name(version))
    edges = tx.lineage.into([node]) if node is not None else []
    runs = sorted((e.at_ms, e.run_id) for e in edges if e.kind == "GENERATED")
    return known_lineage(tx, runs[-1][1]) if runs else None
