"""doctor: look for damage and leftovers; `--fix` mends what evidence allows and sets the rest
aside.
"""

from collections.abc import Sequence

import msgspec

from kfm.channel.roots import rolled_back, root_problem
from kfm.evidence.acts import owed, set_aside, torn
from kfm.evidence.captures import render_raw
from kfm.evidence.folder_check import Verified
from kfm.evidence.journal import check_chain
from kfm.evidence.projection import stale_records, tick
from kfm.evidence.receipts import pretty
from kfm.evidence.run_files import pack_noops
from kfm.model import (
    Fenced,
    IntegrityError,
    Json,
    KfmError,
    LedgerRow,
    is_assembly,
    partition_lease,
    rfc3339,
)
from kfm.model.paths import announcement_path, aside_path, captures_folder, lock_path
from kfm.run.act import void
from kfm.store.base import Served, Tx
from kfm.upkeep.erase import destroy_left, left_behind, left_in_inbox
from kfm.upkeep.reindex import assembled, ledger_row, void_all
from kfm.upkeep.verify import verify_dataset
from kfm.world.world import World

__all__ = ["Advice", "Finding", "examine", "mend_ledger"]

DISK_FLOOR = 64 << 20  # said early; a run refuses to start far below it
NEWEST = 64  # rows looked at before every run; `examine` looks at all


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know that is not broken."""

    code: str
    where: str
    what: str
    remedy: str


class Finding(Advice, frozen=True, kw_only=True):
    """Something that is wrong, or was and is mended."""

    fixed: bool = False


class _Findings:
    def __init__(self) -> None:
        self.rows: list[Finding] = []

    def add(self, code: str, where: str, what: str, remedy: str, fixed: bool = False) -> None:
        self.rows.append(Finding(code=code, where=where, what=what, remedy=remedy, fixed=fixed))


def examine(world: World, dataset_ids: Sequence[str], *, fix: bool) -> list[Finding]:
    """Every finding; with `fix`, those that could be mended are marked so."""
    found = _Findings()
    _store(world, found)
    if _older_root(world, found):  # no signature can be judged by it
        return found.rows
    _ledger(world, found, fix)
    for dataset_id in dataset_ids:
        for path in set_aside(world, dataset_id) if fix else torn(world.data, dataset_id):
            found.add(
                "act.damaged",
                path,
                "what a person was about to do cannot be read",
                "Run `kfm resume` or `kfm doctor --fix`.",
                fix,
            )
        try:
            _dataset(world, dataset_id, found, fix)
        except IntegrityError as error:  # the others are looked at all the same
            found.add("channel.damaged", dataset_id, error.happened, error.remedy)
    _leftovers(world, found, fix)
    _disk(world, found)
    return found.rows


def _store(world: World, found: _Findings) -> None:
    said = world.store.check()
    if said != "ok":
        found.add("store.damaged", "ledger/idempotency.sqlite", said, "Run `kfm reindex`.")
    if isinstance(world.store, Served):
        for code, what, remedy in world.store.examine_server():
            found.add(code, "the PostgreSQL server", what, remedy)


def _older_root(world: World, found: _Findings) -> bool:
    try:
        why = world.store.read(lambda tx: root_problem(tx, world.keys))
    except KfmError:
        return False  # a root that cannot be read is found with the keys
    if why is not None:
        found.add("root.damaged", "keys/root", why, rolled_back(why).remedy)
    return why is not None


def _ledger(world: World, found: _Findings, fix: bool) -> None:
    for raw in world.store.read(lambda tx: tx.runs.damaged()):
        run_id, dataset_id = str(raw["run_id"]), str(raw["dataset_id"])
        if fix:
            _set_aside_row(world, raw, run_id, dataset_id)
        found.add(
            "ledger.damaged",
            f"run {run_id}",
            "the row does not match its checksum",
            "Run `kfm doctor --fix`.",
            fix,
        )


def mend_ledger(world: World, dataset_id: str) -> list[str]:
    """Before a run: set aside damaged rows among the newest of this dataset; returns their run
    ids.
    """
    bad = world.store.read(lambda tx: tx.runs.damaged(dataset_id, limit=NEWEST))
    for raw in bad:
        _set_aside_row(world, raw, str(raw["run_id"]), dataset_id)
    return [str(raw["run_id"]) for raw in bad]


def _set_aside_row(world: World, raw: Json, run_id: str, dataset_id: str) -> None:
    """Keep the damaged row in ledger/quarantine, then put in its place what the evidence says.

    A run that is in no channel may have named the next generation, and its row can no longer say
    so: a void one takes the number.
    """
    world.root.create(
        aside_path(f"row-{run_id}-{rfc3339(world.clock.now()).replace(':', '')}.json"),
        pretty({k: str(v) for k, v in raw.items()}),
    )
    made = world.store.read(
        lambda tx: {
            g.run_id: g.generation for g in tx.index.generations(dataset_id) if g.kind == "promote"
        }
    )
    row = ledger_row(world, dataset_id, run_id, made, parts=assembled(world, dataset_id, made))
    if run_id not in made:
        void_all(world, [dataset_id], world.store.epoch)

    wal_id = str(raw["wal_id"])
    _keep_journal(world, run_id, world.store.read(lambda tx: tx.journals.raw(wal_id)))

    def swap(tx: Tx) -> None:
        tx.runs.delete(run_id)
        tx.journals.drop(wal_id)
        if row is not None:
            tx.runs.insert(row)

    world.store.transaction(swap)


def _keep_journal(world: World, name: str, records: Sequence[Json]) -> None:
    if records:
        lines = b"".join(
            msgspec.json.encode({k: str(v) for k, v in r.items()}) + b"\n" for r in records
        )
        world.root.create(aside_path(f"journal-{name}.jsonl"), lines)


def _dataset(world: World, dataset_id: str, found: _Findings, fix: bool) -> None:
    try:
        _journals(world, dataset_id, found, fix)
        head = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    except KfmError as error:
        found.add("channel.damaged", dataset_id, error.happened, error.remedy)
        return
    for path in stale_records(world, head):
        found.add(
            "projection.stale",
            path,
            f"it does not show generation {head.generation}",
            "Run `kfm doctor --fix`.",
            fix,
        )
    late = list(left_behind(world, dataset_id))
    destroyed = bool(late) and fix and _erased(world, dataset_id)
    for path, what in late:
        found.add(
            "erasure.unfinished", path, what, "Run `kfm resume` or `kfm doctor --fix`.", destroyed
        )
    for path, (what, needed) in left_in_inbox(world, dataset_id).items():
        if not needed:
            found.add(
                "erasure.inbox", path, what, "Remove it, or bring one without what was erased."
            )
    for act in (a for a in owed(world, dataset_id) if not a.erases):
        what = (
            f"generation {act.predicate.generation} is there, and what follows from it was not done"
        )
        found.add("act.unfinished", act.path, what, "Run `kfm resume` or `kfm doctor --fix`.", fix)
    for row in world.store.read(lambda tx: tx.runs.unarchived(dataset_id)):
        found.add(
            "journal.unarchived",
            f"run {row.run_id}",
            "it ended, its journal is not archived",
            "Run `kfm doctor --fix`.",
            fix,
        )
    for row in world.store.read(lambda tx: tx.runs.open_runs(dataset_id)):
        if row.state == "PROPOSED" and not row.promo and row.intent is None:
            continue  # it waits for a person
        lease = (
            dataset_id
            if row.state == "PROPOSED" or is_assembly(row)
            else partition_lease(dataset_id, row.partition)
        )
        if world.store.read(lambda tx: tx.leases.is_free(lease)):
            found.add(
                "run.interrupted",
                f"run {row.run_id}",
                f"it is {row.state} and nobody works on it",
                "Run `kfm resume`.",
            )
    _generation_rows(world, dataset_id, found)
    for outbox in world.store.read(lambda tx: tx.outbox.waiting()):
        if outbox.dataset_id == dataset_id and outbox.generation <= head.generation:
            found.add(
                "outbox.waiting",
                f"generation {outbox.generation}",
                "its release was not announced",
                "Run `kfm doctor --fix`.",
                fix,
            )
    for told in world.store.read(lambda tx: tx.outbox.delivered(dataset_id)):
        path = announcement_path(dataset_id, told.generation)
        if not world.root.exists(path):
            if fix:
                # the tick announces it again
                world.store.transaction(
                    lambda tx: tx.outbox.mark(told.run_id, told.generation, "waiting")
                )
            found.add(
                "release.missing",
                path,
                f"generation {told.generation} was announced, and it is gone",
                "Run `kfm doctor --fix`.",
                fix,
            )
    if fix:
        tick(world, dataset_id)
        pack_noops(world, dataset_id)
        if any(True for _ in world.data.names(captures_folder(dataset_id))):
            render_raw(world.data, dataset_id, world.publisher.update_metadata)
    bytes_ = Verified()
    verify_dataset(world, dataset_id, bytes_)
    said = {row.where for row in found.rows if row.code.startswith(("erasure.", "release."))}
    said |= {
        row.where
        for row in found.rows
        if row.code.startswith("projection.") and not world.data.exists(row.where)
    }
    for problem in (p for p in bytes_.problems if p["where"] not in said):
        code, remedy = (
            "bytes.damaged",
            "Restore the file from a backup, or run the dataset again with --force.",
        )
        if problem["where"].startswith("keys/data/"):
            code, remedy = (
                "keys.missing",
                "Bring it back with `kfm keys restore`, or from where the keys are kept.",
            )
        found.add(code, problem["where"], problem["what"], remedy)


def _erased(world: World, dataset_id: str) -> bool:
    """Destroy what should be gone; False while a run is at work."""
    try:
        destroy_left(world, dataset_id)
    except Fenced:
        return False
    return True


def _generation_rows(world: World, dataset_id: str, found: _Findings) -> None:
    """The index against the files it was made from."""
    channel = world.channel(dataset_id)
    for row in world.store.read(lambda tx: tx.index.generations(dataset_id)):
        told = channel.predicate(row.generation)
        if told is None or (told.version_id, told.version_digest, told.run_id, told.kind) != (
            row.version_id,
            row.version_digest,
            row.run_id,
            row.kind,
        ):
            found.add(
                "index.damaged",
                f"generation {row.generation} of {dataset_id}",
                "the store and the channel differ",
                "Run `kfm reindex`.",
            )


def _journals(world: World, dataset_id: str, found: _Findings, fix: bool) -> None:
    for row in world.store.read(
        lambda tx: [*tx.runs.open_runs(dataset_id), *tx.runs.unarchived(dataset_id)]
    ):
        try:
            check_chain(world.store.read(lambda tx: tx.journals.get(row.wal_id)))
        except IntegrityError as error:
            if fix:
                _set_aside_journal(world, row)
            found.add(
                "journal.damaged",
                f"run {row.run_id}",
                error.happened,
                "Run `kfm doctor --fix`.",
                fix,
            )


def _set_aside_journal(world: World, row: LedgerRow) -> None:
    """Keep the journal, close its run: COMMITTED when the channel has it, else its number is taken
    and it starts over.

    One that has ended stays as it ended: its receipt is written without the records.
    """
    _keep_journal(world, row.run_id, world.store.read(lambda tx: tx.journals.raw(row.wal_id)))
    if row.ended_at is not None:
        world.store.transaction(lambda tx: tx.journals.drop(row.wal_id))
        return
    state = "SUPERSEDED"
    if row.intent is not None:
        void(world, row.dataset_id, row.intent, "0.0", "the journal of its run was damaged")
        taken = world.channel(row.dataset_id).predicate(row.intent)
        state = "COMMITTED" if taken is not None and taken.run_id == row.run_id else "SUPERSEDED"

    def close(tx: Tx) -> None:
        tx.journals.drop(row.wal_id)
        tx.runs.move(
            row.run_id,
            row.state,
            state=state,
            promo=0,
            reason="its journal was damaged",
            ended_at=rfc3339(world.clock.now()),
        )

    world.store.transaction(close)


def _leftovers(world: World, found: _Findings, fix: bool) -> None:
    for zone, name in ((world.data, "data/.tmp"), (world.root, ".tmp")):
        dead = zone.leftovers()
        for folder in dead:
            found.add(
                "temp.leftover",
                f"{name}/{folder[:8]}…",
                "a killed process left it",
                "Run `kfm doctor --fix`.",
                fix,
            )
        if fix and dead:
            zone.sweep()
    # a lease is taken in a transaction: none is just being made
    for name in world.store.transaction(lambda tx: tx.leases.sweep(fix)):
        found.add(
            "lock.leftover", lock_path(name), "its holder is gone", "Run `kfm doctor --fix`.", fix
        )
    for wal_id in world.store.read(lambda tx: tx.journals.orphans()):
        if fix:
            _keep_journal(world, wal_id[:32], world.store.read(lambda tx: tx.journals.raw(wal_id)))
            world.store.transaction(lambda tx: tx.journals.drop(wal_id))
        found.add(
            "journal.orphan",
            f"journal {wal_id[:12]}…",
            "no ledger row names it",
            "Run `kfm doctor --fix`.",
            fix,
        )


def _disk(world: World, found: _Findings) -> None:
    free = world.data.free()
    if free is not None and free < DISK_FLOOR:
        found.add(
            "disk.low",
            "data",
            f"{free:,} bytes are free",
            "Free some space; a run refuses to start when less than 1 MiB is left.",
        )
