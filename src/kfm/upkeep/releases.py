"""Releases: what runs in a workspace, signed under a version in `releases/<version>/`, and checked
without network.

The documents say which release holds them, so they are stamped first; the folder appears last, whole
or not at all. A release that was stopped in between is made by the same call.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from kfm.keys.attest import Verifier, check_attestation, provenance
from kfm.keys.trust import statement
from kfm.model import IntegrityError, Json, KfmError, StepFailed, UsageError, canonical, ids
from kfm.model.paths import released_folder, released_path
from kfm.upkeep.front_matter import RELEASED, Stamp, number, stamped
from kfm.upkeep.sbom import packages, sbom
from kfm.zones.durable import create_folder_durably, replace_durably

__all__ = ["BUILD", "Release", "check", "make", "released_files", "versions"]

BUILD = "kfm://build/release/v1"
_HOMES = ("apps", "docs", "pipelines", "policy", "schemas", "scripts", "src", "tools", "README.md")
_SBOM, _MANIFEST = "sbom.spdx.json", "manifest.zip"
_ATTESTATION, _SIGNATURE = "slsa-attestation.json", "signature.sig"


class Keys(Verifier, Protocol):
    """Who signs a release here."""

    @property
    def signer(self) -> str: ...
    def sign(self, document: Mapping[str, object]) -> bytes: ...


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a release."""

    status: str  # released, or already_released
    version: str
    files: dict[str, str]  # name -> digest


def versions(root: Path) -> list[str]:
    """The releases of a workspace, newest first."""
    folders = (root / released_folder("")).glob("v*")
    found = [(key, p.name) for p in folders if p.is_dir() and (key := number(p.name))]
    return [name for _, name in sorted(found, reverse=True)]


def released_files(root: Path) -> list[Path]:
    """What a release holds: code, documents, rules and schemas; nothing of data, keys or runs."""
    found = []
    for home in _HOMES:
        place = root / home
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            parts = path.relative_to(root).parts
            hidden = any(part.startswith((".", "__pycache__", "node_modules")) for part in parts)
            if path.is_file() and not path.is_symlink() and not hidden:
                found.append(path)
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


# ---- made ----------------------------------------------------------------------------------------
def make(root: Path, keys: Keys, stamp: Stamp, telemetry: Mapping[str, bytes]) -> Release:
    """Stamp the documents, then make the folder of a release."""
    before = versions(root)
    if stamp.version in before:
        return _again(root, stamp.version)
    _must_be_next(stamp.version, before)
    pages = {root / name: name for name in RELEASED if (root / name).is_file()}
    texts = {path: stamped(name, path.read_text(), stamp) for path, name in pages.items()}
    for path, text in texts.items():
        replace_durably(path, text.encode())
    content = {_SBOM: sbom(stamp.day), _MANIFEST: _manifest(root, stamp.version), **telemetry}
    content[_ATTESTATION] = keys.sign(_attested(content, keys.signer, stamp))
    content[_SIGNATURE] = keys.sign(_signed(content, stamp.version, _last(root, before)))
    _appear(root / released_folder(stamp.version), content)
    return Release(status="released", version=stamp.version, files=_digests(content))


def _appear(folder: Path, content: Mapping[str, bytes]) -> None:
    try:
        create_folder_durably(folder, content)
    except OSError as error:
        if not folder.exists():
            raise
        raise StepFailed(
            f"Another process released {folder.name} at the same moment.",
            expected="one release at a time",
            remedy="Run `kfm release check`, then release again if something is missing there.",
        ) from error


def _must_be_next(version: str, before: list[str]) -> None:
    mine, last = number(version), number(before[0]) if before else None
    if mine is None or (last is not None and mine <= last):
        raise UsageError(
            f"{version} cannot be released{f' after {before[0]}' if mine else ''}.",
            expected="vMAJOR.MINOR.PATCH" + (f" above {before[0]}" if before else ""),
            remedy="Name the next version.",
        )


def _again(root: Path, version: str) -> Release:
    content = _read(root, version)
    with zipfile.ZipFile(io.BytesIO(content[_MANIFEST])) as packed:
        differs = [
            n for n in packed.namelist() if n in RELEASED and _now(root, n) != packed.read(n)
        ]
    if differs:
        raise UsageError(
            f"{version} is released already, and {differs[0]} is another there.",
            expected="a release that stays what it is",
            remedy="Name the next version.",
        )
    return Release(status="already_released", version=version, files=_digests(content))


def _now(root: Path, name: str) -> bytes | None:
    path = root / name
    return path.read_bytes() if path.is_file() else None


def _manifest(root: Path, version: str) -> bytes:
    """The files and a list of them; the same files give the same bytes."""
    content = {p.relative_to(root).as_posix(): p.read_bytes() for p in released_files(root)}
    files = [{"path": n, "size": len(b), "digest": ids.digest(b)} for n, b in content.items()]
    listed = canonical.dumps({"version": version, "files": files})
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as file:
        for name, body in {"manifest.json": listed, **content}.items():
            about = zipfile.ZipInfo(name)  # a day in 1980, wherever and whenever it is made
            about.external_attr = 0o644 << 16
            file.writestr(about, body)
    return packed.getvalue()


def _attested(content: Mapping[str, bytes], signer: str, stamp: Stamp) -> Json:
    needs = [{"uri": f"pkg:pypi/{name}@{one.version}"} for name, one in packages().items()]
    commit = [{"uri": "git", "digest": {"gitCommit": stamp.commit}}] if stamp.commit else []
    document = provenance(
        _digests(content),
        parameters={"version": stamp.version, "day": stamp.day.isoformat()},
        dependencies=needs,
        builder={"id": f"kfm://builder/{signer}"},
        build=BUILD,
    )
    document["predicate"]["buildDefinition"]["resolvedDependencies"] += commit
    return document


def _signed(content: Mapping[str, bytes], version: str, last: str | None) -> Json:
    predicate = {"version": version, "files": _digests(content), "previous": last}
    digest = ids.digest(canonical.dumps(predicate)).removeprefix("sha256:")
    return statement("release", f"kfm://release/{version}", digest, predicate)


def _last(root: Path, before: list[str]) -> str | None:
    """The digest of the signature before, so that a key that is replaced later keeps its word."""
    return (
        ids.digest((root / released_path(before[0], _SIGNATURE)).read_bytes()) if before else None
    )


def _digests(content: Mapping[str, bytes]) -> dict[str, str]:
    return {name: ids.digest(body) for name, body in sorted(content.items())}


# ---- checked -------------------------------------------------------------------------------------
def check(root: Path, keys: Verifier) -> Iterator[tuple[str, str]]:
    """What is wrong with the releases here, newest first: version and why. Each vouches for the one
    before, so that one signed by a key that was replaced since still counts.
    """
    named: set[str | None] = set()
    for version in versions(root):
        try:
            signed = keys.verified_by(_read_one(root, version, _SIGNATURE), named=named)[0]
            named = {signed["predicate"].get("previous")}
            _check_one(root, version, keys, signed)
        except KfmError as error:
            yield version, error.happened


def _check_one(root: Path, version: str, keys: Verifier, signed: Json) -> None:
    content, told = _read(root, version), signed["predicate"]
    found = {name: digest for name, digest in _digests(content).items() if name != _SIGNATURE}
    if signed["predicateType"] != "kfm://predicate/release/v1" or told.get("version") != version:
        raise _bad(f"{_SIGNATURE} is of another release")
    for name in sorted({*found, *told["files"]}):
        if found.get(name) != told["files"].get(name):
            raise _bad(f"{name} is not what was signed")
    subjects = {name: digest for name, digest in found.items() if name != _ATTESTATION}
    check_attestation(
        content[_ATTESTATION], keys, subjects, named={found[_ATTESTATION]}, build=BUILD
    )
    _check_manifest(content[_MANIFEST])


def _check_manifest(raw: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as packed:
            listed = canonical.loads(packed.read("manifest.json"))["files"]
            found = {n: packed.read(n) for n in packed.namelist() if n != "manifest.json"}
    except (zipfile.BadZipFile, KeyError) as error:
        raise _bad(f"{_MANIFEST} cannot be read") from error
    if {each["path"]: each["digest"] for each in listed} != _digests(found):
        raise _bad(f"{_MANIFEST} does not hold what it lists")


def _read(root: Path, version: str) -> dict[str, bytes]:
    folder = root / released_folder(version)
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    for name in (_SBOM, _MANIFEST, _ATTESTATION, _SIGNATURE):
        if name not in found:
            raise _bad(f"{name} is missing")
    return found


def _read_one(root: Path, version: str, name: str) -> bytes:
    try:
        return (root / released_path(version, name)).read_bytes()
    except OSError as error:
        raise _bad(f"{name} is missing") from error


def _bad(why: str) -> IntegrityError:
    return IntegrityError(
        f"The release does not hold: {why}.",
        expected="the files that were signed",
        remedy="Restore the folder from version control or a backup.",
    )
