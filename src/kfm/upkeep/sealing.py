"""sealing: what an earlier kfm, or a registry entry that called a dataset public, left in plain
text is sealed as it would be now.
"""

import msgspec

from kfm.evidence.journal import covered, record_hash
from kfm.evidence.receipts import archive_key, finish, manifest_without_values, pretty
from kfm.evidence.report import report_without_values
from kfm.keys.commitments import COMMITTED, SEALED
from kfm.model import HeadKey, Json, LedgerRow, WalRecord, ids, rfc3339, without_emitter
from kfm.model.paths import proposal_path, work_folder
from kfm.run.answers import capture_name
from kfm.run.look import covered_source
from kfm.run.name_generation import ask_again
from kfm.store.base import Tx
from kfm.world.world import World

__all__ = ["seal_dataset"]

# folders of work whose files are sealed whole
_WHOLE = ("proposals", "precise", "withdrawals", "quarantine")
# signed words, and lines without values
_OPEN = (
    "/approvals/",
    "/approvals.json",
    "/rejections/",
    "/acceptances/",
    "comparison.json",
    "decisions.jsonl",
)


def seal_dataset(world: World, dataset_id: str) -> int:
    """Seal what lies in plain text of a private dataset, in its files and in the store; how many
    files changed. Repeatable.

    What a receipt names by its digest keeps its name and its shape, without values; what it was
    lies sealed beside it, so that the digest is still told. A proposal in plain text that waits for
    a person is closed, for approvals would speak of bytes that go; the next run makes it again.
    """
    if not world.is_private(dataset_id):
        return 0
    world.require_key(dataset_id)
    for row in world.store.transaction(lambda tx: _closed(tx, world, dataset_id)):
        finish(world, row.run_id)
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(dataset_id, 1_000_000))
    going = {row.run_id for row in rows if row.ended_at is None}
    changed = sum(
        _seal_file(world, dataset_id, path, going)
        for path in list(world.data.names(work_folder(dataset_id)))
    )
    world.store.transaction(lambda tx: _cover_rows(tx, world, dataset_id, rows))
    world.store.vacuum()
    return changed


def _closed(tx: Tx, world: World, dataset_id: str) -> list[LedgerRow]:
    """Proposals of an earlier kfm that wait: SUPERSEDED, and asked for again."""
    now, done = rfc3339(world.clock.now()), []
    for row in tx.runs.open_runs(dataset_id):
        if (
            row.state == "PROPOSED"
            and row.intent is None
            and world.data.exists(proposal_path(dataset_id, row.run_id))
        ):
            done.append(
                tx.runs.move(
                    row.run_id,
                    "PROPOSED",
                    state="SUPERSEDED",
                    promo=0,
                    reason="made before it was sealed",
                    ended_at=now,
                )
            )
            ask_again(tx, row)
    return done


def _seal_file(world: World, dataset_id: str, path: str, going: set[str]) -> bool:
    kind, _, rest = path.removeprefix(work_folder(dataset_id) + "/").partition("/")
    name, raw = path.rpartition("/")[2], b""
    if rest.partition("/")[0] in going:  # its proposal names its files as they are
        return False
    if kind in _WHOLE and not path.endswith(SEALED) and not any(word in path for word in _OPEN):
        # durable before the plain one goes
        world.data.create(path + SEALED, world.at_rest(path, world.data.read(path)))
        world.data.remove(path)
        return True
    if kind != "runs" or name not in (
        "wal.jsonl",
        "run_record.json",
        "validation_report.json",
        "run_manifest.json",
    ):
        return False
    raw = world.data.read(path)
    told = (
        _journal(world, dataset_id, raw)
        if name == "wal.jsonl"
        else pretty(_told(world, dataset_id, name, msgspec.json.decode(raw)))
    )
    if told == raw:
        return False
    if name == "wal.jsonl":
        # first: who is killed in between replaces it once more
        world.store.transaction(lambda tx: tx.effects.set(archive_key(path), ids.digest(told)))
    else:  # receipts name the others
        world.data.create(path + SEALED, world.at_rest(path, raw))
    world.data.replace(path, told)
    return True


def _told(world: World, dataset_id: str, name: str, document: Json) -> Json:
    """A record of a run as it is written of private inputs."""
    if name == "validation_report.json":
        return report_without_values(document)
    if name == "run_manifest.json":
        return manifest_without_values(document)
    sources = _sources(world, dataset_id, document["sources"])
    if sources == document["sources"]:
        return document
    hidden = {"input_hash": document["input_hash"], "run_key": document["run_key"]}
    return {
        **document,
        **{k: _commit(world, dataset_id, v) for k, v in hidden.items()},
        "sources": sources,
        "rows_read": 0,
        "rows_written": 0,
        "trigger_type": without_emitter(document["trigger_type"]),
    }


def _sources(world: World, dataset_id: str, sources: list[Json]) -> list[Json]:
    """The sources of a run as they are written down; those that are already stay."""
    if (
        not sources
        or "capture" in sources[0]
        or not sources[0].get("digest")
        or sources[0]["digest"].startswith(COMMITTED)
    ):
        return sources
    entry = world.registry(dataset_id)
    names = {
        f"{s['source_id']}.{entry.source.format if entry is not None else ''}": s["digest"]
        for s in sources
    }
    found = [covered_source(world, world.veil(dataset_id), source) for source in sources]
    found[0]["capture"] = capture_name(world, dataset_id, names)
    return found


def _commit(world: World, dataset_id: str, value: str) -> str:
    return world.stand_in(dataset_id, value).rpartition(":")[2] if value else ""


def _journal(world: World, dataset_id: str, raw: bytes) -> bytes:
    records = [msgspec.json.decode(line, type=WalRecord) for line in raw.splitlines()]
    return b"".join(
        msgspec.json.encode(record) + b"\n"
        for record in _covered_records(world, dataset_id, records)
    )


def _covered_records(world: World, dataset_id: str, records: list[WalRecord]) -> list[WalRecord]:
    """A journal with its payloads sealed, chained anew; one that is sealed already as it is."""
    veil, found = world.veil(dataset_id), list[WalRecord]()
    if all(record.payload.startswith('{"sealed":') for record in records):
        return records
    for record in records:
        changes: Json = {"prev": found[-1].hash if found else ""}
        if not record.payload.startswith('{"sealed":'):
            changes |= {
                "payload": covered(record.payload, veil),
                "input_hash": _commit(world, dataset_id, record.input_hash),
            }
        record = msgspec.structs.replace(record, **changes)
        found.append(msgspec.structs.replace(record, hash=record_hash(record)))
    return found


def _cover_rows(tx: Tx, world: World, dataset_id: str, rows: list[LedgerRow]) -> None:
    """The rows of the store: runs, journals in flight, what the last look saw, plans; the index of
    the channel is read anew from its files.
    """
    hashes: dict[str, str] = {}
    for row in rows:
        before = msgspec.json.decode(row.source_metadata)
        sources = _sources(world, dataset_id, before)
        if sources == before:
            continue
        told: Json = {
            "source_metadata": msgspec.json.encode(sources).decode(),
            "input_hash": _commit(world, dataset_id, row.input_hash),
            "key": _commit(world, dataset_id, row.key),
            "rows_read": 0,
            "rows_written": 0,
            "content_id": (
                row.content_id
                if row.state == "COMMITTED" or row.content_id is None
                else world.stand_in(dataset_id, row.content_id)
            ),
        }
        tx.runs.move(row.run_id, row.state, **told)
        records = tx.journals.get(row.wal_id)
        if records:
            tx.journals.drop(row.wal_id)
            tx.journals.append(_covered_records(world, dataset_id, records))
        hashes[row.input_hash] = told["input_hash"]
    for key in tx.index.head_keys(dataset_id):
        if key.input_hash in hashes:
            tx.index.put_head_key(_covered_key(world, key, hashes[key.input_hash]))
    tx.looks.forget_plans(dataset_id)
    tx.index.forget_generations(dataset_id)
    world.channel(dataset_id).head(tx)


def _covered_key(world: World, key: HeadKey, input_hash: str) -> HeadKey:
    etags: list[str] = msgspec.json.decode(key.etag) if key.etag else []
    veil = world.veil(key.dataset_id)
    return msgspec.structs.replace(
        key,
        etag=msgspec.json.encode([veil.cover(etag) for etag in etags]).decode() if etags else "",
        input_hash=input_hash,
        run_key=_commit(world, key.dataset_id, key.run_key),
    )
