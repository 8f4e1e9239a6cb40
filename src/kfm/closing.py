"""closing: the last lines every run leaves, whatever became of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from kfm.model import ids
from kfm.runlog import RunLog
from kfm.world import World

__all__ = ["close_log", "idempotency_state"]


def close_log(
    world: World,
    log: RunLog,
    idempotency: Mapping[str, Any],
    *,
    source_id: str,
    trigger: str,
    reason: str,
    elapsed_ms: int,
    artifacts: int = 0,
    level: str = "info",
    fields: Mapping[str, Any] | None = None,
) -> None:
    """Telemetry, then the ledger's last word, then the key and what became of it."""
    state = idempotency["state"]
    payload = {
        "run_id": log.run_id,
        "duration_ms": elapsed_ms,
        "dataset": log.dataset_id,
        "source_id": source_id,
        "trigger": trigger,
        "idempotency_state": state,
        "artifact_count": artifacts,
    }
    event = log.event("updater.run", payload)
    world.publish(log).emit_event("updater.run", event)
    log.say("telemetry.emitted", stage="telemetry", event_id=event["event_id"])
    log.say("run.ended", stage="ledger", level=level, state=state, reason=reason, duration_ms=elapsed_ms, **(fields or {}))
    log.idempotency(_told(world, log.dataset_id, idempotency))


def _told(world: World, dataset_id: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """What may be told of a private input: validators and keys that follow its content become commitments."""
    if not world.is_private(dataset_id):
        return dict(state)

    def hidden(value: str) -> str:
        return world.stand_in(dataset_id, value).rpartition(":")[2] if value else ""

    told = {**state, "etag": hidden(state["etag"]), "key": hidden(state["key"])}
    if "sources" in state:
        told["sources"] = [{**s, "etag": hidden(s["etag"]), "key": hidden(s["key"])} for s in state["sources"]]
    return told


def idempotency_state(
    run_id: str,
    dataset_id: str,
    sources: Sequence[Mapping[str, Any]],
    *,
    window: str,
    pipeline_version: str,
    key: str,
    spec_hash: str,
    state: str,
    output_keys: Sequence[str] = (),
) -> dict[str, Any]:
    """`idempotency.json`; several sources as a list beside the first."""
    found = {
        "run_id": run_id,
        "dataset_id": dataset_id,
        "source_url": sources[0]["source_url"],
        "etag": sources[0]["etag"] or "",
        "window": window,
        "pipeline_version": pipeline_version,
        "key": key,
        "output_keys": list(output_keys),
        "spec_hash": spec_hash,
        "state": state,
    }
    if len(sources) > 1:
        found["sources"] = [
            {
                "source_id": s["source_id"],
                "source_url": s["source_url"],
                "etag": s["etag"] or "",
                "key": ids.run_key(s["source_url"], s["etag"], window, pipeline_version),
            }
            for s in sources
        ]
    return found
