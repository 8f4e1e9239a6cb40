"""named_files: every file that evidence names or renders, looked at one by one; what a tick will
still make is not missed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache

import msgspec

from kfm.channel.generations import projected_generation
from kfm.evidence.captures import render_raw
from kfm.evidence.folder_check import Verified, kind_of
from kfm.evidence.journal import done_of
from kfm.evidence.projection import catalog_files, shown_version
from kfm.evidence.receipts import find_receipt, outcome_of
from kfm.evidence.removed import removed_files, removed_versions
from kfm.evidence.run_files import Packed, load_packs, read_run_file
from kfm.model import (
    ATTESTATION,
    Assembled,
    DatasetEntry,
    Generation,
    IntegrityError,
    Json,
    KfmError,
    LedgerRow,
    UsageError,
    canonical,
    ids,
)
from kfm.model.paths import (
    announcement_path,
    announcements_folder,
    approvals_folder,
    approvals_path,
    captures_folder,
    dcat_path,
    derived_path,
    item_path,
    proposal_path,
    prov_folder,
    prov_path,
    run_path,
    stac_folder,
    tagged_path,
)
from kfm.upkeep.missing_files import Lawful, journal_of, verify_present
from kfm.world.world import World

__all__ = ["decoded", "needing_entry", "sealed_files", "verify_named"]


@contextmanager
def needing_entry(dataset_id: str, found: Verified) -> Iterator[None]:
    """What cannot be told without the registry entry, or that of something it is made from. One that
    cannot be read is named once, and the rest is looked at.
    """
    where = f"data/registry/{dataset_id}.yml"
    try:
        yield
    except UsageError as error:
        if all(problem["where"] != where for problem in found.problems):
            found.wrong(where, error.happened)


def verify_named(world: World, dataset_id: str, found: "Verified") -> None:
    """Generations as they were indexed, catalog records as they are rendered, releases, proposals,
    outcomes and lists of captures.
    """
    with suppress(KfmError):  # a damaged channel, which is said elsewhere
        # whoever appended the last may not have told the store
        world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    for row in rows:
        path = world.channel(dataset_id).path(row.generation)
        if world.data.exists(path) and ids.digest(world.data.read(path)) != row.file_digest:
            found.wrong(
                path,
                "it is signed, and yet not the generation that was appended: it was written again",
            )
    with needing_entry(dataset_id, found):
        _catalog(world, dataset_id, rows, found)
    _releases(world, dataset_id, rows, found)
    _shown(world, dataset_id, rows, found)
    packs = load_packs(world.data, dataset_id)
    try:
        runs: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(dataset_id, 1_000_000))
    except IntegrityError as error:
        found.wrong("ledger", error.happened)
        return
    for run in runs:
        _proposal(world, run, packs, found)
        _outcome(world, run, packs, found)
    verify_present(world, dataset_id, runs, packs, found)
    _raw(world, dataset_id, found)


def sealed_files(
    world: World,
    dataset_id: str,
    run_id: str,
    files: Mapping[str, str],
    found: "Verified",
    *,
    gone: int = 0,
    lawful: Lawful | None = None,
) -> None:
    """The files of a run that its receipt names; a missing one is wrong with the exit code `gone`,
    fine where that is 0 or `lawful` knows it.
    """
    for name, digest in files.items():
        where = run_path(dataset_id, run_id, name)
        shown = {
            "prov.json": prov_path(dataset_id, run_id),
            "approvals.json": approvals_path(dataset_id, run_id),
        }.get(name)
        # of a run that nobody promoted they lie only there
        proposed = proposal_path(dataset_id, run_id, name)
        places = [shown or proposed, proposed] if shown or name == ATTESTATION else [where]
        there = {
            place: stored
            for place in places
            if (stored := _digest(world, place, found)) is not None
        }
        known = lawful is not None and any(map(lawful.is_gone, places))
        if gone and not there and not known:  # where the proposal is there, the next tick shows it
            found.wrong(places[0], "the receipt names it, and it is missing", gone, "missing")
        for place, stored in there.items():
            with needing_entry(dataset_id, found):
                # what stands for it in public nobody can tell without the entry
                if stored and digest != stored and digest != world.stand_in(dataset_id, stored):
                    found.wrong(place, "it is not what the receipt sealed")


def _digest(world: World, path: str, found: "Verified") -> str | None:
    """The digest that evidence knows a file by, sealed or not; None when it is not there, "" when
    it cannot be opened.
    """
    try:
        known = world.named(path)
        if known is None and world.data.exists(world.lies(path)):
            known = ids.digest(world.kept(path))
    except KfmError as error:
        found.wrong(world.lies(path), error.happened, error.exit_code, kind_of(error))
        return ""
    return known


# ---- catalog -------------------------------------------------------------------------------------
_STALE = (
    "it is not what its generation and the registry entry render; `kfm doctor --fix` renders it"
    " again"
)
_NO_VERSION = "nobody can tell whether it is right: the version it is of is damaged or missing"


def _catalog(world: World, dataset_id: str, rows: Sequence[Generation], found: "Verified") -> None:
    """Each record is what the head renders, or the generation that was shown last; with the
    registry entry of now, or of a run.
    """
    if not rows:
        return
    shown, last, removed = (
        projected_generation(world.data, dataset_id),
        rows[-1],
        removed_versions(world.data, dataset_id),
    )
    entries = _entries(world, dataset_id, rows)

    @cache
    def rendered(generation: int, at: int, told: frozenset[str] = frozenset()) -> dict[str, bytes]:
        row = next(r for r in rows if r.generation == generation)
        try:
            return catalog_files(
                world,
                shown_version(world, row, entries[at], rows[: rows.index(row) + 1], told),
                told,
            )
        except (KfmError, OSError, KeyError, TypeError, ValueError):
            return {}  # a version that is gone, or damaged, which is said elsewhere

    def fits(path: str, raw: bytes) -> bool:
        now = {g for g in (shown, last.generation) if g is not None and 0 < g <= last.generation}
        # by a sweep that has not rendered it again yet
        told = frozenset(v for v in removed if v.encode() in raw)
        if any(rendered(g, at, told).get(path) == raw for g in now for at in range(len(entries))):
            return True
        earlier = [
            r.generation
            for r in rows
            if path == item_path(dataset_id, str(r.version_id)) and r.version_id != last.version_id
        ]
        return any(
            _was(raw, rendered(g, at).get(path)) for g in earlier for at in range(len(entries))
        )

    swept = {item_path(dataset_id, version) for version in removed}
    what = _STALE if rendered(last.generation, 0) or last.version_id is None else _NO_VERSION
    for path in sorted(
        {
            *rendered(last.generation, 0),
            *world.data.names(stac_folder(dataset_id)),
            dcat_path(dataset_id),
        }
        - swept
    ):
        if world.data.exists(path) and not fits(path, world.data.read(path)):
            found.wrong(path, what)
        elif not world.data.exists(path) and shown == last.generation:
            # DCAT comes last: with it, all the others were there
            found.wrong(
                path,
                f"generation {shown} is shown, and it is missing; `kfm doctor --fix` renders it"
                " again",
                3,
                "missing",
            )
    # Several withdrawals may leave one version, of whose lineage the last was written down.
    for row in {r.version_id: r for r in rows if r.kind == "withdraw"}.values():
        path, source = (
            prov_path(dataset_id, f"withdrawal_{row.generation}"),
            derived_path(dataset_id, row.version_id),
        )
        if world.data.exists(path) and _digest(world, source, found) not in (
            None,
            "",
            ids.digest(world.data.read(path)),
        ):
            found.wrong(path, "it is not the lineage that the withdrawal left")


def _entries(
    world: World, dataset_id: str, rows: Sequence[Generation]
) -> list[DatasetEntry | None]:
    """The registry entry of now, then those that runs recorded: prose may have changed since the
    last tick.
    """
    listed: list[DatasetEntry | None] = [world.registry(dataset_id)]
    for run_id in dict.fromkeys(row.run_id for row in reversed(rows) if row.run_id):
        raw = read_run_file(world.data, dataset_id, run_id, "run_record.json", {})
        try:
            entry = msgspec.convert(
                msgspec.json.decode(raw or b"{}")["spec"]["registry"], DatasetEntry
            )
        except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError):
            continue  # said elsewhere
        if entry not in listed:
            listed.append(entry)
    return listed


def _was(raw: bytes, rendered: bytes | None) -> bool:
    """Whether the item of an earlier version says nothing else than it would say now: it is not
    rendered again, and kfm learns.
    """
    try:
        old, new = msgspec.json.decode(raw), msgspec.json.decode(rendered or b"")
        for document in (old, new):
            # it may have gone since
            document["links"] = [
                link for link in document["links"] if link["rel"] != "predecessor-version"
            ]
        return _within(old, new)
    except (msgspec.DecodeError, KeyError, TypeError):
        return False


def _within(old: object, new: object) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return all(name in new and _within(value, new[name]) for name, value in old.items())
    return bool(old == new)


# ---- releases, proposals, outcomes, captures -----------------------------------------------------
def _releases(world: World, dataset_id: str, rows: Sequence[Generation], found: "Verified") -> None:
    """What was announced of a generation is what its receipt says was made."""
    announced = set(world.root.names(announcements_folder(dataset_id)))
    for row in (r for r in rows if r.kind == "promote"):
        tag = f"{dataset_id}/{row.generation:08}"
        path, receipt = tagged_path(tag), _receipt(world, row.run_id)
        if path not in announced:
            continue
        announced.remove(path)
        if receipt is None:
            continue  # said elsewhere
        assets = {
            output["id"].partition(f"@{row.version_id}/")[2]: output["checksum"]
            for output in receipt["outputs"]
        }
        if world.root.read(path) != canonical.dumps({"tag": tag, "assets": assets}) + b"\n":
            found.wrong(path, "it announces other files than its generation made official")
    for path in sorted(announced):
        found.wrong(path, "no generation made anything official that it could announce")


def _shown(world: World, dataset_id: str, rows: Sequence[Generation], found: "Verified") -> None:
    """What was shown of a generation is there, and nothing else is. A release is announced last:
    with it, all the rest was shown.
    """
    announced = {
        (o.run_id, o.generation)
        for o in world.store.read(lambda tx: tx.outbox.delivered(dataset_id))
    }
    told = [r for r in rows if (r.run_id, r.generation) in announced]
    again = "it is missing; `kfm doctor --fix` makes it again"
    if told and not world.data.exists(dcat_path(dataset_id)):
        found.wrong(
            dcat_path(dataset_id),
            f"generation {told[-1].generation} was shown, and {again}",
            3,
            "missing",
        )
    for row in told:
        path = announcement_path(dataset_id, row.generation)
        if not world.root.exists(path):
            found.wrong(
                path, f"generation {row.generation} was announced, and {again}", 3, "missing"
            )
        for name, shown in (("prov.json", prov_path), ("approvals.json", approvals_path)):
            path, source = (
                shown(dataset_id, row.run_id),
                proposal_path(dataset_id, row.run_id, name),
            )
            # without a source it is said with the receipt that names it
            if not world.data.exists(path) and _can_show(world, source):
                found.wrong(
                    path, f"generation {row.generation} was shown, and {again}", 3, "missing"
                )
    known = {
        shown(dataset_id, r.run_id)
        for r in rows
        if r.run_id
        for shown in (prov_path, approvals_path)
    }
    known |= {
        prov_path(dataset_id, f"withdrawal_{r.generation}") for r in rows if r.kind == "withdraw"
    }
    for path in (
        p for top in (prov_folder, approvals_folder) for p in world.data.names(top(dataset_id))
    ):
        if path not in known:
            found.wrong(path, "no generation names it")
    shown_to = projected_generation(world.data, dataset_id) or 0
    for row in (
        r
        for r in rows
        if r.kind == "withdraw" and r.version_id is not None and r.generation <= shown_to
    ):
        path, source = (
            prov_path(dataset_id, f"withdrawal_{row.generation}"),
            derived_path(dataset_id, row.version_id),
        )
        if not world.data.exists(path) and _can_show(world, source):
            found.wrong(path, f"generation {row.generation} was shown, and {again}", 3, "missing")


def _can_show(world: World, source: str) -> bool:
    """Whether what a tick would show lies there and can be read; one that is sealed, and its key is
    gone, is not shown.
    """
    try:
        return bool(world.data.exists(world.lies(source)) and world.kept(source))
    except KfmError:
        return False


def _receipt(world: World, run_id: str) -> Json | None:
    path = find_receipt(world.root, run_id)
    return decoded(world.root.read(path)) if path is not None else None


def _proposal(world: World, run: LedgerRow, packs: Packed, found: "Verified") -> None:
    """What was proposed is what the journal says was judged, official, denied or waiting; it names
    its own files.
    """
    path = proposal_path(run.dataset_id, run.run_id)
    name = world.lies(path)
    if run.state not in ("PROPOSED", "COMMITTED", "REJECTED") or not world.data.exists(name):
        return  # nobody relied on one that was given up, perhaps because it was damaged
    judged = _judged(world, run, packs)
    as_lies = judged is None or ids.digest(world.data.read(name)) == judged
    # one that was sealed later is known by what it was
    if not as_lies and (name == path or _digest(world, path, found) not in ("", judged)):
        found.wrong(name, "it is not what was judged: the journal names another")
        return
    try:
        proposal = decoded(world.kept(path))
    except KfmError as error:
        found.wrong(name, error.happened, error.exit_code, kind_of(error))
        return
    if proposal is None:
        found.wrong(name, "it is not readable")
        return
    listed = {
        proposal_path(run.dataset_id, run.run_id, file): digest
        for file, digest in proposal["files"].items()
    }
    listed |= {
        run_path(run.dataset_id, run.run_id, file): digest
        for file, digest in proposal["receipts"].items()
    }
    for file, digest in listed.items():
        if _digest(world, file, found) not in (None, "", digest):
            found.wrong(world.lies(file), "it was changed after it was proposed")


def _judged(world: World, run: LedgerRow, packs: Packed) -> str | None:
    """The digest of proposal.json in the journal; None when it does not say, or is damaged, which
    is said elsewhere.
    """
    try:
        said = done_of(
            journal_of(world, run, packs), "assemble", world.veil(run.dataset_id), Assembled
        )
    except KfmError:
        return None
    return said.proposal or None if said is not None else None


def _outcome(world: World, run: LedgerRow, packs: Packed, found: "Verified") -> None:
    """How a run ended, as the ledger has it."""
    raw = read_run_file(world.data, run.dataset_id, run.run_id, "outcome.json", packs)
    told = decoded(raw) or {} if raw is not None else outcome_of(run)
    # what became of a part since, its assembly says
    staged = told.get("state") == "STAGED" and told.get("run_id") == run.run_id
    if not staged and outcome_of(run).items() - told.items():
        found.wrong(
            run_path(run.dataset_id, run.run_id, "outcome.json"), "the ledger says otherwise"
        )


def _raw(world: World, dataset_id: str, found: "Verified") -> None:
    """The lists of captures say nothing that no capture says; one that is behind is rendered by the
    next tick.
    """
    stale: dict[str, bytes] = {}
    try:
        render_raw(world.data, dataset_id, stale.__setitem__)
    except (UnicodeDecodeError, ValueError):
        return  # a damaged capture, which is said elsewhere
    swept = {
        path.split("/")[3]
        for path in removed_files(world.data, dataset_id)
        if path.startswith(captures_folder(dataset_id) + "/")
    }
    for path, content in stale.items():
        raw = world.data.read(path) if world.data.exists(path) else b""
        if any(capture.encode() in raw for capture in swept):
            continue  # a sweep was killed before it rendered the list again
        if set(raw.splitlines()) - set(content.splitlines()):
            found.wrong(path, "it does not match the captures; `kfm doctor --fix` renders it again")


def decoded(raw: bytes) -> Json | None:
    """A JSON object, None when it is none."""
    try:
        found = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None
