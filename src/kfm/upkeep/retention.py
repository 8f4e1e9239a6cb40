"""retention: what a dataset may lose. Marks all that is still needed, names the rest, removes it;
nothing younger than the grace time.
"""

import datetime as dt
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from kfm.access.references import resolve
from kfm.catalog.base import rendered
from kfm.channel.generations import whole_withdrawn, withdrawn_inside
from kfm.evidence.captures import render_raw
from kfm.evidence.intended_acts import pinned
from kfm.evidence.projection import project
from kfm.evidence.receipts import pretty
from kfm.evidence.removed import Doomed, Plan, plans, removed_versions
from kfm.evidence.run_files import read_run_file
from kfm.model import (
    Fenced,
    Generation,
    KfmError,
    LedgerRow,
    UsageError,
    canonical,
    is_assembly,
    partition_lease,
    rfc3339,
)
from kfm.model.paths import (
    all_tiles_folder,
    approvals_folder,
    captures_folder,
    channel_folder,
    dcat_path,
    gc_plan_path,
    hold_path,
    holds_folder,
    indexes_folder,
    item_folder,
    items_folder,
    parts_folder,
    pins_path,
    precise_path,
    proposal_path,
    proposals_folder,
    prov_folder,
    quarantine_path,
    runs_folder,
    stac_folder,
    version_path,
    versions_folder,
)
from kfm.model.window import seconds
from kfm.quarantine.desk import Desk
from kfm.quarantine.refused import runs_with_quarantine
from kfm.store.base import UPKEEP, Token, Tx
from kfm.world.world import World
from kfm.zones.base import Held

__all__ = [
    "GRACE",
    "Hold",
    "Swept",
    "Usage",
    "alone",
    "doomed",
    "freed",
    "hold",
    "release",
    "settle",
    "sweep",
    "usage",
]

POLL_S = 0.05
GRACE = "1h"  # what is younger may belong to somebody who has not said so yet
# bytes that two zones share count where they are published
ZONES = ("processed", "catalog", "raw", "work")
_PART = re.compile(rb"parts/([0-9a-f]{32})")
_CAPTURE = re.compile(rb"capture_id\W+(c[0-9a-f]{32})")
_SEALED_TEXT = re.compile(rb"sealed:[A-Za-z0-9+/=]+")


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep removed, with what an interrupted one before it had removed already."""

    dataset_id: str
    files: dict[str, str]
    plans: tuple[str, ...]  # run ids of the sweeps this finishes


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/holds/<version_id>.json`: a version that stays, whatever retention says."""

    dataset_id: str
    version_id: str
    reason: str
    by: str
    at: str


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """How much lies in one place."""

    files: int = 0
    bytes: int = 0


# ---- holds ---------------------------------------------------------------------------------------
def hold(world: World, text: str, reason: str, by: str) -> Hold:
    """Keep the version a reference means until the hold is released."""
    ref = resolve(world, text)
    made = Hold(
        dataset_id=ref.dataset_id,
        version_id=ref.version_id,
        reason=reason,
        by=by,
        at=rfc3339(world.clock.now()),
    )

    def put(tx: Tx) -> None:
        # a sweep looks for holds and begins to remove in one such transaction
        tx.schedule.alone(ref.dataset_id)
        if not world.data.exists(version_path(ref.dataset_id, ref.version_id, "checksums.sha256")):
            raise UsageError(
                f"{ref.version_id} is not here any more.",
                expected="a version that is whole",
                remedy=f"`kfm du {ref.dataset_id}` shows what is.",
            )
        world.data.create(hold_path(ref.dataset_id, ref.version_id), pretty(made))

    world.store.transaction(put)
    return made


def release(world: World, text: str) -> bool:
    """End a hold; False when there was none."""
    ref = resolve(world, text)
    path = hold_path(ref.dataset_id, ref.version_id)
    found = world.data.exists(path)
    world.data.remove(path)
    return found


def _held(world: World, dataset_id: str) -> set[str]:
    return {
        path.rsplit("/", 1)[-1].removesuffix(".json")
        for path in world.data.names(holds_folder(dataset_id))
    }


# ---- marking -------------------------------------------------------------------------------------
def doomed(world: World, dataset_id: str, grace: str = GRACE) -> list[Doomed]:
    """Everything of a dataset that no channel, run, proposal, hold or open question needs any
    more.
    """
    found = _Marks(world, dataset_id)
    oldest = world.clock.now().timestamp() - seconds(grace)
    return [
        item
        for item in found.unmarked()
        if item.paths and all(_age(world, path) <= oldest for path in item.paths)
    ]


def _age(world: World, path: str) -> float:
    found = world.data.held(path)
    return found.written_ns / 1e9 if found is not None else 0.0


class _Marks:
    """What is needed, and by whom."""

    def __init__(self, world: World, dataset_id: str) -> None:
        self.world, self.id = world, dataset_id
        self.head: Generation = world.store.transaction(
            lambda tx: world.channel(dataset_id).head(tx)
        )
        self.generations: list[Generation] = world.store.read(
            lambda tx: tx.index.generations(dataset_id)
        )
        self.rows: list[LedgerRow] = world.store.read(
            lambda tx: tx.runs.recent(dataset_id, 10_000_000)
        )
        entry = world.registry(dataset_id)
        keep = entry.retention if entry is not None else None
        # None: for ever
        self.cutoff = (
            world.clock.now() - dt.timedelta(seconds=seconds(keep)) if keep is not None else None
        )
        self.why = f"not official for {keep}"
        self.cancelled = self._cancelled()
        self.decided = self._decided() if self.cutoff is not None else set()
        self.versions = self._versions()
        self.last = {
            row.partition: row.run_id for row in sorted(self.rows, key=lambda row: row.timestamp)
        }
        self.runs = {row.run_id: row for row in self.rows if self._is_kept(row)}

    def _is_old(self, moment: dt.datetime | None) -> bool:
        return self.cutoff is not None and moment is not None and moment < self.cutoff

    def _cancelled(self) -> set[str]:
        """Backfills whose parts wait for nothing any more."""
        assembling = {row.backfill for row in self.rows if row.ended_at is None}
        waiting = {row.backfill for row in self.rows if row.state == "STAGED"} - assembling
        found = {name: self.world.store.read(lambda tx: tx.backfill.get(name)) for name in waiting}
        return {name for name, row in found.items() if row is not None and row.state == "cancelled"}

    def _is_open(self, row: LedgerRow) -> bool:
        """Whether somebody goes on with this run: it has not ended, or its part waits to be
        assembled.
        """
        return row.ended_at is None or (
            row.state == "STAGED" and row.backfill not in self.cancelled
        )

    def _versions(self) -> set[str]:
        """The head, what a rollback goes back to, what was official within retention, what is
        worked on, what is held.
        """
        back = [
            g
            for g in self.generations
            if g.version_id
            not in (
                None,
                self.head.version_id,
                *self.head.suppressed,
                *self.head.held,
            )
            and g.kind != "withdraw"
        ]
        kept = {
            self.head.version_id,
            *(g.version_id for g in back[-1:]),
            *_held(self.world, self.id),
        }
        kept |= pinned(self.world.data, self.id, self.head.generation)
        for number, generation in enumerate(self.generations):
            after = next(
                (
                    g
                    for g in self.generations[number + 1 :]
                    if g.version_id != generation.version_id
                ),
                None,
            )
            if not self._is_old(self._since(after)):
                kept.add(generation.version_id)
        for row in self.rows:
            if self._is_open(row):
                kept |= {row.base_version, row.version_id}
        return {v for v in kept if v is not None}

    def _since(self, generation: Generation | None) -> dt.datetime | None:
        """When a generation became official; None: it has not been followed by another."""
        if generation is None:
            return None
        written = _age(self.world, self.world.channel(self.id).path(generation.generation))
        return dt.datetime.fromtimestamp(written, dt.UTC)

    def _decided(self) -> set[str]:
        """Runs whose quarantine was decided on, and is older than retention."""
        desk, found = Desk(self.world, self.id), set()
        for run_id in runs_with_quarantine(self.world, self.id):
            item = desk.item(run_id)
            if (
                item is not None
                and item.state in ("accepted", "replayed")
                and self._is_old(dt.datetime.fromisoformat(item.since))
            ):
                found.add(run_id)
        return found

    def _is_kept(self, row: LedgerRow) -> bool:
        ended = dt.datetime.fromisoformat(row.ended_at) if row.ended_at is not None else None
        if self._is_open(row) or not self._is_old(ended) or row.version_id in self.versions:
            return True
        if (
            row.state == "REJECTED"
            and self.last[row.partition] == row.run_id
            and not is_assembly(row)
        ):
            # `kfm gates` judges it again, however long that takes; parts that wait are assembled
            # again
            return True
        folder = quarantine_path(self.id, row.run_id)
        return row.run_id not in self.decided and any(True for _ in self.world.data.names(folder))

    def _journal(self, row: LedgerRow) -> bytes | None:
        """What a journal says, uncovered; None when it is not here. Raises where it is sealed and
        the key is missing or damaged.
        """
        raw = read_run_file(self.world.data, self.id, row.run_id, "wal.jsonl", {})
        if raw is None and not row.archived:
            records = self.world.store.read(lambda tx: tx.journals.raw(row.wal_id))
            raw = msgspec.json.encode(records)
        if raw is None or b"sealed" not in raw:
            return raw
        veil = self.world.veil(self.id)
        sealed = {match.decode() for match in _SEALED_TEXT.findall(raw)}
        return b"\n".join([raw, *(veil.uncover(text).encode() for text in sorted(sealed))])

    def _parts(self) -> set[str] | None:
        """None: what names them cannot be read (sealed, and the key is missing or damaged), so all
        of them are needed.
        """
        try:
            return self._named_parts()
        except KfmError:
            return None

    def _named_parts(self) -> set[str]:
        texts = [self._journal(row) or b"" for row in self.runs.values() if self._is_open(row)]
        files = [proposal_path(self.id, run_id, "candidate.json") for run_id in self.runs]
        files += [precise_path(self.id, version) for version in self.versions]
        files += [
            pins_path(self.id, str(row.part))
            for row in self.runs.values()
            if row.ended_at is None and is_assembly(row)
        ]
        texts += [
            self.world.kept(path) for path in files if self.world.data.exists(self.world.lies(path))
        ]
        named = {match.decode() for text in texts for match in _PART.findall(text)}
        digests = {
            match.decode()[:32]
            for text in texts
            for match in re.findall(rb"sha256:([0-9a-f]{64})", text)
        }
        return (
            named
            | digests
            | {row.part.removeprefix("sha256:")[:32] for row in self.runs.values() if row.part}
        )

    def _captures(self) -> set[str] | None:
        """None: a run that is needed does not say what it captured, or cannot be read, so all of
        them are.
        """
        try:
            return self._named_captures()
        except KfmError:
            return None

    def _named_captures(self) -> set[str] | None:
        found: set[str] = set()
        for row in self.runs.values():
            # for ever: whole ones stay anyway
            raw = self._journal(row) if self.cutoff is not None or self._is_open(row) else b""
            if raw is None and (self._is_open(row) or row.version_id in self.versions):
                return None
            found |= {match.decode() for match in _CAPTURE.findall(raw or b"")}
        return found

    # ---- the rest --------------------------------------------------------------------------------
    def _folders(self, base: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.world.data.names(base):
            found.setdefault(path.removeprefix(base + "/").split("/", 1)[0], []).append(path)
        return found

    def unmarked(self) -> Iterator[Doomed]:
        processed = self._folders(versions_folder(self.id))
        kept = set(processed) if self.cutoff is None else self.versions & set(processed)
        yield from (
            self._version(name, paths) for name, paths in processed.items() if name not in kept
        )
        withdrawn = {g.version_id for g in self.generations if self._is_withdrawn(g)}
        for kind, folder in (
            ("tiles", all_tiles_folder(self.id)),
            ("index", indexes_folder(self.id)),
        ):
            for name, paths in self._folders(folder).items():
                if name not in kept or name in withdrawn:
                    why = (
                        "its version was withdrawn" if name in withdrawn else "its version is gone"
                    )
                    yield Doomed(kind=kind, name=name, why=why, paths=tuple(paths))
        parts = self._parts()
        for name, paths in self._folders(parts_folder(self.id)).items():
            if parts is not None and name not in parts:
                yield Doomed(kind="part", name=name, why="no run names it", paths=tuple(paths))
        yield from self._raw()
        if self.cutoff is not None:
            yield from self._runs()
        for run_id in sorted(self.decided):
            paths = [
                p
                for p in self.world.data.names(quarantine_path(self.id, run_id))
                if "/decisions/" not in p
            ]
            yield Doomed(
                kind="quarantine",
                name=run_id,
                why="decided, and older than retention",
                paths=tuple(paths),
            )

    def _is_withdrawn(self, generation: Generation) -> bool:
        names = {"", *generation.partitions}
        return withdrawn_inside(self.head, generation) is not None or any(
            whole_withdrawn(self.head, name) for name in names
        )

    def _version(self, name: str, paths: list[str]) -> Doomed:
        """`checksums.sha256` goes first: a folder without it is not a version."""
        also = [
            *self.world.data.names(item_folder(self.id, name)),
            self.world.lies(precise_path(self.id, name)),
        ]
        ordered = sorted(paths, key=lambda path: (not path.endswith("/checksums.sha256"), path))
        return Doomed(
            kind="version",
            name=name,
            why=self.why,
            paths=(*ordered, *(p for p in also if self.world.data.exists(p))),
        )

    def _runs(self) -> Iterator[Doomed]:
        """Folders of runs that nothing came of. What became official, what a person signed and the
        last run of each partition stay.
        """
        runs, proposals = (
            self._folders(runs_folder(self.id)),
            self._folders(proposals_folder(self.id)),
        )
        signed = {
            name
            for name, paths in proposals.items()
            if any("/approvals/" in path for path in paths)
        }
        stay = {*self.runs, *signed, *self.last.values(), *(g.run_id for g in self.generations)}
        gone = {row.run_id for row in self.rows if row.archived and row.state != "COMMITTED"} - stay
        for kind, folders in (("run", runs), ("proposal", proposals)):
            for name in sorted(gone & folders.keys()):
                yield Doomed(
                    kind=kind,
                    name=name,
                    why="nothing came of it, older than retention",
                    paths=tuple(folders[name]),
                )
        known = {row.run_id for row in self.rows}
        # packed, not removed
        known |= {
            row.run_id
            for row in self.world.store.read(lambda tx: tx.looks.unpacked_noops(self.id, "9"))
        }
        for name in sorted(runs.keys() - known - stay):
            written = dt.datetime.fromtimestamp(
                max(_age(self.world, path) for path in runs[name]), dt.UTC
            )
            if self._is_old(written) and not any(
                path.endswith("/run_record.json") for path in runs[name]
            ):
                yield Doomed(
                    kind="run",
                    name=name,
                    why="a dry run, older than retention",
                    paths=tuple(runs[name]),
                )

    def _raw(self) -> Iterator[Doomed]:
        named, base = self._captures(), captures_folder(self.id)
        for name, paths in self._folders(base).items():
            whole = f"{base}/{name}/checksums.sha256" in paths
            written = dt.datetime.fromtimestamp(
                max(_age(self.world, path) for path in paths), dt.UTC
            )
            if named is None or name in named or (whole and not self._is_old(written)):
                continue
            ordered = sorted(paths, key=lambda path: (not path.endswith("/checksums.sha256"), path))
            yield Doomed(
                kind="capture",
                name=name,
                why="older than what it was made into" if whole else "never finished",
                paths=tuple(ordered),
            )


def freed(world: World, items: Iterable[Doomed]) -> int:
    """The bytes that removing `items` gives back: a file that lies elsewhere too gives nothing."""
    links: dict[tuple[int, int], list[int]] = {}
    for path in {path for item in items for path in item.paths}:
        found = world.data.held(path)
        if found is not None:
            links.setdefault(found.bytes_id, [found.names, found.size])[0] -= 1
    return sum(size for left, size in links.values() if left <= 0)


# ---- sweeping ------------------------------------------------------------------------------------
def sweep(world: World, dataset_id: str, run_id: str, grace: str = GRACE) -> Swept:
    """Remove what nobody needs, alone with the dataset. Repeatable: a sweep that was killed is
    finished by the next one.

    Raises `Fenced` while a run is at work on the dataset.
    """
    for zone in (world.data, world.root):
        zone.sweep()  # scratch and half downloads of dead processes
    with alone(world, dataset_id) as tokens:
        items = doomed(world, dataset_id, grace)
        plans = _unfinished(world, dataset_id)
        if items:
            plans.append(_planned(world, dataset_id, run_id, items))
        for item in items:
            if world.store.transaction(lambda tx: _begin(tx, world, dataset_id, tokens, item)):
                for path in item.paths:
                    world.data.remove(path)
        _tidy(world, dataset_id, {p for plan in plans for p in plan.files})
    gone = {
        path: digest
        for plan in plans
        for path, digest in plan.files.items()
        if not world.data.exists(path)
    }
    return Swept(dataset_id=dataset_id, files=gone, plans=tuple(p.run_id for p in plans))


@contextmanager
def alone(world: World, dataset_id: str, wait_s: float = 0.0) -> Iterator[list[Token]]:
    """Hold every lease of a dataset: nobody captures, makes, assembles or promotes meanwhile.

    Raises `Fenced` when a run is at work for longer than `wait_s`.
    """
    entry = world.registry(dataset_id)
    opened = world.store.read(lambda tx: tx.runs.open_runs(dataset_id))
    partitions = {
        "",
        *(entry.partitions if entry is not None else ()),
        *(row.partition for row in opened),
    }
    names = [dataset_id, *(partition_lease(dataset_id, p) for p in sorted(partitions))]

    def take(tx: Tx) -> list[Token]:
        holder = f"{UPKEEP}{world.holder}"
        taken = [tx.leases.take(name, holder, world.lease_seconds) for name in names]
        tokens = [token for token in taken if token is not None]
        if len(tokens) < len(names):
            raise Fenced(
                f"A run is at work on {dataset_id}.",
                expected="nobody to be",
                remedy="Try again when it has ended; `kfm status` shows it.",
            )
        return tokens

    until = time.monotonic() + wait_s
    while True:
        try:
            taken = world.store.transaction(take)
            break
        except Fenced:
            if time.monotonic() >= until:
                raise
            time.sleep(POLL_S)
    tokens: list[Token] = [world.hold(token) for token in taken]
    try:
        yield tokens
    finally:
        world.let_go(*tokens)
        world.store.transaction(lambda tx: tx.leases.release(*tokens))


def _begin(tx: Tx, world: World, dataset_id: str, tokens: list[Token], item: Doomed) -> bool:
    """Remove the first file; False when the version was rolled back to, or put on hold, while we
    looked: it stays.

    A rollback and a hold look for that file in a transaction like this one, so one of the two sees
    the other.
    """
    tx.schedule.alone(dataset_id)
    tx.leases.check(*tokens)
    head = world.channel(dataset_id).head(tx)
    if item.kind == "version" and item.name in {
        head.version_id,
        *_held(world, dataset_id),
        *pinned(world.data, dataset_id, head.generation),
    }:
        return False
    world.data.remove(item.paths[0])
    return True


def _planned(world: World, dataset_id: str, run_id: str, items: list[Doomed]) -> Plan:
    stored = {path: world.data.stat(path) for item in items for path in item.paths}
    plan = Plan(
        run_id=run_id,
        dataset_id=dataset_id,
        at=rfc3339(world.clock.now()),
        versions=tuple(item.name for item in items if item.kind == "version"),
        files={
            path: world.stand_in(dataset_id, found.digest)
            for path, found in stored.items()
            if found is not None
        },
    )
    world.data.create(gc_plan_path(dataset_id, run_id), pretty(plan))
    return plan


def _unfinished(world: World, dataset_id: str) -> list[Plan]:
    return [
        p
        for p in plans(world.data, dataset_id)
        if not world.data.exists(gc_plan_path(dataset_id, p.run_id, ".done"))
    ]


def settle(world: World, swept: Swept) -> None:
    """The receipt that lists everything is written: these sweeps are over."""
    for run_id in swept.plans:
        world.data.create(gc_plan_path(swept.dataset_id, run_id, ".done"), b"")


def _tidy(world: World, dataset_id: str, gone: set[str]) -> None:
    folders = {path.rpartition("/")[0] for path in gone}
    # a dry run leaves nothing beside them
    folders |= {folder.rpartition("/")[0] for folder in folders if folder.endswith("/artifacts")}
    world.data.remove_folders(list(folders))
    if any(path.startswith("raw/") for path in gone):
        render_raw(world.data, dataset_id, world.publisher.update_metadata)
    if any(path.startswith("processed/") for path in gone):
        _unlink_items(world, dataset_id)
        project(world, dataset_id)


def _unlink_items(world: World, dataset_id: str) -> None:
    """Items of earlier versions no longer point at one that is gone; that of the head is rendered
    anew.
    """
    gone = {f"../{version}/{version}.json" for version in removed_versions(world.data, dataset_id)}
    for path in list(world.data.names(items_folder(dataset_id))):
        item = canonical.loads(world.data.read(path))
        links = [link for link in item["links"] if link["href"] not in gone]
        if links != item["links"]:
            world.publisher.update_metadata(path, rendered({**item, "links": links}))


# ---- how much there is ---------------------------------------------------------------------------
def usage(world: World, dataset_id: str) -> dict[str, Usage]:
    """Files and bytes of a dataset by zone; bytes that lie under two names count once."""
    seen: set[tuple[int, int]] = set()
    catalog = [
        of(dataset_id) for of in (channel_folder, prov_folder, approvals_folder, stac_folder)
    ]
    found = {}
    for zone in ZONES:
        folders = catalog if zone == "catalog" else [f"{zone}/{dataset_id}"]
        names = [name for folder in folders for name in world.data.names(folder)]
        dcat = dcat_path(dataset_id)
        names += [dcat] if zone == "catalog" and world.data.exists(dcat) else []
        found[zone] = measured(map(world.data.held, names), seen)
    return found


def measured(names: Iterable[Held | None], seen: set[tuple[int, int]]) -> Usage:
    """Count the files that are still there, and the bytes not `seen` yet."""
    files = size = 0
    for found in names:
        if found is None:  # packed or swept while we count
            continue
        files += 1
        if found.bytes_id not in seen:
            seen.add(found.bytes_id)
            size += found.size
    return Usage(files=files, bytes=size)
