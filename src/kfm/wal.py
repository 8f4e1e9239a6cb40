"""The journal of one run: intents are durable before effects, a DONE may ride in the next commit, everything is hash-chained."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from kfm import canonical
from kfm.clock import Clock, rfc3339
from kfm.errors import IntegrityError
from kfm.store.base import LedgerRow, Store, Token, WalRecord

__all__ = ["Wal", "check_chain", "fold", "record_hash"]

T = TypeVar("T")


def record_hash(record: WalRecord) -> str:
    fields = msgspec.structs.astuple(record)[:-1]
    return hashlib.sha256(canonical.dumps(list(fields))).hexdigest()


def check_chain(records: Sequence[WalRecord]) -> None:
    """Raise when a record was altered, lost or reordered."""
    prev = ""
    for number, record in enumerate(records):
        if record.seq != number or record.prev != prev or record_hash(record) != record.hash:
            raise IntegrityError(
                f"Record {number} of journal {record.wal_id[:12]} is damaged.",
                expected="an unbroken hash chain",
                remedy="Run `kfm doctor --fix`: it sets the journal aside and closes its run; the next run starts over.",
            )
        prev = record.hash


def fold(records: Sequence[WalRecord]) -> dict[str, WalRecord]:
    """The newest record of every step: the state of a run."""
    return {r.step_id: r for r in records}


class Wal:
    """Appends to one journal under the leases its run holds."""

    def __init__(self, store: Store, clock: Clock, run: LedgerRow, records: Sequence[WalRecord] = ()) -> None:
        check_chain(records)
        self._store, self._clock, self.run = store, clock, run
        self.records = list(records)
        self._riding: list[WalRecord] = []
        self.tokens: tuple[Token, ...] = ()

    def state(self, step_id: str) -> str | None:
        """PENDING, IN_PROGRESS, DONE, FAILED, or None when the journal does not know the step."""
        for record in reversed(self.records):
            if record.step_id == step_id:
                return record.status
        return None

    def payload(self, step_id: str) -> Any:
        """What the newest record of a step carries."""
        for record in reversed(self.records):
            if record.step_id == step_id:
                return msgspec.json.decode(record.payload)
        return None

    def make(self, phase: str, step_id: str, status: str, payload: Any = None) -> WalRecord:
        """The next record; not durable until a commit takes it along."""
        run, last = self.run, self.records[-1] if self.records else None
        record = WalRecord(
            wal_id=run.wal_id,
            seq=last.seq + 1 if last else 0,
            phase=phase,  # type: ignore[arg-type]
            step_id=step_id,
            updater_id=run.updater_id,
            updater_version=run.updater_version,
            input_hash=run.input_hash,
            payload=msgspec.json.encode(payload if payload is not None else {}).decode(),
            status=status,  # type: ignore[arg-type]
            ts=rfc3339(self._clock.now()),
            prev=last.hash if last else "",
            hash="",
        )
        record = msgspec.structs.replace(record, hash=record_hash(record))
        self.records.append(record)
        self._riding.append(record)
        return record

    def done(self, phase: str, step_id: str, payload: Any = None) -> None:
        """Mark a step DONE; the mark rides in the next commit (losing it repeats a step that may be repeated)."""
        self.make(phase, step_id, "DONE", payload)

    def take_riding(self) -> list[WalRecord]:
        """The records no commit has taken yet, for a transaction of the caller's own."""
        riding, self._riding = self._riding, []
        return riding

    def commit(self, work: Callable[[Any], T] | None = None) -> T | None:
        """Make everything that rides durable, with `work` in the same transaction, if the leases are still ours."""
        riding, tokens = tuple(self._riding), self.tokens

        def transact(tx: Any) -> T | None:
            tx.leases.check(*tokens)
            tx.runs.append(riding)
            return work(tx) if work is not None else None

        result = self._store.transaction(transact)
        self._riding.clear()
        return result

    def intend(self, phase: str, step_id: str, payload: Any = None) -> None:
        """Say durably what is about to happen."""
        self.make(phase, step_id, "IN_PROGRESS", payload)
        self.commit()
