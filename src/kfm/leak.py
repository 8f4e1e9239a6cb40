"""leak: non-interference. What is public must not change when only what is withheld changes."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kfm import canonical
from kfm.connectors.base import InputFile, TransformJob, TransformResult
from kfm.errors import KfmError
from kfm.release import govern_job
from kfm.update import transform_job
from kfm.world import Target, World
from kfm.zones.base import hash_file, room

__all__ = ["SEEDS", "compare", "look_for_leaks", "second_net"]

SEEDS = (1, 2, 3)
Side = dict[str, bytes]  # name of a public file, or of what is said beside it -> its bytes
Inputs = Mapping[str, tuple[Path, str]]  # source id -> (captured file, digest)
Merge = Callable[[Path, TransformResult, Path], tuple[Path, TransformResult]]
Render = Callable[[Path, TransformResult], Mapping[str, bytes]]
_TOKEN = re.compile(r"-?\d+\.\d{4,}|[\w-]{5,}")


def look_for_leaks(
    world: World,
    target: Target,
    inputs: Inputs,
    rules: tuple[dict[str, Any], ...],
    *,
    merge: Merge,
    render: Render,
    released: str,
) -> list[dict[str, str]]:
    """Rebuild the public side from the capture and from its twins; every byte must be the same. Returns reasons, none when it is."""

    def build(given: Inputs, scratch: Path, joined: Path | None = None) -> tuple[Side, Path, TransformResult]:
        said: list[Any] = []

        def hear(event: dict[str, Any]) -> None:
            if event.get("op") in ("log", "output") and event.get("event") != "child.start":  # that one names a process
                said.append(event)

        out = room(scratch, "precise")
        result = world.transform(transform_job(target, given), out, hear)
        table, whole = merge(joined or out / result.artifact, result, scratch)
        shown = room(scratch, "public")
        job = govern_job(target.entry, table, target.artifact, whole.schema, rules, hash_file(table).digest)
        public = world.transform(job, shown, hear)
        side: Side = {str(p.relative_to(shown)): p.read_bytes() for p in sorted(shown.rglob("*")) if p.is_file()}
        side |= {**render(shown / public.artifact, public), "the log": canonical.dumps(_plain([said, result.warnings, public.warnings]))}
        return side, table, whole

    with world.data.scratch() as scratch:
        own, table, whole = build(inputs, room(scratch, "0"))
        if hash_file(scratch / "0" / "public" / target.artifact).digest != released:
            return [
                _reason(
                    "leak.unstable",
                    f"{target.artifact} comes out differently each time.",
                    "A step is not repeatable: `kfm drill` names it.",
                )
            ]
        found = second_net(table, target, own)
        for seed in SEEDS:
            place = room(scratch, str(seed))
            if (
                target.entry.source.kind == "join"
            ):  # keys that tie two inputs together are hidden in both: the joined table is what has twins
                twin = _twin(world, target, {"table": (table, "")}, rules, place, seed, whole)
                found += compare(own, build(inputs, place, twin["table"][0])[0])
            else:
                found += compare(own, build(_twin(world, target, inputs, rules, place, seed, None), place)[0])
    unique = {(r["code"], r["message"]): r for r in found}
    return list(unique.values())


def _twin(
    world: World, target: Target, inputs: Inputs, rules: tuple[dict[str, Any], ...], scratch: Path, seed: int, whole: TransformResult | None
) -> Inputs:
    """The captured files with every hidden place moved inside its cell and every hidden identifier given to another record."""
    folder = room(scratch, "twin")
    entry = target.entry
    job = TransformJob(
        kind="twin",
        dataset_id=target.dataset_id,
        format=entry.source.format,
        inputs=tuple(InputFile(source_id=n, path=str(p.absolute()), digest=d) for n, (p, d) in inputs.items()),
        encoding=entry.source.encoding,
        records=entry.source.records,
        business_key=entry.business_key,
        location=entry.location,
        release=entry.release,
        schema=entry.schema if whole is None else tuple(c for c in whole.schema if c.type == "geometry"),
        suppress=rules,
        seed=seed,
        artifact=target.artifact,
    )
    made = world.transform(job, folder, None)
    return {name: (folder / file, hash_file(folder / file).digest) for name, file in zip(inputs, made.files)}


def compare(own: Mapping[str, bytes], twin: Mapping[str, bytes]) -> list[dict[str, str]]:
    """Each file in which the two differ, by name."""
    found = []
    for name in sorted({*own, *twin}):
        if name not in own or name not in twin:
            message = f"The file name {name} follows hidden values: it exists in one twin only."
            found.append(_reason("leak.name", message, "Name files by what is public."))
        elif own[name] != twin[name]:
            message = f"{name} changes when only hidden values change{_hint(name, own[name], twin[name])}."
            found.append(
                _reason(
                    "leak.differs", message, "Withhold, generalise or sort what it follows in `release` or the connector, then run again."
                )
            )
    return found


def _hint(name: str, a: bytes, b: bytes) -> str:
    """Which member of a JSON record differs."""
    if not name.endswith(".json"):
        return ""
    try:
        one, two = canonical.loads(a), canonical.loads(b)
    except KfmError:
        return ""
    return (
        f": {', '.join(k for k in sorted({*one, *two}) if one.get(k) != two.get(k))}"
        if isinstance(one, dict) and isinstance(two, dict)
        else ""
    )


def second_net(table: Path, target: Target, side: Mapping[str, bytes]) -> list[dict[str, str]]:
    """Hidden identifiers and exact coordinates, searched for in everything public once it is decoded."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    release = target.entry.release
    rows = pq.read_table(table)
    where = {"lat", "latitude", "lon", "lng", "longitude"} | (
        {target.entry.location.latitude, target.entry.location.longitude} if target.entry.location else set()
    )
    hidden: dict[str, str] = {}
    for column in rows.schema.names:
        place = release is not None and release.h3_resolution is not None and column.lower() in {w.lower() for w in where}
        if not place and (release is None or column not in release.withhold):
            continue
        values = [str(v) for v in rows.column(column).to_pylist() if v is not None]
        once = {v for v in values if values.count(v) == 1} if len(values) < 2000 else set(values)
        hidden |= {v: column for v in once if len(v) >= 5}
    found = []
    for name, raw in side.items():
        if name.endswith(".parquet"):
            shown = pq.read_table(pa.BufferReader(raw))
            text = "\n".join(str(v) for c in shown.columns if not pa.types.is_binary(c.type) for v in c.to_pylist())
        else:
            text = raw.decode("utf-8", "replace")
        for token in sorted({*_TOKEN.findall(text), *text.splitlines()} & set(hidden))[:1]:
            message = f"{name} holds a value of the withheld column {hidden[token]}."
            found.append(_reason("leak.identifier", message, f"Keep {hidden[token]} out of every public column."))
    return found


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


def _reason(code: str, message: str, remedy: str) -> dict[str, str]:
    return {"code": code, "message": message, "remedy": remedy}
