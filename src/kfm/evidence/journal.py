"""The journal of one run: intents are durable before effects, a DONE may ride in the next commit,
everything is hash-chained.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from kfm.keys.commitments import OPEN, Veil
from kfm.model import Asked, Clock, IntegrityError, Phase, canonical, rfc3339
from kfm.model.ledger import Status
from kfm.store.base import LedgerRow, Store, Token, Tx, WalRecord

__all__ = [
    "Journal",
    "Page",
    "asked_of",
    "check_chain",
    "covered",
    "done_of",
    "fold",
    "payload_of",
    "record_hash",
]

T = TypeVar("T")
P = TypeVar("P", bound=msgspec.Struct)


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
                remedy=(
                    "Run `kfm doctor --fix`: it sets the journal aside and closes its run; the next"
                    " run starts over."
                ),
            )
        prev = record.hash


def fold(records: Sequence[WalRecord]) -> dict[str, WalRecord]:
    """The newest record of every step: the state of a run."""
    return {r.step_id: r for r in records}


def payload_of(record: WalRecord, veil: Veil, kind: type[P]) -> P:
    """What a record carries, uncovered. The chain is over what is written, so it needs no key."""
    try:
        text = record.payload
        if text.startswith('{"sealed":'):
            text = veil.uncover(msgspec.json.decode(text, type=dict[str, str])["sealed"])
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise IntegrityError(
            f"What journal {record.wal_id[:12]} says of {record.step_id} cannot be read: {error}.",
            expected="what a kfm of this version or an older one wrote",
            remedy="Use the kfm that wrote it; else run the dataset again with --force --reason.",
        ) from error


def asked_of(records: Sequence[WalRecord], veil: Veil) -> Asked | None:
    """What a run was asked for; None: it has no journal."""
    return payload_of(records[0], veil, Asked) if records else None


def done_of(records: Sequence[WalRecord], step_id: str, veil: Veil, kind: type[P]) -> P | None:
    """What the newest record of a step carries; None unless the step is done."""
    for record in reversed(records):
        if record.step_id == step_id:
            return payload_of(record, veil, kind) if record.status == "DONE" else None
    return None


def covered(payload: str, veil: Veil) -> str:
    """A payload as it is written: JSON, of a private dataset sealed."""
    return msgspec.json.encode({"sealed": veil.cover(payload)}).decode() if veil.hides else payload


class Page:
    """The records of one transaction. They enter the memory of the journal once the store has said
    yes.
    """

    def __init__(self, run: LedgerRow, last: WalRecord | None, now: str, veil: Veil) -> None:
        self.run = run  # as this transaction leaves it
        self._last, self._now, self._veil = last, now, veil
        self.records: list[WalRecord] = []
        # the tokens that the store found to be the newest of their leases
        self.held: tuple[str, ...] = ()

    def make(
        self, phase: Phase, step_id: str, status: Status, payload: msgspec.Struct | None = None
    ) -> None:
        """Write the next record."""
        run = self.run
        told = msgspec.json.encode(payload).decode() if payload is not None else "{}"
        self.add(
            WalRecord(
                wal_id=run.wal_id,
                seq=0,
                phase=phase,
                step_id=step_id,
                updater_id=run.updater_id,
                updater_version=run.updater_version,
                input_hash=run.input_hash,
                payload=covered(told, self._veil),
                status=status,
                ts=self._now,
                prev="",
                hash="",
            )
        )

    def move(self, tx: Tx, leaves: str, **changes: object) -> LedgerRow:
        """Change the row of the run, which is in state `leaves`."""
        self.run = tx.runs.move(self.run.run_id, leaves, **changes)
        return self.run

    def add(self, record: WalRecord) -> None:
        """Put a record after the last one."""
        last = self._last
        seq, prev = (last.seq + 1, last.hash) if last else (0, "")
        # what rode along was hashed in its place already
        if not record.hash or record.seq != seq or record.prev != prev:
            record = msgspec.structs.replace(record, seq=seq, prev=prev)
            record = msgspec.structs.replace(record, hash=record_hash(record))
        self._last = record
        self.records.append(record)


class Journal:
    """The one door to a run: every commit checks its leases, appends, and changes what is held here
    only after the store said yes.

    Without a lease it can only be read.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        run: LedgerRow,
        records: Sequence[WalRecord] = (),
        tokens: tuple[Token, ...] = (),
        veil: Veil = OPEN,
    ) -> None:
        check_chain(records)
        self._store, self._clock, self._run, self._veil = store, clock, run, veil
        self._stored = list(records)
        self._riding: list[WalRecord] = []  # what no commit has taken yet
        self._unsure = False  # the store did not say whether it took the last commit
        self._tokens = tokens

    @property
    def run(self) -> LedgerRow:
        """Its row, as the last commit left it."""
        return self._run

    @property
    def tokens(self) -> tuple[Token, ...]:
        return self._tokens

    @property
    def records(self) -> list[WalRecord]:
        return [*self._stored, *self._riding]

    def under(self, *tokens: Token) -> "Journal":
        """The same journal under these leases; this one is read only from now on."""
        found = Journal(self._store, self._clock, self._run, self._stored, tokens, self._veil)
        found._riding, found._unsure, self._tokens = self._riding, self._unsure, ()
        return found

    def state(self, step_id: str) -> str | None:
        """PENDING, IN_PROGRESS, DONE, FAILED, or None when the journal does not know the step."""
        for record in reversed(self.records):
            if record.step_id == step_id:
                return record.status
        return None

    def payload(self, step_id: str, kind: type[P]) -> P | None:
        """What the newest record of a step carries; None unless the step is done."""
        return done_of(self.records, step_id, self._veil, kind)

    @property
    def asked(self) -> Asked:
        """What the run was asked for."""
        return asked_of(self.records, self._veil) or Asked()

    def require(self, step_id: str, kind: type[P]) -> P:
        """The same of a step that must be done by now."""
        found = self.payload(step_id, kind)
        if found is None:
            raise IntegrityError(
                f"The journal of run {self._run.run_id} does not say that {step_id} is done.",
                expected="the steps in their order",
                remedy=f"Run `kfm run {self._run.dataset_id} --force --reason …`: it starts over.",
            )
        return found

    def page(self, after: Sequence[WalRecord] = ()) -> Page:
        """An empty one."""
        return Page(self._run, after[-1] if after else None, rfc3339(self._clock.now()), self._veil)

    def done(self, phase: Phase, step_id: str, payload: msgspec.Struct | None = None) -> None:
        """Mark a step DONE; the mark rides in the next commit (losing it repeats a step that may be
        repeated).
        """
        page = self.page(self._riding or self._stored)
        page.make(phase, step_id, "DONE", payload)
        self._riding += page.records

    def begin(self, tx: Tx, page: Page) -> None:
        """Write the first records of a run in the transaction that makes it: a journal nobody sees
        unless the store says yes.
        """
        tx.journals.append(page.records)
        self._stored = list(page.records)

    def commit(self, work: Callable[[Tx, Page], T]) -> T:
        """Make durable what rides and what `work` writes on its page, with all else it does, in one
        transaction under the leases.
        """
        if not self._tokens:
            raise AssertionError("a journal is written under a lease")
        unsure = self._unsure

        def transact(tx: Tx) -> tuple[T, list[WalRecord], Page]:
            held = tx.leases.check(*self._tokens)
            stored = tx.journals.get(self._run.wal_id) if unsure else self._stored
            page, known = self.page(stored), {r.hash for r in stored} if unsure else ()
            page.held = held
            for record in self._riding:
                if record.hash not in known:
                    page.add(record)
            result = work(tx, page)
            tx.journals.append(page.records)
            return result, stored, page

        self._unsure = True
        result, stored, page = self._store.transaction(transact)
        stored += page.records
        self._stored, self._run, self._riding, self._unsure = stored, page.run, [], False
        return result

    def intend(self, phase: Phase, step_id: str, payload: msgspec.Struct | None = None) -> None:
        """Say durably what is about to happen."""
        self.commit(lambda tx, page: page.make(phase, step_id, "IN_PROGRESS", payload))
