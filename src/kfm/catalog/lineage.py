"""One lineage record and three of its renderings: index edges, a Cypher batch, an OpenLineage
event.
"""

import json
from collections.abc import Callable, Iterable, Mapping

import msgspec

from kfm.model import Json, LedgerRow, canonical, without_emitter

__all__ = ["LineageRecord", "Used", "cypher", "edges", "labels_told", "openlineage", "record_of"]


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """An input as it may be told: its address, and its digest or a commitment to it."""

    uri: str
    hash: str


class LineageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one run used and generated."""

    run_id: str
    updater_id: str
    updater_version: str
    wal_id: str
    trigger_type: str
    started_at: str
    dataset_id: str
    version_id: str
    version_digest: str
    base_version: str | None
    inputs: tuple[Used, ...]
    outputs: tuple[str, ...]  # paths below the version's folder
    labels: dict[str, str] = {}  # sensitivity, policy_label, care_label, licence: those there are


def record_of(
    public: Callable[[str, str], str],
    row: LedgerRow,
    artifacts: Iterable[str],
    labels: Mapping[str, str | None],
) -> LineageRecord:
    """The lineage of a promoted run; promote and reindex both make it here, so that they say the
    same.

    `public(dataset_id, value)` gives what may be told of an input: its digest, or a commitment to
    it.
    """
    d = row.dataset_id
    return LineageRecord(
        run_id=row.run_id,
        updater_id=row.updater_id,
        updater_version=row.updater_version,
        wal_id=public(d, row.wal_id),
        trigger_type=without_emitter(row.trigger_type),
        started_at=row.timestamp,
        dataset_id=row.dataset_id,
        version_id=str(row.version_id),
        version_digest=str(row.version_digest),
        base_version=row.base_version,
        inputs=tuple(
            Used(uri=s["source_url"], hash=public(d, s["digest"]))
            for s in msgspec.json.decode(row.source_metadata)
        ),
        outputs=tuple(artifacts),
        labels={name: value for name, value in labels.items() if value},
    )


def labels_told(spec: Json | None) -> dict[str, str | None]:
    """The labels a run was made under, from the spec in its journaled PLAN or its record: whoever
    tells them later says the same.
    """
    registry = (spec or {}).get("registry") or {}
    return {
        name: registry.get(name)
        for name in ("sensitivity", "policy_label", "care_label", "licence")
    }


def edges(record: LineageRecord) -> list[tuple[str, str, str]]:
    """(source, kind, target) rows for recursive queries."""
    run, version = f"run:{record.run_id}", f"version:{record.dataset_id}@{record.version_id}"
    found = [(f"asset:{i.uri}#{i.hash}", "USED_IN", run) for i in record.inputs]
    found.append((run, "GENERATED", version))
    if record.base_version and record.base_version != record.version_id:
        found.append((version, "SUPERSEDES", f"version:{record.dataset_id}@{record.base_version}"))
    return found


def cypher(record: LineageRecord) -> str:
    """Separate statements, MERGE on keys only, so loading twice changes nothing and empty inputs
    still write the run.
    """
    q = json.dumps
    lines = [
        (
            f"MERGE (r:Run {{id: {q(record.run_id)}}}) SET r.updater_id = {q(record.updater_id)},"
            f" r.version = {q(record.updater_version)}, r.started_at = {q(record.started_at)},"
            f" r.trigger_type = {q(record.trigger_type)}, r.wal_id = {q(record.wal_id)};"
        ),
        f"MERGE (s:Dataset {{key: {q(record.dataset_id)}}});",
        (
            f"MERGE (v:DatasetVersion {{key: {q(record.dataset_id + '@' + record.version_id)}}})"
            f" SET v.hash = {q(record.version_digest)}, "
            "v.version ="
            f" {q(record.version_id)}{''.join(f', v.{name} = {q(value)}' for name, value in sorted(record.labels.items()))};"
        ),
        (
            f"MATCH (s:Dataset {{key: {q(record.dataset_id)}}}), (v:DatasetVersion {{key:"
            f" {q(record.dataset_id + '@' + record.version_id)}}}) MERGE (s)-[:HAS_VERSION]->(v);"
        ),
        (
            f"MATCH (r:Run {{id: {q(record.run_id)}}}), (v:DatasetVersion {{key:"
            f" {q(record.dataset_id + '@' + record.version_id)}}}) MERGE (r)-[:GENERATED]->(v);"
        ),
    ]
    for asset in record.inputs:
        lines.append(
            f"MERGE (a:Asset {{uri: {q(asset.uri)}, hash: {q(asset.hash)}}}) ON CREATE SET"
            f" a.first_seen_at = {q(record.started_at)};"
        )
        lines.append(
            f"MATCH (a:Asset {{uri: {q(asset.uri)}, hash: {q(asset.hash)}}}), (r:Run {{id:"
            f" {q(record.run_id)}}}) MERGE (a)-[:USED_IN]->(r);"
        )
    return "\n".join(lines) + "\n"


PRODUCER = "kfm://producer/kfm"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"


def openlineage(record: LineageRecord) -> bytes:
    """A COMPLETE event: what the run used, by address, and the version it made."""
    event: Json = {
        "eventType": "COMPLETE",
        "eventTime": record.started_at,
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": record.run_id},
        "job": {"namespace": "kfm", "name": record.updater_id},
        "inputs": [
            {
                "namespace": _namespace(i.uri),
                "name": i.uri,
                "facets": {"version": _version(i.hash)},
            }
            for i in record.inputs
        ],
        "outputs": [
            {
                "namespace": "kfm",
                "name": f"{record.dataset_id}/{path}",
                "facets": {
                    "version": _version(record.version_id),
                    **({"tags": _tags(record.labels)} if record.labels else {}),
                },
            }
            for path in record.outputs
        ],
    }
    return canonical.dumps(event) + b"\n"


def _namespace(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _version(value: str) -> dict[str, str]:
    return {
        "_producer": PRODUCER,
        "_schemaURL": "https://openlineage.io/spec/facets/1-0-1/DatasetVersionDatasetFacet.json",
        "datasetVersion": value,
    }


def _tags(labels: Mapping[str, str]) -> Json:
    return {
        "_producer": PRODUCER,
        "_schemaURL": "https://openlineage.io/spec/facets/1-0-0/TagsDatasetFacet.json",
        "tags": [
            {"key": name, "value": value, "source": "kfm"} for name, value in sorted(labels.items())
        ],
    }
