"""Versions: what was official when, and everything that proves one."""

from typing import Annotated

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from kfm.access.boundary import Opened
from kfm.access.derived import tiles_of
from kfm.access.proofs import ProofFile, Proofs
from kfm.access.references import Ref
from kfm.evidence.append_times import appended_at
from kfm.model import Column, Generation, Json, VersionFacts, canonical, ids
from kfm.model.transform import ColumnProfile
from kfm.reader.datasets import File, files_of
from kfm.reader.door import Asking, Hidden
from kfm.reader.kinds import (
    APPROVALS,
    DCAT,
    ENVELOPE,
    FACTS,
    ITEM,
    JSON,
    PROV,
    RECEIPT,
    TEXT,
    Answers,
    part,
)
from kfm.reader.route import reads

__all__ = ["ROUTES", "Made", "Proof", "Version", "Versions", "proofs_told", "which_of"]

_VERSION = "/datasets/{dataset_id:str}/versions/{which:str}"
_PROOFS = (
    "approvals", "attestation", "checksums", "dcat", "generation", "made", "prov", "receipt", "stac",
    "version",
)  # fmt: skip
_RECORDS = {"anyOf": [ENVELOPE, APPROVALS, PROV, RECEIPT, DCAT, ITEM, FACTS]}


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A generation: what became official, how and when."""

    generation: int
    kind: str  # promote, rollback, withdraw, void
    at: str | None
    version_id: str
    version_digest: str
    rows: int
    official: bool
    run_id: str
    address: str
    signed: str  # where the signed generation is


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The channel of a dataset, newest first; what this viewer may not know of is left out."""

    dataset_id: str
    channel: str
    generations: list[Made]


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """A file that proves something of a version."""

    name: str
    digest: str
    size: int
    address: str
    keyids: tuple[str, ...] = ()  # who signed it, where it is signed


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version."""

    dataset_id: str
    title: str
    licence: str | None
    version_id: str
    version_digest: str
    generation: int
    kind: str
    at: str | None
    rows: int
    bbox: tuple[float, float, float, float] | None
    interval: tuple[str, str] | None
    columns: tuple[Column, ...]
    profile: dict[str, ColumnProfile]
    steps: tuple[Json, ...]
    files: list[File]
    proofs: list[Proof]
    links: dict[str, str | None]  # None: there are none


def which_of(dataset_id: str, which: str) -> str:
    """A reference of what an address names: `latest`, a generation, or `v` and digits."""
    return dataset_id if which == "latest" else f"{dataset_id}@{which}"


@reads("/datasets/{dataset_id:str}/versions", page="versions")
def versions(asking: Asking, dataset_id: str) -> Versions:
    """Every version that may be shown, newest first."""
    head = asking.known(dataset_id)
    return Versions(
        dataset_id=dataset_id,
        channel="official",
        generations=[
            _made(asking, made, facts, head) for made, facts in asking.versions(dataset_id)
        ],
    )


@reads(_VERSION, page="version")
def version(asking: Asking, dataset_id: str, which: str) -> Version:
    """One version, with its files and what proves it."""
    text = which_of(dataset_id, which)
    ref, facts = asking.facts(text)
    entry = asking.workspace.require(dataset_id)
    proofs = asking.proofs(text)
    return Version(
        dataset_id=dataset_id,
        title=entry.title,
        licence=entry.licence,
        version_id=ref.version_id,
        version_digest=ref.version_digest,
        generation=ref.generation,
        kind=proofs.made.kind,
        at=appended_at(asking.world, proofs.made),
        rows=facts.rows,
        bbox=facts.bbox,
        interval=facts.interval,
        columns=facts.schema,
        profile=facts.profile,
        steps=facts.steps,
        files=files_of(asking, ref, facts),
        proofs=proofs_told(asking, proofs),
        links=_links(asking, ref, proofs.opened),
    )


@reads(
    f"{_VERSION}/proofs/{{name:str}}", answers=Answers(kinds={JSON: _RECORDS, "text/plain": TEXT})
)
def proof(
    asking: Asking,
    dataset_id: str,
    which: str,
    name: Annotated[str, part("name", enum=list(_PROOFS))],
) -> Response[bytes]:
    """One file that proves it, byte for byte: the signed generation, the attestation, its checksums,
    where it comes from, who agreed, the receipt.
    """
    found = asking.proofs(which_of(dataset_id, which)).files.get(name)
    if found is None:
        raise Hidden
    kind = "application/json" if found.path.endswith(".json") else "text/plain"
    return Response(found.raw, media_type=kind, headers={"etag": f'"{ids.digest(found.raw)}"'})


def proofs_told(asking: Asking, proofs: Proofs) -> list[Proof]:
    """What proves a version, and where each file is had."""
    opened = proofs.opened
    base = f"{asking.address}/datasets/{opened.dataset_id}/versions/{opened.version_id}/proofs"
    return [
        Proof(
            name=name,
            digest=ids.digest(file.raw),
            size=len(file.raw),
            address=f"{base}/{name}",
            keyids=_keyids(file),
        )
        for name, file in sorted(proofs.files.items())
    ]


def _keyids(file: ProofFile) -> tuple[str, ...]:
    if not file.path.endswith(".json"):
        return ()
    signatures = canonical.loads(file.raw).get("signatures")
    return tuple(str(s.get("keyid")) for s in signatures) if isinstance(signatures, list) else ()


def _made(asking: Asking, made: Generation, facts: VersionFacts, head: Ref) -> Made:
    base = f"{asking.address}/datasets/{made.dataset_id}/versions/{made.generation}"
    return Made(
        generation=made.generation,
        kind=made.kind,
        at=appended_at(asking.world, made),
        version_id=str(made.version_id),
        version_digest=str(made.version_digest),
        rows=facts.rows,
        official=made.version_id == head.version_id,
        run_id=made.run_id,
        address=base,
        signed=f"{base}/proofs/generation",
    )


def _links(asking: Asking, ref: Ref, opened: Opened) -> dict[str, str | None]:
    """What leads on from a version; tiles were not made of every one."""
    base = f"{asking.address}/datasets/{ref.dataset_id}/versions/{ref.version_id}"
    names = ("rows", "cite", "story", "diff", "dcat", "prov", "openlineage", "lineage", "tiles")
    links: dict[str, str | None] = {name: f"{base}/{name}" for name in names}
    if tiles_of(asking.world, opened) is None:
        links["tiles"] = None
    return links


ROUTES: tuple[HTTPRouteHandler, ...] = (versions, version, proof)
