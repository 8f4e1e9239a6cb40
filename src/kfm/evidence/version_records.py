"""The records of a version: what its folder holds beside the data, and how catalogs describe it."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from kfm.catalog.base import Artifact, Described
from kfm.catalog.dcat import version_dcat
from kfm.catalog.prov import ProvRun, prov
from kfm.catalog.stac import version_stac
from kfm.evidence.captures import parse_checksums
from kfm.evidence.removed import removed_versions
from kfm.keys.attest import provenance
from kfm.model import (
    ATTESTATION,
    Candidate,
    DatasetEntry,
    Generation,
    IntegrityError,
    Json,
    LedgerRow,
    Stored,
    VersionFacts,
    canonical,
    ids,
    is_record,
    rfc3339,
)
from kfm.model.paths import version_path
from kfm.store.base import Store
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = [
    "derived_prov",
    "describe",
    "facts_in",
    "origin_of",
    "placed",
    "previous_versions",
    "prov_record",
    "read_facts",
    "version_facts",
    "version_listing",
    "version_records",
]

_MEDIA = {".parquet": "application/vnd.apache.parquet", ".json": "application/json"}


def version_listing(
    zone: Zone, dataset_id: str, version_id: str
) -> tuple[dict[str, str], dict[str, str]]:
    """(data artifacts, records): path -> digest, as the folder's checksums list them."""
    listed = parse_checksums(zone.read(version_path(dataset_id, version_id, "checksums.sha256")))
    data = {path: digest for path, digest in listed.items() if not is_record(path)}
    return data, {path: digest for path, digest in listed.items() if path not in data}


def version_facts(candidate: Candidate) -> VersionFacts:
    """What a version is that is made of this candidate."""
    said = {name: getattr(candidate, name) for name in VersionFacts.__struct_fields__}
    said["artifacts"] = {
        p: {k: a[k] for k in ("digest", "size", "rows", "release")}
        for p, a in candidate.artifacts.items()
    }
    return VersionFacts(**(said | {"origin": candidate.origin or UNSET}))


def read_facts(zone: Zone, dataset_id: str, version_id: str) -> VersionFacts:
    """The facts of a version that lies in `processed`."""
    path = version_path(dataset_id, version_id, "version.json")
    return facts_in(zone.read(path), path)


def facts_in(raw: bytes, name: str) -> VersionFacts:
    """What the bytes of a `version.json` say; `name` is told to people. Raises `IntegrityError`."""
    try:
        return msgspec.convert(canonical.loads(raw), VersionFacts)
    except (canonical.NotIJson, msgspec.ValidationError) as error:
        raise IntegrityError(
            f"{name} is damaged: {error}.",
            expected="what a version says of itself",
            remedy="Restore it from a backup; `kfm verify` lists what is damaged.",
        ) from error


def placed(facts: VersionFacts, dataset_id: str, version_id: str) -> Stored:
    """The artifacts of a version, each with where it lies: in the folder its facts were read
    from.
    """
    return {
        path: {**artifact, "from": version_path(dataset_id, version_id, path)}
        for path, artifact in facts.artifacts.items()
    }


def origin_of(zone: Zone, dataset_id: str, version_id: str | None) -> list[str]:
    """How the data of a version were obtained, as its facts say; nothing for live ones, or where
    there is no version.
    """
    if version_id is None or not zone.exists(version_path(dataset_id, version_id, "version.json")):
        return []
    return list(read_facts(zone, dataset_id, version_id).origin or ())


def describe(
    entry: DatasetEntry,
    facts: VersionFacts | None,
    *,
    generation: int | None = None,
    previous: Sequence[str] = (),
    modified: str | None = None,
    records: Mapping[str, str] | None = None,
) -> Described:
    """A version as catalogs show it, or a dataset that has none; everything here is public."""
    columns = tuple(
        {"name": c.name, "type": c.type, "unit": c.unit} for c in (facts.schema if facts else ())
    )
    return Described(
        dataset_id=entry.dataset_id,
        title=entry.title,
        description=entry.description or entry.title,
        owners=entry.owners,
        custodian=entry.custodian,
        licence=entry.licence or "NOASSERTION",
        rights=entry.rights,
        sensitivity=entry.sensitivity or "unknown",
        policy_label=entry.policy_label or "unknown",
        care_label=entry.care_label,
        cadence=entry.cadence,
        version_id=facts.version_id if facts else None,
        version_digest=facts.version_digest if facts else None,
        generation=generation,
        previous=tuple(previous),
        artifacts=tuple(
            Artifact(
                path=path,
                digest=a["digest"],
                size=a["size"],
                media_type=_MEDIA.get(path[path.rfind(".") :], "application/octet-stream"),
                columns=columns,
            )
            for path, a in sorted(facts.artifacts.items() if facts else ())
        ),
        records=dict(records or {}),
        bbox=facts.bbox if facts else None,
        interval=facts.interval if facts else None,
        steps=facts.steps if facts else (),
        h3_resolution=facts.h3_resolution if facts else None,
        modified=modified,
        origin=(facts.origin or ()) if facts else (),
    )


def version_records(
    world: World, entry: DatasetEntry, candidate: Candidate, sources: Sequence[Json]
) -> dict[str, bytes]:
    """Every record of a version folder, path -> bytes; the same candidate always gives the same
    ones.
    """
    facts = version_facts(candidate)
    described = describe(entry, facts)
    found = {
        "version.json": canonical.dumps(msgspec.to_builtins(facts)) + b"\n",
        "dcat.json": version_dcat(described),
    }
    if described.bbox is not None:
        found["stac.json"] = version_stac(described)
    subjects = candidate.digests | {path: ids.digest(raw) for path, raw in found.items()}
    statement = provenance(
        subjects,
        parameters={
            "dataset_id": entry.dataset_id,
            "version_id": candidate.version_id,
            "transform_hash": candidate.transform_hash,
            "updater_version": candidate.updater_version,
            "spec_hash": candidate.spec_hash,
            "policy_digest": candidate.policy_digest,
            "steps": list(candidate.steps),
        },
        dependencies=dependencies(world, entry.dataset_id, sources),
        builder={"id": f"kfm://builder/{world.keys.signer}", "version": dict(world.toolchain())},
    )
    return {**found, ATTESTATION: world.keys.sign(statement)}


def dependencies(world: World, dataset_id: str, sources: Sequence[Json]) -> list[Json]:
    """What went in: by digest, or by commitment where the input is not public."""
    private = world.is_private(dataset_id)
    return [
        {
            "uri": s["source_url"],
            **(
                {"commitment": world.stand_in(dataset_id, s["digest"])}
                if private
                else {"digest": s["digest"]}
            ),
            **({"origin": s["origin"]} if s.get("origin") else {}),
        }
        for s in sources
    ]


def prov_record(world: World, entry: DatasetEntry, row: LedgerRow, candidate: Candidate) -> bytes:
    """PROV of one run: its inputs, its governed steps, what it made."""
    sources = msgspec.json.decode(row.source_metadata)
    return prov(
        ProvRun(
            run_id=row.run_id,
            dataset_id=row.dataset_id,
            version_id=candidate.version_id,
            version_digest=candidate.version_digest,
            updater_id=row.updater_id,
            updater_version=row.updater_version,
            started_at=row.timestamp,
            agent=world.keys.signer,
            inputs=tuple(dependencies(world, row.dataset_id, sources)),
            outputs=tuple({"path": p, "digest": d} for p, d in sorted(candidate.digests.items())),
            steps=tuple(_prov_step(s) for s in candidate.steps),
            base_version=candidate.base_version,
            care_label=entry.care_label,
            sensitivity=entry.sensitivity,
        )
    )


def derived_prov(
    world: World, entry: DatasetEntry, head: Generation, candidate: Candidate
) -> bytes:
    """PROV of a version a withdrawal left: derived from the one before it, by the key that signs
    the generation.
    """
    return prov(
        ProvRun(
            run_id=f"withdrawal_{head.generation + 1}",
            dataset_id=head.dataset_id,
            version_id=candidate.version_id,
            version_digest=candidate.version_digest,
            updater_id="kfm.withdraw",
            updater_version=candidate.updater_version,
            started_at=rfc3339(world.clock.now()),
            agent=world.keys.signer,
            inputs=(),
            outputs=tuple({"path": p, "digest": d} for p, d in sorted(candidate.digests.items())),
            steps=tuple(_prov_step(s) for s in candidate.steps),
            base_version=head.version_id,
            care_label=entry.care_label,
            sensitivity=entry.sensitivity,
        )
    )


def _prov_step(step: Json) -> Json:
    settings = {k: v for k, v in step.items() if k not in ("step", "discharges")}
    return {
        "id": step["step"],
        "kind": step["step"],
        "discharges": step.get("discharges"),
        "settings": settings,
    }


def previous_versions(
    data: Zone,
    store: Store,
    dataset_id: str,
    version_id: str,
    known: Sequence[Generation] = (),
    told: frozenset[str] = frozenset(),
) -> list[str]:
    """The versions that were official before, newest first, without those that were withdrawn or
    that retention removed.

    `known`: the generations up to the one that is shown; all there are, when it is the newest.
    `told`: removed, and not left out.
    """
    rows: Sequence[Generation] = known or store.read(lambda tx: tx.index.generations(dataset_id))
    gone = {*(rows[-1].suppressed if rows else ()), *(removed_versions(data, dataset_id) - told)}
    order = [
        str(g.version_id)
        for g in rows
        if g.version_id is not None and g.version_id != version_id and g.version_id not in gone
    ]
    return list(dict.fromkeys(reversed(order)))
