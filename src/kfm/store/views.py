"""The views of one transaction, whatever keeps the tables: leases, runs, and the index over evidence."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kfm import canonical
from kfm.errors import Fenced, IntegrityError
from kfm.store.base import Generation, HeadKey, Home, LedgerRow, NoopRow, OutboxRow, Row, Token, WalRecord, dataset_of

__all__ = ["SQL", "IndexView", "LeaseView", "RunView", "View"]

_HERE = Path(__file__).parent
_LEDGER_FIELDS = LedgerRow.__struct_fields__
_WAL_FIELDS = WalRecord.__struct_fields__


def _load_queries() -> dict[str, str]:
    text = "\n".join(file.read_text() for file in sorted(_HERE.glob("*.sql")))
    _, *parts = re.split(r"(?m)^-- name: (\w+)\n", text)
    found = dict(zip(parts[::2], (p.strip() for p in parts[1::2])))
    if len(found) * 2 != len(parts):
        raise AssertionError("two queries have one name, and one of them would never be asked")
    return found


SQL = _load_queries()


def _insert(table: str, fields: Sequence[str], key: str = "") -> str:
    """With `key`, a row that is there already is updated, so that it keeps its place in the order of arrival."""
    update = f" on conflict ({key}) do update set {', '.join(f'{f} = excluded.{f}' for f in fields)}" if key else ""
    return f"insert into {table} ({', '.join(fields)}) values ({', '.join(':' + f for f in fields)}){update}"


SQL["run_put"] = _insert("ledger", (*_LEDGER_FIELDS, "sum"), "run_id")
SQL["run_insert"] = _insert("ledger", (*_LEDGER_FIELDS, "sum"))
SQL["journal_put"] = f"insert into journal values ({', '.join('?' * len(_WAL_FIELDS))}) on conflict do nothing"
SQL["generation_put"] = _insert("generation", Generation.__struct_fields__) + " on conflict do nothing"  # another read the same file
SQL["head_key_put"] = _insert("head_key", HeadKey.__struct_fields__, "dataset_id, partition, win")
SQL["noop_put"] = _insert("noop", NoopRow.__struct_fields__) + " on conflict do nothing"


def ledger_sum(row: dict[str, Any]) -> str:
    """The checksum of a ledger row over all its fields; `backfill` came later, and a row without one is summed as before."""
    from hashlib import sha256

    return sha256(canonical.dumps([row[f] for f in _LEDGER_FIELDS if f != "backfill" or row[f]])).hexdigest()


def _ledger_row(raw: Row) -> LedgerRow:
    values = {f: raw[f] for f in _LEDGER_FIELDS}
    try:
        ok = ledger_sum(values) == raw["sum"]
    except Exception:
        ok = False
    if not ok:
        raise IntegrityError(
            f"The ledger row of run {raw['run_id']} is damaged.",
            expected="its checksum to match its fields",
            remedy="Run `kfm doctor --fix`: it sets the row aside in ledger/quarantine and rebuilds it from evidence.",
        )
    return LedgerRow(**values)


class View:
    """Named queries over one connection."""

    def __init__(self, store: Home, db: Any) -> None:
        self._store = store
        self._db = db

    def _run(self, query: str, values: Mapping[str, Any]) -> Any:
        store = self._store
        return self._db.execute(store.sql[query], {**values, **store.times()} if query in store.timed else values)

    def _all(self, query: str, /, **values: Any) -> list[Row]:
        found: list[Row] = self._run(query, values).fetchall()
        return found

    def _one(self, query: str, /, **values: Any) -> Row | None:
        row: Row | None = self._run(query, values).fetchone()
        return row

    def _do(self, query: str, /, **values: Any) -> int:
        return int(self._run(query, values).rowcount)

    def _alone(self, name: str) -> None:
        """Until this transaction ends, no other one that says the same name goes on. Datasets first, then rows: one order everywhere."""
        self._store.alone(name)


class LeaseView(View):
    """Leases with fencing tokens; the lock file says dead, the expiry says frozen."""

    def take(self, name: str, holder: str, seconds: float) -> Token | None:
        self._alone(dataset_of(name) or name)
        store, row = self._store, self._one("lease_lock", name=name)
        if row is not None and row["holder"] is not None and not self._lapsed(name, row):
            return None
        number = row["token"] + 1 if row is not None and row["epoch"] == store.epoch else 1
        token = Token(name, store.epoch, number)
        if row is not None:
            store.after_commit(lambda: store.locks.drop(Token(name, row["epoch"], row["token"])))
        store.locks.hold(token)
        store.on_rollback(lambda: store.locks.drop(token))
        fields = {"epoch": token.epoch, "token": token.number, "holder": holder, "boot_id": store.boot_id()}
        self._do("lease_put", name=name, **fields, lasts_ns=int(seconds * 1e9))
        return token

    def _lapsed(self, name: str, row: Row) -> bool:
        if row["boot_id"] != self._store.boot_id() or row["ran_out"]:
            return True
        return bool(self._store.locks.is_dead(Token(name, row["epoch"], row["token"])))

    def number(self, name: str) -> int | None:
        """The newest token of a lease."""
        row = self._one("lease_get", name=name)
        return None if row is None else int(row["token"])

    def is_free(self, name: str) -> bool:
        row = self._one("lease_get", name=name)
        return row is None or row["holder"] is None or self._lapsed(name, row)

    def check(self, *tokens: Token) -> tuple[str, ...]:
        for token in tokens:
            if (dataset := dataset_of(token.lease)) is not None:
                self._alone(dataset)
            if self._one("lease_check", name=token.lease, epoch=token.epoch, token=token.number) is None:
                raise Fenced(
                    f"The lease {token.lease} was taken over by another run (token {token.epoch}.{token.number} is stale).",
                    expected="to still hold it",
                    remedy="Nothing was written. Run the command again: it finds what the other run left.",
                )
        return tuple(f"{token.epoch}.{token.number}" for token in tokens)

    def renew(self, tokens: Iterable[Token], seconds: float) -> None:
        for token in sorted(tokens):
            self._do("lease_renew", name=token.lease, epoch=token.epoch, token=token.number, lasts_ns=int(seconds * 1e9))

    def release(self, *tokens: Token) -> None:
        for token in tokens:
            self._alone(dataset_of(token.lease) or token.lease)
            self._do("lease_release", name=token.lease, epoch=token.epoch, token=token.number)
            self._store.after_commit(lambda token=token: self._store.locks.drop(token))  # type: ignore[misc]

    def sweep(self, remove: bool) -> list[str]:
        """The names of lock files whose holder is gone, and their removal."""
        stale = self._store.locks.stale_files()
        for path in stale if remove else ():
            path.unlink(missing_ok=True)
        return [path.name for path in stale]

    def held(self) -> list[dict[str, Any]]:
        return [dict(r) | {"lapsed": self._lapsed(r["name"], r)} for r in self._all("lease_held")]


class RunView(View):
    """The ledger and the journals."""

    def get(self, run_id: str) -> LedgerRow | None:
        row = self._one("run_get", run_id=run_id)
        return None if row is None else _ledger_row(row)

    def open_runs(self, dataset_id: str, partition: str | None = None) -> list[LedgerRow]:
        rows = [_ledger_row(r) for r in self._all("run_open", dataset_id=dataset_id)]
        return [r for r in rows if partition is None or r.partition == partition]

    def by_tuple(self, dataset_id: str, partition: str, spec_hash: str, input_hash: str) -> list[LedgerRow]:
        rows = self._all("run_tuple", dataset_id=dataset_id, partition=partition, spec_hash=spec_hash, input_hash=input_hash)
        return [_ledger_row(r) for r in rows]

    def promotable(self, dataset_id: str) -> list[LedgerRow]:
        return [_ledger_row(r) for r in self._all("run_promotable", dataset_id=dataset_id)]

    def left_promotable(self) -> list[str]:
        """Datasets with a proposal that needs nobody any more, while nobody is at work on them."""
        leases = LeaseView(self._store, self._db)
        return [r["dataset_id"] for r in self._all("run_left_promotable") if leases.is_free(r["dataset_id"])]

    def maker_of(self, dataset_id: str, version_id: str) -> LedgerRow | None:
        """The newest run that made a version official."""
        row = self._one("run_maker_of", dataset_id=dataset_id, version_id=version_id)
        return None if row is None else _ledger_row(row)

    def unchanged(self, dataset_id: str, version_id: str) -> list[tuple[str, str]]:
        """(partition and window, content mark) of what was found to change nothing about a version."""
        rows = self._all("run_unchanged", dataset_id=dataset_id, version_id=version_id)
        return [
            (r["partition"] + (f"|{r['win']}" if r["win"] else ""), f"{r['input_hash']}:{r['transform_hash']}:{r['spec_hash']}")
            for r in rows
        ]

    def committed(self, dataset_id: str, partition: str, limit: int) -> list[LedgerRow]:
        """The newest runs of a partition that became official."""
        return [_ledger_row(r) for r in self._all("run_committed", dataset_id=dataset_id, partition=partition, limit=limit)]

    def maker(self, dataset_id: str, version_id: str, spec_hash: str) -> LedgerRow | None:
        """The run that last made this version official under this spec."""
        row = self._one("run_maker", dataset_id=dataset_id, version_id=version_id, spec_hash=spec_hash)
        return None if row is None else _ledger_row(row)

    def unarchived(self, dataset_id: str) -> list[LedgerRow]:
        return [_ledger_row(r) for r in self._all("run_unarchived", dataset_id=dataset_id)]

    def recent(self, dataset_id: str | None = None, limit: int = 1000) -> list[LedgerRow]:
        return [_ledger_row(r) for r in self._all("run_list", dataset_id=dataset_id, limit=limit)]

    def damaged(self, dataset_id: str | None = None, limit: int = -1) -> list[dict[str, Any]]:
        """Ledger rows whose checksum does not match, as they are; newest first, `limit` -1 looks at all."""
        bad: list[dict[str, Any]] = []
        for raw in self._all("run_list", dataset_id=dataset_id, limit=limit):
            try:
                _ledger_row(raw)
            except IntegrityError:
                bad.append(dict(raw))
        return bad

    def insert(self, row: LedgerRow) -> None:
        values = msgspec.structs.asdict(row)
        self._do("run_insert", **values, sum=ledger_sum(values))

    def delete(self, run_id: str) -> None:
        self._do("run_delete", run_id=run_id)

    def move(self, run_id: str, leaves: str, **changes: Any) -> LedgerRow:
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
        return new

    def _held(self, run_id: str) -> LedgerRow | None:
        """The row, which nobody else changes until this transaction ends."""
        if self._store.served and (seen := self._one("run_dataset", run_id=run_id)) is not None:
            self._alone(seen["dataset_id"])
        row = self._one("run_lock", run_id=run_id)
        return None if row is None else _ledger_row(row)

    def append(self, records: Sequence[WalRecord]) -> None:
        """Append; the same (wal_id, seq) again is fine when equal but for its time."""
        ends: dict[str, WalRecord] = {}
        for record in records:
            if self._db.execute(self._store.sql["journal_put"], msgspec.structs.astuple(record)).rowcount:
                ends[record.wal_id] = record
            else:
                self._accept_repeat(record)
        for end in ends.values():
            self._db.execute(self._store.sql["journal_head_put"], (end.wal_id, end.seq + 1, end.hash))

    def _accept_repeat(self, record: WalRecord) -> None:
        raw = self._one("journal_one", wal_id=record.wal_id, seq=record.seq)
        old = WalRecord(**dict(raw)) if raw is not None else None
        same = old is not None and all(
            getattr(old, f) == getattr(record, f) for f in ("phase", "step_id", "status", "payload", "updater_id", "input_hash")
        )
        if not same:
            raise IntegrityError(
                f"Journal {record.wal_id[:12]} has another record {record.seq} already.",
                expected="the same record or none",
                remedy="Run `kfm doctor`.",
            )

    def journal(self, wal_id: str) -> list[WalRecord]:
        """Every record; a tail that was lost is noticed, because its end is written down apart."""
        records = [WalRecord(**dict(r)) for r in self._all("journal_get", wal_id=wal_id)]
        end = self._one("journal_head_get", wal_id=wal_id)
        told = (end["count"], end["hash"]) if end is not None else (0, "")
        if told != (len(records), records[-1].hash if records else ""):
            raise IntegrityError(
                f"Journal {wal_id[:12]} has {len(records)} records, {told[0]} were written.",
                expected="the records that were written",
                remedy="Run `kfm doctor --fix`: it sets the journal aside and closes its run; the next run starts over.",
            )
        return records

    def raw_journal(self, wal_id: str) -> list[dict[str, Any]]:
        """The records as they are, for setting them aside."""
        return [dict(r) for r in self._all("journal_get", wal_id=wal_id)]

    def orphan_journals(self) -> list[str]:
        """Journals whose run is in no ledger row."""
        return [r["wal_id"] for r in self._all("journal_orphans")]

    def drop_journal(self, wal_id: str) -> None:
        self._do("journal_delete", wal_id=wal_id)
        self._do("journal_head_delete", wal_id=wal_id)

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

    def put_noop(self, row: NoopRow) -> None:
        self._do("noop_put", **msgspec.structs.asdict(row))

    def unpacked_noops(self, dataset_id: str, before: str) -> list[NoopRow]:
        return [NoopRow(**dict(r)) for r in self._all("noop_unpacked", dataset_id=dataset_id, before=before)]

    def mark_packed(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self._do("noop_mark", run_id=run_id)

    def noops(self, dataset_id: str | None = None, limit: int = 1000) -> list[NoopRow]:
        return [NoopRow(**dict(r)) for r in self._all("noop_list", dataset_id=dataset_id, limit=limit)]

    def put_look(self, dataset_id: str, partition: str, run_id: str, how: str) -> None:
        """Remember the newest look at upstream and how it ended, beside what it ends: the order of commits decides, not a clock."""
        self._do("meta_put", key=f"look/{dataset_id}/{partition}", value=f"{run_id}\n{how}")

    def look(self, dataset_id: str, partition: str) -> tuple[str, str] | None:
        """The run of the newest look at upstream and how it ended; of a store that was rebuilt, the newest NOOP unless it failed since."""
        told = self._one("meta_get", key=f"look/{dataset_id}/{partition}")
        if told is not None:
            run_id, _, how = str(told["value"]).partition("\n")
            return run_id, how
        row = self._one("noop_since_failure", dataset_id=dataset_id, partition=partition)
        return None if row is None else (str(row["run_id"]), str(row["code"]))

    def staged(self, dataset_id: str, partition: str, win: str) -> list[LedgerRow]:
        """The parts of one partition and window that wait to be assembled."""
        return [_ledger_row(r) for r in self._all("run_staged", dataset_id=dataset_id, partition=partition, win=win)]

    def staged_for(self, dataset_id: str, backfill: str) -> list[LedgerRow]:
        """The parts of a backfill that wait to be assembled, by window and partition."""
        return [_ledger_row(r) for r in self._all("run_staged_for", dataset_id=dataset_id, backfill=backfill)]

    def staged_ids(self, dataset_id: str, backfill: str) -> set[str]:
        return {str(r["run_id"]) for r in self._all("run_staged_ids", dataset_id=dataset_id, backfill=backfill)}

    def staged_counts(self, dataset_id: str) -> dict[str, int]:
        """Backfill -> how many parts wait to be assembled."""
        return {str(r["backfill"]): int(r["parts"]) for r in self._all("run_staged_counts", dataset_id=dataset_id)}


class IndexView(View):
    """What is derived from evidence: channel generations, lineage, outbox, head keys."""

    @staticmethod
    def _generation(raw: Row) -> Generation:
        values = dict(raw)
        for name in ("contents", "held", "suppressed"):
            values[name] = msgspec.json.decode(values[name])
        return Generation(**values)

    def new_proposal(self, run_id: str) -> int:
        """The number of a run's proposal, given once; numbers have no gaps."""
        self._alone("proposal numbers")
        self._do("proposal_new", run_id=run_id)
        return int(self.proposal_number(run_id) or 0)

    def hand_on_proposal(self, old: str, new: str) -> None:
        """The number of one run's proposal goes to another run, which takes its place."""
        self._do("proposal_hand_on", old=old, new=new)

    def put_proposal(self, number: int, run_id: str) -> None:
        """The number a run's proposal has in the evidence; of several runs that had it in turn the last one keeps it."""
        self._do("proposal_put", number=number, run_id=run_id)

    def proposal_number(self, run_id: str) -> int | None:
        row = self._one("proposal_number", run_id=run_id)
        return None if row is None else int(row["number"])

    def proposal_run(self, number: int) -> LedgerRow | None:
        row = self._one("proposal_run", number=number)
        return None if row is None else _ledger_row(row)

    def proposals_waiting(self) -> list[tuple[int, LedgerRow]]:
        return [(int(r["number"]), _ledger_row(r)) for r in self._all("proposals_waiting")]

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

    def put_generation(self, row: Generation) -> None:
        values = msgspec.structs.asdict(row)
        for name in ("contents", "held", "suppressed"):
            values[name] = msgspec.json.encode(values[name]).decode()
        self._do("generation_put", **values)

    def put_outbox(self, run_id: str, dataset_id: str, generation: int, payload: str) -> None:
        self._do("outbox_put", run_id=run_id, dataset_id=dataset_id, generation=generation, payload=payload)

    def outbox(self) -> list[OutboxRow]:
        return [OutboxRow(**dict(r)) for r in self._all("outbox_waiting")]

    def mark_outbox(self, run_id: str, generation: int, state: str) -> None:
        self._do("outbox_mark", run_id=run_id, generation=generation, state=state)

    def forget(self, dataset_id: str) -> None:
        """Drop what tells of the content of a dataset: lineage, announcements, validators, plans, NOOPs; generations keep what they keep out."""
        for row in self.generations(dataset_id):
            blank = msgspec.json.encode(dict.fromkeys(row.contents, "erased")).decode()
            self._do("generation_forget", dataset_id=dataset_id, generation=row.generation, contents=blank)
        for query in ("lineage_edge_forget", "lineage_forget", "outbox_forget", "head_key_forget", "source_state_forget", "noop_forget"):
            self._do(query, dataset_id=dataset_id)
        self._do("plan_forget", like=f'%"dataset_id":"{dataset_id}"%')

    def put_lineage(self, run_id: str, dataset_id: str, generation: int, record: str, edges: Iterable[tuple[str, str, str]]) -> None:
        self._do("lineage_put", run_id=run_id, dataset_id=dataset_id, generation=generation, record=record)
        for source, kind, target in edges:
            self._do("lineage_edge_put", source=source, kind=kind, target=target, run_id=run_id)

    def lineage(self, dataset_id: str | None = None) -> list[dict[str, Any]]:
        return [dict(r) for r in self._all("lineage_list", dataset_id=dataset_id)]

    def head_key(self, dataset_id: str, partition: str, win: str) -> HeadKey | None:
        row = self._one("head_key_get", dataset_id=dataset_id, partition=partition, win=win)
        return None if row is None else HeadKey(**dict(row))

    def head_keys(self, dataset_id: str) -> list[HeadKey]:
        return [HeadKey(**dict(r)) for r in self._all("head_key_all", dataset_id=dataset_id)]

    def forget_generations(self, dataset_id: str) -> None:
        """Forget what was read from the files of a channel: the next look at its head reads them again."""
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
