"""JSON Schemas, generated from the records themselves: `python -m kfm.cli.schemas schemas/`."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec

from kfm.cli.call import Failure
from kfm.cli.spec import COMMANDS
from kfm.jobs.backfill_plan import BackfillPlan
from kfm.jobs.backfill_records import Summary
from kfm.model import (
    channel,
    connector,
    dataset,
    job,
    ledger,
    plan,
    receipt,
    schedule,
    telemetry,
    webhook,
)
from kfm.model.canonical import Json
from kfm.reader.log import AuditLine, DecisionLine, RequestLine
from kfm.reader.settings import Serve
from kfm.story.node import Story
from kfm.webhook.failures import Failure as RefusedLine

__all__ = ["answers", "documents", "of_telemetry", "write"]

RECORDS: dict[str, type] = {
    "cli/error": Failure,
    "config/workspace": dataset.WorkspaceConfig,
    "config/dataset": dataset.DatasetEntry,
    "config/updater": dataset.UpdaterConfig,
    "config/backfill": BackfillPlan,
    "config/schedule": schedule.Schedule,
    "config/webhook": webhook.WebhookSource,
    "config/serve": Serve,
    "model/webhook-event": webhook.Event,
    "telemetry/webhook-failure": RefusedLine,
    "model/job-envelope": job.Envelope,
    "telemetry/worker-line": job.JobLine,
    "telemetry/reader-line": RequestLine,
    "telemetry/decision-line": DecisionLine,
    "telemetry/audit-line": AuditLine,
    "telemetry/signal": job.Signal,
    "model/plan": plan.Plan,
    "model/source-ref": plan.SourceRef,
    "model/wal-record": ledger.WalRecord,
    "model/ledger-row": ledger.LedgerRow,
    "model/generation": channel.GenerationPredicate,
    "model/story-node": Story,
    "receipts/receipt": receipt.Receipt,
    "receipts/run-record": receipt.RunRecord,
    "receipts/run-manifest": receipt.RunManifest,
    "receipts/validation-report": receipt.ValidationReport,
    "receipts/backfill-summary": Summary,
    "receipts/stage-receipt": connector.StageReceipt,
    "model/capabilities": connector.Capabilities,
    "artifacts/idempotency": receipt.IdempotencyState,
    "artifacts/run-line": receipt.LogLine,
    "telemetry/pipelines-updater-v1": receipt.TelemetryEvent,
    "telemetry/reliability/updaters-v1": telemetry.RunTelemetry,
    "telemetry/energy-v2": telemetry.Energy,
    "telemetry/carbon-v2": telemetry.Carbon,
    "artifacts/publisher-trace-line": receipt.TraceLine,
}


def answers() -> dict[str, tuple[type, ...]]:
    """What each command answers: `cli/noun-verb` -> the types that its handler returns."""
    found = {}
    for command in COMMANDS.values():
        module, _, function = command.handler.partition(":")
        handler = getattr(importlib.import_module(f"kfm.cli.{module}"), function)
        answer = get_type_hints(handler)["return"]
        types = tuple(t for t in get_args(answer) or (answer,) if t is not type(None))
        if types:
            found[f"cli/{command.name.replace(' ', '-')}"] = types
    return found


def documents() -> dict[str, Json]:
    """File name -> schema."""
    return _schemas({**{n: (r,) for n, r in RECORDS.items()}, **answers()})


def of_telemetry() -> dict[str, Json]:
    """What documents of a workspace refer to."""
    names = ("pipelines-updater-v1", "reliability/updaters-v1", "energy-v2", "carbon-v2")
    return _schemas({f"telemetry/{name}": (RECORDS[f"telemetry/{name}"],) for name in names})


def _schemas(of: Mapping[str, tuple[type, ...]]) -> dict[str, Json]:
    found = {}
    for name, types in of.items():
        which, defined = msgspec.json.schema_components(
            types, schema_hook=_anything, ref_template="#/$defs/{name}"
        )
        body = which[0] if len(which) == 1 else {"anyOf": list(which)}
        # tuples become arrays
        parts: Json = msgspec.json.decode(msgspec.json.encode(defined))
        for part in parts.values():
            if "description" in part:
                part["description"] = _unwrapped(part["description"])
        found[f"{name}.json"] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"kfm://schemas/{name}.json",
            "title": " or ".join(t.__name__ for t in types),
            **body,
            "$defs": parts,
        }
    return found


def _anything(kind: type) -> Json:
    """A value of any type, such as one of a stranger's table."""
    if kind is not object:
        raise NotImplementedError(kind)  # as msgspec asks a hook to say that it knows none
    return {"description": "anything"}  # an empty schema is taken for none


def _unwrapped(text: str) -> str:
    """A docstring without the width of our pages."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def write(folder: Path, schemas: Mapping[str, Json]) -> None:
    for name, schema in schemas.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]), documents())
