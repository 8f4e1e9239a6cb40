"""Rows and journals for a store."""

from typing import Any

from kfm.evidence.journal import Journal
from kfm.model.ledger import LedgerRow


def row(run_id: str = "r1", state: str = "CLAIMED", **more: Any) -> LedgerRow:
    plain = dict.fromkeys(
        ("wal_id", "dataset_id", "partition", "win", "key", "timestamp", "source_metadata", "pipeline_version", "updater_id",
         "updater_version", "spec_hash", "transform_hash", "input_hash", "toolchain_digest", "trigger_type"), "x"
    )  # fmt: skip
    return LedgerRow(
        **(
            plain
            | {
                "run_id": run_id,
                "state": state,
                "attempt": 0,
                "forced": 0,
                "base_version": None,
                "base_generation": 0,
            }
            | more
        )
    )


def journal(store: Any, name: str) -> Journal:
    """A journal under a lease of its own."""
    token = store.transaction(
        lambda tx: (
            tx.leases.take(f"lease/{name}", "me", 600)
            or tx.leases.take(f"lease/{name}/again", "me", 600)
        )
    )
    return Journal(store, store.clock, row(name, wal_id=name), tokens=(token,))
