"""The ledger: ledger/idempotency.sqlite, or ledger/ledger.jsonl where SQLite may keep no file."""

from kfm.extras.jsonl.store import JsonlStore
from kfm.store.base import LedgerRow
from kfm.store.sqlite import SqliteStore

__all__ = ["JsonlStore", "LedgerRow", "SqliteStore"]
