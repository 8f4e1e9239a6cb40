"""status: what is official, fresh, failed or waiting, and the next command for each."""

import datetime as dt
from typing import Any

from kfm.model.ledger import Generation, LedgerRow
from kfm.model.window import seconds
from kfm.world import World

__all__ = ["dataset_status"]

FRESH_S = 24 * 3600
_STATES = {"COMMITTED": "official", "PROPOSED": "proposed", "REJECTED": "denied", "FAILED": "failed"}


def dataset_status(world: World, dataset_id: str) -> dict[str, Any]:
    """One row of `kfm status --json`."""
    head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    runs: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(dataset_id, 200))
    last = next((r for r in runs if r.state not in ("NOOP", "SUPERSEDED", "STAGED")), None)
    staged = world.store.read(lambda tx: _waiting_parts(tx, dataset_id))
    check = world.store.read(lambda tx: tx.index.latest_check(dataset_id))
    state, reason = _state(world, head, last)
    if staged and state in ("none", "official"):
        state, reason = "waiting" if state == "none" else state, f"{staged:,} parts wait to be assembled"
    waiting = world.store.read(lambda tx: tx.index.proposal_number(last.run_id)) if state == "proposed" and last is not None else None
    age = None if check is None else (world.clock.now() - dt.datetime.fromisoformat(check.checked_at)).total_seconds()
    entry = world.registry(dataset_id)
    fresh = head.version_id is not None and age is not None and age <= (seconds(entry.freshness) if entry is not None else FRESH_S)
    return {
        "dataset_id": dataset_id,
        "state": state,
        "version_id": head.version_id,
        "generation": head.generation,
        "fresh": fresh,
        "last_run_id": last.run_id if last is not None else None,
        "reason": reason,
        "next": "kfm resume"
        if last is not None and last.promo  # approved, or asks nobody: it was left on its way
        else f"kfm review {waiting}"
        if waiting
        else "kfm backfill status"
        if reason.endswith("to be assembled")
        else _next(dataset_id, state, fresh),
    }


def _waiting_parts(tx: Any, dataset_id: str) -> int:
    """The parts that will be assembled; those of a cancelled backfill are not."""
    counts: dict[str, int] = tx.runs.staged_counts(dataset_id)
    return sum(parts for name, parts in counts.items() if getattr(tx.backfill.get(name), "state", "") != "cancelled")


def _state(world: World, head: Generation, last: LedgerRow | None) -> tuple[str, str]:
    if head.generation and head.version_id is None and head.kind == "withdraw":
        return "withdrawn", f"withdrawn by generation {head.generation}"
    if _working(world, head.dataset_id):
        return "running", ""
    if last is None:
        return ("official", "") if head.version_id else ("none", "")
    if last.state == "CLAIMED":
        return "waiting", "interrupted"
    return _STATES.get(last.state, "none"), last.reason


def _working(world: World, dataset_id: str) -> bool:
    """Whether a living process holds a lease of this dataset."""
    held = world.store.read(lambda tx: tx.leases.held())
    return any(not h["lapsed"] and (h["name"] == dataset_id or h["name"].startswith(f"{dataset_id}/")) for h in held)


def _next(dataset_id: str, state: str, fresh: bool) -> str | None:
    if state in ("denied", "failed"):
        return f"kfm explain {'deny' if state == 'denied' else 'run'} {dataset_id}"
    if state in ("waiting", "proposed"):
        return "kfm resume"
    if state == "none" or (state == "official" and not fresh):
        return f"kfm run {dataset_id}"
    return None
