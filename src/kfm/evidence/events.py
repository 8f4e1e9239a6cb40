"""events: what collectors of lineage are told of a version, as OpenLineage has it. Nothing in it is
personal, secret or private; `extras/openlineage/events.py` tells how runs go.
"""

from kfm.catalog.lineage.openlineage import About, Output, completed
from kfm.catalog.lineage.record import LineageRecord, used_of
from kfm.evidence.lineage import column_lineage
from kfm.model import Candidate, Json, LedgerRow, Verdict, rfc3339
from kfm.world.run_log import mask
from kfm.world.world import World

__all__ = ["about_run", "cleaned", "complete_event"]


def complete_event(
    world: World,
    record: LineageRecord,
    row: LedgerRow,
    spec: Json | None,
    made: Candidate,
    verdicts: tuple[Verdict, ...],
) -> bytes:
    """That a run made a version, before it is official; told once it is."""
    output = Output(
        schema=made.schema,
        profile=made.profile,
        artifacts=made.artifacts,
        verdicts=verdicts,
        columns=column_lineage(world, record, spec, made.schema),
    )
    told = completed(record, rfc3339(world.clock.now()), about_run(world, row, spec), output)
    return cleaned(world, told)


def about_run(world: World, row: LedgerRow, spec: Json | None) -> About:
    """The run that an event tells of, as it may be told."""
    return About(
        run_id=row.run_id,
        dataset_id=row.dataset_id,
        updater_id=row.updater_id,
        updater_version=row.updater_version,
        inputs=used_of(world.stand_in, row),
        spec=spec,
        closed=world.is_private(row.dataset_id),
    )


def cleaned(world: World, told: bytes) -> bytes:
    """An event without anything personal or secret."""
    return mask(told.decode(), world.private).encode()
