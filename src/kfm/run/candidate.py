"""candidate: the tables as a candidate, with the records of its version, and what the ledger says
of it.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from kfm.connectors.base import TransformResult
from kfm.evidence.journal import Journal
from kfm.evidence.version_records import origin_of, prov_record, version_records
from kfm.model import (
    SAMPLE,
    Candidate,
    Denied,
    IntegrityError,
    Json,
    LedgerRow,
    Pinned,
    ids,
    is_assembly,
    is_older,
    origins_of,
    stamps_of,
)
from kfm.model.paths import proposal_path
from kfm.release.by_rule import is_withheld, open_table
from kfm.run.tables import Tables, measured
from kfm.run.work import Work
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import room

__all__ = ["facts_of", "make_candidate", "row_of", "write_candidate"]


def make_candidate(work: Work, wal: Journal, tables: Tables) -> Candidate:
    """The tables on the base that the run pinned."""
    world, pin = work.world, wal.require("pin", Pinned)
    candidate = _candidate(work, wal, tables, pin)
    said, official = stamps_of(wal.run.source_metadata)
    older = is_older(said, official) and not is_assembly(wal.run) and work.target.again is None
    return msgspec.structs.replace(
        candidate,
        older=(said, official) if older else UNSET,
        change=measured(world, work.target, tables, pin.base_version) or UNSET,
        restricted=_restricted(world, candidate) or UNSET,
    )


def row_of(world: World, run: LedgerRow, candidate: Candidate, tables: Tables) -> LedgerRow:
    """The row of a run with its candidate. Of records that were not released it names a commitment
    to their content.
    """
    content = candidate.content_id
    return msgspec.structs.replace(
        run,
        version_id=candidate.version_id,
        version_digest=candidate.version_digest,
        content_id=(
            content
            if candidate.released is not None
            else world.stand_in(candidate.dataset_id, content)
        ),
        pinned=candidate.base_generation,
        rows_written=max(0, run.rows_written - tables.withdrawn),
    )


def _candidate(work: Work, wal: Journal, tables: Tables, pin: Pinned) -> Candidate:
    target, release = work.target, work.target.entry.release
    base = origin_of(work.world.data, target.dataset_id, pin.base_version)
    sources = msgspec.json.decode(wal.run.source_metadata)
    _check_origin(target.dataset_id, pin.base_version, base, origins_of(sources))
    origin = origins_of(sources, base if target.entry.merge != "replace" else ())
    return Candidate(
        run_id=wal.run.run_id,
        dataset_id=target.dataset_id,
        proposal=pin.proposal,
        base_generation=pin.base_generation,
        base_version=pin.base_version,
        transform_hash=target.transform_hash,
        updater_version=target.pipeline_version,
        spec_hash=target.spec_hash,
        policy_digest=work.world.policy_digest,
        precise=tables.precise,
        records=pin.records or UNSET,
        books=tables.books,
        released=tables.released,
        h3_resolution=release.h3_resolution if release is not None else None,
        origin=tuple(origin) or UNSET,
        **facts_of(target, tables.result, tables.artifacts),
    )


def facts_of(target: Target, result: TransformResult, artifacts: Mapping[str, Json]) -> Json:
    """The members of a candidate that follow from its table."""
    full = ids.version_digest(
        {p: a["digest"] for p, a in artifacts.items()},
        target.transform_hash,
        target.pipeline_version,
    )
    time = result.profile.get(target.entry.source.time_column or "")
    return {
        "version_id": ids.version_id(full),
        "version_digest": full,
        "artifacts": dict(artifacts),
        "content_id": result.content_id,
        "schema": result.schema,
        "profile": result.profile,
        "bbox": result.bbox,
        "interval": (time.min, time.max) if time is not None and time.min and time.max else None,
        "steps": result.steps,
        "invalid_geometries": result.invalid_geometries,
    }


def _check_origin(
    dataset_id: str, base_version: str | None, base: Sequence[str], own: Sequence[str]
) -> None:
    """Raise `Denied` where invented data are official and something else comes, whatever kfm.yml
    says meanwhile.
    """
    if base_version is not None and SAMPLE in base and SAMPLE not in own:
        raise Denied(
            f"What is official of {dataset_id} is invented, and this is not.",
            expected="invented and real data in channels of their own",
            remedy="Make a workspace for real data beside this one: `kfm init DIR`.",
        )


def _restricted(world: World, candidate: Candidate) -> dict[str, dict[str, int]]:
    """Column -> value -> records of the candidate that say of themselves that they are not for
    everybody.
    """
    from kfm.diff.access_columns import marked, speaks_of_access

    columns = speaks_of_access(c.name for c in candidate.schema)
    if not columns:
        return {}
    with world.data.scratch() as scratch:
        shown = {p: a for p, a in candidate.artifacts.items() if not is_withheld(a)}
        files = {
            p: (
                open_table(world, candidate.dataset_id, a, room(scratch, str(n)))
                if "at_rest" in a
                else world.data.local(a["from"])
            )
            for n, (p, a) in enumerate(shown.items())
        }
        return marked(files, columns)


def write_candidate(work: Work, row: LedgerRow, candidate: Candidate) -> dict[str, str]:
    """candidate.json, the records of the version and the PROV of the run; returns path below the
    proposal -> digest.
    """
    world, entry = work.world, work.target.entry
    files = version_records(world, entry, candidate, msgspec.json.decode(row.source_metadata))
    files |= {
        "candidate.json": candidate.written(),
        "prov.json": prov_record(world, entry, row, candidate),
    }
    for name, content in files.items():
        path = proposal_path(row.dataset_id, row.run_id, name)
        if not world.keep(path, content) and world.kept(path) != content:
            raise IntegrityError(
                f"Run {row.run_id} would yield a second version when resumed: {name} differs.",
                expected="the candidate of its first attempt",
                remedy="A step is not repeatable: `kfm drill` names it.",
            )
    return {name: ids.digest(content) for name, content in files.items()}
