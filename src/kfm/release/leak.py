"""leak: non-interference. What is public must not change when only what is withheld changes, and
nothing withheld stands in it.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET

from kfm.connectors.base import (
    EXPLAINED,
    NEIGHBOUR,
    CaptureRefused,
    ConnectorFailed,
    ConnectorKilled,
    InputFile,
    Step,
    TransformResult,
)
from kfm.connectors.operations import Chain, Govern, Join, Read, Search, Twin
from kfm.model import Column, DatasetEntry, Json, KfmError, Release, canonical, ids
from kfm.model.labels import explains
from kfm.model.ticks import tick
from kfm.release.by_rule import govern_job
from kfm.release.transform_inputs import read_job, transform_job
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import copied, hash_file, note, room

__all__ = ["SEEDS", "Shown", "compare", "look_for_leaks", "search_job"]

SEEDS = (1, 2, 3)
Inputs = Mapping[str, tuple[Path, str]]  # source id -> (captured file, digest)
Merge = Callable[[Path, TransformResult, Path], tuple[Path, TransformResult]]
Render = Callable[[Path, TransformResult], Mapping[str, bytes]]


class Shown(NamedTuple):
    """What is compared of a public file: its digest and, of a record of ours, those of its
    members.
    """

    digest: str
    members: Mapping[str, str] = {}

    @classmethod
    def of(cls, name: str, raw: bytes) -> "Shown":
        """A record, or what is said beside it."""
        try:
            document = canonical.loads(raw) if name.endswith(".json") else None
        except KfmError:
            document = None
        members = (
            {k: ids.digest(canonical.dumps(v)) for k, v in document.items()}
            if isinstance(document, dict)
            else {}
        )
        return cls(ids.digest(raw), members)


Side = Mapping[str, Shown]  # name of a public file, or of what is said beside it


def look_for_leaks(
    world: World,
    target: Target,
    inputs: Inputs,
    rules: tuple[Json, ...],
    *,
    merge: Merge,
    render: Render,
    released: str,
    despite: Sequence[tuple[str, str]] = (),
    releases: Mapping[str, Release | None] | None = None,
    before: Path | None = None,
) -> list[dict[str, str]]:
    """Rebuild the public side from the capture and from its twins; every byte must be the same.
    Returns reasons, none when it is.

    Each build has a scratch folder of its own, and the original is gone before connector code runs
    on a twin: code that finds it could make the twin come out like it. `despite`: (column, what)
    that a steward shows although it was found; `releases`: of joined inputs.
    """
    build = _Build(world, target, rules, render, before)
    with world.data.scratch() as kept:
        with world.data.scratch() as scratch:
            made = build.precise(inputs, scratch)
            table, whole = merge(made.table, made.result, scratch)
            own, files = build.public(_Made(table, whole, made.said), scratch, target.entry)
            if own[target.artifact].digest != released:
                unstable = f"{target.artifact} comes out differently each time."
                return [
                    _reason(
                        "leak.unstable", unstable, "A step is not repeatable: `kfm drill` names it."
                    )
                ]
            tables = {"records": table} | {
                name: path for name, (path, _) in inputs.items() if releases
            }
            # which may have renamed, or left out, what it was given
            if target.connector is not None:
                tables["captured"] = build.as_captured(inputs, scratch)
            found = build.search(tables, files, scratch, despite, releases or {})
            entry = target.entry
            if table != made.table:
                # What was official before has no twins, and hidden keys of a twin would not find
                # theirs in it: new rows are compared alone.
                entry = _showing_all(entry)
                own, _ = build.public(made, room(scratch, "alone"), entry)
            beside = (
                build.first_time(made, room(scratch, "first"))
                if _counts(target.entry.release)
                else None
            )
            # No connector code sees a joined table, so the original may stay beside its twins.
            joined = (
                copied(made.table, kept / made.table.name) if entry.source.kind == "join" else None
            )

        def made_of(
            seed: int,
            neighbour: Literal[-1, 0, 1] = 0,
            of: DatasetEntry = entry,
            first: bool = False,
        ) -> "tuple[Side, Step]":
            with world.data.scratch() as scratch:
                given: Inputs = inputs if joined is None else {"table": (joined, "")}
                told = _Beside(
                    beside.explained if neighbour and beside is not None else None, first
                )
                return build.variant(given, made, scratch, seed, neighbour, of, told)

        def differs(seed: int, first: bool = False) -> list[dict[str, str]]:
            try:
                twin, _ = made_of(seed, of=target.entry if first else entry, first=first)
            except ConnectorKilled:  # from outside: it says nothing about the code or the data
                raise
            except (CaptureRefused, ConnectorFailed):  # what it says may be about hidden values
                remedy = (
                    "Let connector code go by the form of withheld values at most, never by what"
                    " they say."
                )
                return [
                    _reason(
                        "leak.differs",
                        "The transform fails when only hidden values change.",
                        remedy,
                    )
                ]
            return compare(beside.side if first and beside is not None else own, twin)

        def leaps(seed: int, neighbour: Literal[-1, 1]) -> list[dict[str, str]]:
            """A twin with one record less, or one more. Only where it is not the same, one with as
            many records tells what it was.
            """
            assert beside is not None
            try:
                side, step = made_of(seed, neighbour, target.entry, first=True)
                found = _of_one_record(
                    compare(beside.side, side) if step == "none" else [],
                    step == "leap",
                    target.artifact,
                )
            except CaptureRefused:  # nothing would be published
                found, step = [], "edge"
            except ConnectorKilled:
                raise
            except ConnectorFailed:
                found, step = _of_one_record([], True, target.artifact), "leap"
            return (differs(seed, first=True) or found) if found or step == "edge" else []

        asked: list[Callable[[], list[dict[str, str]]]] = (
            [partial(differs, seed) for seed in SEEDS] if entry.release is not None else []
        )
        if beside is not None:
            # The same builds have one record less or more, unless rows are compared that stand for
            # one record each.
            asked = [
                *asked[: len(SEEDS) if table != made.table else 1],
                partial(leaps, SEEDS[1], -1),
                partial(leaps, SEEDS[2], 1),
            ]
        # each waits for children of its own
        with ThreadPoolExecutor(min(len(SEEDS), os.cpu_count() or 1), "kfm-twin") as pool:
            for n, reasons in enumerate(pool.map(lambda ask: ask(), asked)):
                found += reasons
                tick("twins", n + 1, len(asked), "builds")
    unique = {(r["code"], r["message"]): r for r in found}
    return list(unique.values())


def _counts(release: Release | None) -> bool:
    """Whether public rows stand for several records, so that one more or less may not show."""
    return release is not None and explains(release) and release.min_records > 1


class _Beside(NamedTuple):
    """What a build is compared with: what explains its rows, when they are counted, and whether it
    is shown for the first time.
    """

    explained: bytes | None = None
    first: bool = False


class _First(NamedTuple):
    """The public side as if nothing had been public before, and what explains its rows."""

    side: Side
    explained: bytes


class _Made(NamedTuple):
    """The records of one build, and what was said while they were made."""

    table: Path
    result: TransformResult
    said: list[Json]


class _Build:
    """The way from captured files to what is public, as a run goes it."""

    def __init__(
        self,
        world: World,
        target: Target,
        rules: tuple[Json, ...],
        render: Render,
        before: Path | None = None,
    ) -> None:
        self._world, self._target, self._rules, self._render, self._before = (
            world,
            target,
            rules,
            render,
            before,
        )

    def precise(self, given: Inputs, scratch: Path, *, twins: bool = False) -> _Made:
        """The records, by connector code where there is any."""
        out, said = room(scratch, "precise"), list[Json]()
        job = transform_job(self._target, given)
        job = _unpacked(job) if twins and isinstance(job, Read) else job
        result = self._world.transform(job, out, _hearing(said))
        return _Made(out / result.artifact, result, said)

    def public(
        self, made: _Made, scratch: Path, entry: DatasetEntry, first: bool = False
    ) -> tuple[Side, dict[str, Path]]:
        """Every byte that would be shown: what is compared of it, and where it lies."""
        shown, said = room(scratch, "public"), list(made.said)
        public = self._world.transform(
            self._govern(made, scratch, entry, _Beside(first=first)), shown, _hearing(said)
        )
        return self._shown(made._replace(said=said), public, shown, scratch)

    def _govern(self, made: _Made, scratch: Path, entry: DatasetEntry, beside: _Beside) -> Govern:
        digest = hash_file(made.table).digest if made.table.is_file() else ""
        before = None if beside.first else self._before
        job = govern_job(
            entry,
            made.table,
            self._target.artifact,
            made.result.schema,
            self._rules,
            digest,
            before=before,
        )
        if beside.explained is None:
            return job
        told = note(room(scratch, "beside") / EXPLAINED, beside.explained)
        return msgspec.structs.replace(
            job,
            inputs=(
                *job.inputs,
                InputFile(source_id=NEIGHBOUR, path=str(told.absolute()), digest=""),
            ),
        )

    def _shown(
        self, made: _Made, public: TransformResult, shown: Path, scratch: Path
    ) -> tuple[Side, dict[str, Path]]:
        records = room(scratch, "records")
        files = {
            str(p.relative_to(shown)): p
            for p in sorted(shown.rglob("*"))
            if p.is_file() and p.name != EXPLAINED
        }
        side = {name: Shown(hash_file(path).digest) for name, path in files.items()}
        log = canonical.dumps(_plain([made.said, made.result.warnings, public.warnings]))
        rendered = {**self._render(shown / public.artifact, public), "the log": log}
        for number, (name, raw) in enumerate(rendered.items()):
            side[name], files[name] = Shown.of(name, raw), note(records / str(number), raw)
        return side, files

    def first_time(self, made: _Made, scratch: Path) -> _First:
        """The public side as if nothing had been public before."""
        side, _ = self.public(made, scratch, self._target.entry, first=True)
        return _First(side, (scratch / "public" / EXPLAINED).read_bytes())

    def variant(
        self,
        given: Inputs,
        made: _Made,
        scratch: Path,
        seed: int,
        neighbour: Literal[-1, 0, 1],
        entry: DatasetEntry,
        beside: _Beside,
    ) -> tuple[Side, Step]:
        """The public side of a twin. Where no connector code has to be kept from knowing the
        original, one child makes all of it.
        """
        target, said, join = self._target, list[Json](), self._target.entry.source.kind == "join"
        schema = (
            tuple(c for c in made.result.schema if c.type in ("geometry", "json")) if join else None
        )
        twin = self._twin(given, made.result.schema, seed, schema, neighbour)
        if target.connector is None:
            out = room(scratch, "chain")
            govern = self._govern(made._replace(table=out / "none"), scratch, entry, beside)
            steps = (twin, govern) if join else (twin, _unpacked(read_job(target, given)), govern)
            inputs = (*twin.inputs, *govern.inputs[1:])
            chain = Chain(
                dataset_id=target.dataset_id, inputs=inputs, steps=steps, artifact=target.artifact
            )
            public = self._world.transform(chain, out, _hearing(said))
            result = made.result if join else public.steps_made[-1]
            built = _Made(out, result, made.said if join else said)
            side, _ = self._shown(built, public, out / str(len(steps) - 1), scratch)
        else:
            folder = room(scratch, "twin")
            files = self._world.transform(twin, folder, None).files
            built = self.precise(
                {
                    name: (folder / file, hash_file(folder / file).digest)
                    for name, file in zip(given, files)
                },
                scratch,
                twins=True,
            )
            shown, said = room(scratch, "public"), list(built.said)
            public = self._world.transform(
                self._govern(built, scratch, entry, beside), shown, _hearing(said)
            )
            side, _ = self._shown(built._replace(said=said), public, shown, scratch)
        return side, "none" if public.step is UNSET else public.step

    def search(
        self,
        tables: Mapping[str, Path],
        files: Mapping[str, Path],
        scratch: Path,
        despite: Sequence[tuple[str, str]],
        releases: Mapping[str, Release | None],
    ) -> list[dict[str, str]]:
        """What of the private tables stands in the public files."""
        if self._target.entry.release is None:
            return []
        result = self._world.transform(
            search_job(self._target, tables, files, despite, releases),
            room(scratch, "searched"),
            None,
        )
        return [_told(self._target.dataset_id, f) for f in result.found or ()]

    def as_captured(self, inputs: Inputs, scratch: Path) -> Path:
        """The captured records as a table, without connector code."""
        job = msgspec.structs.replace(
            transform_job(self._target, inputs), schema=(), business_key=()
        )
        if not isinstance(job, Join):
            job = msgspec.structs.replace(
                job, connector=None, time_column=None, max_quarantined=1.0
            )
        out = room(scratch, "captured")
        return out / self._world.transform(job, out, None).artifact

    def _twin(
        self,
        inputs: Inputs,
        known: tuple[Column, ...],
        seed: int,
        schema: tuple[Column, ...] | None,
        neighbour: Literal[-1, 0, 1],
    ) -> Twin:
        """The files with every hidden place moved inside its cell and every hidden identifier
        another's, or nobody's.

        Keys that tie two inputs of a join together are hidden in both, so the joined table is what
        has twins, with a `schema` of its own.
        """
        entry = self._target.entry
        job = read_job(self._target, inputs)
        return Twin(
            dataset_id=job.dataset_id,
            inputs=job.inputs,
            format=job.format,
            packed=job.packed,
            encoding=job.encoding,
            records=job.records,
            business_key=job.business_key,
            time_column=job.time_column,
            since=job.since,
            until=job.until,
            location=entry.location,
            release=entry.release,
            schema=entry.schema if schema is None else schema,
            known=known,
            suppress=self._rules,
            seed=seed,
            neighbour=neighbour,
            artifact=job.artifact,
        )


def _unpacked(job: Read) -> Read:
    """The same over twins, which come unpacked."""
    return msgspec.structs.replace(job, packed=None)


def search_job(
    target: Target,
    tables: Mapping[str, Path],
    files: Mapping[str, Path],
    despite: Sequence[tuple[str, str]] = (),
    releases: Mapping[str, Release | None] | None = None,
) -> Search:
    """Look for what is private in `tables` in all of `files`."""
    entry = target.entry
    listed = [*tables.items(), *((f"shown/{name}", path) for name, path in files.items())]
    registered = msgspec.json.encode(msgspec.structs.replace(entry, release=None)).decode()
    assert entry.release is not None
    return Search(
        dataset_id=entry.dataset_id,
        inputs=tuple(
            InputFile(source_id=name, path=str(path.absolute()), digest="") for name, path in listed
        ),
        schema=entry.schema,
        business_key=entry.business_key,
        on=entry.source.join_on,
        location=entry.location,
        release=entry.release,
        registered=registered,
        despite=tuple(despite),
        releases=dict(releases or {}),
        artifact=target.artifact,
    )


def _told(dataset_id: str, found: Mapping[str, str]) -> dict[str, str]:
    """A finding of the search as a reason. Only what stands in a column a steward may show all the
    same.
    """
    file, column, what, how = (found[k] for k in ("file", "column", "what", "how"))
    if not file:
        message = f"The column {column} is not shown by {how}, which it comes from."
        return _reason(
            "leak.input",
            message,
            f"Take it out of `release.show`, or show it in data/registry/{how}.yml.",
        )
    where = f"{file}, column {column}," if column else file
    if what in ("places", "values"):
        message = (
            f"{where} holds"
            f" {f'exact places, as {how}' if what == 'places' else f'a value of the withheld column {how}'}."
        )
    else:
        message = f"{where} looks like {what}."
    if not column:
        return _reason(
            "leak.identifier",
            message,
            "Keep it out of everything public: what connector code logs, names and counts"
            " included.",
        )
    sign = (
        f"kfm grant column {dataset_id} {shlex.quote(column)} --despite {shlex.quote(what)}"
        " --reason … --key STEWARD"
    )
    return _reason(
        "leak.column",
        message,
        f"Take {column} out of `release.show`; or a steward shows it all the same: `{sign}`.",
    )


def _hearing(said: list[Json]) -> Callable[[Json], None]:
    def hear(event: Json) -> None:
        # that one names a process
        if event.get("op") in ("log", "output") and event.get("event") != "child.start":
            said.append(event)

    return hear


def _showing_all(entry: DatasetEntry) -> DatasetEntry:
    """The release without a least number of records, or a small piece would show nothing to
    compare.
    """
    release = entry.release
    return (
        entry
        if release is None
        else msgspec.structs.replace(entry, release=msgspec.structs.replace(release, min_records=1))
    )


def _of_one_record(
    differing: Sequence[Mapping[str, str]], leap: bool, artifact: str
) -> list[dict[str, str]]:
    """What follows one record, told as such."""
    told = [
        r["message"]
        .replace("only hidden values change", "one record comes or goes")
        .replace("hidden values", "one record")
        for r in differing
    ]
    told += (
        [f"One record that comes or goes changes what {artifact} shows of others."] if leap else []
    )
    remedy = (
        "Keep counts, ranks, extremes and whatever else follows single records out of shown"
        " columns, names and the log; state `schema`."
    )
    return [_reason("leak.record", message, remedy) for message in told]


def compare(own: Side, twin: Side) -> list[dict[str, str]]:
    """Each file in which the two differ, by name."""
    found = []
    for name in sorted({*own, *twin}):
        if name not in own or name not in twin:
            message = f"The file name {name} follows hidden values: it exists in one twin only."
            found.append(_reason("leak.name", message, "Name files by what is public."))
        elif own[name].digest != twin[name].digest:
            one, two = own[name].members, twin[name].members
            hint = (
                f": {', '.join(k for k in sorted({*one, *two}) if one.get(k) != two.get(k))}"
                if one and two
                else ""
            )
            remedy = (
                "Withhold, generalise or sort what it follows in `release` or the connector, then"
                " run again."
            )
            found.append(
                _reason(
                    "leak.differs", f"{name} changes when only hidden values change{hint}.", remedy
                )
            )
    return found


def _plain(value: object) -> object:
    return msgspec.to_builtins(value, str_keys=True)


def _reason(code: str, message: str, remedy: str) -> dict[str, str]:
    return {"code": code, "message": message, "remedy": remedy}
