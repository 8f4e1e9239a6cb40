"""The ledger in ledger/idempotency.sqlite."""

from kfm.store.base import LedgerRow
from kfm.store.sqlite import SqliteStore

__all__ = ["LedgerRow", "SqliteStore"]
