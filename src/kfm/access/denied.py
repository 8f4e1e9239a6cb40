"""Why a run may not be published, in words: what its gates or its promotion said."""

from contextlib import suppress

import msgspec

from kfm.access.status import DatasetStatus
from kfm.evidence.journal import done_of
from kfm.evidence.run_files import read_run_file, run_journal
from kfm.model import Assembled, Denied, KfmError, LedgerRow
from kfm.model.paths import proposal_path
from kfm.model.verdict import Reason
from kfm.world.world import World

__all__ = ["denial_reasons", "reason_in_words"]


class _Judged(msgspec.Struct, frozen=True):
    """Of a report or a decision what it says against publishing."""

    reasons: list[Reason]


def denial_reasons(world: World, row: LedgerRow) -> list[Reason]:
    """From the report of the run, or from the decision where it was denied when it was to be
    promoted.
    """
    if reasons := _of_gates(world, row):
        return reasons
    decided = proposal_path(row.dataset_id, row.run_id, "decisions.jsonl")
    lines = world.data.read(decided).splitlines() if world.data.exists(decided) else []
    # whoever writes it makes the file first, and may be killed before the line
    return msgspec.json.decode(lines[-1], type=_Judged).reasons if lines else []


def _of_gates(world: World, row: LedgerRow) -> list[Reason]:
    """Of a private dataset from its journal, where the key is that sealed it."""
    if world.is_private(row.dataset_id):
        with suppress(Denied):
            judged = done_of(
                run_journal(world, row), "assemble", world.veil(row.dataset_id), Assembled
            )
            return judged.reasons if judged is not None else []
    raw = read_run_file(world.data, row.dataset_id, row.run_id, "validation_report.json")
    return msgspec.json.decode(raw, type=_Judged).reasons if raw else []


def reason_in_words(world: World, status: DatasetStatus) -> str:
    """The reason of a status for a person: of what was denied what the codes mean."""
    run_id = status.last_run_id
    if status.state != "denied" or not run_id:
        return status.reason
    row = world.store.read(lambda tx: tx.runs.get(run_id))
    if row is None or not row.reason:
        return status.reason
    told = ""
    with suppress(
        KfmError, OSError, msgspec.MsgspecError
    ):  # a damaged report: `kfm verify` tells of it
        told = " ".join(dict.fromkeys(reason.message for reason in denial_reasons(world, row)))
    return status.reason.replace(row.reason, told, 1) if told else status.reason
