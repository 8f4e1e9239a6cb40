"""erase: destroy the bytes of what was withdrawn, everywhere; its commitment, the authority and the
date stay in the channel.

An erasure is an act like any other: its plan is durable before ★, and once its generation is there
the bytes are owed. Whoever comes next (the command itself, `resume`, `doctor --fix`, the next run)
destroys them before anything else is done with the dataset.
"""

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from kfm.acts import inbox
from kfm.acts.append_act import void
from kfm.acts.intend import intend, planned_sources
from kfm.channel.generations import pinned_parts
from kfm.evidence.captures import render_raw
from kfm.evidence.intended_acts import Act, after, drop, erasing, meant
from kfm.evidence.projection import project
from kfm.evidence.receipts import archive_key, pretty
from kfm.model import (
    Generation,
    GenerationPredicate,
    Json,
    KfmError,
    LedgerRow,
    is_assembly,
    rfc3339,
)
from kfm.model.paths import (
    PLACES,
    approvals_path,
    captures_folder,
    channel_folder,
    derived_folder,
    erasure_path,
    holds_folder,
    parts_folder,
    place_of,
    prov_folder,
    run_path,
    versions_folder,
    withdrawals_folder,
)
from kfm.store.base import Token, Tx
from kfm.upkeep.retention import alone
from kfm.world.world import World
from kfm.zones.base import Zone
from kfm.zones.durable import create_durably

__all__ = [
    "Erasure",
    "Mark",
    "backups_of",
    "destroy_left",
    "erase_again",
    "finish_erasure",
    "left_behind",
    "left_in_inbox",
    "plan_again",
    "unfinished",
]


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/erasures/<generation>.json`: that an erasure was finished; what it destroyed is
    not told.
    """

    dataset_id: str
    generation: int
    finished_at: str
    files: int
    # made before it: whether each could be marked
    backups: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """`ERASED-<id>-<generation>.json` in a backup: what a restore does again, and the channel that
    says so.
    """

    act: Act
    channel: dict[str, str]  # name -> text of every generation up to it
    # run -> text of who agreed to what it made; without them nothing follows
    approvals: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    # version -> text of every root these were made under
    roots: dict[int, str] | msgspec.UnsetType = msgspec.UNSET


def unfinished(world: World, dataset_id: str) -> GenerationPredicate | None:
    """The erasure that the channel shows last and nobody finished. None: there is none."""
    channel = world.channel(dataset_id)
    head: Generation = world.store.transaction(lambda tx: channel.head(tx))
    made = channel.predicate(head.generation) if head.generation else None
    while made is not None and made.kind == "void":
        made = channel.predicate(made.generation - 1)
    if made is None or not any(rule.get("erased") for rule in made.suppress):
        return None
    if world.data.exists(erasure_path(dataset_id, made.generation)) and not list(
        left_behind(world, dataset_id)
    ):
        return None
    return msgspec.structs.replace(made, root=None)


def plan_again(world: World, dataset_id: str) -> Act | None:
    """The plan of the erasure that is `unfinished`: made anew when it was lost. None: there is
    none.
    """
    made = unfinished(world, dataset_id)
    found: Act | None = (
        world.store.transaction(lambda tx: intend(tx, world, made)) if made is not None else None
    )
    return found


def finish_erasure(world: World, dataset_id: str, wait_s: float = 0.0) -> int | None:
    """Destroy what is owed, alone with the dataset; how many files. None: nothing is owed.
    Repeatable: a killed one is begun again.

    Raises `Fenced` when a run is at work for longer than `wait_s`.
    """
    if not erasing(world, dataset_id):
        return None
    with alone(world, dataset_id, wait_s) as tokens:
        acts = erasing(world, dataset_id)
        if not acts:
            return None  # another was faster
        count = _erase(world, dataset_id, tokens, acts)
        now = rfc3339(world.clock.now())
        for act in acts:
            number = act.predicate.generation
            marked = _mark_backups(world, act) or msgspec.UNSET
            told = Erasure(
                dataset_id=dataset_id,
                generation=number,
                finished_at=now,
                files=count,
                backups=marked,
            )
            world.data.replace(erasure_path(dataset_id, number), pretty(told))
            world.store.transaction(lambda tx: _over(tx, world, act, tokens))
            drop(world, act)
    return count


def _mark_backups(world: World, act: Act) -> dict[str, str]:
    """Say in every backup that this workspace knows of what was erased since: a restore of it
    erases again.
    """
    made, found = act.predicate, dict[str, str]()
    path = "ledger/backups.jsonl"
    lines = world.root.read(path).splitlines() if world.root.exists(path) else []
    mark = _marked(world, act) if lines else None
    for folder in dict.fromkeys(Path(msgspec.json.decode(line)["folder"]) for line in lines):
        found[str(folder)] = "gone or not reached"
        if world.elsewhere is not None and (folder / "BACKUP.json").is_file():
            zone = world.elsewhere(folder)
            try:
                # first: without the rest a restore fails, and brings nothing back
                zone.create(f"{_beside(act)}.json", pretty(mark))
                found[str(folder)] = "marked"
                _add_keys(world, act, folder)
                for left in _stayed(world, made.dataset_id):
                    zone.create(f"{_beside(act)}/{left}", world.data.local(left))
            except (KfmError, OSError):
                continue
            finally:
                zone.close()
    return found


def _add_keys(world: World, act: Act, folder: Path) -> None:
    """To a backup that holds keys, those that the rules are read by: they may be younger than
    it.
    """
    if world.vaults is None or not msgspec.json.decode((folder / "BACKUP.json").read_bytes()).get(
        "keys"
    ):
        return
    with suppress(FileExistsError):
        create_durably(
            folder / f"{_beside(act)}.keys",
            pretty(world.vaults.rule_keys(act.predicate.dataset_id)),
            0o600,
        )


def _beside(act: Act) -> str:
    """Where a backup says what was erased, and keeps what was left."""
    return f"ERASED-{act.predicate.dataset_id}-{act.predicate.generation:08}"


def _stayed(world: World, dataset_id: str) -> list[str]:
    """What an erasure leaves and the head relies on: its version, where that comes from, the rules
    that keep the rest out. As it lies.
    """
    tops = (versions_folder, derived_folder, withdrawals_folder, holds_folder, prov_folder)
    return [path for top in tops for path in world.data.names(top(dataset_id))]


def _marked(world: World, act: Act) -> Mark:
    made, channel = act.predicate, world.channel(act.predicate.dataset_id)
    numbers = range(1, made.generation + 1)
    runs = {
        run_id: approvals_path(made.dataset_id, run_id)
        for n in numbers
        if (run_id := channel.unverified(n).run_id)
    }
    return Mark(
        act=act,
        channel={f"{n:08}.json": world.data.read(channel.path(n)).decode() for n in numbers},
        approvals={
            run_id: world.data.read(path).decode()
            for run_id, path in runs.items()
            if world.data.exists(path)
        },
        roots={version: raw.decode() for version, raw in world.keys.roots().items()},
    )


def backups_of(world: World, dataset_id: str, generation: int) -> dict[str, str]:
    """The backups that were made before an erasure, and whether each says so now."""
    path = erasure_path(dataset_id, generation)
    told = (
        msgspec.json.decode(world.data.read(path), type=Erasure).backups
        if world.data.exists(path)
        else msgspec.UNSET
    )
    return {} if told is msgspec.UNSET else told


def erase_again(world: World, mark: Mark, backup: Path) -> None:
    """In a workspace made from a marked backup: the channel as it was and what it shows, and its
    erasure once more.
    """
    made, beside = mark.act.predicate, backup / _beside(mark.act)
    for file in sorted(p for p in beside.rglob("*") if p.is_file()):
        path = file.relative_to(beside).as_posix()
        if place_of("data", path, made.dataset_id) is not None:
            world.data.create(path, file)
    brought = backup / f"{_beside(mark.act)}.keys"
    if world.vaults is not None and brought.is_file():
        world.vaults.bring(msgspec.json.decode(brought.read_bytes(), type=dict[str, str]))
    world.keys.follow({version: text.encode() for version, text in (mark.roots or {}).items()})
    for run_id, text in (mark.approvals or {}).items():
        world.data.create(approvals_path(made.dataset_id, run_id), text.encode())
    for name, text in mark.channel.items():
        world.data.create(f"{channel_folder(made.dataset_id)}/{name}", text.encode())
    world.store.transaction(lambda tx: world.channel(made.dataset_id).head(tx))
    # some may have gone before it was planned
    here = world.store.read(lambda tx: planned_sources(tx, world, made, bool(mark.act.inbox)))
    act = msgspec.structs.replace(mark.act, inbox=here | (mark.act.inbox or {}) or msgspec.UNSET)
    world.data.create(act.path, pretty(act))
    finish_erasure(world, made.dataset_id)


def _over(tx: Tx, world: World, act: Act, tokens: list[Token]) -> None:
    tx.leases.check(*tokens)
    after(tx, world, act)


def _erase(world: World, dataset_id: str, tokens: list[Token], acts: Sequence[Act]) -> int:
    """The store forgets first: nobody resumes what has no files any more. The data key goes before
    what it sealed, for it reaches copies.
    """
    head = _settled_head(world, dataset_id)
    for zone in (world.data, world.root):
        zone.sweep()  # scratch of dead processes
    world.store.transaction(lambda tx: _forget(tx, world, dataset_id, tokens))
    if world.vaults is not None:
        world.vaults.erase(dataset_id)
    count = 0
    for zone, paths in (
        (world.data, _in_data(world, dataset_id, head)),
        (world.root, _in_root(world, dataset_id)),
    ):
        for folder in _by_folder(paths):
            # a frozen eraser destroys nothing newer
            world.store.transaction(lambda tx: tx.leases.check(*tokens), durable=False)
            zone.remove_all(folder)
            count += len(folder)
    world.store.transaction(lambda tx: tx.leases.check(*tokens), durable=False)
    count += sum(
        inbox.destroy(world.root, act.inbox or {}, dt.datetime.fromisoformat(act.at))
        for act in acts
    )
    world.store.vacuum()
    render_raw(world.data, dataset_id, world.publisher.update_metadata)
    project(world, dataset_id)
    return count


def _settled_head(world: World, dataset_id: str) -> Generation:
    """The head, whose version stays. A number that a person or a frozen run has named for another
    version is taken by a void generation.
    """
    while True:
        head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
        named = [act.predicate.generation for act in meant(world.data, dataset_id)]
        named += [
            row.intent or 0 for row in world.store.read(lambda tx: tx.runs.open_runs(dataset_id))
        ]
        if max(named, default=0) <= head.generation:
            return head
        void(world, dataset_id, head.generation + 1, "0.0", "an erasure came first")


def _by_folder(paths: list[str]) -> Iterator[list[str]]:
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    yield from folders.values()


def _in_data(world: World, dataset_id: str, head: Generation) -> list[str]:
    return list(_erasable(world.data, dataset_id, _kept_names(world, head)))


def _kept_names(world: World, head: Generation) -> set[str]:
    """What is in the name of everything that belongs to the official version."""
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(head.dataset_id))
    return (
        _names(g for g in rows if g.version_id == head.version_id)
        if head.version_id is not None
        else set()
    )


def _names(made: Iterable[Generation]) -> set[str]:
    """What is in the name of everything that belongs to what these generations made official."""
    return {
        n
        for g in made
        for n in (str(g.version_id), g.run_id, f"run_{g.run_id}", f"run_withdrawal_{g.generation}")
        if n
    }


def _erasable(zone: Zone, dataset_id: str, kept: set[str]) -> Iterator[str]:
    """Every file of the table's places that does not stay; `checksums.sha256` first: a folder
    without it is not a version.
    """
    tops = {
        place.path.format(id=dataset_id)
        for place in PLACES
        if place.zone == "data" and place.erased != "never"
    }
    found = {path for top in tops for path in zone.names(top.rstrip("/"))}
    for path in sorted(found, key=lambda p: (not p.endswith("/checksums.sha256"), p)):
        place = place_of("data", path, dataset_id)
        stays = place is not None and (
            place.erased == "never" or (place.erased != "all" and _is_kept(path, kept))
        )
        if not stays:
            yield path


def _is_kept(path: str, kept: set[str]) -> bool:
    return any(part in kept or part.removesuffix(".json") in kept for part in path.split("/"))


def _in_root(world: World, dataset_id: str) -> list[str]:
    """What was set aside or waits to be sent, and speaks of this dataset. A store that was set
    aside speaks of all, and goes whole.
    """
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(dataset_id, 1_000_000))
    ids = {row.run_id for row in rows} | {row.wal_id[:32] for row in rows}
    names = [f'"{dataset_id}"'.encode(), f'.{dataset_id}"'.encode(), f"/{dataset_id}".encode()]
    found = []
    for place in PLACES:
        for path in (
            world.root.names(place.path.rstrip("/")) if place.erased == "what names it" else ()
        ):
            name = path.removeprefix(place.path)
            if (
                name.startswith("store-")
                or any(i in name for i in ids)
                or any(n in world.root.read(path) for n in names)
            ):
                found.append(path)
    return found


def _forget(tx: Tx, world: World, dataset_id: str, tokens: list[Token]) -> None:
    """The ledger keeps that runs were made, not what they saw; runs and proposals that have not
    ended do so here, and are asked for again.
    """
    tx.leases.check(*tokens)
    now = rfc3339(world.clock.now())
    rows: list[LedgerRow] = tx.runs.recent(dataset_id, 1_000_000)
    made = {g.run_id for g in tx.index.generations(dataset_id) if g.run_id}
    made |= {
        p.run_id
        for row in rows
        if row.run_id in made and is_assembly(row)
        for p in pinned_parts(world.data, row) or ()
    }
    for row in rows:
        sources = [
            {**s, "digest": "", "etag": "", "size": 0}
            for s in msgspec.json.decode(row.source_metadata)
        ]
        changes: Json = {
            "source_metadata": msgspec.json.encode(sources).decode(),
            "archived": 1,
            "key": "",
            "input_hash": "",
        }
        changes |= {"content_id": None, "part": None, "rows_read": 0, "rows_written": 0}
        if row.ended_at is None or row.state == "STAGED":
            changes |= {
                "state": "COMMITTED" if row.run_id in made else "SUPERSEDED",
                "promo": 0,
                "ended_at": now,
                "reason": "erased",
            }
            if row.run_id not in made and not row.backfill:
                tx.jobs.put(dataset_id, row.partition, row.win)
        tx.runs.move(row.run_id, row.state, **changes)
        tx.journals.drop(row.wal_id)
        tx.effects.drop(archive_key(run_path(dataset_id, row.run_id, "wal.jsonl")))
    tx.index.forget(dataset_id)


def left_behind(world: World, dataset_id: str) -> Iterator[tuple[str, str]]:
    """(path, why) of what an erasure should have destroyed and is here: it is not finished, or
    somebody brought it back.
    """
    channel, number, whole = world.channel(dataset_id), 0, False
    if pending := erasing(world, dataset_id):
        why = _why(pending[-1].predicate.generation)
        head: Generation = world.store.transaction(lambda tx: channel.head(tx))
        yield from (
            (path, why)
            for path in (*_in_data(world, dataset_id, head), *_in_root(world, dataset_id))
        )
        return
    versions: dict[str, int] = {}
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    for generation in rows:
        try:
            told = channel.unverified(generation.generation)
        except KfmError:
            return  # a damaged channel says nothing, and is said elsewhere
        if any(rule.get("erased") for rule in told.suppress):
            number, whole = (
                generation.generation,
                any(rule.get("content") == "*" for rule in told.suppress),
            )
        if generation.version_id is not None:
            versions[generation.version_id] = generation.generation
    if not number:
        return
    gone = {version for version, last in versions.items() if last < number}
    names = _names(
        g for g in rows if g.generation < number and (g.version_id is None or g.version_id in gone)
    )
    # no run begins any more: what a frozen one wrote after it is not to be here either
    nothing = whole and gone == versions.keys()
    over = _finished(world, dataset_id, number)
    for path in _erasable(world.data, dataset_id, set()):
        place = place_of("data", path, dataset_id)
        older = place is not None and place.erased == "all" and _written(world, path) < over
        late = nothing and path.startswith(
            (captures_folder(dataset_id) + "/", parts_folder(dataset_id) + "/")
        )
        # a backup that was copied back is as old as it was
        if older or late or _is_kept(path, names):
            yield path, _why(number)


def left_in_inbox(world: World, dataset_id: str) -> dict[str, tuple[str, str]]:
    """Files that people brought, from before an erasure of what is in them: path -> why it is told,
    and another dataset that needs it or "".
    """
    channel, found = world.channel(dataset_id), dict[str, tuple[str, str]]()
    for generation in world.store.read(lambda tx: tx.index.generations(dataset_id)):
        if generation.kind != "withdraw":
            continue
        try:
            rules = channel.unverified(generation.generation).suppress
        except KfmError:
            return found  # said elsewhere
        if not any(rule.get("erased") for rule in rules):
            continue
        over, now, of = (
            _finished(world, dataset_id, generation.generation),
            world.clock.now().timestamp(),
            inbox.scope(rules),
        )
        paths = world.store.read(lambda tx: inbox.brought(world, tx, dataset_id, of))
        shared = world.store.read(lambda tx: inbox.others(world, tx, dataset_id, paths))
        for path in paths:
            at = (inbox.written(world.root, path) or 0) / 1e9
            if not over or at <= over or at > now:  # a time to come says nothing
                why = (
                    f"generation {generation.generation} of {dataset_id} erased what it was the"
                    " source of, and it is here"
                )
                found[path] = (why, shared.get(path, ""))
    return found


def _finished(world: World, dataset_id: str, number: int) -> float:
    """When an erasure was finished, by its record; the time of the file counts only where it is
    earlier, for a copy is younger than what it was made from. 0: nobody knows, and nothing is
    older."""
    record = erasure_path(dataset_id, number)
    try:
        told = msgspec.json.decode(world.data.read(record), type=Erasure).finished_at
        return min(dt.datetime.fromisoformat(told).timestamp(), _written(world, record))
    except (FileNotFoundError, ValueError):  # never finished, or damaged
        return 0.0


def _written(world: World, path: str) -> float:
    """When a file was written; one that is gone is older than nothing."""
    found = world.data.held(path)
    return found.written_ns / 1e9 if found is not None else math.inf


def _why(number: int) -> str:
    return (
        f"generation {number} says that it was erased, and it is here; `kfm doctor --fix`"
        " destroys it"
    )


def destroy_left(world: World, dataset_id: str) -> None:
    """Finish an erasure, also one whose plan is lost; where others came after it, destroy what it
    should have.
    """
    plan_again(world, dataset_id)
    if finish_erasure(world, dataset_id) is None:
        with alone(world, dataset_id):
            world.data.remove_all([path for path, _ in left_behind(world, dataset_id)])
