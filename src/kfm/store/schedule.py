"""What was asked for when: one row per window and partition, and small values that polling must not
forget.
"""

import msgspec

from kfm.model import VisitRow
from kfm.store.view import SQL, Row, View

__all__ = ["ScheduleView"]

_FIELDS = VisitRow.__struct_fields__
SQL["visit_put"] = (
    f"insert into visit ({', '.join(_FIELDS)}) values ({', '.join(':' + f for f in _FIELDS)}) on"
    " conflict (subject, slot, partition) do update set "
    + ", ".join(f"{f} = excluded.{f}" for f in _FIELDS if f not in ("subject", "slot", "partition"))
)


class ScheduleView(View):
    """Coverage is a set: a window is visited when its row says so, whatever its neighbours are."""

    def put(self, row: VisitRow) -> None:
        self._do("visit_put", **msgspec.structs.asdict(row))

    def get(self, subject: str, slot: str = "", partition: str = "") -> VisitRow | None:
        row = self._one("visit_get", subject=subject, slot=slot, partition=partition)
        return None if row is None else _visit(row)

    def since(self, subject: str, ends_at: int) -> list[VisitRow]:
        """The windows that end at or after a moment."""
        return [_visit(r) for r in self._all("visit_since", subject=subject, ends_at=ends_at)]

    def due(self, subject: str, at: int, limit: int) -> list[VisitRow]:
        """The windows that are to be put again by now."""
        return [_visit(r) for r in self._all("visit_due", subject=subject, at=at, limit=limit)]

    def next_due(self, subject: str, at: int) -> int | None:
        row = self._one("visit_next", subject=subject, at=at)
        return None if row is None or row["due_at"] is None else int(row["due_at"])

    def ended(self, subject: str, limit: int) -> list[tuple[VisitRow, str, str]]:
        """Visits whose job has ended since, with its outcome and error; a job that was forgotten
        had succeeded.
        """
        rows = self._all("visit_ended", subject=subject, limit=limit)
        return [(_visit(r), r["ended"] or "succeeded", r["said"] or "") for r in rows]

    def failing(self, subject: str, limit: int = 20) -> list[VisitRow]:
        """The windows that stay open, oldest first."""
        return [_visit(r) for r in self._all("visit_shown", subject=subject, limit=limit)]

    def counts(self, subject: str) -> dict[str, int]:
        return {
            r["outcome"] or "open": int(r["visits"])
            for r in self._all("visit_count", subject=subject)
        }

    def alone(self, subject: str) -> None:
        """Nobody else decides about this subject until the transaction ends."""
        self._alone(f"schedule {subject}")

    def forget_events(self, subject: str, before: int) -> int:
        """Drop what was heard before a moment; the same event would be heard again."""
        return self._do("visit_forget", subject=subject, before=before)

    def checkpoint(self, name: str) -> str | None:
        row = self._one("checkpoint_get", name=name)
        return None if row is None else str(row["value"])

    def set_checkpoint(self, name: str, value: str | None) -> None:
        """Remember `value`; None forgets it."""
        if value is None:
            self._do("checkpoint_drop", name=name)
        else:
            self._do("checkpoint_put", name=name, value=value)


def _visit(row: Row) -> VisitRow:
    return VisitRow(**{f: row[f] for f in _FIELDS})
