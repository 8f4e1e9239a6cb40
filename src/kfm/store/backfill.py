"""Backfills in the store: one parent row each, a row for every partition that was begun, and what
is handed out at the moment.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from kfm.model import BackfillRow, Fenced, PartRow
from kfm.store.view import SQL, Row, View

__all__ = ["BackfillView", "PartLeft"]

_FIELDS = BackfillRow.__struct_fields__
SQL["backfill_put"] = (
    f"insert into backfill ({', '.join(_FIELDS)}) values ({', '.join(':' + f for f in _FIELDS)}) on"
    " conflict (backfill_id) do update set " + ", ".join(f"{f} = excluded.{f}" for f in _FIELDS[3:])
)


class PartLeft(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of one partition. Field names are column names."""

    n: int
    state: str
    run_id: str
    part: str | None
    input_hash: str | None


class BackfillView(View):
    """Nothing here is the truth about a partition: that is its row in the ledger, and every job
    looks there first.
    """

    def get(self, backfill_id: str) -> BackfillRow | None:
        return _row(self._one("backfill_get", backfill_id=backfill_id))

    def lock(self, backfill_id: str) -> BackfillRow:
        """The parent row, which nobody else changes until this transaction ends."""
        row = _row(self._one("backfill_lock", backfill_id=backfill_id))
        if row is None:
            raise Fenced(
                f"The backfill {backfill_id} is not in the store any more.",
                expected="its row",
                remedy="`kfm backfill list` shows those that are; begin it again.",
            )
        return row

    def find(self, word: str) -> BackfillRow | None:
        """The newest backfill of this id, name or dataset."""
        return _row(self._one("backfill_find", word=word))

    def listing(self, limit: int = 100) -> list[BackfillRow]:
        return [BackfillRow(**dict(r)) for r in self._all("backfill_list", limit=limit)]

    def put(self, row: BackfillRow) -> BackfillRow:
        self._do("backfill_put", **msgspec.structs.asdict(row))
        return row

    def save(self, row: BackfillRow, **changes: object) -> BackfillRow:
        return self.put(msgspec.structs.replace(row, **changes))

    # ---- partitions ------------------------------------------------------------------------------
    def now_ms(self) -> int:
        return self._store.now_ms()

    def put_parts(self, parts: Iterable[PartRow]) -> None:
        at = self.now_ms()
        for p in parts:
            self._do(
                "backfill_part_put",
                backfill_id=p.backfill_id,
                n=p.n,
                state=p.state,
                run_id=p.run_id,
                reason=p.reason,
                at_ms=at,
            )

    def grid(
        self, backfill_id: str, borders: Sequence[int], since_ms: int
    ) -> list[tuple[int, str, int, int]]:
        """(bucket, state, how many, how many of them since then) between neighbouring borders; one
        walk each, which needs no sorting.
        """
        found = []
        for bucket, (first, last) in enumerate(pairwise(borders)):
            where = {"backfill_id": backfill_id, "first": first, "last": last, "since_ms": since_ms}
            found += [
                (bucket, r["state"], int(r["parts"]), int(r["fresh"]))
                for r in self._all("backfill_bucket", **where)
            ]
        return found

    def within(self, backfill_id: str, first: int, last: int) -> list[PartRow]:
        """Those of a range that were begun."""
        which = {"backfill_id": backfill_id, "first": first, "last": last}
        return [_part(r) for r in self._all("backfill_within", **which)]

    def done_in(self, backfill_id: str, first: int, last: int) -> set[int]:
        return {
            r["n"]
            for r in self._all("backfill_done_in", backfill_id=backfill_id, first=first, last=last)
        }

    def failing(self, backfill_id: str, limit: int, first: int = 0) -> list[PartRow]:
        """Those that failed, from `first` on."""
        which = {"backfill_id": backfill_id, "first": first, "limit": limit}
        return [_part(r) for r in self._all("backfill_failing", **which)]

    def failed_since(self, backfill_id: str, at_ms: int) -> int:
        row = self._one("backfill_failed_since", backfill_id=backfill_id, at_ms=at_ms)
        return int(row["parts"]) if row is not None else 0

    def staged(self, backfill_id: str, limit: int = -1) -> list[str]:
        """The runs whose parts wait to be assembled, in order."""
        return [
            r["run_id"] for r in self._all("backfill_staged", backfill_id=backfill_id, limit=limit)
        ]

    def parts(self, backfill_id: str) -> list[PartLeft]:
        return [PartLeft(**r) for r in self._all("backfill_parts", backfill_id=backfill_id)]

    def follow_ledger(self, row: BackfillRow) -> int:
        """Write down what became of STAGED parts: official, or what was official already; those
        that were overtaken, or are gone, are to be done again. How many are."""
        which = {"backfill_id": row.backfill_id, "dataset_id": row.dataset_id}
        if (
            self._one("backfill_moved", **which) is None
            or self._one("backfill_behind", **which) is None
        ):
            return 0
        self._do("backfill_committed", **which)
        self._do("backfill_unchanged", **which)
        return self._do(
            "backfill_lost", backfill_id=row.backfill_id, reason="its part was overtaken"
        )

    def later(
        self, dataset_id: str, backfill_id: str, generation: int
    ) -> list[tuple[str, str, int]]:
        """(partition, window, newest generation) of what other runs made official after
        `generation`.
        """
        which = {"dataset_id": dataset_id, "backfill_id": backfill_id, "generation": generation}
        return [
            (r["partition"], r["win"], int(r["newest"]))
            for r in self._all("backfill_later", **which)
        ]

    # ---- handed out ------------------------------------------------------------------------------
    def outs(self, backfill_id: str) -> list[tuple[int, int, str]]:
        """(first, how many, job) of every batch that is handed out."""
        return [
            (r["first"], r["amount"], r["job_id"])
            for r in self._all("backfill_outs", backfill_id=backfill_id)
        ]

    def put_out(self, backfill_id: str, first: int, amount: int, job_id: str) -> None:
        self._do(
            "backfill_out_put", backfill_id=backfill_id, first=first, amount=amount, job_id=job_id
        )

    def drop_out(self, backfill_id: str, first: int) -> None:
        self._do("backfill_out_drop", backfill_id=backfill_id, first=first)


def _part(raw: Row) -> PartRow:
    return PartRow(**{f: raw[f] for f in PartRow.__struct_fields__})


def _row(raw: Row | None) -> BackfillRow | None:
    return None if raw is None else BackfillRow(**dict(raw))
