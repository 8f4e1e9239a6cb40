"""replay_check: a corrected record joins the rest of its own capture, and takes no other's place."""

from kfm.connectors.base import CaptureRefused, Refusal, TransformResult
from kfm.model import Generation, Replays, StepFailed
from kfm.world.target import Target

__all__ = ["check_added", "check_base"]


def check_base(target: Target, partial: Replays | None, head: Generation) -> None:
    """A few records may be merged only into the rest of their own capture."""
    if partial is not None and head.contents.get(str(target.place)) != partial.onto:
        raise StepFailed(
            f"What is official of {target.dataset_id} changed while records were replayed.",
            expected="the version they were set aside from",
            remedy=f"`kfm quarantine replay {partial.run_id}` looks again.",
        )


def check_added(target: Target, base_rows: int, part_rows: int, merged: TransformResult) -> None:
    """A corrected record is a record of its own: it may repeat one that is there, never take its
    place.

    Where captures are merged by key, the one that is there may be of an earlier capture, which any
    newer record updates.
    """
    conflicts = base_rows + part_rows - merged.rows - merged.books.unchanged
    if conflicts > 0 and target.entry.merge != "upsert":
        raise CaptureRefused(
            Refusal(
                code="key.conflict",
                happened=(
                    f"{conflicts} corrected records of {target.dataset_id} have the business key of"
                    " another record."
                ),
                expected=f"one record per ({', '.join(target.entry.business_key)})",
                remedy=(
                    "Give them other keys with `kfm quarantine fix`, or leave them out with `kfm"
                    " quarantine accept`."
                ),
            )
        )
