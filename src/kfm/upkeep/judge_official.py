"""judge_official: every gate on an official version, or on what a withdrawal would leave of it."""

from collections.abc import Collection

import msgspec

from kfm.access.as_signed import damaged
from kfm.catalog.check import check_records
from kfm.evidence.projection import shown_version
from kfm.evidence.proposal import load
from kfm.evidence.version_records import derived_prov, read_facts, version_listing, version_records
from kfm.judge.candidate import (
    asked_of,
    attested,
    catalog_reasons,
    described_candidate,
    evidence_of,
    judge,
    official_candidate,
    reason,
)
from kfm.judge.intact import check_files
from kfm.model import (
    GONE,
    Books,
    Candidate,
    Denied,
    Evidence,
    Generation,
    Json,
    Reason,
    Verdict,
    ids,
)
from kfm.model.paths import dcat_path, prov_folder, prov_path, stac_folder, version_folder
from kfm.release.by_rule import candidate_of
from kfm.world.world import World

__all__ = ["check_version", "judge_official", "may_show", "policy_input"]


def check_version(
    world: World, dataset_id: str, generation: Generation, lifting: int | None = None
) -> None:
    """Raise `Denied` when an earlier version may not be shown on the policy and labels of now;
    `lifting`: a withdrawal that is being undone.
    """
    last: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    if lifting is not None:
        left = {name: by for name, by in last.suppressed.items() if by != str(lifting)}
        last = msgspec.structs.replace(last, suppressed=left)
    no = [
        r
        for v in judge_official(world, dataset_id, generation, last)
        for r in v.reasons
        if v.gate not in ("schema", "graph")
    ]
    if no:
        raise Denied(
            f"{generation.version_id} may not be official: {'; '.join(r.message for r in no)}",
            expected="a version that passes the gates of now",
            remedy=no[0].remedy,
        )


def may_show(world: World, head: Generation, candidate: Candidate) -> bool:
    """Whether what a withdrawal leaves of `head` may be shown: its catalogs and its signature are
    made here, and again when it is.

    What was looked through when it became official is not searched again, but a column that was not
    public then was never looked at.
    """
    dataset_id = head.dataset_id
    entry, described = world.registry(dataset_id), described_candidate(world, candidate, head, None)
    if entry is None or described is None:
        return False
    public = (
        read_facts(world.data, dataset_id, head.version_id).schema
        if head.version_id is not None
        else ()
    )
    leak: tuple[Reason, ...] | None = (
        None if {c.name for c in candidate.schema} - {c.name for c in public} else ()
    )
    found: dict[str, str | None] = dict(candidate.digests)
    records = version_records(world, entry, candidate, [])
    listed = candidate.digests | {p: ids.digest(raw) for p, raw in records.items()}
    signed, note = attested(world, lambda name: records[name], listed)
    prov = derived_prov(world, entry, head, candidate)
    catalog = catalog_reasons(
        world, described, prov_path(dataset_id, f"withdrawal_{head.generation + 1}"), prov, listed
    )
    evidence = evidence_of(
        world,
        candidate,
        found=found,
        before=None,
        leak=leak,
        catalog=catalog,
        attestation=signed,
        attestation_note=note,
        suppressed=head.suppressed.get(candidate.version_id),
    )
    return not any(
        r.code != "labels.show" for v in judge(world, evidence, candidate) for r in v.reasons
    )


def policy_input(world: World, dataset_id: str) -> Json | None:
    """What the policy is asked about the version that is official now; None when there is none."""
    head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    if head.version_id is None:
        return None
    evidence, candidate = _official_evidence(world, dataset_id, head, head)
    return asked_of(world, candidate, evidence)


def judge_official(
    world: World, dataset_id: str, head: Generation, last: Generation
) -> list[Verdict]:
    return judge(world, *_official_evidence(world, dataset_id, head, last))


def _official_evidence(
    world: World, dataset_id: str, head: Generation, last: Generation
) -> tuple[Evidence, Candidate]:
    """What there is to look at of a version that is or was official, and the version in the shape
    of a candidate.
    """
    facts = read_facts(world.data, dataset_id, str(head.version_id))
    candidate = official_candidate(dataset_id, head, facts)
    row = world.store.read(lambda tx: tx.runs.maker_of(dataset_id, head.version_id or ""))
    proposed = candidate_of(world, dataset_id, row.run_id) if row is not None else None
    # what a withdrawal left was judged when it was made
    leak: tuple[Reason, ...] | None = () if row is None else None
    if proposed is not None and row is not None and not check_files(world, row, None):
        candidate = msgspec.structs.replace(
            candidate, books=proposed.books, released=proposed.released
        )
        leak = load(world, row)[0].leak
    elif row is not None:
        candidate = msgspec.structs.replace(
            candidate, books=GONE, released=GONE if world.is_private(dataset_id) else None
        )
    else:  # for what a withdrawal left nothing was read
        candidate = msgspec.structs.replace(candidate, books=Books())
    data, records = _listing(world, head, candidate.artifacts)
    found = {
        p: getattr(world.data.stat(candidate.artifacts[p]["from"]), "digest", None) for p in data
    }
    folder = version_folder(dataset_id, head.version_id)
    signed, note = attested(world, lambda name: world.data.read(f"{folder}/{name}"), data | records)
    if head.generation == last.generation:
        shown = [stac_folder(dataset_id), prov_folder(dataset_id)]
        names = [dcat_path(dataset_id), *(p for folder in shown for p in world.data.names(folder))]
        files = {p: world.data.read(p) for p in names if world.data.exists(p)}
        catalog = [
            reason(*r) for r in check_records(files, shown_version(world, head), world.data.exists)
        ]
    else:  # what they would say of it
        path = prov_path(
            dataset_id, row.run_id if row is not None else f"withdrawal_{head.generation}"
        )
        prov = world.data.read(path) if world.data.exists(path) else None
        catalog = catalog_reasons(world, shown_version(world, head), path, prov, data | records)
    evidence = evidence_of(
        world,
        candidate,
        found=found,
        before=None,
        leak=leak,
        catalog=catalog,
        attestation=signed,
        attestation_note=note,
        suppressed=last.suppressed.get(str(head.version_id)),
    )
    return evidence, candidate


def _listing(
    world: World, head: Generation, artifacts: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """(data, records) as the folder lists them. Raises `IntegrityError` where it lists other files
    than the version has.
    """
    try:
        data, records = version_listing(world.data, head.dataset_id, str(head.version_id))
    except ValueError:
        data, records = {}, {}
    if set(data) != set(artifacts):
        of = f"{head.dataset_id}@{head.generation}"
        raise damaged("checksums.sha256", of, "each file that the version has")
    return data, records
