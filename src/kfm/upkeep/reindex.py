"""reindex: the store rebuilt from the evidence files, in a new epoch that no process of the old one
can write into.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kfm.acts.append_act import void
from kfm.channel.roots import keep_root, rolled_back, unlike
from kfm.evidence.lineage import indexed
from kfm.evidence.notify import act_of
from kfm.evidence.projection import project
from kfm.evidence.receipts import archive_key
from kfm.evidence.run_files import Packed, load_packs, read_run_file, run_ids, started_at
from kfm.model import (
    UNCHANGED,
    Clock,
    Generation,
    Json,
    LedgerRow,
    NoopRow,
    Pins,
    RootAt,
    canonical,
    head_key_of,
    ids,
    is_assembly,
    rfc3339,
)
from kfm.model.paths import announcement_path, pins_path, receipt_path, run_path
from kfm.release.by_rule import candidate_of
from kfm.store.base import Rebuild, Store, Tx
from kfm.upkeep.job_lineage import index_job_lineage
from kfm.upkeep.lineage_rows import run_lineage
from kfm.world.world import World

__all__ = ["datasets_with_evidence", "known_epoch", "ledger_row", "rebuild", "reindex", "void_all"]


def datasets_with_evidence(world: World) -> list[str]:
    """Every dataset that has a channel or runs."""
    found = {p.split("/")[2] for p in world.data.names("catalog/channels")}
    # A dry run leaves its artifacts and nothing else; a real one at least a capture, a part or a
    # record.
    found |= {p.split("/")[1] for p in world.data.names("work") if "/artifacts/" not in p}
    return sorted(found)


def reindex(world: World, new: Rebuild, ledger: Path, damaged: list[str]) -> Json:
    """Void every channel's next number, fill the new store, which is that of `world`, then let it
    take the place of the old one.
    """
    names, seen = datasets_with_evidence(world), _root(new.old_root)
    why = unlike(seen, world.keys)
    # before anything is signed: the old store may know a newer root than the one that is here
    if why is not None:
        raise rolled_back(why)
    epoch = 1 + max(known_epoch(world, names), new.old_epoch)
    void_all(world, names, epoch)
    if seen is not None:
        world.store.transaction(lambda tx: keep_root(tx, seen))
    counts = rebuild(world, names, epoch, damaged)
    off = 0 if new.has_work else _recall_switches(world.store, ledger, damaged)
    carried = new.finish(lambda tx: _last(tx, world.clock))
    return {"datasets": len(names), **counts, "epoch": epoch, "coordination": _told(carried, off)}


def _root(told: str | None) -> RootAt | None:
    """The newest root that the old store has seen, as far as that can be read."""
    try:
        return msgspec.json.decode(told, type=RootAt) if told else None
    except msgspec.DecodeError:
        return None


def known_epoch(world: World, dataset_ids: Sequence[str]) -> int:
    """The highest store epoch any generation was written under."""
    highest = 0
    for dataset_id in dataset_ids:
        channel, number = world.channel(dataset_id), 1
        while (found := channel.predicate(number)) is not None:
            highest = max(highest, int(found.token.split(".")[0] or 0))
            number += 1
    return highest


def void_all(world: World, dataset_ids: Sequence[str], epoch: int) -> None:
    """First of all: a void generation in every channel takes the number any lost intent had
    named.
    """
    for dataset_id in dataset_ids:
        channel = world.channel(dataset_id)
        while True:
            number = 1
            while world.data.exists(channel.path(number)):
                number += 1
            if void(world, dataset_id, number, f"{epoch}.0", "store rebuilt"):
                break


def _begin_epoch(tx: Tx, epoch: int, clock: Clock) -> None:
    tx.index.put_meta("epoch", str(epoch))
    _heard_until(tx, clock)


def _heard_until(tx: Tx, clock: Clock) -> None:
    """What the world sent before now may have been heard, and nobody here remembers."""
    tx.index.put_meta("epoch_at", rfc3339(clock.now()))


def _last(tx: Tx, clock: Clock) -> None:
    _heard_until(tx, clock)  # the old store was told things until it was set aside
    _follow_ledger(tx)


def rebuild(
    world: World, dataset_ids: Sequence[str], epoch: int, damaged: list[str] | None = None
) -> dict[str, int]:
    """Fill the empty store of `world` from evidence; returns counts. Files that cannot be read are
    named in `damaged`.
    """
    damaged = damaged if damaged is not None else []
    counts = {"runs": 0, "noops": 0, "generations": 0, "lineage": 0}
    world.store.transaction(lambda tx: _begin_epoch(tx, epoch, world.clock))
    for dataset_id in dataset_ids:
        made, packed = _promoted(world, dataset_id), load_packs(world.data, dataset_id)
        parts = assembled(world, dataset_id, made, packed)
        for run_id in run_ids(world.data, dataset_id, packed):
            row = ledger_row(world, dataset_id, run_id, made, packed, damaged, parts)
            if row is not None:
                number = (
                    candidate.proposal
                    if (candidate := candidate_of(world, dataset_id, run_id)) is not None
                    else None
                )
                named = _archives(world, row, packed)
                hears = world.receivers.of_runs() if row.ended_at is None else ()
                world.store.transaction(lambda tx: _put(tx, row, number, named, hears))
                counts["runs"] += 1
            else:
                counts["noops"] += _noop(world, dataset_id, run_id, packed, damaged)
        head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
        counts["generations"] += head.generation
        for run_id, generation in made.items():
            counts["lineage"] += _derived(world, dataset_id, run_id, generation)
        counts["lineage"] += index_job_lineage(world, dataset_id)
        world.store.transaction(lambda tx: _given_back(tx, world, dataset_id))
        _head_keys(world, dataset_id, head)
        project(world, dataset_id)
    return counts


def _given_back(tx: Tx, world: World, dataset_id: str) -> None:
    """Who holds files of versions is asked again to give back what was withdrawn."""
    for row in tx.index.generations(dataset_id):
        if row.kind == "withdraw":
            names = world.receivers.names()
            tx.deliveries.put(act_of(dataset_id), dataset_id, row.generation, names)


def _archives(world: World, row: LedgerRow, packed: Packed) -> dict[str, str]:
    """What the store knows by digest and finds again: the journal of a run; the receipt of one that
    no channel names.
    """
    raw = read_run_file(world.data, row.dataset_id, row.run_id, "wal.jsonl", packed)
    archive = archive_key(run_path(row.dataset_id, row.run_id, "wal.jsonl"))
    found = {archive: ids.digest(raw)} if raw is not None else {}
    receipt = receipt_path(row.run_id, row.timestamp)
    if row.state != "COMMITTED" and world.root.exists(receipt):
        found[receipt] = ids.digest(world.root.read(receipt))
    return found


def _put(
    tx: Tx,
    row: LedgerRow,
    number: int | None,
    named: Mapping[str, str],
    hears: tuple[str, ...] = (),
) -> None:
    tx.runs.insert(row)
    tx.deliveries.put_run(row.run_id, row.dataset_id, hears)  # how it ends is still to be told
    for key, digest in named.items():
        if tx.effects.digest(key) is None:  # what the store knew already counts
            tx.effects.put(key, "", digest)
    if number is not None:
        tx.proposals.put(number, row.run_id)


def _promoted(world: World, dataset_id: str) -> dict[str, int]:
    channel, number, made = world.channel(dataset_id), 1, {}
    while (found := channel.predicate(number)) is not None:
        if found.kind == "promote":
            made[found.run_id] = number
        number += 1
    return made


def _json(
    world: World,
    dataset_id: str,
    run_id: str,
    name: str,
    packed: Packed | None = None,
    damaged: list[str] | None = None,
) -> Json | None:
    """A file of a run as JSON; a damaged one counts as missing and is named."""
    damaged = damaged if damaged is not None else []
    raw = read_run_file(world.data, dataset_id, run_id, name, packed)
    if raw is None:
        return None
    try:
        found: Json = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        damaged.append(run_path(dataset_id, run_id, name))
        return None
    return found


def assembled(
    world: World, dataset_id: str, made: dict[str, int], packed: Packed | None = None
) -> dict[str, Json]:
    """Run id of a part -> the record of the assembling run that made it official."""
    found = {}
    for run_id in made:
        record = _json(world, dataset_id, run_id, "run_record.json", packed) or {}
        path = pins_path(dataset_id, record.get("parts", ""))
        if record.get("parts") and world.data.exists(path):
            found.update(
                {
                    p.run_id: record
                    for p in msgspec.json.decode(world.data.read(path), type=Pins).parts
                }
            )
    return found


def ledger_row(
    world: World,
    dataset_id: str,
    run_id: str,
    made: dict[str, int],
    packed: Packed | None = None,
    damaged: list[str] | None = None,
    parts: Mapping[str, Json] | None = None,
) -> LedgerRow | None:
    """The ledger row a run's records speak of; None for NOOPs, dry runs and runs that left no
    record.
    """
    record = _json(world, dataset_id, run_id, "run_record.json", packed, damaged)
    if record is None or record.get("dry_run"):
        return None
    outcome = _json(world, dataset_id, run_id, "outcome.json", packed, damaged) or {}
    whole = (parts or {}).get(run_id, record)
    state = (
        "COMMITTED" if run_id in made or whole is not record else outcome.get("state", "SUPERSEDED")
    )
    if state == "STAGED":  # whether anything assembles it was known to the store that was lost
        state, outcome = (
            "SUPERSEDED",
            {
                **outcome,
                "reason": "the store was rebuilt before it was assembled",
            },
        )
    receipt = receipt_path(run_id, record["started_at"])
    try:
        finished = msgspec.json.decode(world.root.read(receipt))["finished_at"]
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        finished = record["started_at"]
    return LedgerRow(
        run_id=run_id,
        wal_id=record["wal_id"],
        dataset_id=dataset_id,
        partition=record["partition"],
        win=record["window"],
        state=state,
        key=record["run_key"],
        timestamp=record["started_at"],
        source_metadata=msgspec.json.encode(record["sources"]).decode(),
        pipeline_version=record["pipeline_version"],
        updater_id=record["updater_id"],
        updater_version=record["updater_version"],
        spec_hash=record["spec_hash"],
        transform_hash=record["transform_hash"],
        input_hash=record["input_hash"],
        toolchain_digest=record["toolchain_digest"],
        attempt=record["attempt"],
        forced=int(record["forced"]),
        trigger_type=record["trigger_type"],
        base_version=record["base_version"],
        base_generation=record["base_generation"],
        pinned=record["base_generation"],
        part=record.get("parts"),
        version_id=whole["version_id"],
        version_digest=whole["version_digest"],
        content_id=record["content_id"],
        intent=made.get(run_id),
        reason=outcome.get("reason", ""),
        ended_at=outcome.get("ended_at") or finished,
        rows_read=record.get("rows_read", 0),
        rows_written=record.get("rows_written", 0),
        error_count=int(state in ("FAILED", "REJECTED")),
        archived=1,
        backfill=record.get("backfill", ""),
    )


def _noop(world: World, dataset_id: str, run_id: str, packed: Packed, damaged: list[str]) -> int:
    state = _json(world, dataset_id, run_id, "artifacts/idempotency.json", packed, damaged)
    if state is None or state.get("dry_run") or state.get("state") != "NOOP":
        return 0
    ended = _last_line(world, dataset_id, run_id, packed)
    row = NoopRow(
        run_id=run_id,
        dataset_id=dataset_id,
        partition=str(ended.get("partition") or ""),
        win=state["window"],
        key=state["key"],
        reason=str(ended.get("reason") or ended.get("code") or "not known any more"),
        names=str(ended.get("names") or ""),
        timestamp=started_at(run_id).isoformat().replace("+00:00", "Z"),
        code=_noop_code(ended),
    )
    world.store.transaction(lambda tx: tx.looks.put_noop(row))
    return 1


def _noop_code(ended: Mapping[str, object]) -> str:
    """The code of a look that made no run; logs of an earlier kfm have only the reason, and but one
    of those is known.
    """
    return str(ended.get("code") or (UNCHANGED if ended.get("reason") == "unchanged" else ""))


def _last_line(world: World, dataset_id: str, run_id: str, packed: Packed) -> Json:
    """How a run said that it ended; nothing when its log is gone or cut."""
    raw = read_run_file(world.data, dataset_id, run_id, "artifacts/run.jsonl", packed) or b""
    for line in reversed(raw.splitlines()):
        try:
            found = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(found, dict) and found.get("event") == "run.ended":
            return found
    return {}


def _derived(world: World, dataset_id: str, run_id: str, generation: int) -> int:
    """Lineage and outbox rows of one promoted run; a release marker says that its effect has
    happened.
    """
    row: LedgerRow | None = world.store.read(lambda tx: tx.runs.get(run_id))
    manifest = _json(world, dataset_id, run_id, "run_manifest.json")
    if row is None or manifest is None:
        return 0
    assets = {path: artifact["digest"] for path, artifact in manifest["artifacts"].items()}
    record = run_lineage(world, row)
    payload = canonical.dumps({"version_id": row.version_id, "assets": assets}).decode()
    sent = world.root.exists(announcement_path(dataset_id, generation))

    def put(tx: Tx) -> None:
        if record is not None:
            tx.lineage.put(indexed(record))
        tx.outbox.put(run_id, dataset_id, generation, payload)
        tx.deliveries.put(run_id, dataset_id, generation, world.receivers.names())
        if sent:
            tx.outbox.mark(run_id, generation, "delivered")

    world.store.transaction(put)
    return 1


def _head_keys(world: World, dataset_id: str, head: Generation) -> None:
    """What the official version was made from, so that an unchanged upstream is a NOOP again."""
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(dataset_id, 100_000))
    noops: list[NoopRow] = world.store.read(lambda tx: tx.looks.noops(dataset_id, 1))
    for row in reversed(
        [
            r
            for r in rows
            if r.state == "COMMITTED" and r.version_id == head.version_id and not is_assembly(r)
        ]
    ):
        key = head_key_of(row, max([row.timestamp, *(n.timestamp for n in noops)]))
        world.store.transaction(lambda tx: tx.index.put_head_key(key))


# ---- what no evidence tells ----------------------------------------------------------------------
class Turn(msgspec.Struct, frozen=True):
    """A line of `switches.jsonl`."""

    at: str
    name: str
    state: str
    by: str
    reason: str


def _recall_switches(store: Store, ledger: Path, damaged: list[str]) -> int:
    """Turn off what the record of switches says last to be off: a lost store turns nothing on. How
    many are.
    """
    file, last = ledger / "switches.jsonl", dict[str, Turn]()
    for line in file.read_bytes().splitlines() if file.is_file() else ():
        try:
            turn = msgspec.json.decode(line, type=Turn)
            last[turn.name] = turn
        except (msgspec.DecodeError, UnicodeDecodeError):
            damaged.append(f"{ledger.name}/{file.name}")
    off = [turn for turn in last.values() if turn.state == "off"]

    def put(tx: Tx) -> None:
        for turn in off:
            tx.jobs._do(
                "switch_off", name=turn.name, reason=turn.reason, by_whom=turn.by, at=turn.at
            )

    store.transaction(put)
    return len(off)


def _follow_ledger(tx: Tx) -> None:
    """Parts that were staged are closed now: their backfills make them again when they are
    resumed.
    """
    for row in tx.backfill.listing(-1):
        tx.backfill.follow_ledger(row)


def _told(carried: bool, off: int) -> str:
    """What became of the tables that no evidence speaks of."""
    return (
        "carried over"
        if carried
        else (
            f"lost: jobs, pools, schedules, backfills; switches: {off} off, as"
            " ledger/switches.jsonl says"
        )
    )
