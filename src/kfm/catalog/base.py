"""What every catalog record says about one version, in public words only, and the few helpers the
renderers share.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec

from kfm.model import Json, canonical
from kfm.model.origin import worded

__all__ = [
    "UNKNOWN",
    "Artifact",
    "Described",
    "contact",
    "geometry",
    "href",
    "known",
    "licence_iri",
    "lineage",
    "publisher",
    "rendered",
    "step_words",
]

UNKNOWN = "unknown custodian"
_STEP = ("id", "kind", "step", "discharges", "settings")
_SPDX = re.compile(r"(?!LicenseRef-)[A-Za-z0-9.+-]+")
_PERSON = re.compile(
    r"(?P<name>[^<>]*?)\s*<?(?P<address>[A-Za-z0-9.!$&'*+=~_-]+@[A-Za-z0-9.-]+\.[A-Za-z0-9-]+)>?"
)


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a version."""

    path: str  # below the version's folder
    digest: str  # "sha256:" and 64 hex digits
    size: int
    media_type: str
    columns: tuple[Json, ...] = ()  # {name, type, …}


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A version as catalogs may show it. All of it is public already; renderers add no time, count
    or digest of their own.
    """

    dataset_id: str
    title: str
    description: str
    owners: tuple[str, ...]  # "Name" or "Name <address>"
    custodian: str | None = None
    licence: str  # an SPDX id
    rights: str | None = None
    sensitivity: str
    policy_label: str
    care_label: str | None = None
    keywords: tuple[str, ...] = ()
    cadence: str | None = None
    version_id: str | None  # None: withdrawn, nothing is official
    version_digest: str | None
    generation: int | None
    previous: tuple[str, ...] = ()  # version ids, newest first
    artifacts: tuple[Artifact, ...]
    records: dict[str, str] = {}  # path below the version's folder ("dcat.json") -> digest
    # west, south, east, north; west > east: across the antimeridian
    bbox: tuple[float, float, float, float] | None = None
    interval: tuple[str, str] | None = None  # RFC 3339, of the data
    steps: tuple[Json, ...] = ()  # governed transforms: {kind, discharges, …settings}
    h3_resolution: int | None = None
    modified: str | None = None  # RFC 3339
    origin: tuple[str, ...] = ()  # how the data were obtained, unless live


def rendered(record: Mapping[str, object]) -> bytes:
    """The bytes of a record: the same record, the same bytes."""
    return canonical.dumps(dict(record)) + b"\n"


def known(members: Mapping[str, object]) -> Json:
    """`members` without those of which nothing is known."""
    return {name: value for name, value in members.items() if value is not None}


def href(path: str) -> str:
    """A path as part of an IRI: artifacts may have spaces, hashes and question marks in their
    names.
    """
    return quote(path, safe="/")


def licence_iri(licence: str) -> str:
    """SPDX gives an address to the licences it lists; an expression or a private licence has only
    ours.
    """
    return (
        f"https://spdx.org/licenses/{licence}"
        if _SPDX.fullmatch(licence)
        else f"kfm://licence/{quote(licence, safe='')}"
    )


def publisher(described: Described) -> str:
    """The name of who answers for the dataset."""
    answering = next((who for who in (described.custodian, *described.owners) if who), UNKNOWN)
    return worded(described.origin, _named(answering)[0])


def contact(described: Described) -> tuple[str, str] | None:
    """The first (name, address) that can be written to."""
    people = (_named(who) for who in (described.custodian, *described.owners) if who)
    return next(((name, address) for name, address in people if address), None)


def _named(who: str) -> tuple[str, str | None]:
    found = _PERSON.fullmatch(who.strip())
    return (found["name"] or found["address"], found["address"]) if found else (who, None)


def lineage(steps: Sequence[Json]) -> str:
    """The governed transforms in one paragraph."""
    if not steps:
        return "Read, checked and converted; no governed transform was applied."
    return (
        "Read, checked and converted, then: " + "; ".join(step_words(step) for step in steps) + "."
    )


def step_words(step: Json) -> str:
    """One governed transform: what it did, which obligation it discharged, with which settings."""
    settings = {name: value for name, value in step.items() if name not in _STEP} | (
        step.get("settings") or {}
    )
    said = [f"discharges {step['discharges']}"] if step.get("discharges") else []
    said += [f"{name} = {canonical.dumps(settings[name]).decode()}" for name in sorted(settings)]
    name = next(
        (str(step[key]) for key in ("kind", "step", "id") if step.get(key)), "an unnamed step"
    )
    return f"{name} ({', '.join(said)})" if said else name


def geometry(bbox: Sequence[float]) -> Json:
    """The box as GeoJSON: a point or a line when it has no area, in two parts when it crosses the
    antimeridian (RFC 7946, 3.1.9).
    """
    west, south, east, north = bbox
    if west > east and 180.0 in (west, -east):  # it touches the antimeridian and does not cross it
        west, east = (-180.0, east) if west == 180.0 else (west, 180.0)
    if west > east:
        parts = [geometry((west, south, 180.0, north)), geometry((-180.0, south, east, north))]
        return {
            "type": f"Multi{parts[0]['type']}",
            "coordinates": [part["coordinates"] for part in parts],
        }
    if west == east and south == north:
        return {"type": "Point", "coordinates": [west, south]}
    if west == east or south == north:
        return {"type": "LineString", "coordinates": [[west, south], [east, north]]}
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}
