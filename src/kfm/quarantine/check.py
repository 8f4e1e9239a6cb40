"""check: what came is read whole before anything is planned. Its bytes are those that were captured;
here its form, its rows and what its labels allow are looked at.

Reading and checking are one pass, for large inputs are not read twice: what it makes lies in
scratch, and nothing keeps it before the plan is journaled.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from kfm.connectors.base import CaptureRefused, InputFile, TransformResult
from kfm.connectors.operations import Join, Read, Recheck, code_of
from kfm.connectors.release.columns import missing_of, unfit
from kfm.model import Denied, IntegrityError, Json
from kfm.quarantine.refused import keep_rows
from kfm.world.run_log import RunLog
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import hash_file, room

__all__ = ["check_input"]

Told = Callable[[Json], None]


def check_input(
    world: World,
    target: Target,
    log: RunLog,
    job: Read | Join,
    base: str | None,
    out: Path,
    told: Told,
) -> TransformResult:
    """The table of a capture in `out`, once all of it has passed; rows that were refused are kept,
    whatever becomes of the rest. Raises what the capture as a whole is refused by. `base`: the
    version it follows.
    """
    try:
        result = _read(world, job, out, told)
    except CaptureRefused:
        for rows in out.glob("*.quarantine.jsonl"):
            keep_rows(world, target, log.run_id, rows)
        raise
    _govern(world, target, base, result)
    if result.quarantine is not None:
        keep_rows(world, target, log.run_id, out / result.quarantine)
        count = result.books.quarantined
        log.say("rows.quarantined", stage="validate", level="warning", rows=count)
    return result


def _govern(world: World, target: Target, base: str | None, result: TransformResult) -> None:
    """Raise when what its labels demand cannot be done to this table: the columns that are held back
    or shown are not there, or there is more than a table.
    """
    entry, again = target.entry, target.again
    # what is merged with an official version has the columns of both
    alone = base is None or (entry.merge == "replace" and not target.win)
    if entry.release is not None and alone and not (again is not None and again.only):
        missing = missing_of(entry.release, [c.name for c in result.schema])
        if missing:
            raise CaptureRefused(unfit("release.column", missing).refusal)
    if result.files and world.is_private(target.dataset_id):
        raise Denied(
            f"{target.dataset_id} is not public, and its {len(result.files)} files beside the"
            " table cannot be generalised.",
            expected="a table alone",
            remedy="Register it as public if it is, or publish only the table through a connector.",
        )


def _read(world: World, job: Read | Join, out: Path, told: Told) -> TransformResult:
    """The table that a transform makes of a capture; what connector code had a hand in is read and written once more where it has
    none.
    """
    # only a release has steps to tell
    result = msgspec.structs.replace(world.transform(job, out, told), steps=())
    if code_of(job) is None:
        return result
    made = out / result.artifact
    if made.is_symlink() or not made.is_file():
        raise IntegrityError(
            f"{made.name} is no file after the transform.",
            expected="a table",
            remedy="Let its code yield rows; the table of them is written by kfm.",
        )
    table = InputFile(source_id="table", path=str(made.absolute()), digest="")
    again = Recheck(
        dataset_id=job.dataset_id,
        inputs=(table,),
        schema=result.schema,
        business_key=job.business_key,
        artifact=job.artifact,
    )
    found = world.transform(again, room(out, "checked"), None)
    # not only its rows: no byte of it is the code's
    same = hash_file(made).digest == hash_file(out / "checked" / job.artifact).digest
    if (
        not same
        or found.rows != result.rows
        or found.rows != result.books.written
        or not result.books.balanced
    ):
        raise IntegrityError(
            f"The table of {job.dataset_id} is not the one its transform told of.",
            expected=f"{result.rows} rows, {result.content_id}",
            remedy=(
                "Connector code may change rows, not the file or what is said of it; correct it."
            ),
        )
    return msgspec.structs.replace(
        found,
        books=result.books,
        quarantine=result.quarantine,
        warnings=result.warnings,
        lines=result.lines,
        answered=result.answered,
        stamp=result.stamp,
    )
