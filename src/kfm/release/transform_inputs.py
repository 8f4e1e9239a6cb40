"""What a transform is asked to do: the registry entry, the files, and what the official version
says of columns and documents.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import UNSET

from kfm.connectors.base import InputFile
from kfm.connectors.operations import Join, Read
from kfm.model import Column
from kfm.model.paths import version_path
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = ["known_columns", "known_words", "read_job", "transform_job"]

Inputs = Mapping[str, tuple[Path, str]]  # source id -> (path, digest)


def transform_job(target: Target, inputs: Inputs, known: tuple[Column, ...] = ()) -> Read | Join:
    """The transform of `target` over files. `known`: columns of the official version."""
    job = read_job(target, inputs, known)
    if target.entry.source.kind != "join":
        return job
    return Join(
        dataset_id=job.dataset_id,
        inputs=job.inputs,
        schema=job.schema,
        business_key=job.business_key,
        on=target.entry.source.join_on,
        artifact=job.artifact,
    )


def read_job(target: Target, inputs: Inputs, known: tuple[Column, ...] = ()) -> Read:
    """The same for a dataset that is no join."""
    entry = target.entry
    since, _, until = target.win.partition("/")
    again = target.again
    return Read(
        dataset_id=target.dataset_id,
        source_kind=entry.source.kind,
        options=entry.source.options,
        mapping=target.mapping,
        area=entry.source.area,
        extent=entry.extent.bbox if entry.extent is not None else None,
        captured_at=target.captured_at or None,
        may_be_empty=entry.quality.min_rows == 0,
        format=entry.source.format,
        packed=entry.source.packing,
        inputs=tuple(
            InputFile(source_id=name, path=str(path.absolute()), digest=digest)
            for name, (path, digest) in inputs.items()
        ),
        encoding=entry.source.encoding,
        records=entry.source.records,
        schema=entry.schema or (again.schema if again else ()),
        known=known,
        max_record_bytes=entry.source.record_limit,
        business_key=entry.business_key,
        time_column=entry.source.time_column,
        since=since or None,
        until=until or None,
        max_quarantined=(
            entry.max_quarantined if target.max_quarantined is None else target.max_quarantined
        ),
        only=again.only if again else (),
        fixes=target.fixes,
        connector=target.connector,
        conflicts="refuse" if entry.conflicts is UNSET else entry.conflicts,
        artifact=target.artifact,
    )


def known_columns(world: World, target: Target, base: str | None) -> tuple[Column, ...]:
    """The columns of the version a run stands on, whose types inference keeps to.

    A table that replaces the last one forgets them when its connector or registry entry changed: a
    person meant other types, and looks at them. What is released by rule has other columns than its
    records.
    """
    entry = target.entry
    if (
        entry.schema
        or base is None
        or world.is_private(target.dataset_id)
        or entry.release is not None
    ):
        return ()
    if not world.data.exists(version_path(target.dataset_id, base, "version.json")):
        return ()
    from kfm.evidence.version_records import read_facts  # a NOOP starts faster without it

    facts = read_facts(world.data, target.dataset_id, base)
    if (
        facts.transform_hash != target.transform_hash
        and entry.merge == "replace"
        and not target.win
    ):
        return ()
    return facts.schema


def known_words(data: Zone, target: Target, base: str | None) -> dict[str, int]:
    """How many words each document has in the version a run stands on."""
    path = version_path(target.dataset_id, base, f"{target.artifact.rpartition('.')[0]}.ndjson")
    if target.entry.source.kind != "documents" or base is None or not data.exists(path):
        return {}
    found: dict[str, int] = {}
    for row in map(_Counted.decode, data.read(path).splitlines()):
        found[row.document_id] = found.get(row.document_id, 0) + row.words
    return found


class _Paragraph(msgspec.Struct):
    document_id: str = ""
    words: int = 0


_Counted = msgspec.json.Decoder(_Paragraph)
