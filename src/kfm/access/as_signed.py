"""What the folder of a version lists and says of itself, held against what was signed. Its
generation names the digest of its data, its attestation every file; who changes some of them and
their digests has changed neither.
"""

from functools import partial
from typing import NamedTuple

from kfm.access.memory import recall
from kfm.access.references import Ref
from kfm.evidence.captures import parse_checksums
from kfm.evidence.version_records import facts_in
from kfm.judge.intact import check_vouched
from kfm.model import (
    ATTESTATION,
    Denied,
    IntegrityError,
    UsageError,
    VersionFacts,
    ids,
    is_record,
)
from kfm.model.paths import version_path
from kfm.world.world import World

__all__ = ["AsSigned", "as_signed", "damaged"]

_REMEDY = "Run `kfm verify`; restore it from a backup."


class AsSigned(NamedTuple):
    """What may be believed of a folder whose bytes nobody has looked at yet."""

    digests: dict[str, str]  # of every file
    facts: VersionFacts


def as_signed(world: World, ref: Ref) -> AsSigned:
    """What an official version consists of. Raises `IntegrityError`."""
    of = ("as signed", ref.dataset_id, ref.version_id, ref.version_digest)
    return recall(world, of, partial(_look, world, ref))


def _look(world: World, ref: Ref) -> AsSigned:
    raw = {name: _read(world, ref, name) for name in ("version.json", ATTESTATION)}
    try:
        listed = parse_checksums(_read(world, ref, "checksums.sha256"))
    except ValueError as error:
        raise damaged("checksums.sha256", ref, "each file with its digest") from error
    for name, found in raw.items():
        if ids.digest(found) != listed.get(name):
            raise damaged(name, ref, listed.get(name, "a line in checksums.sha256"))
    facts = facts_in(raw["version.json"], f"version.json of {_named(ref)}")
    data = {name: digest for name, digest in listed.items() if not is_record(name)}
    try:
        full = ids.version_digest(data, facts.transform_hash, facts.updater_version)
    except UsageError as error:
        raise damaged("checksums.sha256", ref, "names that files of a version have") from error
    if full != ref.version_digest:
        raise damaged("checksums.sha256", ref, "the files that its generation was signed for")
    others = {name: digest for name, digest in listed.items() if name != ATTESTATION}
    try:
        check_vouched(world, ref.dataset_id, ref.version_id, raw[ATTESTATION], others)
    except (Denied, IntegrityError) as error:
        raise IntegrityError(
            f"{ATTESTATION} of {_named(ref)} does not hold. {error.happened}",
            expected=error.expected,
            remedy=_REMEDY,
        ) from error
    return AsSigned(listed, facts)


def _read(world: World, ref: Ref, name: str) -> bytes:
    try:
        return world.data.read(version_path(ref.dataset_id, ref.version_id, name))
    except FileNotFoundError as error:
        raise damaged(name, ref, "a file of the version") from error


def damaged(name: str, text: object, expected: str) -> IntegrityError:
    """A file of a version is not what was signed."""
    of = _named(text) if isinstance(text, Ref) else text
    return IntegrityError(
        f"{name} of {of} is damaged.",
        expected=expected,
        remedy=_REMEDY,
    )


def _named(ref: Ref) -> str:
    return f"{ref.dataset_id}@{ref.generation}"
