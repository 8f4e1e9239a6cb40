"""Lineage as OpenLineage events: a run began, goes on, made something, failed or was given up.

Every member follows from evidence. Of what may not be known to everybody there are no columns, no
counts and no words, and digests are commitments.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from kfm.catalog.lineage.columns import ColumnLineage, Origin
from kfm.catalog.lineage.record import LineageRecord, Used, entry_of
from kfm.model import Column, ColumnProfile, DatasetEntry, Json, Stored, Verdict, canonical
from kfm.model.labels import release_steps

__all__ = ["About", "EventType", "Output", "completed", "event"]

PRODUCER = "kfm://producer/kfm"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
EventType = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]
_NONE = (math.nan, math.nan)
# what our words for what became of a column are in theirs: (type, subtype, whether it hides values)
_TRANSFORMATIONS = {
    "same": ("DIRECT", "IDENTITY", False),
    "renamed": ("DIRECT", "IDENTITY", False),
    "computed": ("DIRECT", "TRANSFORMATION", False),
    "generalised": ("DIRECT", "TRANSFORMATION", True),
    "collected": ("DIRECT", "AGGREGATION", True),
}


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The run that an event tells of."""

    run_id: str
    dataset_id: str
    updater_id: str
    updater_version: str
    inputs: tuple[Used, ...]
    spec: Json | None  # as it was expanded for the run
    closed: bool  # not everybody may know its records

    @property
    def entry(self) -> DatasetEntry | None:
        return entry_of(self.spec)


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the version that a run made."""

    schema: tuple[Column, ...]
    profile: Mapping[str, ColumnProfile]
    artifacts: Stored
    verdicts: tuple[Verdict, ...]
    columns: tuple[ColumnLineage, ...]


def event(
    kind: EventType,
    at: str,
    about: About,
    *,
    error: str = "",
    verdicts: Sequence[Verdict] = (),
    outputs: Sequence[Json] = (),
) -> bytes:
    """An event as it is sent. `verdicts` of gates that denied what it would have made are told as
    assertions about that.
    """
    facets = {"errorMessage": _error(error)} if error else {}
    denied = [_refused(about, verdicts)] if verdicts else []
    told: Json = {
        "eventType": kind,
        "eventTime": at,
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": about.run_id, **({"facets": facets} if facets else {})},
        "job": {"namespace": "kfm", "name": about.updater_id, "facets": dict(_job(about))},
        "inputs": [_input(used) for used in about.inputs],
        "outputs": [*outputs, *denied],
    }
    return canonical.dumps(told) + b"\n"


def completed(record: LineageRecord, at: str, about: About, output: Output) -> bytes:
    """What the run used, by address, and the version it made."""
    outputs = [
        {
            "namespace": "kfm",
            "name": f"{record.dataset_id}/{made.path}",
            "facets": {
                "version": _version(record.version_id),
                **({"tags": _tags(record)} if record.labels else {}),
                "lifecycleStateChange": _facet(
                    "LifecycleStateChangeDatasetFacet",
                    "1-0-1",
                    lifecycleStateChange=_change(record),
                ),
                **dict(_said(about.entry, "Dataset")),
                **_judged(output.verdicts, about.closed),
                **(dict(_table(made.path, record, about, output)) if _is_table(made.kind) else {}),
            },
        }
        for made in record.outputs
    ]
    return event("COMPLETE", at, about, outputs=outputs)


def _is_table(kind: str) -> bool:
    return kind in ("table", "partition")


def _facet(name: str, version: str, **members: object) -> Json:
    where = f"https://openlineage.io/spec/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": where, **members}


# ---- the job and the run -------------------------------------------------------------------------
def _job(about: About) -> Iterator[tuple[str, Json]]:
    kind = {"processingType": "BATCH", "integration": "KFM", "jobType": "UPDATER"}
    yield "jobType", _facet("JobTypeJobFacet", "2-0-4", **kind)
    yield from _said(about.entry, "Job")
    yield (
        "sourceCode",
        _facet("SourceCodeJobFacet", "1-0-1", language="json", sourceCode=_source(about)),
    )


def _source(about: About) -> str:
    """What an updater does is what its entry says: how it reads, maps, merges and releases, and the
    digest of code of its own.
    """
    spec, entry = about.spec or {}, about.entry
    told: Json = {"updater_id": about.updater_id, "version": about.updater_version}
    if entry is not None:
        told |= {"kind": entry.source.kind, "format": entry.source.format, "merge": entry.merge}
        told |= {"connector": spec.get("connector"), "release": list(release_steps(entry.release))}
        if not about.closed:
            told["mapping"] = spec.get("mapping") or {}
    return canonical.dumps({k: v for k, v in told.items() if v}).decode()


def _said(entry: DatasetEntry | None, of: Literal["Job", "Dataset"]) -> Iterator[tuple[str, Json]]:
    """What its entry says in words, and who answers for it; addresses of people are not told."""
    if entry is None:
        return
    yield (
        "documentation",
        _facet(f"Documentation{of}Facet", "1-1-0", description=entry.description or entry.title),
    )
    owners = [
        {"name": o.partition("<")[0].strip() or "owner", "type": "OWNER"} for o in entry.owners
    ]
    if entry.custodian:
        name = entry.custodian.partition("<")[0].strip() or "custodian"
        owners.append({"name": name, "type": "CUSTODIAN"})
    if owners:
        yield "ownership", _facet(f"Ownership{of}Facet", "1-0-1", owners=owners)


def _error(message: str) -> Json:
    return _facet("ErrorMessageRunFacet", "1-0-1", message=message, programmingLanguage="python")


# ---- datasets ------------------------------------------------------------------------------------
def _input(used: Used) -> Json:
    # what could not be fetched has no digest
    facets = {"facets": {"version": _version(used.hash)}} if used.hash else {}
    return {"namespace": _namespace(used.uri), "name": used.uri, **facets}


def _namespace(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _version(value: str) -> Json:
    return _facet("DatasetVersionDatasetFacet", "1-0-1", datasetVersion=value)


def _tags(record: LineageRecord) -> Json:
    labels = {**record.labels} | {f"obligation:{name}": "owed" for name in record.owed}
    tags = [{"key": k, "value": v, "source": "kfm"} for k, v in sorted(labels.items())]
    return _facet("TagsDatasetFacet", "1-0-0", tags=tags)


def _change(record: LineageRecord) -> str:
    if record.base_version is None:
        return "CREATE"
    return "ALTER" if record.merged else "OVERWRITE"


def _judged(verdicts: Sequence[Verdict], closed: bool) -> Json:
    return {"dataQualityAssertions": _assertions(verdicts, closed)} if verdicts else {}


def _assertions(verdicts: Sequence[Verdict], closed: bool) -> Json:
    """Each gate; what it says of private records is told by its codes alone."""
    told = []
    for verdict in verdicts:
        found: Json = {"assertion": verdict.gate, "success": verdict.ok, "severity": "error"}
        words = [r.code if closed else f"{r.code}: {r.message}" for r in verdict.reasons]
        words += [] if closed or not verdict.note else [verdict.note]
        told.append(found | ({"description": "; ".join(words)} if words else {}))
    return _facet("DataQualityAssertionsDatasetFacet", "1-1-0", assertions=told)


def _refused(about: About, verdicts: Sequence[Verdict]) -> Json:
    facets = {"dataQualityAssertions": _assertions(verdicts, about.closed)}
    return {"namespace": "kfm", "name": about.dataset_id, "facets": facets}


def _table(
    path: str, record: LineageRecord, about: About, output: Output
) -> Iterator[tuple[str, Json]]:
    """Its columns; nothing of them where a reader must have been granted it."""
    if record.owed:
        return
    fields = [
        {"name": c.name, "type": c.type, "ordinal_position": n}
        | ({"description": c.unit} if c.unit else {})
        for n, c in enumerate(output.schema, 1)
    ]
    yield "schema", _facet("SchemaDatasetFacet", "1-2-0", fields=fields)
    yield "dataQualityMetrics", _metrics(path, output, about.closed)
    if output.columns:
        yield "columnLineage", _columns(output.columns)


def _metrics(path: str, output: Output, closed: bool) -> Json:
    """Rows and bytes of the file; of its columns how many values there are not, and between which
    numbers they lie. Of a release there is no number of a value.
    """
    stored = output.artifacts.get(path, {})
    numbers = {c.name for c in output.schema if c.type in ("integer", "number")}
    columns: Json = {}
    for name, found in output.profile.items():
        told: Json = {"nullCount": found.nulls}
        least, most = (
            (float(found.min or "nan"), float(found.max or "nan")) if name in numbers else _NONE
        )
        if not closed and math.isfinite(least) and math.isfinite(most):
            told |= {"min": least, "max": most}
        columns[name] = told
    counts = {"rowCount": stored.get("rows"), "bytes": stored.get("size")}
    return _facet(
        "DataQualityMetricsDatasetFacet",
        "1-0-0",
        **{k: v for k, v in counts.items() if v is not None},
        columnMetrics=columns,
    )


def _columns(columns: Sequence[ColumnLineage]) -> Json:
    """Columns that did not become one influenced the table as a whole, and are told so."""
    fields, dropped = {}, []
    for column in columns:
        if column.how == "dropped":
            by = f"dropped: {column.by}".rstrip(": ")
            dropped += [_field(o, "INDIRECT", "FILTER", by, column.by != "") for o in column.of]
            continue
        kind, subtype, masks = _TRANSFORMATIONS[column.how]
        by = f"{column.how}: {column.by}".rstrip(": ")
        fields[column.name] = {
            "inputFields": [_field(o, kind, subtype, by, masks) for o in column.of]
        }
    more = {"dataset": dropped} if dropped else {}
    return _facet("ColumnLineageDatasetFacet", "1-2-0", fields=fields, **more)


def _field(of: Origin, kind: str, subtype: str, by: str, masks: bool) -> Json:
    done = {"type": kind, "subtype": subtype, "description": by, "masking": masks}
    return {
        "namespace": _namespace(of.uri),
        "name": of.uri,
        "field": of.column,
        "transformations": [done],
    }
