"""doctor: look for damage and leftovers; `--fix` mends what evidence allows and sets the rest
aside.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress

import msgspec

from kfm.channel.roots import rolled_back, root_problem
from kfm.evidence.captures import render_raw
from kfm.evidence.intended_acts import owed, set_aside, torn
from kfm.evidence.journal import check_chain
from kfm.evidence.notify import MOMENTS, tell_receivers, told_of
from kfm.evidence.projection import stale_records, tick
from kfm.model import (
    Fenced,
    IntegrityError,
    KfmError,
    UsageError,
    is_assembly,
    partition_lease,
)
from kfm.model.paths import (
    announcement_path,
    captures_folder,
    channel_folder,
    latest_path,
    lock_path,
    run_path,
)
from kfm.store.base import Served
from kfm.upkeep.damaged_rows import keep_journal, set_aside_journal, set_aside_row
from kfm.upkeep.erase import destroy_left, left_behind, left_in_inbox
from kfm.upkeep.lineage_rows import missing_lineage, put_lineage_again
from kfm.upkeep.pack import pack_noops
from kfm.upkeep.put_back import put_back, spare_files
from kfm.upkeep.verify import verify_workspace
from kfm.world.world import World

__all__ = ["Advice", "Finding", "examine"]

DISK_FLOOR = 64 << 20  # said early; a run refuses to start far below it


_AGAIN = (
    "Restore the file from a backup; or remove it, and `kfm run {id} --force --reason …` brings it"
    " anew."
)
# what was signed is never made a second time
_COPY = "Only the same bytes mend it: restore them from a backup, or from a bundle of {id}."
_RENDERED = "Mend its version first; then `kfm doctor --fix` renders it again."
_SIGNED = ("processed/", "catalog/", "receipts/")


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
        _looked_at(world, dataset_id, found, fix)
    if fix:
        _newest_run(world)
    _leftovers(world, found, fix)
    _disk(world, found)
    return found.rows


def _looked_at(world: World, dataset_id: str, found: _Findings, fix: bool) -> None:
    """One dataset; whatever is wrong with it, the others are looked at all the same, and so are its
    bytes.
    """
    _put_back(world, dataset_id, found, fix)
    why = ""
    try:
        _dataset(world, dataset_id, found, fix)
    except UsageError as error:  # its registry entry, or that of something it is made from
        where = f"data/registry/{dataset_id}"
        found.add("registry.invalid", where, error.happened, error.remedy)
    # a record or a file that something relies on: its name comes with the bytes
    except IntegrityError as error:
        why = error.happened
    except OSError as error:
        why = f"{error.strerror} ({error.filename})" if error.filename else str(error)
    told = len(found.rows)
    try:
        _bytes(world, dataset_id, found)
    except (KfmError, OSError) as error:
        why = why or str(error)
    if why and len(found.rows) == told:
        found.add("dataset.damaged", dataset_id, why, "Run `kfm verify`.")


def _put_back(world: World, dataset_id: str, found: _Findings, fix: bool) -> None:
    """What is missing of versions, and lies elsewhere here."""
    files: Collection[str] = ()
    with suppress(KfmError, OSError):  # what is damaged is told with the rest
        files = spare_files(world, dataset_id)
    if not files:
        return
    remedy, mended = "Run `kfm doctor --fix`.", list[str]()
    if fix:
        try:
            mended = put_back(world, dataset_id)
        except (KfmError, OSError) as error:
            remedy = f"It could not be put back: {getattr(error, 'happened', error)}"
    for path in files:
        what = "it is missing, and the bytes that were signed lie elsewhere here"
        found.add("version.missing", path, what, remedy, path in mended)


def _newest_run(world: World) -> None:
    """Let `artifacts` lead to the newest run that has its files still."""
    for row in world.store.read(lambda tx: tx.runs.recent(None, 100)):
        if world.data.local(run_path(row.dataset_id, row.run_id, "artifacts")).is_dir():
            world.latest.ran(world, row.dataset_id, row.run_id)
            return


def _store(world: World, found: _Findings) -> None:
    said = world.store.check()
    if said != "ok":
        found.add("store.damaged", "ledger", said, "Run `kfm reindex`.")
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
            set_aside_row(world, raw, run_id, dataset_id)
        found.add(
            "ledger.damaged",
            f"run {run_id}",
            "the row does not match its checksum",
            "Run `kfm doctor --fix`.",
            fix,
        )


def _dataset(world: World, dataset_id: str, found: _Findings, fix: bool) -> None:
    """What is said of it beside its bytes; nothing more where its channel cannot be followed."""
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
    if world.latest.is_stale(world, dataset_id):
        mended = fix and (
            world.latest.show(world, dataset_id) and not world.latest.is_stale(world, dataset_id)
        )
        found.add(
            "latest.stale",
            f"data/{latest_path(dataset_id)}",
            "it does not lead to what everybody may have now",
            "Run `kfm doctor --fix`.",
            mended,
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
            else partition_lease(dataset_id, row.partition, row.win)
        )
        if world.store.read(lambda tx: tx.leases.is_free(lease)):
            found.add(
                "run.interrupted",
                f"run {row.run_id}",
                f"it is {row.state} and nobody works on it",
                "Run `kfm resume`.",
            )
    if missing := len(missing_lineage(world, dataset_id)):
        found.add(
            "lineage.missing",
            dataset_id,
            f"where it comes from is not indexed for {missing} of its runs",
            "Run `kfm doctor --fix`: it is read again from their evidence.",
            fix and put_lineage_again(world, dataset_id) == missing,
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
    _deliveries(world, dataset_id, head.generation, found, fix)
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


def _bytes(world: World, dataset_id: str, found: _Findings) -> None:
    """Every file, against what names it."""
    bytes_ = verify_workspace(world, [dataset_id])
    told = ("erasure.", "release.", "version.")
    said = {row.where for row in found.rows if row.code.startswith(told)}
    # where files of a folder are told one by one, that it is not there is told with them
    folders = {row.where.rpartition("/")[0] for row in found.rows if row.code == "version.missing"}
    said.add(f"data/registry/{dataset_id}.yml")
    if any((row.code, row.where) == ("channel.damaged", dataset_id) for row in found.rows):
        said |= set(world.data.names(channel_folder(dataset_id)))
    said |= {
        row.where
        for row in found.rows
        if row.code.startswith("projection.") and not world.data.exists(row.where)
    }
    for problem, kind in zip(bytes_.problems, bytes_.kinds, strict=True):
        if problem["where"] in (said | folders if kind == "missing" else said):
            continue
        code, remedy = "bytes.damaged", _AGAIN.format(id=dataset_id)
        if problem["where"].startswith(("catalog/dcat/", "catalog/stac/")):
            remedy = _RENDERED
        elif problem["where"].startswith(_SIGNED):
            remedy = _COPY.format(id=dataset_id)
        if problem["where"].startswith("keys/data/"):
            code, remedy = (
                "keys.missing",
                "Bring it back with `kfm keys restore`, or from where the keys are kept.",
            )
        found.add(code, problem["where"], problem["what"], remedy)


def _deliveries(world: World, dataset_id: str, head: int, found: _Findings, fix: bool) -> None:
    """What receivers outside were not told; mended when they were, or are asked no more."""
    names = world.receivers.names()
    rows = [
        row
        for row in world.store.read(lambda tx: tx.deliveries.left())
        if row.dataset_id == dataset_id
        and row.generation <= head
        # a moment of a run that nobody was told of may not have come yet
        and (row.generation not in MOMENTS or row.error or row.receiver not in names)
    ]
    if not rows:
        return
    if fix:
        world.store.transaction(lambda tx: tx.deliveries.again(dataset_id))
        for row in (r for r in rows if r.receiver not in names):
            world.store.transaction(lambda tx: tx.deliveries.mark(row, "dropped", row.error))
        tell_receivers(world, dataset_id)
    left = world.store.read(lambda tx: tx.deliveries.left()) if fix else rows
    still = {(r.run_id, r.generation, r.receiver): r for r in left}
    for row in rows:
        now = still.get((row.run_id, row.generation, row.receiver))
        found.add(
            "receiver.waiting",
            f"receiver {row.receiver}",
            f"it was not told {told_of(row)}: {(now or row).error or 'not yet'}",
            "Run `kfm doctor --fix` when it answers."
            if row.receiver in names
            else "kfm.yml names it no more; `kfm doctor --fix` drops what waits.",
            now is None,
        )


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
                set_aside_journal(world, row)
            found.add(
                "journal.damaged",
                f"run {row.run_id}",
                error.happened,
                "Run `kfm doctor --fix`.",
                fix,
            )


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
            keep_journal(world, wal_id[:32], world.store.read(lambda tx: tx.journals.raw(wal_id)))
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
