"""What looking at upstream left behind: the newest look, looks that found nothing new, and plans
that were made once.
"""

from collections.abc import Sequence

import msgspec

from kfm.model import NoopRow
from kfm.store.view import SQL, View, insert_sql

__all__ = ["LookView"]

SQL["noop_put"] = insert_sql("noop", NoopRow.__struct_fields__) + " on conflict do nothing"


class LookView(View):
    """The order of commits decides which look is the newest, not a clock."""

    def put(self, dataset_id: str, partition: str, run_id: str, how: str) -> None:
        """Remember the newest look at upstream and how it ended, beside what it ends: the order of
        commits decides, not a clock.
        """
        self._do("meta_put", key=f"look/{dataset_id}/{partition}", value=f"{run_id}\n{how}")

    def newest(self, dataset_id: str, partition: str) -> tuple[str, str] | None:
        """The run of the newest look at upstream and how it ended; of a store that was rebuilt, the
        newest NOOP unless it failed since.
        """
        told = self._one("meta_get", key=f"look/{dataset_id}/{partition}")
        if told is not None:
            run_id, _, how = str(told["value"]).partition("\n")
            return run_id, how
        row = self._one("noop_since_failure", dataset_id=dataset_id, partition=partition)
        return None if row is None else (str(row["run_id"]), str(row["code"]))

    def put_noop(self, row: NoopRow) -> None:
        self._do("noop_put", **msgspec.structs.asdict(row))

    def unpacked_noops(self, dataset_id: str, before: str) -> list[NoopRow]:
        return [
            NoopRow(**dict(r))
            for r in self._all("noop_unpacked", dataset_id=dataset_id, before=before)
        ]

    def mark_packed(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self._do("noop_mark", run_id=run_id)

    def noops(self, dataset_id: str | None = None, limit: int = 1000) -> list[NoopRow]:
        return [
            NoopRow(**dict(r)) for r in self._all("noop_list", dataset_id=dataset_id, limit=limit)
        ]

    def plan(self, identity: str) -> tuple[str, str] | None:
        row = self._one("plan_get", identity=identity)
        return None if row is None else (row["plan_hash"], row["plan"])

    def keep_plan(self, identity: str, plan_hash: str, plan: str) -> None:
        self._do("plan_put", identity=identity, plan_hash=plan_hash, plan=plan)

    def forget_plans(self, dataset_id: str) -> None:
        """Forget the plans of a dataset: they are known again when they are made again."""
        for row in self._all("plan_all"):
            if msgspec.json.decode(row["plan"]).get("dataset_id") == dataset_id:
                self._do("plan_delete", identity=row["identity"])
