"""Released by rule: what of a table may be shown, what is kept sealed, what was withdrawn from
it.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from msgspec import UNSET

from kfm.connectors.base import EXPLAINED, CaptureRefused, InputFile, TransformResult, plain
from kfm.connectors.operations import Govern
from kfm.evidence.version_records import placed, read_facts
from kfm.keys.commitments import SEALED
from kfm.model import (
    NEW_COLUMNS,
    Candidate,
    Column,
    DatasetEntry,
    Denied,
    Generation,
    IntegrityError,
    Json,
    KfmError,
    Stored,
    UsageError,
    canonical,
    ids,
    made_columns,
    release_steps,
    rules_in,
)
from kfm.model.labels import explains
from kfm.model.paths import part_folder, precise_path, proposal_path, rule_path, version_path
from kfm.world.run_log import RunLog
from kfm.world.world import World
from kfm.zones.base import Zone, hash_file, room

__all__ = [
    "Released",
    "base_tables",
    "candidate_of",
    "check_shown",
    "digest_of",
    "explained_before",
    "govern_job",
    "governed",
    "is_withheld",
    "keep_precise",
    "keep_released",
    "new_columns",
    "open_table",
    "records_of_version",
    "release",
    "release_mark",
    "release_marks",
    "sealed_records",
    "shown_last",
    "store_table",
    "suppress_rules",
]


class Keeper(Protocol):
    """Whoever stores tables: says so, and sets aside what lies damaged where one goes."""

    log: RunLog

    def make_room(self, path: str, digest: str) -> None: ...


def candidate_of(world: World, dataset_id: str, run_id: str) -> Candidate | None:
    """What a run proposed, None when it left nothing that can be read."""
    path = proposal_path(dataset_id, run_id, "candidate.json")
    try:
        return msgspec.convert(canonical.loads(world.kept(path)), Candidate)
    except (KfmError, OSError, msgspec.ValidationError):
        return None


def suppress_rules(
    world: World, dataset_id: str, suppressed: Mapping[str, str]
) -> tuple[Json, ...]:
    """The rules of every withdrawal of records or areas. Each is kept on the restricted side and
    must be the one that was signed.
    """
    found = []
    for rule, generation in rules_in(suppressed):
        path = rule_path(dataset_id, rule.commitment)
        assert world.vaults is not None
        if not world.vaults.has_salt(dataset_id):
            raise Denied(
                f"keys/data/{dataset_id}.salt is missing: no rule can be shown to be the one that"
                f" generation {generation} signed.",
                expected="the salt it was committed to with",
                remedy=(
                    "Restore it with `kfm keys restore`: without it nothing may be published here."
                ),
            )
        raw = world.kept(path) if world.data.exists(world.lies(path)) else b""
        if world.vaults.commit(dataset_id, raw.decode("utf-8", "replace")) != rule.commitment:
            raise IntegrityError(
                f"{path} is not the rule that generation {generation} signed.",
                expected="the suppression rule of that withdrawal",
                remedy="Restore the file from a backup: without it nothing may be published here.",
            )
        found.append(canonical.loads(raw))
    return tuple(found)


def open_table(world: World, dataset_id: str, stored: Json, scratch: Path) -> Path:
    """A stored table as a plain file, unsealed into `scratch` where it is sealed; one that was
    changed is not used.
    """
    world.data.require(stored["from"], stored["at_rest" if "at_rest" in stored else "digest"])
    path = world.data.local(stored["from"])
    if not path.name.endswith(SEALED):
        return path
    assert world.vaults is not None
    into = scratch / path.name.removesuffix(SEALED)
    world.vaults.unseal(dataset_id, path, into)
    return into


def is_withheld(artifact: Json) -> bool:
    """Whether an artifact is records that were not released: it is its sealed bytes, and nothing
    else can be shown of it.
    """
    return str(artifact["from"]).endswith(SEALED) and "at_rest" not in artifact


def digest_of(data: Zone, artifact: Json) -> str | None:
    """The digest of an artifact as it lies there now, None when it is missing; of one that is
    sealed at rest what it was released as.
    """
    stored = data.stat(artifact["from"])
    if stored is None:
        return None
    return str(artifact["digest"]) if stored.digest == artifact.get("at_rest") else stored.digest


def store_table(
    world: World,
    work: Keeper | None,
    dataset_id: str,
    path: Path,
    *,
    seal: bool,
    scratch: Path,
    rows: int,
    shown: bool = False,
) -> Json:
    """Keep a table as a part, sealed or plain. `shown`: it was released, so what names it is its
    own digest, sealed or not.
    """
    made = path
    if seal and world.vaults is not None:
        made = scratch / (path.name + SEALED)
        world.vaults.seal(dataset_id, path, made)
    stored = hash_file(made)
    target = f"{part_folder(dataset_id, stored.digest)}/{made.name}"
    publisher = world.publish(work.log) if work is not None else world.publisher
    if work is not None:
        work.make_room(target, stored.digest)
    if publisher.write_file(target, made) != stored.digest or not world.data.exists(target):
        raise IntegrityError(
            f"{target} is not there after it was written.",
            expected=stored.digest,
            remedy="Check the disk, then run again.",
        )
    if shown and made is not path:
        plain = hash_file(path)
        return {
            "digest": plain.digest,
            "size": plain.size,
            "rows": rows,
            "from": target,
            "at_rest": stored.digest,
        }
    return {"digest": stored.digest, "size": stored.size, "rows": rows, "from": target}


def release_mark(entry: DatasetEntry) -> str:
    """What stands with a table for the rules it was released by."""
    return ids.digest(canonical.dumps([dict(s) for s in release_steps(entry.release)]))


def release_marks(entry: DatasetEntry, columns: Iterable[str]) -> tuple[str, ...]:
    """The marks that a table of these columns may bear: that of the rules of now, and of the same
    rules before they said what they show.
    """
    release = entry.release
    if (
        release is None
        or release.show is UNSET
        or {*columns} - {*release.show, *made_columns(release)}
    ):
        return (release_mark(entry),)
    before = msgspec.structs.replace(entry, release=msgspec.structs.replace(release, show=UNSET))
    return release_mark(entry), release_mark(before)


def shown_last(world: World, dataset_id: str) -> tuple[str, ...]:
    """The columns of the last public version, without those a release makes itself; none when
    nothing was public yet.
    """
    entry = world.registry(dataset_id)
    # the head may have to be indexed first, which writes
    head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    if entry is None or entry.release is None or head.version_id is None:
        return ()
    made = made_columns(entry.release)
    return tuple(
        c.name
        for c in read_facts(world.data, dataset_id, head.version_id).schema
        if c.name not in made
    )


def check_shown(world: World, entry: DatasetEntry) -> None:
    """Raise `UsageError` for a release that says what it withholds and not what it shows: whatever
    upstream adds would get out.
    """
    if entry.release is None or entry.release.show is not UNSET:
        return
    last = shown_last(world, entry.dataset_id)
    raise UsageError(
        f"`release` of {entry.dataset_id} does not say which columns it shows.",
        expected="`release.show`: only columns it names leave",
        remedy=(
            "`kfm upgrade` writes the columns of the last public version; or write `show:"
            f" [{', '.join(last)}]` under `release` in data/registry/{entry.dataset_id}.yml."
        ),
    )


def new_columns(added: Sequence[str]) -> tuple[str, ...]:
    """A warning that upstream has columns it did not have and nobody is shown; of many the first
    are named.
    """
    named = ", ".join(added[:5]) + (f" and {len(added) - 5} more" if len(added) > 5 else "")
    return (f"{NEW_COLUMNS}: {plain(named)}",) if added else ()


def keep_precise(world: World, dataset_id: str, version_id: str, records: Stored) -> None:
    """Write down which sealed records a version was released from; how many they are is nobody's
    business.
    """
    path = precise_path(dataset_id, version_id)
    content = world.at_rest(path, raw := canonical.dumps(records))
    world.data.replace(path if content is raw else path + SEALED, content)
    if content is not raw:
        world.data.remove(path)  # of an earlier kfm


def base_tables(
    world: World, dataset_id: str, base: str | None, sealed: Stored | None = None
) -> tuple[Stored, Stored]:
    """The tables of the base version, and the records they were released from; a table nothing was
    released from is its own.
    """
    if base is None:
        return {}, {}
    try:
        kept = placed(read_facts(world.data, dataset_id, base), dataset_id, base)
    except FileNotFoundError as error:
        raise IntegrityError(
            f"{version_path(dataset_id, base, 'version.json')} of the official version is missing.",
            expected="the version that the next one follows",
            remedy="`kfm doctor --fix` puts back what lies elsewhere here; else a backup has it.",
        ) from error
    return kept, records_of_version(world, dataset_id, base, kept, sealed)


def sealed_records(world: World, dataset_id: str, version_id: str | None) -> Stored:
    """The sealed records a version stands for now: those it was released from, or later ones that
    changed nothing public.
    """
    path = precise_path(dataset_id, str(version_id))
    found: Stored = (
        canonical.loads(world.kept(path))
        if version_id is not None and world.data.exists(world.lies(path))
        else {}
    )
    return found


def records_of_version(
    world: World, dataset_id: str, version_id: str, kept: Stored, sealed: Stored | None = None
) -> Stored:
    """The records behind the tables of a version; `sealed`: those that a run pinned."""
    sealed = sealed_records(world, dataset_id, version_id) if sealed is None else sealed
    untouched = ids.digest(canonical.dumps([]))
    return {p: a for p, a in kept.items() if a.get("release") == untouched} | sealed


def govern_job(
    entry: DatasetEntry,
    table: Path,
    name: str,
    schema: tuple[Column, ...],
    rules: tuple[Json, ...],
    digest: str,
    *,
    released: bool = True,
    before: Path | None = None,
) -> Govern:
    """The release of one table; `before`: what explained the rows that are public now."""
    explained = (
        ()
        if before is None
        else (InputFile(source_id=EXPLAINED, path=str(before.absolute()), digest=""),)
    )
    return Govern(
        dataset_id=entry.dataset_id,
        inputs=(
            InputFile(source_id="table", path=str(table.absolute()), digest=digest),
            *explained,
        ),
        schema=schema,
        business_key=entry.business_key,
        location=entry.location,
        release=entry.release if released else None,
        suppress=rules,
        artifact=name,
    )


class Released(NamedTuple):
    """One table that was released."""

    table: Json  # where it lies
    result: TransformResult
    # where it lies, sealed, what explains its rows; None: they are records, which explain
    # themselves
    explained: Json | None


def release(
    world: World,
    entry: DatasetEntry,
    stored: Json,
    name: str,
    result: TransformResult,
    rules: tuple[Json, ...],
    scratch: Path,
    work: Keeper | None = None,
    *,
    last: Json | None = None,
) -> Released:
    """One table released by the registry's rules and without what was withdrawn.

    `last` is the records the public table of now was released from: the difference to it is judged
    like a release.
    """
    return keep_released(
        world,
        entry,
        name,
        governed(world, entry, stored, name, result, rules, scratch, last=last),
        scratch,
        work,
    )


def governed(
    world: World,
    entry: DatasetEntry,
    stored: Json,
    name: str,
    result: TransformResult,
    rules: tuple[Json, ...],
    scratch: Path,
    *,
    last: Json | None = None,
) -> TransformResult:
    """The same in `scratch` alone: nothing is kept of it yet."""
    if not name.endswith(".parquet"):
        raise Denied(
            f"{name} of {entry.dataset_id} is no table, so no rule can take records out of it.",
            expected="a dataset of tables alone",
            remedy=(
                "Withdraw the whole dataset or version: `kfm withdraw` without --record and --area."
            ),
        )
    table = open_table(world, entry.dataset_id, stored, room(scratch, "plain"))
    before = explained_before(world, entry, last, room(scratch, "before"))
    job = govern_job(entry, table, name, result.schema, rules, stored["digest"], before=before)
    return world.transform(job, room(scratch, "released"), None)


def keep_released(
    world: World,
    entry: DatasetEntry,
    name: str,
    released: TransformResult,
    scratch: Path,
    work: Keeper | None = None,
) -> Released:
    """Keep as parts what `governed` left in `scratch`."""
    # what may be shown is not known before it is judged
    private = world.is_private(entry.dataset_id)
    table = scratch / "released" / name
    made = store_table(
        world,
        work,
        entry.dataset_id,
        table,
        seal=private,
        scratch=scratch,
        rows=released.rows,
        shown=True,
    )
    explained, mark = scratch / "released" / EXPLAINED, {"release": release_mark(entry)}
    kept = (
        store_table(world, work, entry.dataset_id, explained, seal=True, scratch=scratch, rows=0)
        if explained.exists()
        else None
    )
    return Released(made | mark, released, None if kept is None else kept | mark)


def explained_before(
    world: World, entry: DatasetEntry, last: Json | None, scratch: Path
) -> Path | None:
    """What explained the public rows of now, as a file; None where none are explained.

    Of a table that was released before this was written down it is what its records explain.
    """
    if last is None or not explains(entry.release):
        return None
    try:
        table = open_table(world, entry.dataset_id, last.get("explained", last), scratch)
    except KfmError as error:
        if last.get("explained", {}).get("release") not in (None, release_mark(entry)):
            return None  # of other rules it would explain nothing
        raise IntegrityError(
            f"What explains the public rows of {entry.dataset_id} cannot be read: {error.happened}",
            expected="the sealed numbers that the difference to the official version is judged by",
            remedy=(
                "Restore them, or keys/data, from a backup. If they are gone for good, state"
                " another `release` (a larger `min_records`, say): what is released by other rules"
                " is a first release."
            ),
        ) from error
    if "explained" in last:
        return table
    try:
        world.transform(
            govern_job(entry, table, table.name, (), (), last["digest"]),
            room(scratch, "released"),
            None,
        )
    except CaptureRefused:
        return None  # it lacks columns that the rules of now name, so it was released by others
    return scratch / "released" / EXPLAINED
