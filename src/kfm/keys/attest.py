"""Attestations: SLSA provenance of a version, made and checked."""

from collections.abc import Container, Mapping, Sequence
from typing import Protocol

from kfm.keys.trust import STATEMENT_TYPE, TrustedKey
from kfm.model import IntegrityError, Json

__all__ = ["Verifier", "check_attestation", "provenance"]

SLSA, BUILD_TYPE = "https://slsa.dev/provenance/v1", "kfm://build/version/v1"


class Verifier(Protocol):
    """Whoever can say which key signed something: a key folder, or a root by itself."""

    def verified_by(
        self, raw: bytes, role: str = "builder", *, named: Container[str | None] = ()
    ) -> tuple[Json, TrustedKey]: ...


def provenance(
    subjects: Mapping[str, str],
    *,
    parameters: Mapping[str, object],
    dependencies: Sequence[Mapping[str, object]],
    builder: Mapping[str, object],
    build: str = BUILD_TYPE,
) -> Json:
    """SLSA provenance of a version, or what else `build` makes: what was asked, of what, by whom;
    the same for every run that makes the same version.
    """
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": d.removeprefix("sha256:")}}
            for name, d in sorted(subjects.items())
        ],
        "predicateType": SLSA,
        "predicate": {
            "buildDefinition": {
                "buildType": build,
                "externalParameters": dict(parameters),
                "resolvedDependencies": [_dependency(d) for d in dependencies],
            },
            "runDetails": {"builder": dict(builder)},
        },
    }


def _dependency(found: Mapping[str, object]) -> Json:
    """A resource descriptor: {uri, digest} by its digest, {uri, commitment} by what stands for it
    in public; and how it was obtained.
    """
    digest, more = (
        found.get("digest"),
        {k: found[k] for k in ("commitment", "origin") if k in found},
    )
    rest = {k: v for k, v in found.items() if k not in ("digest", *more)}
    rest |= (
        {"digest": {"sha256": digest.removeprefix("sha256:")}} if isinstance(digest, str) else {}
    )
    return rest | ({"annotations": more} if more else {})


def check_attestation(
    raw: bytes,
    keys: Verifier,
    expected: Mapping[str, str],
    named: Container[str | None] = (),
    build: str = BUILD_TYPE,
) -> Json:
    """The provenance inside `raw`: signed by the builder it names, about exactly the files
    `expected` (path -> digest).

    `named`: digests that a generation vouches for, whatever became of the key since.
    """
    document, signer = keys.verified_by(raw, "builder", named=named)
    try:
        kind, by = (
            document["predicate"]["buildDefinition"]["buildType"],
            document["predicate"]["runDetails"]["builder"]["id"],
        )
        listed = [(s["name"], "sha256:" + s["digest"]["sha256"]) for s in document["subject"]]
    except (KeyError, TypeError) as error:
        raise _attested("it is no SLSA provenance") from error
    if document.get("predicateType") != SLSA or kind != build:
        raise _attested(f"it is a {document.get('predicateType')} of {kind}")
    if by != f"kfm://builder/{signer.keyid}":
        raise _attested(f"it names the builder {by} and {signer.keyid} signed it")
    found, wanted = (
        dict(listed),
        {p: "sha256:" + d.removeprefix("sha256:") for p, d in expected.items()},
    )
    if len(found) != len(listed):
        raise _attested("it names a file twice")
    for path in sorted({*found, *wanted}):
        if found.get(path) != wanted.get(path):
            why = (
                "it does not name"
                if path not in found
                else "it also names"
                if path not in wanted
                else "it has another digest for"
            )
            raise _attested(f"{why} {path}")
    return document


def _attested(why: str) -> IntegrityError:
    return IntegrityError(
        f"The attestation does not hold: {why}.",
        expected="provenance of exactly the files of this version, by its signer",
        remedy="Run `kfm verify`; restore the version from a backup or a mirror.",
    )
