"""What was looked at and what was wrong; a folder against its own list."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kfm.evidence.captures import parse_checksums
from kfm.model import Denied, KfmError, is_record
from kfm.zones.base import Stored, Zone, hash_file

__all__ = [
    "Kind",
    "Verified",
    "kind_of",
    "note_unapproved",
    "note_uncompared",
    "note_unrecorded",
    "verify_folder",
    "verify_in_zone",
]


Kind = Literal["damaged", "missing", "extra"]


@dataclass
class Verified:
    """What was looked at and what was wrong."""

    versions: int = 0
    files: int = 0
    generations: int = 0
    problems: list[dict[str, str]] = field(default_factory=list)
    exit_code: int = 0  # 6: damaged; 3: only missing, expired or revoked
    notes: list[str] = field(default_factory=list)  # not wrong, but worth saying
    kinds: list[Kind] = field(default_factory=list)  # of each problem what is decided by

    def wrong(self, where: str, what: str, code: int = 6, kind: Kind = "damaged") -> None:
        self.problems.append({"where": where, "what": what})
        self.kinds.append(kind)
        self.exit_code = max(self.exit_code, code)


def kind_of(error: KfmError) -> Kind:
    """What befell something that cannot be opened: its key is not here, or it was changed."""
    return "missing" if isinstance(error, Denied) else "damaged"


def note_unrecorded(found: Verified, dataset_id: str, numbers: list[int]) -> None:
    """Say which generations nobody can count the approvals of."""
    if numbers:
        which = (
            f"generation {numbers[0]}"
            if len(numbers) == 1
            else f"{len(numbers)} generations, up to {numbers[-1]},"
        )
        found.notes.append(
            f"{which} of {dataset_id} {'was' if len(numbers) == 1 else 'were'} made before"
            " approvals were recorded"
        )


def note_uncompared(found: Verified, dataset_id: str, number: int, why: str) -> None:
    found.notes.append(
        f"that the withdrawal by generation {number} of {dataset_id} only took away was not"
        f" compared: {why}"
    )


def note_unapproved(found: Verified, dataset_id: str, number: int) -> None:
    found.notes.append(
        f"the version of generation {number} of {dataset_id} was left by a withdrawal that nobody"
        " else approved"
    )


def verify_folder(folder: Path, found: Verified, name: str = "") -> None:
    """A folder that lies in no zone against its checksums.sha256: every listed file intact, no file
    unlisted.
    """
    listing = folder / "checksums.sha256"
    present = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    raw = listing.read_bytes() if listing.is_file() else None
    _compare(
        raw,
        present,
        lambda path: hash_file(folder / path) if (folder / path).is_file() else None,
        found,
        name or folder.name,
    )


def verify_in_zone(zone: Zone, folder: str, found: Verified) -> None:
    """`verify_folder` through a zone, whatever it lies on."""
    listing = f"{folder}/checksums.sha256"
    present = {p.removeprefix(f"{folder}/") for p in zone.names(folder)}
    raw = zone.read(listing) if zone.exists(listing) else None
    _compare(raw, present, lambda path: zone.stat(f"{folder}/{path}"), found, folder)


def _compare(
    raw: bytes | None,
    present: set[str],
    stat: Callable[[str], Stored | None],
    found: Verified,
    name: str,
) -> None:
    if raw is None:
        found.wrong(name, "checksums.sha256 is missing", kind="missing")
        return
    try:
        listed = parse_checksums(raw)
    except (UnicodeDecodeError, ValueError):
        found.wrong(name, "checksums.sha256 is not readable")
        return
    for path, digest in listed.items():
        found.files += 1
        try:
            stored = stat(path)
        except KfmError as error:  # a name that leads elsewhere
            found.wrong(f"{name}/{path}", error.happened.rstrip("."))
            continue
        if stored is None:
            found.wrong(
                f"{name}/{path}", "listed, but missing", 3 if is_record(path) else 6, "missing"
            )
        elif stored.digest != digest:
            found.wrong(f"{name}/{path}", "its bytes do not match its digest")
    for path in sorted(present - {*listed, "checksums.sha256"}):
        found.wrong(f"{name}/{path}", "present, but not listed", kind="extra")
