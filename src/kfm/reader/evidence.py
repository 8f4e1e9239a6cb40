"""The evidence resolver: any name or digest leads to what proves it, as far as this viewer may know."""

import re
from collections.abc import Iterator
from contextlib import suppress

import msgspec
from litestar.handlers import HTTPRouteHandler

from kfm.model import LedgerRow, ids
from kfm.reader.datasets import File, files_of
from kfm.reader.door import LEFT_OUT, Asking, Hidden
from kfm.reader.route import reads
from kfm.reader.versions import Proof, proofs_told

__all__ = ["ROUTES", "Evidence"]

_RUN = re.compile(r"(?:run_)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_DIGEST = re.compile(r"(?:sha256:|1220)?([0-9a-f]{64})")
_VERSION = re.compile(r"v[0-9a-f]{8,32}")
_REF = re.compile(r"[a-z][a-z0-9_]{0,62}(?:@[A-Za-z0-9]+)?")


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a name or a digest stands for, and what proves it."""

    asked: str
    what: str  # version, file, proof or run
    name: str  # of the file or proof; else empty
    dataset_id: str
    version_id: str
    version_digest: str
    generation: int
    run_id: str
    catalog: str
    files: list[File]
    proofs: list[Proof]  # the receipt is one of them


@reads("/evidence/{asked:path}", page="evidence")
def evidence(asking: Asking, asked: str) -> Evidence:
    """What proves it: a dataset, a version, a run, a file or proof by its digest."""
    text = str(asked).removeprefix("/").removeprefix("kfm:/").removeprefix("/")
    text = text.removeprefix("dataset/").partition("/")[0]
    if found := _RUN.fullmatch(text):
        return _of(asking, text, "run", "", _run_ref(asking, found[1]))
    if found := _DIGEST.fullmatch(text):
        return _by_digest(asking, text, f"sha256:{found[1]}")
    if _VERSION.fullmatch(text):
        return _of(asking, text, "version", "", _version_ref(asking, text))
    if _REF.fullmatch(text):
        return _of(asking, text, "version", "", text)
    raise Hidden


def _run_ref(asking: Asking, run_id: str) -> str:
    row: LedgerRow | None = asking.world.store.read(lambda tx: tx.runs.get(run_id))
    if row is None or row.version_id is None:
        raise Hidden
    return f"{row.dataset_id}@{row.version_id}"


def _version_ref(asking: Asking, version_id: str) -> str:
    for ref, found, _ in _versions(asking):
        if found.startswith(version_id):
            return ref
    raise Hidden


def _versions(asking: Asking) -> Iterator[tuple[str, str, str]]:
    """(reference, version, its digest) of every version that may be known of."""
    for entry, _, _ in asking.datasets():
        for made, _ in asking.versions(entry.dataset_id):
            ref = f"{entry.dataset_id}@{made.generation}"
            yield ref, str(made.version_id), str(made.version_digest)


def _by_digest(asking: Asking, asked: str, digest: str) -> Evidence:
    asking.limit_time()
    for ref, _, version_digest in _versions(asking):
        if f"sha256:{version_digest.removeprefix('sha256:')}" == digest:
            return _of(asking, asked, "version", "", ref)
        with suppress(*LEFT_OUT):
            proofs = asking.proofs(ref)
            for name, listed in proofs.opened.digests.items():
                if listed == digest:
                    return _of(asking, asked, "file", name, ref)
            for name, file in proofs.files.items():
                if ids.digest(file.raw) == digest:
                    return _of(asking, asked, "proof", name, ref)
    raise Hidden


def _of(asking: Asking, asked: str, what: str, name: str, text: str) -> Evidence:
    ref, facts = asking.facts(text)
    proofs = asking.proofs(f"{ref.dataset_id}@{ref.generation}")
    base = f"{asking.address}/datasets/{ref.dataset_id}/versions/{ref.version_id}"
    return Evidence(
        asked=asked,
        what=what,
        name=name,
        dataset_id=ref.dataset_id,
        version_id=ref.version_id,
        version_digest=f"sha256:{ref.version_digest.removeprefix('sha256:')}",
        generation=ref.generation,
        run_id=proofs.made.run_id,
        catalog=f"{base}/dcat",
        files=files_of(asking, ref, facts),
        proofs=proofs_told(asking, proofs),
    )


ROUTES: tuple[HTTPRouteHandler, ...] = (evidence,)
