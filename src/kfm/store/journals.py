"""The journals: hash-chained records of what a run meant to do and did."""

from collections.abc import Sequence

import msgspec

from kfm.model import IntegrityError, Json, WalRecord
from kfm.store.view import SQL, View

__all__ = ["JournalView"]

SQL["journal_put"] = (
    f"insert into journal values ({', '.join('?' * len(WalRecord.__struct_fields__))}) on conflict"
    " do nothing"
)


class JournalView(View):
    """A record is appended once; the end of a journal is written down apart, so that a lost tail is
    noticed.
    """

    def append(self, records: Sequence[WalRecord]) -> None:
        """Append; the same (wal_id, seq) again is fine when it is the same record: another, were it
        only written at another time, has another hash, and what follows would not continue it.
        """
        ends: dict[str, WalRecord] = {}
        for record in records:
            if self._db.execute(
                self._store.sql["journal_put"], msgspec.structs.astuple(record)
            ).rowcount:
                ends[record.wal_id] = record
            else:
                self._accept_repeat(record)
        for end in ends.values():
            self._db.execute(
                self._store.sql["journal_head_put"], (end.wal_id, end.seq + 1, end.hash)
            )

    def _accept_repeat(self, record: WalRecord) -> None:
        raw = self._one("journal_one", wal_id=record.wal_id, seq=record.seq)
        if raw is None or WalRecord(**dict(raw)) != record:
            raise IntegrityError(
                f"Journal {record.wal_id[:12]} has another record {record.seq} already.",
                expected="the same record or none",
                remedy="Run `kfm doctor`.",
            )

    def get(self, wal_id: str) -> list[WalRecord]:
        """Every record; a tail that was lost is noticed, because its end is written down apart."""
        records = [WalRecord(**dict(r)) for r in self._all("journal_get", wal_id=wal_id)]
        end = self._one("journal_head_get", wal_id=wal_id)
        told = (end["count"], end["hash"]) if end is not None else (0, "")
        if told != (len(records), records[-1].hash if records else ""):
            raise IntegrityError(
                f"Journal {wal_id[:12]} has {len(records)} records, {told[0]} were written.",
                expected="the records that were written",
                remedy=(
                    "Run `kfm doctor --fix`: it sets the journal aside and closes its run; the next"
                    " run starts over."
                ),
            )
        return records

    def since(self, wal_id: str, seq: int, limit: int) -> list[WalRecord]:
        """Records from a number on, for who follows a run; nothing of the chain is checked."""
        rows = self._all("journal_since", wal_id=wal_id, seq=seq, limit=limit)
        return [WalRecord(**dict(r)) for r in rows]

    def raw(self, wal_id: str) -> list[Json]:
        """The records as they are, for setting them aside."""
        return self._whole("journal_get", wal_id=wal_id)

    def orphans(self) -> list[str]:
        """Journals whose run is in no ledger row."""
        return [r["wal_id"] for r in self._all("journal_orphans")]

    def drop(self, wal_id: str) -> None:
        self._do("journal_delete", wal_id=wal_id)
        self._do("journal_head_delete", wal_id=wal_id)
