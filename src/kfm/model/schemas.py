"""JSON Schemas, generated from the records themselves: `python -m kfm.model.schemas schemas/`."""

import sys
from pathlib import Path

import msgspec

from kfm.model import backfill, channel, connector, dataset, job, ledger, plan, receipt, schedule
from kfm.model.canonical import Json

__all__ = ["documents", "write"]

RECORDS: dict[str, type] = {
    "config/workspace": dataset.WorkspaceConfig,
    "config/dataset": dataset.DatasetEntry,
    "config/updater": dataset.UpdaterConfig,
    "config/backfill": backfill.BackfillPlan,
    "config/schedule": schedule.Schedule,
    "model/job-envelope": job.Envelope,
    "telemetry/worker-line": job.JobLine,
    "telemetry/signal": job.Signal,
    "model/plan": plan.Plan,
    "model/source-ref": plan.SourceRef,
    "model/wal-record": ledger.WalRecord,
    "model/ledger-row": ledger.LedgerRow,
    "model/generation": channel.GenerationPredicate,
    "receipts/receipt": receipt.Receipt,
    "receipts/run-record": receipt.RunRecord,
    "receipts/run-manifest": receipt.RunManifest,
    "receipts/validation-report": receipt.ValidationReport,
    "receipts/backfill-summary": backfill.Summary,
    "receipts/stage-receipt": connector.StageReceipt,
    "model/capabilities": connector.Capabilities,
    "artifacts/idempotency": receipt.IdempotencyState,
    "artifacts/run-line": receipt.LogLine,
    "telemetry/pipelines-updater-v1": receipt.TelemetryEvent,
    "artifacts/publisher-trace-line": receipt.TraceLine,
}


def documents() -> dict[str, Json]:
    """File name -> schema."""
    found = {}
    for name, record in RECORDS.items():
        # tuples become arrays
        body: Json = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(record)))
        for part in body["$defs"].values():
            if "description" in part:
                part["description"] = _unwrapped(part["description"])
        found[f"{name}.json"] = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"kfm://schemas/{name}.json",
            "title": record.__name__,
            **body,
        }
    return found


def _unwrapped(text: str) -> str:
    """A docstring without the width of our pages."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def write(folder: Path) -> None:
    for name, schema in documents().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
