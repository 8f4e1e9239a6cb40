"""From a durable part to the tables of a candidate: merged with the base, released by rule, precise
records kept apart.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from msgspec import UNSET

from kfm.connectors.base import Books, InputFile, TransformResult
from kfm.connectors.operations import Measure, Merge
from kfm.evidence.journal import Journal
from kfm.evidence.version_records import placed, read_facts
from kfm.model import (
    DatasetEntry,
    Denied,
    Generation,
    Json,
    Measured,
    PartDone,
    Pinned,
    StepFailed,
    Stored,
    change_limits,
    is_assembly,
    is_older,
    kind_of,
    obligations,
    rows_in,
    stamps_of,
)
from kfm.model.labels import explains, unshown
from kfm.model.paths import part_folder
from kfm.quarantine.replay_check import check_added
from kfm.release.by_rule import (
    base_tables,
    is_withheld,
    open_table,
    release,
    release_mark,
    store_table,
    suppress_rules,
)
from kfm.run.work import Work
from kfm.store.base import Tx
from kfm.world.target import Target
from kfm.world.world import Transform, World
from kfm.zones.base import room

__all__ = [
    "Parts",
    "Tables",
    "base_table",
    "measured",
    "merge_tables",
    "own_part",
    "says_newer",
    "tables_of",
]


@dataclass(frozen=True)
class Parts:
    """Durable parts, one or many, and the generation they are put on."""

    wal: Journal  # of the run that assembles them; it has pinned that generation
    head: Generation
    own: Stored  # artifact -> where the table of a part, or of all of them, lies
    result: TransformResult  # what they come to together
    # merged with the base already, or whole partitions, which take their places
    placed: bool = False


@dataclass(frozen=True)
class Tables:
    """What a candidate is made of."""

    artifacts: Stored  # what would become official
    precise: Stored  # private datasets only: the records themselves, sealed
    result: TransformResult  # of the released table
    books: Books  # of the part that was read
    released: Books | None  # of the release, when there was one
    base: Json | None  # the records the part was merged with
    withdrawn: int = 0  # records that came and stay out
    # what the absence of rows in the part did to those of the base; of public datasets only
    absence: Measured | None = None
    added: tuple[str, ...] = ()  # columns that the records have since the base and nobody is shown


@dataclass(frozen=True)
class _OnBase:
    """Parts in their places among the tables of the base."""

    own: Stored
    kept: Stored  # the tables of the base, and the files beside them
    precise: Stored  # the records these were released from
    result: TransformResult
    base: Json | None = None
    absence: Measured | None = None


def tables_of(work: Work, parts: Parts) -> Tables:
    """Base version + parts by the registry's merge rule, then the release."""
    world, entry, name = work.world, work.target.entry, work.target.artifact
    part, pinned = parts.wal.require("transform", PartDone), parts.wal.require("pin", Pinned)
    base = base_tables(world, entry.dataset_id, pinned.base_version, pinned.records or None)
    last = base[1].get(name)
    with world.data.scratch() as scratch:
        on = _OnBase(parts.own, *base, parts.result)
        if not parts.placed:
            on = _merged(work, on, pinned.base_version, scratch)
        elif entry.merge != "partition":
            on = replace(on, kept=_named(entry, on.kept, on.result))
        rules = suppress_rules(world, entry.dataset_id, parts.head.suppressed)
        others = {p: a for p, a in on.kept.items() if p not in on.own}
        kept, precise = _as_released_now(work, others, on.precise, rules, scratch)
        columns = [c.name for c in on.result.schema]
        precise = {**precise, name: {**on.own[name], "columns": columns}} if work.private else {}
        tables = Tables(
            kept,
            precise,
            on.result,
            on.result.books,
            None,
            on.base,
            absence=on.absence,
            added=_added(entry, last, on.result),
        )
        if entry.release is None and not rules:
            return _shown_as_they_are(work, part, tables, on.own, scratch)
        if part.companions:
            raise Denied(
                f"Records of {entry.dataset_id} were withdrawn, and the files beside its table may"
                " still show them.",
                expected="a table alone, which the rule can be applied to",
                remedy="Withdraw whole versions of such a dataset.",
            )
        return _released(work, tables, on.own, rules, pinned.records or {}, scratch)


def _named(entry: DatasetEntry, kept: Stored, result: TransformResult) -> Stored:
    """Of a kind whose files have names, those of the base that the result does not name are gone
    with it.
    """
    kind = kind_of(entry.source.kind)
    if kind is None or not kind.names:
        return kept
    return {p: a for p, a in kept.items() if p.endswith(".parquet") or p in result.files}


def _merged(work: Work, on: _OnBase, base: str | None, scratch: Path) -> _OnBase:
    """One part by the registry's merge rule."""
    entry, name = work.target.entry, work.target.artifact
    rule = _merge_rule(work, on.result, base)
    if rule == "replace":
        return replace(on, kept={}, precise={})
    if rule != "upsert" or name not in on.kept:
        return on
    before = _records(on.precise if work.private else on.kept, name, entry.dataset_id)
    own, result = _upserted(work, on.own[name], before, on.result, scratch)
    absence = result.change if result.change is not UNSET and not work.private else None
    kept = _named(entry, on.kept, result)
    return _OnBase({name: own}, kept, on.precise, result, before, absence)


def _shown_as_they_are(
    work: Work, part: PartDone, tables: Tables, own: Stored, scratch: Path
) -> Tables:
    """No rule says what is released: the tables of the parts with the files beside them."""
    mark = release_mark(work.target.entry)
    if work.private:
        own = {p: _plain(work, a, scratch) for p, a in own.items()}
    shown = {p: {**a, "release": mark} for p, a in own.items()}
    companions = {n: {**c, "rows": 0, "release": mark} for n, c in (part.companions or {}).items()}
    return replace(tables, artifacts={**tables.artifacts, **companions, **shown})


def _released(
    work: Work, tables: Tables, own: Stored, rules: tuple[Json, ...], pinned: Stored, scratch: Path
) -> Tables:
    """The tables of the parts as the rules let them out."""
    entry, shown, precise, result = work.target.entry, dict[str, Json](), {**tables.precise}, None
    for number, (name, table) in enumerate(own.items()):
        into, last = room(scratch, f"own{number}"), pinned.get(name)
        made = release(work.world, entry, table, name, tables.result, rules, into, work, last=last)
        shown[name], result = made.table, made.result
        if made.explained is not None:
            precise[name] = {**precise[name], "explained": made.explained}
    assert result is not None  # there is no assembly without a part
    warnings = (*tables.result.warnings, *result.warnings)
    return replace(
        tables,
        artifacts={**tables.artifacts, **shown},
        precise=precise,
        result=msgspec.structs.replace(result, warnings=warnings, crossed=tables.result.crossed),
        released=result.books,
        withdrawn=_withdrawn(entry, own, shown),
    )


def _added(entry: DatasetEntry, before: Json | None, result: TransformResult) -> tuple[str, ...]:
    """Columns that came since the base and stay on the restricted side, for no release names
    them.
    """
    if entry.release is None or before is None or "columns" not in before:
        return ()
    return tuple(
        c
        for c in unshown(entry.release, (c.name for c in result.schema))
        if c not in before["columns"]
    )


def measured(world: World, target: Target, tables: Tables, base: str | None) -> Measured | None:
    """How much the tables differ from those of the base; only rows are counted where nobody is to
    look at more. None: there is no base.
    """
    if base is None:
        return None
    facts = read_facts(world.data, target.dataset_id, base)
    rows: Json = {"before": facts.rows, "after": rows_in(tables.artifacts)}
    if (facts.transform_hash, facts.updater_version) != (
        target.transform_hash,
        target.pipeline_version,
    ):
        return Measured(**rows, other_rules=True)
    limits = change_limits(target.entry)
    old = {
        p: a for p, a in placed(facts, target.dataset_id, base).items() if p.endswith(".parquet")
    }
    pairs = [
        (old[p], a)
        for p, a in sorted(tables.artifacts.items())
        if p in old and a["digest"] != old[p]["digest"]
    ]
    if any(is_withheld(a) for _, a in pairs) or (limits.cells is None and limits.deletions is None):
        return Measured(**rows)
    found = Measured(before=0, after=0)
    with world.data.scratch() as scratch:
        files = [open_table(world, target.dataset_id, a, scratch) for pair in pairs for a in pair]
        job = Measure(
            dataset_id=target.dataset_id,
            source_kind=target.entry.source.kind,
            inputs=tuple(
                InputFile(source_id=f"table-{n}", path=str(f.absolute()), digest="")
                for n, f in enumerate(files)
            ),
            business_key=target.entry.business_key or tables.result.key,
            artifact=target.artifact,
        )
        answer = world.merge(job, room(scratch, "measured"), None).change if pairs else UNSET
        found = found if answer is UNSET else answer
    gone = sum(a["rows"] or 0 for p, a in old.items() if p not in tables.artifacts)
    absent = (
        {"covered": tables.absence.covered, "absent": tables.absence.absent}
        if tables.absence is not None
        else {}
    )
    return msgspec.structs.replace(found, removed=found.removed + gone, **rows, **absent)


def base_table(world: World, target: Target, base: str | None) -> Json | None:
    """The table of the base that parts are merged into."""
    kept, precise = base_tables(world, target.dataset_id, base)
    return (
        _records(precise, target.artifact, target.dataset_id) if target.artifact in kept else None
    )


def _withdrawn(entry: DatasetEntry, own: Stored, shown: Stored) -> int:
    """How many records a withdrawal keeps out; where they are released in groups nothing is
    counted.
    """
    return (
        0
        if entry.release is not None
        else sum(own[name]["rows"] - table["rows"] for name, table in shown.items())
    )


def _plain(work: Work, own: Json, scratch: Path) -> Json:
    """Records that owe nothing but a grant are shown as they are; what owes more stays sealed, and
    the labels deny it.
    """
    if set(obligations(work.world.family(work.target.dataset_id))) - {"grant"}:
        return dict(own)
    table = open_table(work.world, work.target.dataset_id, own, room(scratch, "plain"))
    return store_table(
        work.world,
        work,
        work.target.dataset_id,
        table,
        seal=True,
        scratch=scratch,
        rows=own["rows"],
        shown=True,
    )


def _as_released_now(
    work: Work, kept: Stored, precise: Stored, rules: tuple[Json, ...], scratch: Path
) -> tuple[Stored, Stored]:
    """The other tables of the base, and their records; one that was released by other rules is
    released again, from its records.
    """
    world, entry, found, records = (work.world, work.target.entry, dict[str, Json](), dict(precise))
    for number, (path, artifact) in enumerate(kept.items()):
        told = not explains(entry.release) or "explained" in precise.get(path, {})
        if artifact.get("release") == release_mark(entry) and told:
            found[path] = artifact
            continue
        source = _records(precise, path, entry.dataset_id)
        shape = TransformResult(artifact=path, books=Books(), schema=(), content_id="", profile={})
        found[path], _, explained = release(
            world, entry, source, path, shape, rules, room(scratch, f"kept{number}"), work
        )
        if explained is not None:
            records[path] = {**source, "explained": explained}
    return found, records


def _records(precise: Stored, path: str, dataset_id: str) -> Json:
    if path not in precise:
        raise StepFailed(
            f"The records {path} of the official version was made from are not here any more.",
            expected="the sealed records of the base",
            remedy=f"Run `kfm run {dataset_id}` without a window, so that they are fetched whole.",
        )
    return precise[path]


def own_part(work: Work, part: PartDone, result: TransformResult) -> Json:
    """Where the table of the one part of a run lies."""
    source = f"{part_folder(work.target.dataset_id, part.part)}/{part.artifact}"
    stored = work.world.data.require(
        source, part.part, "Run again: the part is made anew from its capture."
    )
    return {"digest": stored.digest, "size": stored.size, "rows": result.rows, "from": source}


def _merge_rule(work: Work, result: TransformResult, base: str | None) -> str:
    target = work.target
    if work.partial is not None:
        return "upsert"
    rule = target.entry.merge
    if rule == "replace" and target.win:
        rule = "upsert"  # a window is a piece of the whole, never the whole
        if not target.entry.business_key and not result.key and base is not None:
            raise StepFailed(
                f"{target.dataset_id} has no business key, so the rows of a window cannot find"
                " their places.",
                expected="business_key in the registry entry",
                remedy="Add it, or run without --window.",
            )
    return rule


def _upserted(
    work: Work, own: Json, kept: Json, result: TransformResult, scratch: Path
) -> tuple[Json, TransformResult]:
    world, target = work.world, work.target
    base, part = (
        open_table(world, target.dataset_id, s, room(scratch, n))
        for s, n in ((kept, "base"), (own, "part"))
    )
    merged = merge_tables(
        world.merge,
        target,
        (base, kept["digest"]),
        (part, own["digest"]),
        result,
        room(scratch, "merged"),
        add=work.partial is not None,
        newer=work.wal is not None and says_newer(work.wal.run.source_metadata),
        overtaken=work.wal is not None and _overtaken(world, target, work.wal),
    )
    if work.partial is not None:
        check_added(target, kept["rows"], result.rows, merged)
    table = scratch / "merged" / target.artifact
    sealed, rows = work.private, merged.rows
    stored = store_table(
        world, work, target.dataset_id, table, seal=sealed, scratch=scratch, rows=rows
    )
    return stored, merged


def _overtaken(world: World, target: Target, wal: Journal) -> bool:
    """Whether something else of the partition has become official since upstream was asked for this
    window: it may have been captured later, so none of its rows gives way.
    """
    if not target.leased_window:
        return False
    since, pinned = wal.asked.looked_on, wal.require("pin", Pinned).base_generation
    if since is UNSET:  # an older kfm began it, under the lease of the whole
        since = wal.run.base_generation

    def others(tx: Tx) -> bool:
        for number in range(since + 1, pinned + 1):
            made = tx.index.generation(target.dataset_id, number)
            row = tx.runs.get(made.run_id) if made is not None else None
            by_run = made is None or made.run_id
            if by_run and (row is None or is_assembly(row) or row.partition == target.partition):
                return True
        return False

    return world.store.read(others)


def says_newer(source_metadata: str) -> bool:
    """Whether upstream says that the answer of a run is newer than what was official when it
    began.
    """
    said, official = stamps_of(source_metadata)
    return is_older(official, said)


def merge_tables(
    merge: Transform,
    target: Target,
    base: tuple[Path, str],
    part: tuple[Path, str],
    result: TransformResult,
    into: Path,
    *,
    add: bool = False,
    newer: bool = False,
    overtaken: bool = False,
) -> TransformResult:
    """Rows of the base whose key the part does not have, then the rows of the part; the books speak
    of the part.

    `add`: the part is not all there is in its window, so nothing of the base is gone for want of
    it.
    """
    since, _, until = ("" if add else target.win).partition("/")
    job = Merge(
        dataset_id=target.dataset_id,
        source_kind=target.entry.source.kind,
        answered=None if result.answered is UNSET else result.answered,
        newer=newer,
        overtaken=overtaken,
        captured_at=target.captured_at or None,
        incomplete=result.books.quarantined > 0,
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
    merged = msgspec.structs.replace(merge(job, into, None), steps=())
    books = Books(
        read=result.books.read,
        written=merged.books.written,
        unchanged=merged.books.unchanged,
        quarantined=result.books.quarantined,
        dropped={**result.books.dropped, **merged.books.dropped},
    )
    return msgspec.structs.replace(merged, books=books, key=result.key)
