"""One lineage record and two of its renderings: index edges and a Cypher batch."""

import json
from typing import Any

import msgspec

__all__ = ["LineageRecord", "cypher", "edges"]


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
    inputs: tuple[dict[str, Any], ...]  # {uri, hash}
    outputs: tuple[dict[str, Any], ...]  # {key, path, hash}


def edges(record: LineageRecord) -> list[tuple[str, str, str]]:
    """(source, kind, target) rows for recursive queries."""
    run, version = f"run:{record.run_id}", f"version:{record.dataset_id}@{record.version_id}"
    found = [(f"asset:{i['uri']}#{i['hash']}", "USED_IN", run) for i in record.inputs]
    found.append((run, "GENERATED", version))
    if record.base_version and record.base_version != record.version_id:
        found.append((version, "SUPERSEDES", f"version:{record.dataset_id}@{record.base_version}"))
    return found


def cypher(record: LineageRecord) -> str:
    """Separate statements, MERGE on keys only, so loading twice changes nothing and empty inputs still write the run."""
    q = json.dumps
    lines = [
        f"MERGE (r:Run {{id: {q(record.run_id)}}}) SET r.updater_id = {q(record.updater_id)}, r.version = {q(record.updater_version)}, "
        f"r.started_at = {q(record.started_at)}, r.trigger_type = {q(record.trigger_type)}, r.wal_id = {q(record.wal_id)};",
        f"MERGE (s:Dataset {{key: {q(record.dataset_id)}}});",
        f"MERGE (v:DatasetVersion {{key: {q(record.dataset_id + '@' + record.version_id)}}}) SET v.hash = {q(record.version_digest)}, "
        f"v.version = {q(record.version_id)};",
        f"MATCH (s:Dataset {{key: {q(record.dataset_id)}}}), (v:DatasetVersion {{key: {q(record.dataset_id + '@' + record.version_id)}}}) "
        "MERGE (s)-[:HAS_VERSION]->(v);",
        f"MATCH (r:Run {{id: {q(record.run_id)}}}), (v:DatasetVersion {{key: {q(record.dataset_id + '@' + record.version_id)}}}) "
        "MERGE (r)-[:GENERATED]->(v);",
    ]
    for asset in record.inputs:
        lines.append(
            f"MERGE (a:Asset {{uri: {q(asset['uri'])}, hash: {q(asset['hash'])}}}) ON CREATE SET a.first_seen_at = {q(record.started_at)};"
        )
        lines.append(
            f"MATCH (a:Asset {{uri: {q(asset['uri'])}, hash: {q(asset['hash'])}}}), (r:Run {{id: {q(record.run_id)}}}) MERGE (a)-[:USED_IN]->(r);"
        )
    return "\n".join(lines) + "\n"
