"""discover: drafts for what catalogues offer and nobody has registered. A draft is a proposal to a person, never a publication."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from kfm import canonical
from kfm.acquire import offered
from kfm.errors import KfmError
from kfm.model import ids
from kfm.model.dataset import Catalogue, DatasetEntry
from kfm.world import World

__all__ = ["Draft", "drafts_in", "find_drafts", "read_draft"]

FOLDER = "work/_discovered"


class Offer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One resource a catalogue names; the child read it, so nothing in it is believed."""

    name: Annotated[str, msgspec.Meta(max_length=60)]
    url: Annotated[str, msgspec.Meta(max_length=2000)]
    kind: str
    format: str
    title: str
    description: str = ""
    licence: str = ""
    modified: str = ""
    options: dict[str, Any] = {}


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What `kfm discover` found, and what became of it."""

    dataset_id: str
    title: str
    source_url: str
    licence: str | None
    path: str  # of the folder with the draft, below data/
    new: bool  # False: the draft was there already


def find_drafts(world: World, catalogue: Catalogue, registered: Sequence[DatasetEntry]) -> list[Draft]:
    """Draft an entry for each offer of `catalogue` that is not registered; the same offer twice is one draft."""
    known = {(e.source.url, *(e.source.options.get("collections") or ())) for e in registered}
    found = []
    for offer in msgspec.convert(offered(world, catalogue.url, catalogue.kind, catalogue.hosts), list[Offer]):
        url = offer.url.partition("#")[0]
        if (url, *(offer.options.get("collections") or ())) in known or (catalogue.only and offer.name not in catalogue.only):
            continue
        found.append(_draft(world, catalogue, offer, url))
    return found


def _draft(world: World, catalogue: Catalogue, offer: Offer, url: str) -> Draft:
    dataset_id = f"{catalogue.prefix}{offer.name}" if offer.name[:1].isalpha() else f"{catalogue.prefix}d_{offer.name}"
    source: dict[str, Any] = {"kind": offer.kind, "url": url, "format": offer.format} | (
        {"options": offer.options} if offer.options else {}
    )
    entry = {"dataset_id": dataset_id, "title": offer.title, "description": offer.description, "source": source}
    entry |= {"licence": offer.licence} if offer.licence else {}
    record = {
        "@context": {"dcat": "http://www.w3.org/ns/dcat#", "dct": "http://purl.org/dc/terms/", "adms": "http://www.w3.org/ns/adms#"},
        "@id": f"kfm://dataset/{dataset_id}",
        "@type": "dcat:Dataset",
        "adms:status": "draft",
        "dct:title": offer.title,
        "dct:description": offer.description or offer.title,
        "dct:license": offer.licence or None,
        "dct:modified": offer.modified or None,
        "dct:source": catalogue.url,
        "dcat:distribution": [{"@type": "dcat:Distribution", "dcat:accessURL": url, "dct:format": offer.format}],
    }
    digest = ids.digest(canonical.dumps([entry, record]))
    folder = f"{FOLDER}/{dataset_id}/{digest.rpartition(':')[2][:16]}"
    plain = {k: v for k, v in record.items() if v is not None}
    world.data.create(f"{folder}/dcat.json", msgspec.json.format(canonical.dumps(plain), indent=2) + b"\n")  # the catalogue comes first
    new = world.data.create(f"{folder}/registry.json", msgspec.json.format(canonical.dumps(entry), indent=2) + b"\n")
    return Draft(dataset_id=dataset_id, title=offer.title, source_url=url, licence=offer.licence or None, path=folder, new=bool(new))


def drafts_in(world: World) -> dict[str, str]:
    """Every dataset with a draft -> the folder of its newest one by name."""
    found: dict[str, str] = {}
    for path in sorted(world.data.names(FOLDER)):
        if path.endswith("/registry.json"):
            folder = path.removesuffix("/registry.json")
            found[folder.removeprefix(FOLDER + "/").partition("/")[0]] = folder
    return found


def read_draft(world: World, dataset_id: str) -> dict[str, Any] | None:
    """The registry entry that was drafted for `dataset_id`."""
    folder = drafts_in(world).get(dataset_id)
    if folder is None:
        return None
    try:
        entry: dict[str, Any] = canonical.loads(world.data.read(f"{folder}/registry.json"))
    except (KfmError, OSError):
        return None
    return entry
