"""From a durable part to the tables of a candidate: merged with the base, released by rule, precise records kept apart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from kfm import canonical
from kfm.commitments import SEALED
from kfm.connectors.base import EXPLAINED, Books, CaptureRefused, InputFile, TransformJob, TransformResult, plain
from kfm.errors import Denied, IntegrityError, KfmError, StepFailed, UsageError
from kfm.model import ids
from kfm.model.change import Measured
from kfm.model.dataset import DatasetEntry, change_limits
from kfm.model.kinds import KINDS
from kfm.model.labels import NEW_COLUMNS, explains, made_columns, obligations, release_steps, unshown
from kfm.model.ledger import Generation, is_older, stamps_of
from kfm.quarantine import check_added
from kfm.records import read_facts
from kfm.world import Target, World
from kfm.zones.base import hash_file, room

if TYPE_CHECKING:
    from kfm.update import Update
    from kfm.wal import Wal

__all__ = [
    "Released", "Tables", "base_table", "candidate_of", "candidate_path", "check_shown", "digest_of", "explained_before", "govern_job", "governed", "is_withheld", "keep_precise", "keep_released", "measured",
    "merge_tables", "new_columns", "open_table", "precise_path", "records_of_version", "release", "release_mark", "release_marks", "rule_path", "says_newer", "sealed_records", "shown_last",
    "staged_tables", "store_table", "suppress_rules", "tables_of",
]  # fmt: skip

# artifact path -> {digest, size, rows, from}; `at_rest`: the digest of its sealed bytes, of a released table that is not official yet;
# of sealed records also `explained`, the same of what explained the public rows made from them
Stored = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Tables:
    """What a candidate is made of."""

    artifacts: Stored  # what would become official
    precise: Stored  # private datasets only: the records themselves, sealed
    result: TransformResult  # of the released table
    books: Books  # of the part that was read
    released: Books | None  # of the release, when there was one
    base: dict[str, Any] | None  # private datasets only: the records the part was merged with
    withdrawn: int = 0  # records that came and stay out
    absence: Measured | None = None  # what the absence of rows in the part did to those of the base; of public datasets only
    added: tuple[str, ...] = ()  # columns that the records have since the base and nobody is shown


def candidate_path(dataset_id: str, run_id: str) -> str:
    return f"work/{dataset_id}/proposals/{run_id}/candidate.json"


def candidate_of(world: World, dataset_id: str, run_id: str) -> dict[str, Any] | None:
    """What a run proposed, None when it left nothing that can be read."""
    path = candidate_path(dataset_id, run_id)
    try:
        found: dict[str, Any] = canonical.loads(world.kept(path))
    except (KfmError, OSError):
        return None
    return found


def rule_path(dataset_id: str, commitment: str) -> str:
    return f"work/{dataset_id}/withdrawals/{commitment.rpartition(':')[2][:32]}.json"


def suppress_rules(world: World, dataset_id: str, suppressed: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    """The rules of every withdrawal of records or areas. Each is kept on the restricted side and must be the one that was signed."""
    found = []
    for name, generation in suppressed.items():
        if not name.startswith("rule\n"):
            continue
        path = rule_path(dataset_id, name.removeprefix("rule\n"))
        raw = world.kept(path) if world.data.exists(world.lies(path)) else b""
        assert world.vaults is not None
        if world.vaults.commit(dataset_id, raw.decode("utf-8", "replace")) != name.removeprefix("rule\n"):
            raise IntegrityError(
                f"{path} is not the rule that generation {generation} signed.",
                expected="the suppression rule of that withdrawal",
                remedy="Restore the file from a backup: without it nothing may be published here.",
            )
        found.append(canonical.loads(raw))
    return tuple(found)


def open_table(world: World, dataset_id: str, stored: Mapping[str, Any], scratch: Path) -> Path:
    """A stored table as a plain file, unsealed into `scratch` where it is sealed; one that was changed is not used."""
    found = world.data.stat(stored["from"])
    if found is None or found.digest != stored.get("at_rest", stored["digest"]):
        raise IntegrityError(
            f"{stored['from']} is {'damaged' if found is not None else 'missing'}.",
            expected=stored["digest"],
            remedy="Restore it from a backup; `kfm verify` lists what is damaged.",
        )
    path = world.data.local(stored["from"])
    if not path.name.endswith(SEALED):
        return path
    assert world.vaults is not None
    into = scratch / path.name.removesuffix(SEALED)
    world.vaults.unseal(dataset_id, path, into)
    return into


def is_withheld(artifact: Mapping[str, Any]) -> bool:
    """Whether an artifact is records that were not released: it is its sealed bytes, and nothing else can be shown of it."""
    return str(artifact["from"]).endswith(SEALED) and "at_rest" not in artifact


def digest_of(world: World, artifact: Mapping[str, Any]) -> str | None:
    """The digest of an artifact as it lies there now, None when it is missing; of one that is sealed at rest what it was released as."""
    stored = world.data.stat(artifact["from"])
    if stored is None:
        return None
    return str(artifact["digest"]) if stored.digest == artifact.get("at_rest") else stored.digest


def store_table(
    world: World, work: Any, dataset_id: str, path: Path, *, seal: bool, scratch: Path, rows: int, shown: bool = False
) -> dict[str, Any]:
    """Keep a table as a part, sealed or plain. `shown`: it was released, so what names it is its own digest, sealed or not."""
    from kfm.update import part_folder

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
            f"{target} is not there after it was written.", expected=stored.digest, remedy="Check the disk, then run again."
        )
    if shown and made is not path:
        plain = hash_file(path)
        return {"digest": plain.digest, "size": plain.size, "rows": rows, "from": target, "at_rest": stored.digest}
    return {"digest": stored.digest, "size": stored.size, "rows": rows, "from": target}


def tables_of(work: "Update", wal: "Wal", result: TransformResult, base: str | None, suppressed: Mapping[str, str]) -> Tables:
    """Base version + the part by the registry's merge rule, then the release."""
    world, target = work.world, work.target
    dataset_id, name, private, entry = target.dataset_id, target.artifact, work.private, target.entry
    own = {name: _own_part(work, wal, result)}
    pinned = wal.payload("pin").get("records")
    kept, kept_precise = _kept(world, dataset_id, base, pinned)
    last = kept_precise.get(name)
    books, rule, before, absence = result.books, _merge_rule(work, result, base), None, None
    with world.data.scratch() as scratch:
        if rule == "upsert" and name in kept:
            before = _records(kept_precise if private else kept, name, dataset_id)
            own[name], result = _upserted(work, own[name], before, result, scratch)
            books, absence = result.books, result.change if result.change is not UNSET and not private else None
            if entry.source.kind in KINDS and KINDS[entry.source.kind].names:
                kept = {p: a for p, a in kept.items() if p.endswith(".parquet") or p in result.files}
        if rule == "replace":
            kept, kept_precise = {}, {}
        rules = suppress_rules(world, dataset_id, suppressed)
        kept, kept_precise = _as_released_now(work, {p: a for p, a in kept.items() if p != name}, kept_precise, rules, scratch)
        precise = {**kept_precise, name: {**own[name], "columns": [c.name for c in result.schema]}} if private else {}
        added = _added(entry, last, result)
        if entry.release is None and not rules:
            kept |= _companions(wal, release_mark(entry))
            shown = own[name] if not private else _plain(work, own[name], scratch)
            everything = {**kept, name: {**shown, "release": release_mark(entry)}}
            return Tables(everything, precise, result, books, None, before, absence=absence, added=added)
        if wal.payload("transform").get("companions"):
            raise Denied(
                f"Records of {dataset_id} were withdrawn, and the files beside its table may still show them.",
                expected="a table alone, which the rule can be applied to",
                remedy="Withdraw whole versions of such a dataset.",
            )
        made = release(world, entry, own[name], name, result, rules, room(scratch, "own"), work, last=(pinned or {}).get(name))
    if made.explained is not None:
        precise[name] = {**precise[name], "explained": made.explained}
    released = msgspec.structs.replace(made.result, warnings=(*result.warnings, *made.result.warnings))
    withdrawn = _withdrawn(entry, own, {name: made.table})
    return Tables({**kept, name: made.table}, precise, released, books, released.books, before, withdrawn, absence, added)


def _added(entry: DatasetEntry, before: Mapping[str, Any] | None, result: TransformResult) -> tuple[str, ...]:
    """Columns that came since the base and stay on the restricted side, for no release names them."""
    if entry.release is None or before is None or "columns" not in before:
        return ()
    return tuple(c for c in unshown(entry.release, (c.name for c in result.schema)) if c not in before["columns"])


def measured(world: World, target: Target, tables: Tables, base: str | None) -> Measured | None:
    """How much the tables differ from those of the base; only rows are counted where nobody is to look at more. None: there is no base."""
    if base is None:
        return None
    facts = read_facts(world.data, target.dataset_id, base)
    rows: dict[str, Any] = {"before": _rows(facts["artifacts"]), "after": _rows(tables.artifacts)}
    if (facts["transform_hash"], facts["updater_version"]) != (target.transform_hash, target.pipeline_version):
        return Measured(**rows, other_rules=True)
    limits = change_limits(target.entry)
    old = {p: {**a, "from": f"processed/{target.dataset_id}/{base}/{p}"} for p, a in facts["artifacts"].items() if p.endswith(".parquet")}
    pairs = [(old[p], a) for p, a in sorted(tables.artifacts.items()) if p in old and a["digest"] != old[p]["digest"]]
    if any(is_withheld(a) for _, a in pairs) or (limits.cells is None and limits.deletions is None):
        return Measured(**rows)
    found = Measured(before=0, after=0)
    with world.data.scratch() as scratch:
        files = [open_table(world, target.dataset_id, a, scratch) for pair in pairs for a in pair]
        job = TransformJob(
            kind="measure",
            dataset_id=target.dataset_id,
            source_kind=target.entry.source.kind,
            format=target.entry.source.format,
            inputs=tuple(InputFile(source_id=f"table-{n}", path=str(f.absolute()), digest="") for n, f in enumerate(files)),
            business_key=target.entry.business_key or tables.result.key,
            artifact=target.artifact,
        )
        answer = world.merge(job, room(scratch, "measured"), None).change if pairs else UNSET
        found = found if answer is UNSET else answer
    gone = sum(a["rows"] or 0 for p, a in old.items() if p not in tables.artifacts)
    absent = {"covered": tables.absence.covered, "absent": tables.absence.absent} if tables.absence is not None else {}
    return msgspec.structs.replace(found, removed=found.removed + gone, **rows, **absent)


def _rows(artifacts: Mapping[str, Any]) -> int:
    return sum(a.get("rows") or 0 for a in artifacts.values())


def base_table(world: World, target: Target, base: str | None) -> dict[str, Any] | None:
    """The table of the base that parts are merged into."""
    kept, precise = _kept(world, target.dataset_id, base)
    return _records(precise, target.artifact, target.dataset_id) if target.artifact in kept else None


def staged_tables(
    work: "Update", wal: "Wal", own: Stored, result: TransformResult, base: str | None, suppressed: Mapping[str, str]
) -> Tables:
    """Base version + staged parts, which are merged with it already or take the places of their partitions; then the release."""
    world, entry = work.world, work.target.entry
    kept, precise = _kept(world, entry.dataset_id, base)
    if entry.merge != "partition" and entry.source.kind in KINDS and KINDS[entry.source.kind].names:
        kept = {p: a for p, a in kept.items() if p.endswith(".parquet") or p in result.files}
    rules, mark = suppress_rules(world, entry.dataset_id, suppressed), release_mark(entry)
    with world.data.scratch() as scratch:
        kept, _ = _as_released_now(work, {p: a for p, a in kept.items() if p not in own}, precise, rules, scratch)
        if entry.release is None and not rules:
            kept |= _companions(wal, mark)
            return Tables({**kept, **{p: {**a, "release": mark} for p, a in own.items()}}, {}, result, result.books, None, None)
        shown, released = {}, result
        for number, (name, table) in enumerate(own.items()):
            shown[name], released, _ = release(world, entry, table, name, result, rules, room(scratch, f"own{number}"), work)
    return Tables({**kept, **shown}, {}, released, result.books, released.books, None, _withdrawn(entry, own, shown))


def _withdrawn(entry: DatasetEntry, own: Stored, shown: Stored) -> int:
    """How many records a withdrawal keeps out; where they are released in groups nothing is counted."""
    return 0 if entry.release is not None else sum(own[name]["rows"] - table["rows"] for name, table in shown.items())


def _companions(wal: "Wal", mark: str) -> Stored:
    """The files beside the part's table, as artifacts of the candidate."""
    return {n: {**c, "rows": 0, "release": mark} for n, c in wal.payload("transform").get("companions", {}).items()}


def release_mark(entry: DatasetEntry) -> str:
    """What stands with a table for the rules it was released by."""
    return ids.digest(canonical.dumps([dict(s) for s in release_steps(entry.release)]))


def release_marks(entry: DatasetEntry, columns: Iterable[str]) -> tuple[str, ...]:
    """The marks that a table of these columns may bear: that of the rules of now, and of the same rules before they said what they show."""
    release = entry.release
    if release is None or release.show is UNSET or {*columns} - {*release.show, *made_columns(release)}:
        return (release_mark(entry),)
    before = msgspec.structs.replace(entry, release=msgspec.structs.replace(release, show=UNSET))
    return release_mark(entry), release_mark(before)


def shown_last(world: World, dataset_id: str) -> tuple[str, ...]:
    """The columns of the last public version, without those a release makes itself; none when nothing was public yet."""
    entry = world.registry(dataset_id)
    head: Generation = world.store.read(lambda tx: world.channel(dataset_id).head(tx))
    if entry is None or entry.release is None or head.version_id is None:
        return ()
    made = made_columns(entry.release)
    return tuple(c["name"] for c in read_facts(world.data, dataset_id, head.version_id)["schema"] if c["name"] not in made)


def check_shown(world: World, entry: DatasetEntry) -> None:
    """Raise `UsageError` for a release that says what it withholds and not what it shows: whatever upstream adds would get out."""
    if entry.release is None or entry.release.show is not UNSET:
        return
    last = shown_last(world, entry.dataset_id)
    raise UsageError(
        f"`release` of {entry.dataset_id} does not say which columns it shows.",
        expected="`release.show`: only columns it names leave",
        remedy=f"`kfm upgrade` writes the columns of the last public version; or write `show: [{', '.join(last)}]` under `release` in"
        f" data/registry/{entry.dataset_id}.yml.",
    )


def new_columns(added: Sequence[str]) -> tuple[str, ...]:
    """A warning that upstream has columns it did not have and nobody is shown; of many the first are named."""
    named = ", ".join(added[:5]) + (f" and {len(added) - 5} more" if len(added) > 5 else "")
    return (f"{NEW_COLUMNS}: {plain(named)}",) if added else ()


def _plain(work: "Update", own: Mapping[str, Any], scratch: Path) -> dict[str, Any]:
    """Records that owe nothing but a grant are shown as they are; what owes more stays sealed, and the labels deny it."""
    if set(obligations(work.world.family(work.target.dataset_id))) - {"grant"}:
        return dict(own)
    table = open_table(work.world, work.target.dataset_id, own, room(scratch, "plain"))
    return store_table(work.world, work, work.target.dataset_id, table, seal=True, scratch=scratch, rows=own["rows"], shown=True)


def _as_released_now(
    work: "Update", kept: Stored, precise: Stored, rules: tuple[dict[str, Any], ...], scratch: Path
) -> tuple[Stored, Stored]:
    """The other tables of the base, and their records; one that was released by other rules is released again, from its records."""
    world, entry, found, records = work.world, work.target.entry, dict[str, dict[str, Any]](), dict(precise)
    for number, (path, artifact) in enumerate(kept.items()):
        told = not explains(entry.release) or "explained" in precise.get(path, {})
        if artifact.get("release") == release_mark(entry) and told:
            found[path] = artifact
            continue
        source = _records(precise, path, entry.dataset_id)
        shape = TransformResult(artifact=path, books=Books(), schema=(), content_id="", profile={})
        found[path], _, explained = release(world, entry, source, path, shape, rules, room(scratch, f"kept{number}"), work)
        if explained is not None:
            records[path] = {**source, "explained": explained}
    return found, records


def _records(precise: Stored, path: str, dataset_id: str) -> dict[str, Any]:
    if path not in precise:
        raise StepFailed(
            f"The records {path} of the official version was made from are not here any more.",
            expected="the sealed records of the base",
            remedy=f"Run `kfm run {dataset_id}` without a window, so that they are fetched whole.",
        )
    return precise[path]


def _own_part(work: "Update", wal: "Wal", result: TransformResult) -> dict[str, Any]:
    from kfm.update import part_folder

    part = wal.payload("transform")
    source = f"{part_folder(work.target.dataset_id, part['part'])}/{part['artifact']}"
    stored = work.world.data.stat(source)
    if stored is None or stored.digest != part["part"]:
        raise IntegrityError(f"{source} is damaged.", expected=part["part"], remedy="Run again: the part is made anew from its capture.")
    return {"digest": stored.digest, "size": stored.size, "rows": result.rows, "from": source}


def _merge_rule(work: "Update", result: TransformResult, base: str | None) -> str:
    target = work.target
    if work.partial:
        return "upsert"
    rule = target.entry.merge
    if rule == "replace" and target.win:
        rule = "upsert"  # a window is a piece of the whole, never the whole
        if not target.entry.business_key and not result.key and base is not None:
            raise StepFailed(
                f"{target.dataset_id} has no business key, so the rows of a window cannot find their places.",
                expected="business_key in the registry entry",
                remedy="Add it, or run without --window.",
            )
    return rule


def precise_path(dataset_id: str, version_id: str) -> str:
    """Where it is written down which sealed records a version was released from."""
    return f"work/{dataset_id}/precise/{version_id}.json"


def keep_precise(world: World, dataset_id: str, version_id: str, records: Stored) -> None:
    """Write down which sealed records a version was released from; how many they are is nobody's business."""
    path = precise_path(dataset_id, version_id)
    content = world.at_rest(path, raw := canonical.dumps(records))
    world.data.replace(path if content is raw else path + SEALED, content)
    if content is not raw:
        world.data.remove(path)  # of an earlier kfm


def _kept(world: World, dataset_id: str, base: str | None, sealed: Stored | None = None) -> tuple[Stored, Stored]:
    """The tables of the base version, and the records they were released from; a table nothing was released from is its own."""
    if base is None:
        return {}, {}
    facts = read_facts(world.data, dataset_id, base)
    kept = {path: {**a, "from": f"processed/{dataset_id}/{base}/{path}"} for path, a in facts["artifacts"].items()}
    return kept, records_of_version(world, dataset_id, base, kept, sealed)


def sealed_records(world: World, dataset_id: str, version_id: str | None) -> Stored:
    """The sealed records a version stands for now: those it was released from, or later ones that changed nothing public."""
    path = precise_path(dataset_id, str(version_id))
    found: Stored = canonical.loads(world.kept(path)) if version_id is not None and world.data.exists(world.lies(path)) else {}
    return found


def records_of_version(world: World, dataset_id: str, version_id: str, kept: Stored, sealed: Stored | None = None) -> Stored:
    """The records behind the tables of a version; `sealed`: those that a run pinned."""
    sealed = sealed_records(world, dataset_id, version_id) if sealed is None else sealed
    untouched = ids.digest(canonical.dumps([]))
    return {p: a for p, a in kept.items() if a.get("release") == untouched} | sealed


def _upserted(
    work: "Update", own: Mapping[str, Any], kept: Mapping[str, Any], result: TransformResult, scratch: Path
) -> tuple[dict[str, Any], TransformResult]:
    world, target = work.world, work.target
    base, part = (open_table(world, target.dataset_id, s, room(scratch, n)) for s, n in ((kept, "base"), (own, "part")))
    merged = merge_tables(
        world,
        target,
        (base, kept["digest"]),
        (part, own["digest"]),
        result,
        room(scratch, "merged"),
        add=bool(work.partial),
        newer=work.wal is not None and says_newer(work.wal.run.source_metadata),
    )
    if work.partial:
        check_added(target, kept["rows"], result.rows, merged)
    table = scratch / "merged" / target.artifact
    return store_table(world, work, target.dataset_id, table, seal=work.private, scratch=scratch, rows=merged.rows), merged


def says_newer(source_metadata: str) -> bool:
    """Whether upstream says that the answer of a run is newer than what was official when it began."""
    said, official = stamps_of(source_metadata)
    return is_older(official, said)


def merge_tables(
    world: World,
    target: Target,
    base: tuple[Path, str],
    part: tuple[Path, str],
    result: TransformResult,
    into: Path,
    *,
    add: bool = False,
    newer: bool = False,
) -> TransformResult:
    """Rows of the base whose key the part does not have, then the rows of the part; the books speak of the part.

    `add`: the part is not all there is in its window, so nothing of the base is gone for want of it.
    """
    since, _, until = ("" if add else target.win).partition("/")
    job = TransformJob(
        kind="merge",
        dataset_id=target.dataset_id,
        source_kind=target.entry.source.kind,
        answered=None if result.answered is UNSET else result.answered,
        newer=newer,
        captured_at=target.captured_at or None,
        incomplete=result.books.quarantined > 0,
        format=target.entry.source.format,
        inputs=(
            InputFile(source_id="base", path=str(base[0].absolute()), digest=base[1]),
            InputFile(source_id="part", path=str(part[0].absolute()), digest=part[1]),
        ),
        schema=result.schema,
        business_key=target.entry.business_key or result.key,
        time_column=target.entry.source.time_column,
        since=since or None,
        until=until or None,
        artifact=target.artifact,
    )
    if add:  # nor is any of it deleted upstream
        job = msgspec.structs.replace(job, source_kind="http_file", tombstones={})
    merged = msgspec.structs.replace(world.merge(job, into, None), steps=())
    books = Books(
        read=result.books.read,
        written=merged.books.written,
        unchanged=merged.books.unchanged,
        quarantined=result.books.quarantined,
        dropped={**result.books.dropped, **merged.books.dropped},
    )
    return msgspec.structs.replace(merged, books=books, key=result.key)


def govern_job(
    entry: DatasetEntry,
    table: Path,
    name: str,
    schema: tuple[Any, ...],
    rules: tuple[dict[str, Any], ...],
    digest: str,
    *,
    released: bool = True,
    before: Path | None = None,
) -> TransformJob:
    """The release of one table; `before`: what explained the rows that are public now."""
    explained = () if before is None else (InputFile(source_id=EXPLAINED, path=str(before.absolute()), digest=""),)
    return TransformJob(
        kind="govern",
        dataset_id=entry.dataset_id,
        format=entry.source.format,
        inputs=(InputFile(source_id="table", path=str(table.absolute()), digest=digest), *explained),
        schema=schema,
        business_key=entry.business_key,
        location=entry.location,
        release=entry.release if released else None,
        suppress=rules,
        artifact=name,
    )


class Released(NamedTuple):
    """One table that was released."""

    table: dict[str, Any]  # where it lies
    result: TransformResult
    explained: dict[str, Any] | None  # where it lies, sealed, what explains its rows; None: they are records, which explain themselves


def release(
    world: World,
    entry: DatasetEntry,
    stored: Mapping[str, Any],
    name: str,
    result: TransformResult,
    rules: tuple[dict[str, Any], ...],
    scratch: Path,
    work: Any = None,
    *,
    last: Mapping[str, Any] | None = None,
) -> Released:
    """One table released by the registry's rules and without what was withdrawn.

    `last` is the records the public table of now was released from: the difference to it is judged like a release.
    """
    return keep_released(world, entry, name, governed(world, entry, stored, name, result, rules, scratch, last=last), scratch, work)


def governed(
    world: World,
    entry: DatasetEntry,
    stored: Mapping[str, Any],
    name: str,
    result: TransformResult,
    rules: tuple[dict[str, Any], ...],
    scratch: Path,
    *,
    last: Mapping[str, Any] | None = None,
) -> TransformResult:
    """The same in `scratch` alone: nothing is kept of it yet."""
    if not name.endswith(".parquet"):
        raise Denied(
            f"{name} of {entry.dataset_id} is no table, so no rule can take records out of it.",
            expected="a dataset of tables alone",
            remedy="Withdraw the whole dataset or version: `kfm withdraw` without --record and --area.",
        )
    table = open_table(world, entry.dataset_id, stored, room(scratch, "plain"))
    before = explained_before(world, entry, last, room(scratch, "before"))
    job = govern_job(entry, table, name, result.schema, rules, stored["digest"], before=before)
    return world.transform(job, room(scratch, "released"), None)


def keep_released(world: World, entry: DatasetEntry, name: str, released: TransformResult, scratch: Path, work: Any = None) -> Released:
    """Keep as parts what `governed` left in `scratch`."""
    private = world.is_private(entry.dataset_id)  # what may be shown is not known before it is judged
    table = scratch / "released" / name
    made = store_table(world, work, entry.dataset_id, table, seal=private, scratch=scratch, rows=released.rows, shown=True)
    explained, mark = scratch / "released" / EXPLAINED, {"release": release_mark(entry)}
    kept = store_table(world, work, entry.dataset_id, explained, seal=True, scratch=scratch, rows=0) if explained.exists() else None
    return Released(made | mark, released, None if kept is None else kept | mark)


def explained_before(world: World, entry: DatasetEntry, last: Mapping[str, Any] | None, scratch: Path) -> Path | None:
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
            remedy="Restore them, or keys/data, from a backup. If they are gone for good, state another `release` (a larger `min_records`, say):"
            " what is released by other rules is a first release.",
        ) from error
    if "explained" in last:
        return table
    try:
        world.transform(govern_job(entry, table, table.name, (), (), last["digest"]), room(scratch, "released"), None)
    except CaptureRefused:
        return None  # it lacks columns that the rules of now name, so it was released by others
    return scratch / "released" / EXPLAINED
