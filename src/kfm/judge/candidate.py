"""candidate: gather the evidence on a candidate or an official version, and let every gate and the
policy look at it.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from kfm.catalog.base import Described
from kfm.catalog.check import check_records
from kfm.catalog.dcat import dcat
from kfm.catalog.stac import stac_collection, stac_item
from kfm.evidence.version_records import (
    describe,
    placed,
    previous_versions,
    read_facts,
    version_facts,
)
from kfm.gates.quality import new_columns
from kfm.grants.grant import granted
from kfm.grants.permit import permitted
from kfm.keys.attest import check_attestation
from kfm.model import (
    ATTESTATION,
    Before,
    Candidate,
    DatasetEntry,
    Denied,
    Evidence,
    Gate,
    Generation,
    Json,
    Reason,
    Verdict,
    VersionFacts,
    judge_all,
    labels,
)
from kfm.model.paths import collection_path, dcat_path, item_path, version_path
from kfm.policy.base import Decision
from kfm.release.by_rule import is_withheld, release_marks
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = [
    "SAID_ABOVE",
    "asked_dataset",
    "asked_of",
    "attested",
    "catalog_reasons",
    "columns_added",
    "described_candidate",
    "evidence_of",
    "judge",
    "official_candidate",
    "policy_question",
    "reason",
]

# by the note of the policy gate: it says no, and other gates have said why
SAID_ABOVE = "denies, for the reasons above"

Read = Callable[[str], bytes]


def reason(code: str, message: str, remedy: str) -> Reason:
    return Reason(code=code, message=message, remedy=remedy)


def evidence_of(
    world: World,
    candidate: Candidate,
    *,
    found: Mapping[str, str | None],
    before: str | None,
    suppressed: str | UnsetType | None = UNSET,
    leak: Sequence[Reason] | None = None,
    catalog: Sequence[Reason] | None = None,
    attestation: Sequence[Reason] | None = None,
    attestation_note: str = "",
    loosened: Sequence[str] = (),
) -> Evidence:
    """What the gates look at: the registry as it is now, and the bytes as they are now. What is not
    given was not looked at.
    """
    dataset_id = candidate.dataset_id
    family = world.family(dataset_id)
    entry = world.registry(dataset_id)
    rows = candidate.rows
    links = ("catalog.dangling", "catalog.mismatch")
    others = tuple(r for r in catalog or () if not r.code.startswith(links))
    structural = others if catalog is not None else None
    releases = [e.release for e in family if e.release is not None]
    resolutions = [r.h3_resolution for r in releases if r.h3_resolution is not None]
    columns = [c.name for c in candidate.schema]
    marks = (
        release_marks(entry, columns)
        if entry is not None
        else [a.get("release") for a in candidate.artifacts.values()]
    )
    return Evidence(
        entry=entry,
        expected=candidate.digests,
        found=dict(found),
        schema=candidate.schema,
        books=candidate.books,
        proposal=candidate.proposal,
        released=candidate.released,
        partial=entry is not None and rows < entry.source.completeness,
        suppressed=suppressed,
        rows=rows,
        profile=candidate.profile,
        invalid_geometries=candidate.invalid_geometries,
        bbox=candidate.bbox,
        interval=candidate.interval,
        before=None if before is None else _held(world.data, dataset_id, before),
        older=candidate.older or (),
        change=candidate.change or None,
        obligations=labels.obligations(family),
        other_release=tuple(
            p for p, a in candidate.artifacts.items() if a.get("release") not in marks
        ),
        sealed=tuple(p for p, a in candidate.artifacts.items() if is_withheld(a)),
        min_records=max((r.min_records for r in releases), default=1),
        min_area_km2=max((r.min_area_km2 for r in releases), default=0.0),
        discharged=_discharged(world, dataset_id, entry, candidate),
        unknown_labels=tuple(u for e in family for u in labels.unknown_labels(e)),
        withheld=_withheld(family, columns),
        resolution=min(resolutions) if resolutions else None,
        private=world.is_private(dataset_id),
        leak=None if leak is None else tuple(leak),
        leak_note="3 twins, 0 files differ" if leak is not None and not leak else "",
        catalog=structural,
        catalog_note="STAC, DCAT and PROV records, 0 errors" if structural == () else "",
        lineage=(
            None
            if catalog is None or structural is None
            else tuple(r for r in catalog if r not in structural)
        ),
        attestation=None if attestation is None else tuple(attestation),
        attestation_note=attestation_note,
        licence_note=(entry.custodian or "") if entry is not None else "",
        licences={e.dataset_id: e.licence for e in family if e.licence},
        restricted=candidate.restricted or {},
        permits=permitted(world, dataset_id),
        loosened=tuple(loosened),
    )


def _held(data: Zone, dataset_id: str, version_id: str) -> Before:
    facts = read_facts(data, dataset_id, version_id)
    return Before(rows=facts.rows, schema=facts.schema, profile=facts.profile)


def columns_added(world: World, dataset_id: str, number: int) -> str:
    """The columns of a generation that the one before it did not have, in words; of private records
    none is named.
    """
    if world.is_private(dataset_id):
        return ""
    pair = world.store.read(
        lambda tx: [tx.index.generation(dataset_id, n) for n in (number - 1, number)]
    )
    versions = [g.version_id for g in pair if g is not None and g.version_id is not None]
    if len(versions) < 2:
        return ""
    return new_columns(*(read_facts(world.data, dataset_id, v).schema for v in versions))


def _withheld(family: Sequence[DatasetEntry], columns: Sequence[str]) -> tuple[str, ...]:
    """Columns that may not appear: those not shown, and those of inputs under the names a join
    gives them.
    """
    found: set[str] = set()
    for number, entry in enumerate(family):
        if (release := entry.release) is None:
            continue
        private = {*release.withhold, *labels.unshown(release, entry.business_key)}
        # an input: which of the other columns are its own, the leak check looks up in its table
        if number:
            found |= private | {f"{entry.dataset_id}_{c}" for c in private}
        else:
            found |= private | {
                *labels.unshown(
                    release, (c for c in columns if c not in labels.made_columns(release))
                )
            }
    return tuple(sorted(found))


def _discharged(
    world: World, dataset_id: str, entry: DatasetEntry | None, candidate: Candidate
) -> tuple[str, ...]:
    """What the recorded steps of this very candidate did away with, and whether a steward granted
    publication.
    """
    done = {s["discharges"] for s in candidate.steps if s.get("discharges")}
    if entry is not None and granted(world, dataset_id, "publish") is not None:
        done.add("grant")
    return tuple(sorted(done))


def judge(
    world: World,
    evidence: Evidence,
    candidate: Candidate,
    approvals: tuple[int, int] = (0, 0),
    heard: Callable[[Decision], None] | None = None,
) -> list[Verdict]:
    """Every verdict; the policy reads those of the other gates, and its decision is told to
    `heard`.
    """
    last = [g for g in world.gates if g.hears]
    if world.policy is None or not last:
        return list(judge_all(world.gates, evidence))
    first = _first(world.gates, evidence)
    document = policy_question(candidate, evidence, first, approvals)
    decision = world.policy.decide("kfm.promotion", document)
    if heard is not None:
        heard(decision)
    said = {r.code for v in first for r in v.reasons}
    # the rules have one word for both
    said |= {"labels.obligation"} if "labels.grant" in said else set()
    no = [msgspec.convert(d, Reason) for d in decision.deny]
    if not decision.allow and not no:
        no = [
            reason(
                "policy.denied",
                "The policy does not allow it and gives no reason.",
                "`kfm policy eval` shows the decision.",
            )
        ]
    # What a gate has said already is not said twice: that gate denies in any case.
    own = [r for r in no if r.code not in said and not (r.code == "gates.denied" and said)]
    word = "allows" if decision.allow else SAID_ABOVE if not own else "denies"
    note = f"{word}, policy {decision.policy_digest[7:15]}…, decision {decision.decision_id[:8]}…"
    judged = msgspec.structs.replace(evidence, policy=tuple(own), policy_note=note)
    return [*first, *judge_all(last, judged)]


def _first(gates: Sequence[Gate], evidence: Evidence) -> tuple[Verdict, ...]:
    """The verdicts the policy reads."""
    return judge_all([g for g in gates if not g.hears], evidence)


def asked_of(world: World, candidate: Candidate, evidence: Evidence) -> Json:
    """What the policy would be asked about a candidate."""
    return policy_question(candidate, evidence, _first(world.gates, evidence))


def asked_dataset(dataset_id: str, e: Evidence) -> Json:
    """The dataset as every question to the rules names it."""
    entry = e.entry
    return {
        "id": dataset_id,
        "title": entry.title if entry else "",
        "licence": entry.licence if entry else None,
        "sensitivity": entry.sensitivity if entry else None,
        "policy_label": entry.policy_label if entry else None,
        "care_label": entry.care_label if entry else None,
        "obligations": list(e.obligations or ()),
        "discharged": list(e.discharged),
        "approvals": entry.approvals if entry else 0,
        "retired": bool(entry and entry.retired),
    }


def policy_question(
    candidate: Candidate, e: Evidence, first: Sequence[Verdict], approvals: tuple[int, int] = (0, 0)
) -> Json:
    """What the policy is asked about a candidate."""
    release = e.entry.release if e.entry is not None else None
    records = ["dcat", "prov", *(["stac"] if candidate.bbox else [])]
    return {
        "action": "promote",
        "dataset": asked_dataset(candidate.dataset_id, e),
        "candidate": {
            "version_id": candidate.version_id,
            "base_generation": candidate.base_generation,
            "artifacts": [
                {"path": p, "digest": a["digest"], "size": a["size"]}
                for p, a in sorted(candidate.artifacts.items())
            ],
            "columns": [c.name for c in candidate.schema],
            "withhold": list(e.withheld),
            "h3_resolution": release.h3_resolution if release else None,
            "spatial": bool(candidate.bbox),
            "records": records if e.catalog == () else [],
        },
        "gates": {v.gate: v.word for v in first},
        "approvals": {"needed": approvals[0], "valid": approvals[1]},
        "attestation": {"verified": e.attestation == ()},  # what nobody looked at is not verified
    }


# ---- catalogs and attestations -------------------------------------------------------------------
def catalog_reasons(
    world: World, described: Described, prov_path: str, prov: bytes | None, files: Mapping[str, str]
) -> list[Reason]:
    """What the catalogs will say once this candidate is official, checked before it is; `files` are
    those it will bring.
    """
    dataset_id, version_id = described.dataset_id, str(described.version_id)
    kept = [v for v in described.previous if world.data.exists(item_path(dataset_id, v))]
    listed: dict[str, bytes] = {dcat_path(dataset_id): dcat(described)}
    if prov is not None:
        listed[prov_path] = prov
    if described.bbox is not None:
        listed[collection_path(dataset_id)] = stac_collection(described, [version_id, *kept])
        listed[item_path(dataset_id, version_id)] = stac_item(described)
    coming = {*listed, *(version_path(dataset_id, version_id, path) for path in files)}
    # a projection of the version before; it goes with it
    leaving = collection_path(dataset_id) if described.bbox is None else ""
    return [
        reason(*r)
        for r in check_records(
            listed, described, lambda p: p in coming or (p != leaving and world.data.exists(p))
        )
    ]


def attested(world: World, read: Read, listed: Mapping[str, str]) -> tuple[list[Reason], str]:
    """Whether a trusted builder signed exactly these files, and whether the trust root may still be
    relied on.
    """
    found: list[Reason] = []
    signer = ""
    try:
        # What this workspace proposed it vouches for itself, also when its key was rotated since; a
        # revoked key is refused.
        raw = read(ATTESTATION)
        _, key = world.keys.verified_by(raw, named={listed.get(ATTESTATION)})
        signer, own = key.keyid, {listed.get(ATTESTATION)} if key.state == "retired" else ()
        check_attestation(
            raw, world.keys, {p: d for p, d in listed.items() if p != ATTESTATION}, own
        )
    except FileNotFoundError:
        found.append(
            reason(
                "attestation.missing",
                "The version is not signed.",
                "Run the dataset again with --force --reason.",
            )
        )
    except Denied as error:
        found.append(reason("attestation.refused", error.happened, error.remedy))
    try:
        trust = world.keys.trust()
    except Denied as error:
        return [*found, reason("root.refused", error.happened, error.remedy)], ""
    if trust is None:
        found.append(
            reason(
                "root.missing", "This workspace has no trust root.", "`kfm keys renew` makes one."
            )
        )
    elif trust.expired(world.clock.now()):
        found.append(
            reason(
                "root.expired",
                f"The trust root expired at {trust.expires}.",
                "`kfm keys renew` signs the next one.",
            )
        )
    return found, (
        f"signed by {signer[:8]}…, root {trust.fingerprint[7:15]}…" if trust is not None else ""
    )


# ---- official versions ---------------------------------------------------------------------------
def official_candidate(dataset_id: str, head: Generation, facts: VersionFacts) -> Candidate:
    """An official version in the shape of a candidate, from what it says of itself."""
    said = {
        **msgspec.structs.asdict(facts),
        "artifacts": placed(facts, dataset_id, str(head.version_id)),
    }
    return Candidate(**said, base_generation=head.generation - 1)


def described_candidate(
    world: World, candidate: Candidate, head: Generation, modified: str | None
) -> Described | None:
    """A candidate as the catalogs would show it at the next generation."""
    entry = world.registry(candidate.dataset_id)
    if entry is None:
        return None
    return describe(
        entry,
        version_facts(candidate),
        generation=head.generation + 1,
        previous=previous_versions(
            world.data, world.store, candidate.dataset_id, candidate.version_id
        ),
        modified=modified,
    )
