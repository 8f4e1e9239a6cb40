"""What a pass left behind, and how it differs from what the uninterrupted one left."""

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kfm.drill.copies import Bench
from kfm.evidence.journal import check_chain, fold
from kfm.keys.trust import unwrap
from kfm.model import KfmError, SystemClock
from kfm.store.base import LedgerRow, WalRecord
from kfm.store.locks import LockFolder
from kfm.store.sqlite import SqliteStore
from kfm.zones.base import hash_file
from kfm.zones.local import LocalZone

__all__ = ["Left", "difference", "journal", "look", "step_in_progress"]

_RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SEALED = (
    "run_record.json",
    "validation_report.json",
    "run_manifest.json",
    "wal.jsonl",
    "lineage.json",
    "lineage.cypher",
    "openlineage.json",
)


@dataclass(frozen=True)
class Left:
    """A finished copy, without what is different in every run (run ids, times, signatures)."""

    files: dict[str, str]  # raw and processed: path -> digest
    names: tuple[str, ...]  # catalog, receipts, releases, parts and sealed run records
    generations: tuple[tuple[int, str, str, str], ...]  # number, kind, version_id, version_digest
    rows: tuple[tuple[str, str, str], ...]  # partition, state, version_id
    open_jobs: int
    leftovers: tuple[str, ...]
    bad_sums: tuple[str, ...]

    @property
    def versions(self) -> int:
        return len(
            {
                name.split("/")[3]
                for name in self.files
                if name.startswith("data/processed/") and name.count("/") > 2
            }
        )


def look(copy: Path, bench: Bench, *, sweep: bool = True) -> Left:
    """Look at everything; `sweep` first as `kfm doctor --fix` does, for a killed run may leave
    temporary files to the next.
    """
    data = copy / bench.zones
    if sweep:
        for zone in (data, copy):
            LocalZone(zone).sweep()
        for lock in LockFolder((copy / bench.store_file).parent / "locks").stale_files():
            lock.unlink()
    rows, jobs = _ledger(copy / bench.store_file, data, bench.dataset_id)
    return Left(
        files={
            f"data/{p.relative_to(data)}": hash_file(p).digest
            for zone in ("raw", "processed")
            for p in sorted((data / zone).rglob("*"))
            if p.is_file()
        },
        names=_names(copy, data, rows),
        generations=tuple(
            _generation(p)
            for p in sorted((data / "catalog" / "channels" / bench.dataset_id).glob("*.json"))
        ),
        rows=tuple((r.partition, r.state, r.version_id or "") for r in rows),
        open_jobs=jobs,
        leftovers=_leftovers(copy, data, bench),
        bad_sums=_bad_sums(data),
    )


def _ledger(file: Path, data: Path, dataset_id: str) -> tuple[list[LedgerRow], int]:
    store = SqliteStore(file, SystemClock())
    try:
        rows: list[LedgerRow] = store.read(lambda tx: tx.runs.recent(dataset_id, 10_000))
        for row in rows:
            check_chain(journal(store, data, row))
        jobs = [
            j
            for j in store.read(lambda tx: tx.jobs.waiting(dataset_id))
            if j.job_type == "ingest.pull_source"
        ]
        return sorted(rows, key=lambda r: (r.partition, r.timestamp, r.run_id)), len(jobs)
    finally:
        store.close()


def journal(store: SqliteStore, data: Path, row: LedgerRow) -> list[WalRecord]:
    """The records of a run: in the store while it works, beside its receipts afterwards."""
    archive = data / "work" / row.dataset_id / "runs" / row.run_id / "wal.jsonl"
    found: list[WalRecord] = store.read(lambda tx: tx.journals.get(row.wal_id))
    if found or not archive.is_file():
        return found
    return [msgspec.json.decode(line, type=WalRecord) for line in archive.read_bytes().splitlines()]


def _names(copy: Path, data: Path, rows: list[LedgerRow]) -> tuple[str, ...]:
    """Evidence that must be there whatever happened: compared by name, for its bytes hold run ids
    and times.
    """
    found = [
        p.relative_to(copy)
        for zone in ("receipts", "releases")
        for p in (copy / zone).rglob("*")
        if p.is_file()
    ]
    found += [p.relative_to(copy) for p in (data / "catalog").rglob("*") if p.is_file()]
    found += [p.relative_to(copy) for p in (data / "work").glob("*/parts/**/*") if p.is_file()]
    for row in rows:
        folder = data / "work" / row.dataset_id / "runs" / row.run_id
        found += [
            (folder / name).relative_to(copy)
            for name in _SEALED
            if (folder / name).is_file() and (folder / name).stat().st_size
        ]
    return tuple(
        sorted(
            re.sub(r"\d{4}/\d\d/\d\d", "<day>", _RUN_ID.sub("<run>", p.as_posix())) for p in found
        )
    )


def _generation(path: Path) -> tuple[int, str, str, str]:
    found = unwrap(path.read_bytes())["predicate"]
    return (
        found["generation"],
        found["kind"],
        found["version_id"] or "",
        found["version_digest"] or "",
    )


def _leftovers(copy: Path, data: Path, bench: Bench) -> tuple[str, ...]:
    locks = (copy / bench.store_file).parent / "locks"
    found = [
        p
        for folder in (copy / ".tmp", data / ".tmp", locks)
        if folder.is_dir()
        for p in folder.iterdir()
    ]
    return tuple(sorted(p.relative_to(copy).as_posix() for p in found))


def _bad_sums(data: Path) -> tuple[str, ...]:
    """What `sha256sum -c` would complain about, and files of a version that are in no list."""
    bad = []
    for sums in sorted(data.rglob("checksums.sha256")):
        listed = {line[66:]: line[:64] for line in sums.read_text().splitlines()}
        for name, expected in listed.items():
            file = sums.parent / name
            if not file.is_file() or hash_file(file).digest != f"sha256:{expected}":
                bad.append((file.relative_to(data)).as_posix())
        if sums.is_relative_to(data / "processed"):
            bad += [
                p.relative_to(data).as_posix()
                for p in sums.parent.iterdir()
                if p != sums and p.name not in listed
            ]
    return tuple(bad)


def difference(reference: Left, found: Left) -> tuple[str, str] | None:
    """(expected, got) of the first thing that is not the same; None when nothing differs."""
    if found.rows != reference.rows:
        return f"ledger {_rows(reference)}", f"ledger {_rows(found)}"
    if found.generations != reference.generations:
        return f"channel {_channel(reference)}", f"channel {_channel(found)}"
    ours, theirs = reference.files, found.files
    for path in sorted({*ours, *theirs}):
        if ours.get(path) != theirs.get(path):
            return f"{path} {ours.get(path, 'absent')}", f"{path} {theirs.get(path, 'absent')}"
    if found.names != reference.names:
        lost = sorted(set(reference.names) - set(found.names))
        more = sorted(set(found.names) - set(reference.names))
        name = (lost or more or ["the same number of files"])[0]
        return (f"{name} present", f"{name} missing") if lost else (f"no {name}", f"{name} present")
    if found.bad_sums:
        return "checksums that match", f"{found.bad_sums[0]} does not match checksums.sha256"
    if found.leftovers:
        return "nothing left over", f"{found.leftovers[0]} left over"
    if found.open_jobs:
        return "every job ended", f"{found.open_jobs} jobs open"
    return None


def _rows(left: Left) -> str:
    return ", ".join(f"{state} {version}".strip() for _, state, version in left.rows) or "empty"


def _channel(left: Left) -> str:
    return (
        ", ".join(f"{number} {kind} {version}" for number, kind, version, _ in left.generations)
        or "empty"
    )


def step_in_progress(ledger: Path, name: str, dataset_id: str) -> str:
    """The journal step a killed run was in, from its store as it was then."""
    if not (ledger / name).is_file():
        return "discover"
    try:
        store = SqliteStore(ledger / name, SystemClock())
    except KfmError:
        return "discover"
    try:
        rows: list[LedgerRow] = store.read(lambda tx: tx.runs.recent(dataset_id, 10_000))
        records: list[WalRecord] = [
            r for row in rows for r in store.read(lambda tx: tx.journals.get(row.wal_id))
        ]
    finally:
        store.close()
    records.sort(key=lambda r: (r.ts, r.seq))
    state = fold(records)
    going = [step for step, record in state.items() if record.status == "IN_PROGRESS"]
    if not records:
        return "project" if any(row.ended_at for row in rows) else "discover"
    if going:
        return going[-1]
    return {"pin": "assemble", "channel": "project"}.get(records[-1].step_id, records[-1].step_id)
