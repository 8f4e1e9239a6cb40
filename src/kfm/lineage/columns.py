"""Where the columns of a version come from, as far as the reader may know."""

import msgspec

from kfm.access.boundary import NOBODY, Reader, columns_of
from kfm.catalog.lineage.columns import ColumnLineage
from kfm.catalog.lineage.record import LineageRecord
from kfm.evidence.lineage import column_lineage, known_lineage, made_by
from kfm.evidence.run_files import read_run_file
from kfm.lineage.sight import Sight
from kfm.model import Denied, Json, UsageError
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["columns_behind"]

_OWN = "kfm://dataset/"


def columns_behind(world: World, name: str, reader: Reader = NOBODY) -> tuple[ColumnLineage, ...]:
    """Of the version or the run that a node of a walk is. Empty where its evidence does not say,
    or a reader must have been granted it.
    """
    record = world.store.read(lambda tx: _record(tx, name))
    if record is None:
        raise UsageError(
            "Columns are those of a version.",
            expected="DATASET, DATASET@vHEX, DATASET@GENERATION or the id of a run",
            remedy="Leave --columns out, or name a version.",
        )
    sight = Sight(world, reader)
    if not sight.sees_version(record.version):
        return ()
    try:
        schema = columns_of(world, record.version, reader)
    except (Denied, UsageError):  # retention has removed it, or an erasure
        return ()
    found = column_lineage(world, record, _spec(world, record), schema)
    return tuple(_seen(column, sight) for column in found)


def _record(tx: Tx, name: str) -> LineageRecord | None:
    """Of the newest run that made a version."""
    kind, _, rest = name.partition(":")
    if kind == "version":
        return made_by(tx, rest)
    return known_lineage(tx, rest) if kind == "run" else None


def _spec(world: World, record: LineageRecord) -> Json | None:
    raw = read_run_file(world.data, record.dataset_id, record.run_id, "run_record.json", {})
    spec: Json | None = msgspec.json.decode(raw).get("spec") if raw is not None else None
    return spec


def _seen(column: ColumnLineage, sight: Sight) -> ColumnLineage:
    """Without columns of datasets that the reader may not know of."""
    of = tuple(
        origin
        for origin in column.of
        if not origin.uri.startswith(_OWN) or sight.sees_dataset(origin.uri.removeprefix(_OWN))
    )
    return msgspec.structs.replace(column, of=of)
