"""What is derived from evidence: channel generations, head keys; and small values kept by
name.
"""

import msgspec

from kfm.model import Generation, HeadKey
from kfm.store.lineage import LineageView
from kfm.store.looks import LookView
from kfm.store.view import SQL, Row, View, insert_sql

__all__ = ["IndexView", "LineageView"]

# another read the same file
SQL["generation_put"] = (
    insert_sql("generation", Generation.__struct_fields__) + " on conflict do nothing"
)
SQL["head_key_put"] = insert_sql(
    "head_key", HeadKey.__struct_fields__, "dataset_id, partition, win"
)


class IndexView(View):
    """Everything here can be read again from files."""

    @staticmethod
    def _generation(raw: Row) -> Generation:
        values = dict(raw)
        for name in ("contents", "held", "suppressed"):
            values[name] = msgspec.json.decode(values[name])
        return Generation(**values)

    def last_generation(self, dataset_id: str) -> Generation | None:
        row = self._one("generation_last", dataset_id=dataset_id)
        return None if row is None else self._generation(row)

    def generation(self, dataset_id: str, number: int) -> Generation | None:
        row = self._one("generation_get", dataset_id=dataset_id, generation=number)
        return None if row is None else self._generation(row)

    def generation_of_version(self, dataset_id: str, version_id: str) -> Generation | None:
        row = self._one("generation_of_version", dataset_id=dataset_id, version_id=version_id)
        return None if row is None else self._generation(row)

    def generations(self, dataset_id: str) -> list[Generation]:
        return [self._generation(r) for r in self._all("generation_list", dataset_id=dataset_id)]

    def datasets(self) -> list[str]:
        """Every dataset of which something was official."""
        return [str(row["dataset_id"]) for row in self._all("generation_datasets")]

    def put_generation(self, row: Generation) -> None:
        values = msgspec.structs.asdict(row)
        for name in ("contents", "held", "suppressed"):
            values[name] = msgspec.json.encode(values[name]).decode()
        self._do("generation_put", **values)

    def forget(self, dataset_id: str) -> None:
        """Drop what tells of the content of a dataset: lineage, announcements, validators, plans,
        NOOPs; generations keep what they keep out, and the official version where it comes from.
        """
        made = self.generations(dataset_id)
        official = made[-1].version_id if made else None
        for row in made:
            blank = msgspec.json.encode(dict.fromkeys(row.contents, "erased")).decode()
            self._do(
                "generation_forget",
                dataset_id=dataset_id,
                generation=row.generation,
                contents=blank,
            )
        for query in ("head_key_forget", "source_state_forget", "noop_forget"):
            self._do(query, dataset_id=dataset_id)
        kept = [
            g.run_id for g in made if g.run_id and official is not None and g.version_id == official
        ]
        for query in ("outbox_forget", "delivery_forget"):
            self._do(query, dataset_id=dataset_id, kept=msgspec.json.encode(kept).decode())
        LineageView(self._store, self._db).forget(dataset_id, kept)
        LookView(self._store, self._db).forget_plans(dataset_id)

    def head_key(self, dataset_id: str, partition: str, win: str) -> HeadKey | None:
        row = self._one("head_key_get", dataset_id=dataset_id, partition=partition, win=win)
        return None if row is None else HeadKey(**dict(row))

    def head_keys(self, dataset_id: str) -> list[HeadKey]:
        return [HeadKey(**dict(r)) for r in self._all("head_key_all", dataset_id=dataset_id)]

    def forget_generations(self, dataset_id: str) -> None:
        """Forget what was read from the files of a channel: the next look at its head reads them
        again.
        """
        self._do("generation_delete", dataset_id=dataset_id)

    def latest_check(self, dataset_id: str) -> HeadKey | None:
        row = self._one("head_key_latest", dataset_id=dataset_id)
        return None if row is None else HeadKey(**dict(row))

    def put_head_key(self, row: HeadKey) -> None:
        self._do("head_key_put", **msgspec.structs.asdict(row))

    def untrusted(self, dataset_id: str, source_url: str) -> str | None:
        row = self._one("source_untrusted", dataset_id=dataset_id, source_url=source_url)
        return None if row is None else str(row["untrusted"])

    def distrust(self, dataset_id: str, source_url: str, why: str) -> None:
        self._do("source_distrust", dataset_id=dataset_id, source_url=source_url, untrusted=why)

    def meta(self, key: str) -> str | None:
        row = self._one("meta_get", key=key)
        return None if row is None else str(row["value"])

    def put_meta(self, key: str, value: str) -> None:
        self._do("meta_put", key=key, value=value)
