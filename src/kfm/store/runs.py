"""The ledger: one row per run, each with a checksum over all its fields."""

import msgspec

from kfm.model import Fenced, IntegrityError, Json, LedgerRow, Mark, Place, RunDay, canonical
from kfm.store.jobs import PromotionView
from kfm.store.view import SQL, Row, View, insert_sql

__all__ = ["RunView", "ledger_row", "ledger_sum"]

_LEDGER_FIELDS = LedgerRow.__struct_fields__
SQL["run_put"] = insert_sql("ledger", (*_LEDGER_FIELDS, "sum"), "run_id")
SQL["run_insert"] = insert_sql("ledger", (*_LEDGER_FIELDS, "sum"))


def ledger_sum(row: Row) -> str:
    """The checksum of a ledger row over all its fields; `backfill` came later, and a row without
    one is summed as before.
    """
    from hashlib import sha256  # it brings OpenSSL, 4 MB that a worker does without

    return sha256(
        canonical.dumps([row[f] for f in _LEDGER_FIELDS if f != "backfill" or row[f]])
    ).hexdigest()


def ledger_row(raw: Row) -> LedgerRow:
    """A row as it was written; one whose checksum does not match is refused."""
    values = {f: raw[f] for f in _LEDGER_FIELDS}
    try:
        ok = ledger_sum(values) == raw["sum"]
    except Exception:
        ok = False
    if not ok:
        raise IntegrityError(
            f"The ledger row of run {raw['run_id']} is damaged.",
            expected="its checksum to match its fields",
            remedy="Run `kfm doctor --fix`: it sets the row aside and rebuilds it from evidence.",
        )
    return LedgerRow(**values)


def _is_due(row: LedgerRow) -> bool:
    """Whether it is to be promoted and needs nobody any more."""
    return row.state == "PROPOSED" and bool(row.promo)


class RunView(View):
    """Every transition names the state it leaves."""

    def get(self, run_id: str) -> LedgerRow | None:
        row = self._one("run_get", run_id=run_id)
        return None if row is None else ledger_row(row)

    def open_runs(self, dataset_id: str, partition: str | None = None) -> list[LedgerRow]:
        rows = [ledger_row(r) for r in self._all("run_open", dataset_id=dataset_id)]
        return [r for r in rows if partition is None or r.partition == partition]

    def by_tuple(
        self, dataset_id: str, partition: str, spec_hash: str, input_hash: str
    ) -> list[LedgerRow]:
        rows = self._all(
            "run_tuple",
            dataset_id=dataset_id,
            partition=partition,
            spec_hash=spec_hash,
            input_hash=input_hash,
        )
        return [ledger_row(r) for r in rows]

    def promotable(self, dataset_id: str) -> list[LedgerRow]:
        return [ledger_row(r) for r in self._all("run_promotable", dataset_id=dataset_id)]

    def maker_of(self, dataset_id: str, version_id: str) -> LedgerRow | None:
        """The newest run that made a version official."""
        row = self._one("run_maker_of", dataset_id=dataset_id, version_id=version_id)
        return None if row is None else ledger_row(row)

    def unchanged(self, dataset_id: str, version_id: str) -> list[tuple[Place, Mark]]:
        """What was found to change nothing about a version."""
        rows = self._all("run_unchanged", dataset_id=dataset_id, version_id=version_id)
        return [
            (
                Place(r["partition"], r["win"]),
                Mark(r["input_hash"], r["transform_hash"], r["spec_hash"]),
            )
            for r in rows
        ]

    def committed(self, dataset_id: str, partition: str, limit: int) -> list[LedgerRow]:
        """The newest runs of a partition that became official."""
        return [
            ledger_row(r)
            for r in self._all(
                "run_committed", dataset_id=dataset_id, partition=partition, limit=limit
            )
        ]

    def maker(self, dataset_id: str, version_id: str, spec_hash: str) -> LedgerRow | None:
        """The run that last made this version official under this spec."""
        row = self._one(
            "run_maker", dataset_id=dataset_id, version_id=version_id, spec_hash=spec_hash
        )
        return None if row is None else ledger_row(row)

    def unarchived(self, dataset_id: str) -> list[LedgerRow]:
        return [ledger_row(r) for r in self._all("run_unarchived", dataset_id=dataset_id)]

    def recent(self, dataset_id: str | None = None, limit: int = 1000) -> list[LedgerRow]:
        return [ledger_row(r) for r in self._all("run_list", dataset_id=dataset_id, limit=limit)]

    def newest(self, dataset_id: str, among: int) -> list[LedgerRow]:
        """Among so many of the newest runs of a dataset the last one of every partition and state,
        the newest first.
        """
        rows = self._all("run_newest", dataset_id=dataset_id, among=among)
        return [ledger_row(r) for r in rows]

    def tally(self, dataset_id: str, since: str, *, limit_ms: int) -> tuple[int, int, int, int]:
        """Of a dataset, from the run id `since` on: how often nothing was new, and of the runs that
        ended how many there were, failed, and took longer than `limit_ms`. What was denied did not
        fail: somebody said no.
        """
        looks = self._one("noop_tally", dataset_id=dataset_id, since=since)
        runs = self._one("run_tally", dataset_id=dataset_id, since=since, limit_ms=limit_ms)
        assert looks is not None and runs is not None  # a count is one row
        return int(looks["looks"]), int(runs["runs"]), int(runs["failed"]), int(runs["slow"])

    def days(self, since: str, dataset_id: str = "") -> list[RunDay]:
        """How runs and looks ended, day by day, from the run id `since` on: of a dataset, or of all
        together.
        """
        of, which = ("_of", {"dataset_id": dataset_id}) if dataset_id else ("", {})
        found = [self._all(f"{table}_days{of}", since=since, **which) for table in ("run", "noop")]
        return [RunDay(**dict(r)) for rows in found for r in rows]

    def damaged(self, dataset_id: str | None = None, limit: int = -1) -> list[Json]:
        """Ledger rows whose checksum does not match, as they are; newest first, `limit` -1 looks at
        all.
        """
        bad: list[Json] = []
        for raw in self._all("run_list", dataset_id=dataset_id, limit=limit):
            try:
                ledger_row(raw)
            except IntegrityError:
                bad.append(dict(raw))
        return bad

    def insert(self, row: LedgerRow) -> None:
        values = msgspec.structs.asdict(row)
        self._do("run_insert", **values, sum=ledger_sum(values))

    def delete(self, run_id: str) -> None:
        self._do("run_delete", run_id=run_id)

    def move(self, run_id: str, leaves: str, **changes: object) -> LedgerRow:
        old = self._held(run_id)
        if old is None or old.state != leaves:
            raise Fenced(
                f"Run {run_id} is {old.state if old else 'unknown'} by now.",
                expected=f"it to be {leaves}",
                remedy="Another process closed it; run the command again.",
            )
        new = msgspec.structs.replace(old, **changes)
        values = msgspec.structs.asdict(new)
        self._do("run_put", **values, sum=ledger_sum(values))
        before, after = _is_due(old), _is_due(new)
        if before != after or (after and old.intent != new.intent):
            jobs = PromotionView(self._store, self._db)
            jobs.follow(new.dataset_id, run_id, anew=after and not before)
        return new

    def _held(self, run_id: str) -> LedgerRow | None:
        """The row, which nobody else changes until this transaction ends."""
        if self._store.served and (seen := self._one("run_dataset", run_id=run_id)) is not None:
            self._alone(seen["dataset_id"])
        row = self._one("run_lock", run_id=run_id)
        return None if row is None else ledger_row(row)

    def staged(self, dataset_id: str, partition: str, win: str) -> list[LedgerRow]:
        """The parts of one partition and window that wait to be assembled."""
        return [
            ledger_row(r)
            for r in self._all("run_staged", dataset_id=dataset_id, partition=partition, win=win)
        ]

    def staged_for(self, dataset_id: str, backfill: str) -> list[LedgerRow]:
        """The parts of a backfill that wait to be assembled, by window and partition."""
        return [
            ledger_row(r)
            for r in self._all("run_staged_for", dataset_id=dataset_id, backfill=backfill)
        ]

    def staged_ids(self, dataset_id: str, backfill: str) -> set[str]:
        return {
            str(r["run_id"])
            for r in self._all("run_staged_ids", dataset_id=dataset_id, backfill=backfill)
        }

    def staged_counts(self, dataset_id: str) -> dict[str, int]:
        """Backfill -> how many parts wait to be assembled."""
        return {
            str(r["backfill"]): int(r["parts"])
            for r in self._all("run_staged_counts", dataset_id=dataset_id)
        }
