"""Receipts: what a run did, told once, from its ledger row and its journal."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import UNSET

from kfm.connectors.base import UNCONFINED
from kfm.evidence.journal import Journal, asked_of, done_of, fold, payload_of
from kfm.evidence.report import report_of, report_without_values, without_values
from kfm.evidence.run_end import ran_in
from kfm.evidence.run_files import started_at, unpacked
from kfm.keys.commitments import Veil
from kfm.model import (
    ATTESTATION,
    INGEST,
    NEW_COLUMNS,
    Asked,
    Assembled,
    Denied,
    Json,
    KfmError,
    PartDone,
    Pinned,
    Planned,
    Promotion,
    Receipt,
    RunManifest,
    RunRecord,
    Stopped,
    ValidationReport,
    VersionNamed,
    ids,
    is_assembly,
    masked,
    rfc3339,
    without_emitter,
)
from kfm.model.paths import aside_path, proposal_path, receipt_path, run_path, version_path
from kfm.store.base import LedgerRow, Tx, WalRecord
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = [
    "archive_key",
    "find_receipt",
    "finish",
    "manifest_without_values",
    "pretty",
    "promotion_of",
    "read_receipt",
    "run_files",
    "seal",
]

P = TypeVar("P", bound=msgspec.Struct)
# of the files a receipt names, those that lie on the public side
_PUBLIC = ("prov.json", "approvals.json", ATTESTATION)
_STATUS = {
    "COMMITTED": "succeeded",
    "PROPOSED": "succeeded",
    "STAGED": "succeeded",
    "NOOP": "skipped",
    "SUPERSEDED": "skipped",
}


def pretty(value: object) -> bytes:
    """A record as people read it, without any known secret."""
    return (
        masked(msgspec.json.format(msgspec.json.encode(value).decode(), indent=2)).encode() + b"\n"
    )


def find_receipt(zone: Zone, run_id: str) -> str | None:
    """Where the receipt of a run lies; None: it is not here."""
    usual = receipt_path(run_id, started_at(run_id).isoformat())
    if zone.exists(usual):
        return usual
    # midnight came in between
    return next((path for path in zone.names("receipts") if path.endswith(f"/{run_id}.json")), None)


def _done(
    world: World, row: LedgerRow, records: Sequence[WalRecord], step_id: str, kind: type[P]
) -> P | None:
    return done_of(records, step_id, world.veil(row.dataset_id), kind)


def _asked(world: World, row: LedgerRow, records: Sequence[WalRecord]) -> Asked:
    return asked_of(records, world.veil(row.dataset_id)) or Asked()


def _record(world: World, row: LedgerRow, records: Sequence[WalRecord]) -> Json:
    """run_record.json: everything needed to say what was asked, and to ask it again."""
    asked, pin = _asked(world, row, records), _done(world, row, records, "pin", Pinned)
    plan = _done(world, row, records, "plan", Planned)  # none: its input was refused
    return {
        "run_id": row.run_id,
        "dataset_id": row.dataset_id,
        "partition": row.partition,
        "window": row.win,
        "wal_id": row.wal_id,
        "run_key": row.key,
        "spec_hash": row.spec_hash,
        "spec_file_hash": asked.spec_file_hash or None,
        "transform_hash": row.transform_hash,
        "input_hash": row.input_hash,
        "plan_hash": plan.plan_hash if plan is not None else None,
        "toolchain_digest": row.toolchain_digest,
        "pipeline_version": row.pipeline_version,
        "updater_id": row.updater_id,
        "updater_version": row.updater_version,
        "trigger_type": without_emitter(row.trigger_type),
        "forced": bool(row.forced),
        "attempt": row.attempt,
        "base_generation": row.pinned if row.pinned is not None else row.base_generation,
        "base_version": row.base_version,
        "version_id": row.version_id,
        "version_digest": row.version_digest,
        "content_id": row.content_id,
        "rows_read": row.rows_read,
        "rows_written": row.rows_written,
        "sources": msgspec.json.decode(row.source_metadata),
        "spec": asked.spec or None,
        "started_at": row.timestamp,
        "tool_versions": _tool_versions(world),
        **({"backfill": row.backfill} if row.backfill else {}),
        **({"parts": row.part} if is_assembly(row) else {}),
        **({"records": _uncounted(pin.records)} if pin is not None and pin.records else {}),
        **({"request_reason": asked.request_reason} if asked.request_reason else {}),
        **world.facts(),
        **world.marks,
    }


def _uncounted(records: Json) -> Json:
    """Where sealed records lie, by which digest they are known, and not how many they are: that is
    nobody's business.
    """
    return {
        k: _uncounted(v) if isinstance(v, dict) else v
        for k, v in records.items()
        if k not in ("rows", "size", "columns", "counts")
    }


def _tool_versions(world: World) -> dict[str, str]:
    import platform

    return {"python": platform.python_version(), **world.toolchain()}


def _manifest(
    row: LedgerRow, judged: Assembled | None, failed: bool, marks: Mapping[str, object]
) -> Json:
    """run_manifest.json: the promotion contract; `failed`: so did its assembly."""
    return {
        "run_id": row.run_id,
        "dataset_id": row.dataset_id,
        "version_id": row.version_id,
        "version_digest": row.version_digest,
        "base_generation": row.pinned,
        # the only one its promote may create
        "generation": (
            row.pinned + 1 if row.pinned is not None and (judged is not None or failed) else None
        ),
        "artifacts": judged.artifacts if judged is not None else {},
        "output_keys": judged.output_keys if judged is not None else (),
        "verdicts": msgspec.to_builtins(judged.verdicts) if judged is not None else [],
        **marks,
    }


def manifest_without_values(manifest: Json) -> Json:
    artifacts = {
        path: {k: a[k] for k in ("digest", "release", "from") if k in a}
        for path, a in manifest["artifacts"].items()
    }
    verdicts = [
        {
            k: without_values(v) if k in ("reasons", "review") else v
            for k, v in verdict.items()
            if k != "note"
        }
        for verdict in manifest["verdicts"]
    ]
    return {**manifest, "artifacts": artifacts, "verdicts": verdicts}


def _receipt(
    world: World,
    row: LedgerRow,
    records: Sequence[WalRecord],
    digests: Mapping[str, str],
    finished_at: str,
) -> Json:
    judged, asked = _done(world, row, records, "assemble", Assembled), _asked(world, row, records)
    part = _done(world, row, records, "transform", PartDone)
    failed = row.state in ("FAILED", "REJECTED")
    kind = "Published" if row.intent is not None else "Work"
    outputs = [
        {
            "kind": "file",
            "id": f"kfm://dataset/{row.dataset_id}@{row.version_id}/{path}",
            "checksum": a["digest"],
            "zone": kind,
        }
        for path, a in (judged.artifacts if judged is not None else {}).items()
    ]
    decisions = [
        {
            "decision": "deny" if v.reasons else "allow",
            "gate": v.gate,
            "reason": "; ".join(r.code for r in (*v.reasons, *v.review)) or "pass",
        }
        for v in (judged.verdicts if judged is not None else ())
    ]
    sources = msgspec.json.decode(row.source_metadata)

    def public(value: str) -> str:  # of a private input only a commitment is told
        return world.stand_in(row.dataset_id, value) if value else ""

    return {
        "run_id": row.run_id,
        "job_id": ids.job_id(
            INGEST,
            [{"kind": "dataset", "id": f"kfm://dataset/{row.dataset_id}"}],
            {"partition": row.partition},
            row.win or None,
        ),
        "job_type": INGEST,
        "dataset_id": row.dataset_id,
        "started_at": row.timestamp,
        "finished_at": finished_at,
        "status": "failed" if failed else _STATUS.get(row.state, "failed"),
        "reason": row.reason or without_emitter(row.trigger_type),
        "run_key": public(row.key),
        "spec_hash": row.spec_hash,
        "output_keys": judged.output_keys if judged is not None else (),
        "inputs": [
            {"kind": "uri", "id": s["source_url"], "checksum": public(s.get("digest") or "")}
            for s in sources
        ],
        "outputs": outputs,
        "provenance": {
            "tool_versions": {
                **_tool_versions(world),
                "worker_image": world.facts().get("image_digest"),
            },
            "transforms": [
                {
                    "id": row.updater_id,
                    "version": row.updater_version,
                    "transform_hash": row.transform_hash,
                },
                *(
                    {
                        "id": s["step"],
                        "version": row.updater_version,
                        "discharges": s.get("discharges") or "",
                    }
                    for s in (judged.steps if judged is not None else ())
                ),
            ],
            "policy_decisions": decisions,
            "files": {
                name: digest if name in _PUBLIC else public(digest)
                for name, digest in digests.items()
            },
            **{k: v for k, v in world.facts().items() if k == "git_sha"},
        },
        "request_reason": asked.request_reason or "",
        "warnings": (
            [f"{UNCONFINED}: {part.unconfined}."] if part is not None and part.unconfined else []
        ),
        "errors": (
            [{"message": row.reason, "stack": _stack(world, row, records)}] if failed else []
        ),
        **(
            {"promotion": msgspec.to_builtins(seen)}
            if row.intent is not None
            and (seen := promotion_of(records, world.veil(row.dataset_id))) is not None
            else {}
        ),
        **_vouched(world, asked),
        **world.marks,
    }


def _stack(world: World, row: LedgerRow, records: Sequence[WalRecord]) -> str | None:
    """Where the code of a failed step raised, if it did."""
    last = next((r for r in reversed(records) if r.status == "FAILED"), None)
    if last is None:
        return None
    return payload_of(last, world.veil(row.dataset_id), Stopped).stack or None


def _vouched(world: World, asked: Asked) -> dict[str, str]:
    """Who answers for a run, and for how sensitive its outputs were taken; what nobody can tell is
    left out.
    """
    found = {"sensitivity": asked.registry.get("sensitivity")}
    with suppress(KfmError):  # without a key nothing is signed, and the receipt still tells why
        found["built_by"] = f"kfm://builder/{world.keys.signer}"
    return {name: value for name, value in found.items() if value}


def promotion_of(records: Sequence[WalRecord], veil: Veil) -> Promotion | None:
    """What the journal says was looked at when the run named its generation; None: nothing, as in
    one of an older kfm.
    """
    named = (
        payload_of(r, veil, VersionNamed)
        for r in records
        if r.step_id == "version" and r.status == "IN_PROGRESS"
    )
    return next((told.promotion for told in named if told.promotion is not UNSET), None)


def run_files(
    world: World, row: LedgerRow, records: Sequence[WalRecord], judged: Assembled | None
) -> dict[str, str]:
    """Write the three records of a run, each once; returns name -> digest."""
    last = fold(records).get("assemble")
    failed = last is not None and last.status == "FAILED"
    part, asked = _done(world, row, records, "transform", PartDone), _asked(world, row, records)
    report = report_of(row, asked.registry, part, judged, world.marks)
    manifest = _manifest(row, judged, failed, world.marks)
    if world.is_private(row.dataset_id):
        report, manifest = report_without_values(report), manifest_without_values(manifest)
        # a name may be a value too: which they are, the journal knows
        report["warnings"] = [NEW_COLUMNS] if judged is not None and judged.added else []
    files = {
        "run_record.json": msgspec.convert(_record(world, row, records), RunRecord),
        "validation_report.json": msgspec.convert(report, ValidationReport),
        "run_manifest.json": msgspec.convert(manifest, RunManifest),
    }
    digests = {}
    for name, found in files.items():
        path = run_path(row.dataset_id, row.run_id, name)
        digests[name] = _once(world.root, world.data, path, pretty(found), row.run_id)
    return digests


def seal(world: World, row: LedgerRow, records: Sequence[WalRecord]) -> str:
    """Write the run's records and its receipt, each once; returns the receipt's digest.

    A file that exists is read back and its digest used, never sealed again: its bytes hold the time
    of the first attempt.
    """
    digests = run_files(world, row, records, _done(world, row, records, "assemble", Assembled))
    for name in ("prov.json", "approvals.json"):
        with suppress(FileNotFoundError):
            digests[name] = ids.digest(world.kept(proposal_path(row.dataset_id, row.run_id, name)))
    lineage = run_path(row.dataset_id, row.run_id, "lineage.json")
    if world.data.exists(lineage):
        digests["lineage.json"] = ids.digest(world.data.read(lineage))
    signed = version_path(row.dataset_id, row.version_id, ATTESTATION)
    # so that the generation vouches for it, whatever becomes of the key later
    if row.intent is not None and world.data.exists(signed):
        digests[ATTESTATION] = ids.digest(world.data.read(signed))
    finished = row.ended_at or rfc3339(world.clock.now())
    path = _receipt_path(_asked(world, row, records), row)
    receipt = msgspec.convert(_receipt(world, row, records, digests, finished), Receipt)
    return _once(world.root, world.root, path, pretty(receipt), row.run_id)


def _receipt_path(asked: Asked, row: LedgerRow) -> str:
    """Where its receipt goes; one of an older kfm did not say."""
    return asked.receipt_path or receipt_path(row.run_id, row.timestamp)


def _once(root: Zone, zone: Zone, path: str, content: bytes, run_id: str) -> str:
    """Create, or take what an earlier attempt sealed, if it is whole; nothing official names it
    yet, so a damaged one is set aside.
    """
    if zone.create(path, content):
        return ids.digest(content)
    found = zone.read(path)
    try:
        whole = msgspec.json.decode(found).get("run_id") == run_id
    except (msgspec.DecodeError, AttributeError):
        whole = False
    if not whole:
        _instead(root, zone, path, found, content, run_id)
        return ids.digest(content)
    return ids.digest(found)


def _instead(root: Zone, zone: Zone, path: str, found: bytes, content: bytes, run_id: str) -> None:
    """Set aside what was found in the place of a file, and write the file."""
    root.create(aside_path(f"{run_id}-{path.rsplit('/', 1)[-1]}"), found)
    zone.remove(path)
    zone.create(path, content)


def finish(world: World, run_id: str) -> None:
    """After a run has ended: seal what is not sealed, archive its journal. Repeatable; every tick
    does what a crash left.
    """
    row, records = world.store.read(lambda tx: _row_and_records(tx, run_id))
    if row is None or row.ended_at is None or row.archived:
        return
    sealed = ""  # of a committed run the channel names it
    if row.state != "COMMITTED" and not _lost(world, row, records):
        sealed = seal(world, row, records)
        world.data.create(
            run_path(row.dataset_id, row.run_id, "outcome.json"),
            pretty(outcome_of(row) | dict(world.marks)),
        )
    of, veil = (world.store, world.clock, row, records, ()), world.veil
    world.telemetry.archiving(world, row, lambda: ran_in(Journal(*of, veil(row.dataset_id))))
    lines = b"".join(msgspec.json.encode(r) + b"\n" for r in records)
    archive = run_path(row.dataset_id, row.run_id, "wal.jsonl")
    if lines and not world.data.create(archive, lines):
        found = world.data.read(archive)
        if found != lines:  # the journal is dropped: this is the only place that keeps its records
            _instead(world.root, world.data, archive, found, lines, run_id)

    path = _receipt_path(_asked(world, row, records) if sealed else Asked(), row)

    def compact(tx: Tx) -> None:
        tx.runs.move(run_id, row.state, archived=1)
        if sealed:
            tx.effects.put(path, "", sealed)
        if lines:
            tx.effects.set(archive_key(archive), ids.digest(lines))
        tx.journals.drop(row.wal_id)  # the same records lie beside the receipts now

    world.store.transaction(compact)


def archive_key(path: str) -> str:
    """What the store knows the digest of an archived journal by."""
    return f"archived:{path}"


def _lost(world: World, row: LedgerRow, records: Sequence[WalRecord]) -> bool:
    """Whether the key that sealed the journal is gone: nothing can be told of the run any more but
    that it was.
    """
    try:
        _asked(world, row, records)
    except Denied:
        return True
    return False


def read_receipt(path: Path) -> bytes:
    """A receipt from its file, or from the pack beside it; raises `FileNotFoundError` when it is in
    neither.
    """
    for file in () if path.exists() else sorted(path.parent.glob("*.jsonl")):
        for run_id, text in unpacked(file.read_bytes(), "text"):
            if run_id == path.stem:
                return str(text).encode()
    return path.read_bytes()


def outcome_of(row: LedgerRow) -> Json:
    """How a run that is not in a channel ended; what reindex reads."""
    return {
        "run_id": row.run_id,
        "state": row.state,
        "reason": row.reason,
        "ended_at": row.ended_at,
    }


def _row_and_records(tx: Tx, run_id: str) -> tuple[LedgerRow | None, list[WalRecord]]:
    row = tx.runs.get(run_id)
    return row, tx.journals.get(row.wal_id) if row is not None else []
