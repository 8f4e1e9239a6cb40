"""Front matter of documents that are released: what it has to tell, whether that is so, and how a
release fills it in.
"""

import datetime as dt
import itertools
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from kfm.model import Json, UsageError, ids
from kfm.model.paths import released_path
from kfm.upkeep.links import leads

__all__ = ["NEVER", "RELEASED", "Stamp", "checksum", "number", "read", "stamped", "untrue"]

NEVER = "unreleased"  # the version of a document that no release holds
_NONE = "none"
_HEAD = re.compile(r"\A---\n(.*?)\n---\n", re.S)
_SEALED = re.compile(r"^doc_integrity_checksum:.*$", re.M)
_HISTORY = re.compile(r"^## Version history\n\n\|.*\|\n\|[-|]+\|\n((?:\|.*\|\n?)*)", re.M)
_VERSION = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_UPDATER = """
    title path version last_updated review_cycle commit_sha sbom_ref manifest_ref telemetry_ref
    telemetry_schema governance_ref license mcp_version markdown_protocol_version status doc_kind
    intent fair_category care_label
"""
_RELIABILITY = """
    title path version last_updated release_stage lifecycle review_cycle content_stability
    backward_compatibility status doc_kind intent classification sensitivity fair_category
    care_label care_label_detail immutability_status accessibility_compliance jurisdiction
    ttl_policy sunset_policy commit_sha previous_version_hash doc_integrity_checksum sbom_ref
    manifest_ref attestation_ref signature_ref telemetry_ref telemetry_schema energy_schema
    carbon_schema governance_ref ethics_ref sovereignty_policy license mcp_version
    markdown_protocol_version ontology_protocol_version pipeline_contract_version
    semantic_document_id doc_uuid machine_extractable metadata_profiles provenance_chain
    provenance_requirements
"""
# what a release writes; people write the rest
_FILES = {
    "sbom_ref": "sbom.spdx.json",
    "manifest_ref": "manifest.zip",
    "attestation_ref": "slsa-attestation.json",
    "signature_ref": "signature.sig",
}
_STAMPED = {
    *_FILES, "telemetry_ref", "commit_sha", "previous_version_hash", "doc_integrity_checksum",
    "provenance_chain",
}  # fmt: skip


class _Kept(NamedTuple):
    keys: tuple[str, ...]
    telemetry: str  # the file of a release that tells how it went

    @property
    def files(self) -> dict[str, str]:
        return {**_FILES, "telemetry_ref": self.telemetry}


RELEASED = {
    "src/pipelines/updater/README.md": _Kept(tuple(_UPDATER.split()), "focus-telemetry.json"),
    "docs/pipelines/reliability/updaters/README.md": _Kept(
        tuple(_RELIABILITY.split()), "reliability-updaters-telemetry.json"
    ),
}


class Stamp(NamedTuple):
    """What a release says of itself in its documents."""

    version: str
    day: dt.date
    commit: str  # "" where there is no version control
    note: str


def number(version: object) -> tuple[int, int, int] | None:
    """A version as numbers that can be compared; None: it is none."""
    found = _VERSION.fullmatch(version) if isinstance(version, str) else None
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def read(text: str) -> Json | None:
    """The front matter of a document; None: it has none. Raises `yaml.YAMLError`."""
    if (block := _HEAD.match(text)) is None:
        return None
    found = yaml.safe_load(block[1])
    if not isinstance(found, dict):
        raise yaml.YAMLError("no list of keys")
    return found


def checksum(text: str) -> str:
    """The digest of a document, its own line left out."""
    return ids.digest(_SEALED.sub("doc_integrity_checksum:", text, count=1).encode())


# ---- written by a release ------------------------------------------------------------------------
def stamped(name: str, text: str, stamp: Stamp) -> str:
    """A document as a release has it. What this version was stamped before is stamped again, for
    the release was not finished then.
    """
    told = _own(name, text)
    chain = told.get("provenance_chain") or []
    again = told.get("version") == stamp.version
    if not again and told.get("version") != NEVER:
        past = {"version": told["version"], "checksum": told["doc_integrity_checksum"]}
        chain = [{**past, "manifest": _place(name, told["version"], "manifest.zip")}, *chain]
    files = RELEASED[name].files.items()
    told |= {
        "version": stamp.version,
        "last_updated": stamp.day.isoformat(),
        "commit_sha": stamp.commit or _NONE,
        "previous_version_hash": chain[0]["checksum"] if chain else _NONE,
        "provenance_chain": chain,
        **{key: _place(name, stamp.version, file) for key, file in files},
        "doc_integrity_checksum": "",
    }
    head = yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=4000)
    body = text[len(_HEAD.match(text)[0]) :]  # type: ignore[index]
    whole = f"---\n{head}---\n{body if again else _with_row(body, stamp)}"
    return _SEALED.sub(f"doc_integrity_checksum: {checksum(whole)}", whole, count=1)


def _own(name: str, text: str) -> Json:
    """The front matter of a page that can be released; what no release wrote is not taken for its
    past.
    """
    try:
        told = read(text) or {}
    except yaml.YAMLError:
        told = {}
    released = number(told.get("version")) and told.get("doc_integrity_checksum")
    if (told.get("version") == NEVER or released) and _HISTORY.search(text):
        return told
    raise UsageError(
        f"{name} cannot be stamped: its front matter or its version history is not what a release"
        " left.",
        expected=f"`version: {NEVER}` or what the last release wrote, and a table of versions",
        remedy=f"Bring the page back from {released_path('VERSION', 'manifest.zip')}, then release.",
    )


def _place(name: str, version: str, file: str) -> str:
    return os.path.relpath(released_path(version, file), Path(name).parent)


def _with_row(body: str, stamp: Stamp) -> str:
    note = " ".join(stamp.note.replace("|", "/").split())
    row = f"| {stamp.version} | {stamp.day} | {note} |\n"
    return _HISTORY.sub(lambda m: m[0][: m.start(1) - m.start()] + row + m[1], body, count=1)


# ---- asked of a document -------------------------------------------------------------------------
def untrue(root: Path, name: str, told: Mapping[str, object], text: str) -> Iterator[str]:
    """What is missing in a document that is released, or not so. One that never was has to tell
    what people write.
    """
    wanted = RELEASED[name].keys
    if told.get("version") == NEVER:
        yield from _missing(told, [key for key in wanted if key not in _STAMPED])
        return
    yield from _missing(told, [*wanted, "doc_integrity_checksum"])
    yield from _unresolved(root, name, told)
    if told.get("doc_integrity_checksum") != checksum(text):
        yield (
            f"it was changed since {told.get('version')}: its checksum is another;"
            " `kfm release make` a version that holds it"
        )
    yield from _chain(root, name, told)
    yield from _history(told, text)


def _missing(told: Mapping[str, object], keys: list[str]) -> Iterator[str]:
    for key in keys:
        if told.get(key) in (None, ""):
            yield f"its front matter has no {key}"
    if told.get("commit_sha") not in (None, _NONE) and not re.fullmatch(
        r"[0-9a-f]{40,64}", str(told["commit_sha"])
    ):
        yield "its commit_sha is no commit"


def _unresolved(root: Path, name: str, told: Mapping[str, object]) -> Iterator[str]:
    version = str(told.get("version"))
    for key, value in told.items():
        refers = key.endswith(("_ref", "_schema")) or key == "sovereignty_policy"
        if refers and (why := leads(root, root / name, str(value))):
            yield f"its {key} {value} {why}"
    for key, file in RELEASED[name].files.items():
        if key in told and told[key] != _place(name, version, file):
            yield f"its {key} is not the {file} of {version}"


def _chain(root: Path, name: str, told: Mapping[str, object]) -> Iterator[str]:
    """Every version before this one, newest first, each with the bytes it had."""
    chain = told.get("provenance_chain") or []
    if not isinstance(chain, list) or not all(isinstance(each, dict) for each in chain):
        yield "its provenance_chain is no list of versions"
        return
    numbers = [number(told.get("version")), *(number(each.get("version")) for each in chain)]
    known = [each for each in numbers if each is not None]
    if len(known) < len(numbers):
        yield "a version is not written vMAJOR.MINOR.PATCH"
    elif any(a <= b for a, b in itertools.pairwise(known)):
        yield "its provenance_chain is not newest first"
    if told.get("previous_version_hash") != (chain[0].get("checksum") if chain else _NONE):
        yield "its previous_version_hash is not that of the version before"
    for each in chain:
        if _held(root, name, each) != each.get("checksum"):
            yield f"{each.get('version')} is not in {each.get('manifest')} with its checksum"


def _held(root: Path, name: str, past: Json) -> str | None:
    """The checksum that the document has in an earlier release; None: it is not there."""
    place = root / Path(name).parent / str(past.get("manifest"))
    try:
        with zipfile.ZipFile(place) as packed:
            return checksum(packed.read(name).decode())
    except (OSError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def _history(told: Mapping[str, object], text: str) -> Iterator[str]:
    table = _HISTORY.search(text)
    rows = re.findall(r"^\| (\S+) \|", table[1], re.M) if table else []
    chain = told.get("provenance_chain")
    past = [each.get("version") for each in chain] if isinstance(chain, list) else []
    if rows != [told.get("version"), *past]:
        yield "its version history does not list its versions, newest first"
