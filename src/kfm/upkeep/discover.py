"""discover: drafts for what catalogues offer and nobody has registered. A draft is a proposal to a
person, never a publication.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import unquote_plus

import msgspec

from kfm.connectors.base import plain
from kfm.fetch.url import canonical_url, find_inline_secret, is_reference, parse_url
from kfm.model import Catalogue, DatasetEntry, Json, KfmError, UsageError, canonical, ids
from kfm.run.ask import offered
from kfm.world.world import World

__all__ = ["Draft", "LeftOut", "drafts_in", "find_drafts", "read_draft", "usable_address"]

FOLDER = "work/_discovered"


class Offer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One resource a catalogue names; the child read it, so nothing in it is believed."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-z0-9_]{0,60}$")]
    url: Annotated[str, msgspec.Meta(max_length=2000)]
    kind: Literal["http_file", "stac", "arcgis"]
    format: Literal["csv", "json", "geojson"]
    title: str
    description: str = ""
    licence: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9.+-]{0,40}$")] = ""
    modified: str = ""
    options: Json = {}


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What `kfm discover` found, and what became of it."""

    dataset_id: str
    title: str
    source_url: str
    licence: str | None
    path: str  # of the folder with the draft, below data/
    new: bool  # False: the draft was there already


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """An offer whose address nobody should adopt; the address itself is not repeated."""

    name: str
    why: str


def find_drafts(
    world: World, catalogue: Catalogue, registered: Sequence[DatasetEntry]
) -> tuple[list[Draft], list[LeftOut]]:
    """Draft an entry for each offer of `catalogue` that is not registered; the same offer twice is
    one draft.
    """
    known = {(e.source.url, *(e.source.options.get("collections") or ())) for e in registered}
    offers = msgspec.convert(
        offered(world, catalogue.url, catalogue.kind, catalogue.hosts), list[Offer]
    )
    wanted, drafted, taken = (
        Counter(_plain_id(catalogue, o) for o in offers),
        drafts_in(world),
        {e.dataset_id for e in registered},
    )
    found, left_out = [], []
    for offer in offers:
        if catalogue.only and offer.name not in catalogue.only:
            continue
        try:
            url = usable_address(offer.url)
        except UsageError as error:
            left_out.append(LeftOut(name=offer.name or "no name", why=error.happened))
            continue
        more = tuple(offer.options.get("collections") or ())
        if not {(url, *more), (offer.url.partition("#")[0], *more)} & known:
            dataset_id = _plain_id(catalogue, offer)
            drafted_for_another = _is_another(world, drafted.get(dataset_id), offer, url)
            if (
                not offer.name
                or wanted[dataset_id] > 1
                or dataset_id in taken
                or drafted_for_another
            ):
                # means this offer alone, today and the next time
                mark = ids.digest(canonical.dumps([url, offer.options]))[-64:][:8]
                dataset_id = f"{dataset_id[:54]}_{mark}"
            found.append(_draft(world, catalogue, offer, url, dataset_id))
    return found, left_out


def usable_address(url: str) -> str:
    """The one spelling of an address a catalogue names; whoever wrote the catalogue may lead us to
    a web address and nowhere else.

    Raises `UsageError` for a file, a secret, a placeholder, or a reference: that would be looked
    up, or run, with the next fetch.
    """
    url = url.partition("#")[0]
    if any(
        is_reference(unquote_plus(field.partition("=")[2]))
        for field in (parse_url(url).query or "").split("&")
    ):
        raise UsageError(
            "The address refers to a secret of ours.",
            expected="a plain web address",
            remedy="Ask whoever keeps the catalogue.",
        )
    if "{" in url or "}" in url:
        raise UsageError(
            "The address has a placeholder.",
            expected="a plain web address",
            remedy="Register it by hand.",
        )
    find_inline_secret(url)
    return canonical_url(url)


def _plain_id(catalogue: Catalogue, offer: Offer) -> str:
    name = offer.name if offer.name[:1].isalpha() else f"d_{offer.name}"
    return f"{catalogue.prefix}{name}"[:63].rstrip("_")


def _is_another(world: World, folder: str | None, offer: Offer, url: str) -> bool:
    """Whether the draft in `folder` is of another resource."""
    entry = _entry(world, folder) if folder is not None else None
    return entry is not None and (entry["source"]["url"], entry["source"].get("options", {})) != (
        url,
        offer.options,
    )


def _draft(world: World, catalogue: Catalogue, offer: Offer, url: str, dataset_id: str) -> Draft:
    title, description = plain(offer.title), plain(offer.description)
    source: Json = {"kind": offer.kind, "url": url, "format": offer.format} | (
        {"options": offer.options} if offer.options else {}
    )
    entry = {"dataset_id": dataset_id, "title": title, "description": description, "source": source}
    entry |= {"licence": offer.licence} if offer.licence else {}
    record = {
        "@context": {
            "dcat": "http://www.w3.org/ns/dcat#",
            "dct": "http://purl.org/dc/terms/",
            "adms": "http://www.w3.org/ns/adms#",
        },
        "@id": f"kfm://dataset/{dataset_id}",
        "@type": "dcat:Dataset",
        "adms:status": "draft",
        "dct:title": title,
        "dct:description": description or title,
        "dct:license": offer.licence or None,
        "dct:modified": offer.modified or None,
        "dct:source": catalogue.url,
        "dcat:distribution": [
            {"@type": "dcat:Distribution", "dcat:accessURL": url, "dct:format": offer.format}
        ],
    }
    digest = ids.digest(canonical.dumps([entry, record]))
    folder = f"{FOLDER}/{dataset_id}/{digest.rpartition(':')[2][:16]}"
    said = {k: v for k, v in record.items() if v is not None}
    # the catalogue comes first
    world.data.create(
        f"{folder}/dcat.json", msgspec.json.format(canonical.dumps(said), indent=2) + b"\n"
    )
    new = world.data.create(
        f"{folder}/registry.json", msgspec.json.format(canonical.dumps(entry), indent=2) + b"\n"
    )
    return Draft(
        dataset_id=dataset_id,
        title=title,
        source_url=url,
        licence=offer.licence or None,
        path=folder,
        new=bool(new),
    )


def drafts_in(world: World) -> dict[str, str]:
    """Every dataset with a draft -> the folder of its newest one by name."""
    found: dict[str, str] = {}
    for path in sorted(world.data.names(FOLDER)):
        if path.endswith("/registry.json"):
            folder = path.removesuffix("/registry.json")
            found[folder.removeprefix(FOLDER + "/").partition("/")[0]] = folder
    return found


def read_draft(world: World, dataset_id: str) -> Json | None:
    """The registry entry that was drafted for `dataset_id`."""
    folder = drafts_in(world).get(dataset_id)
    return None if folder is None else _entry(world, folder)


def _entry(world: World, folder: str) -> Json | None:
    try:
        entry: Json = canonical.loads(world.data.read(f"{folder}/registry.json"))
    except (KfmError, OSError):
        return None
    return entry
