"""What the page of a version tells."""

import base64

from kfm.access.proofs import ProofFile
from kfm.data.history import history
from kfm.model import Json, KfmError, canonical, ids
from kfm.pages import addresses
from kfm.pages.dataset import File
from kfm.pages.gather.asks import Asks
from kfm.pages.version import Proved, Signed, VersionPage
from kfm.reader.versions import which_of
from kfm.upkeep.citation import quoted, receipt_of
from kfm.world.world import World

__all__ = ["version_page"]

_SHOWS = {
    "attestation": "how it was built, signed (in-toto, SLSA provenance)",
    "version": "what the version is: files, columns, profile",
    "dcat": "its catalog record (DCAT)",
    "stac": "its catalog record (STAC)",
    "generation": "that it is official: one link of the signed chain",
    "prov": "what it was made from, by what (PROV)",
    "approvals": "who agreed, signed",
    "made": "the generation it came with first",
    "checksums": "every file with its digest",
    "receipt": "what its run used, did and decided",
}


def version_page(asks: Asks, dataset_id: str, which: str) -> VersionPage:
    ref = asks.known(which_of(dataset_id, which))
    text = f"{dataset_id}@{ref.generation}"
    facts, opened = asks.facts(text), asks.folder(text)
    entry = asks.workspace.require(dataset_id)
    past = history(asks.world, dataset_id, asks.reader, 1_000_000)
    made = next((e for e in past.generations if e.generation == ref.generation), None)
    proofs = asks.asking.proofs(text)
    files = tuple(
        File(
            name=name,
            what=_SHOWS.get(name.removesuffix(".json"), "data"),
            bytes=path.stat().st_size if path.is_file() else None,
            digest=opened.digests[name],
            href=addresses.asset(dataset_id, ref.version_id, name),
        )
        for name, path in sorted(opened.files.items())
    )
    where = addresses.version(dataset_id, ref.version_id)
    return VersionPage(
        address=addresses.version(dataset_id, ref.version_id),
        title=f"{entry.title}, generation {ref.generation}",
        card=f"{asks.address}{addresses.card(dataset_id, ref.version_id)}",
        command=f"kfm verify {text}",
        dataset_id=dataset_id,
        dataset_title=entry.title,
        generation=ref.generation,
        version_id=ref.version_id,
        version_digest=ref.version_digest,
        label=entry.policy_label or entry.sensitivity,
        licence=entry.licence,
        rows=facts.rows,
        columns=len(facts.schema),
        entry=made,
        official=made is not None and made.official,
        files=files,
        documents=tuple(_documents(where, proofs.files, {f.name for f in files})),
        proved=Proved(
            version_digest=ref.version_digest,
            artifacts={name: said["digest"] for name, said in facts.artifacts.items()},
            transform_hash=facts.transform_hash,
            updater_version=facts.updater_version,
            signed=_signed(asks.world, dataset_id, ref.generation),
        ),
        receipt=receipt_of(asks.world, dataset_id, ref.version_id),
        run_id=made.run_id if made is not None else "",
        cite=quoted(asks.world, entry, ref).text(text).splitlines()[0],
    )


def _documents(where: str, found: dict[str, ProofFile], files: set[str]) -> list[File]:
    return [
        File(
            name=file.path.rpartition("/")[2],
            what=_SHOWS.get(name, name),
            bytes=len(file.raw),
            digest=ids.digest(file.raw),
            href=f"{where}/proofs/{name}",
        )
        for name, file in sorted(found.items())
        if f"{name}.json" not in files and name not in files
    ]


def _signed(world: World, dataset_id: str, generation: int) -> Signed | None:
    """The signature of a generation with the key it verifies under; None: under none that is known
    here.
    """
    trust = world.keys.trust()
    if trust is None:
        return None
    raw = world.data.read(world.channel(dataset_id).path(generation))
    try:
        key = trust.as_of(dataset_id, generation).verified_by(raw)[1]
    except KfmError:
        return None
    envelope: Json = canonical.loads(raw)
    signature = next(s["sig"] for s in envelope["signatures"] if s["keyid"] == key.keyid)
    return Signed(
        payload=envelope["payload"],
        payload_type=envelope["payloadType"],
        signature=signature,
        key=base64.b64encode(key.public).decode(),
        keyid=key.keyid,
        name=key.name,
        root=trust.fingerprint,
    )
