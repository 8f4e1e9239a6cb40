"""The catalog records of a dataset, checked alone, against each other and against what they point
at.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from kfm.catalog.base import Described, geometry, href, licence_iri
from kfm.catalog.prov import prov_load, undeclared
from kfm.catalog.stac import stac_licence
from kfm.model import Json, UsageError, canonical
from kfm.model.paths import (
    collection_path,
    dcat_path,
    item_path,
    items_folder,
    prov_folder,
    stac_folder,
    version_folder,
    versions_folder,
)

__all__ = ["Finding", "check_records"]

Finding = tuple[str, str, str]  # code, message, remedy
AGAIN = "Run `kfm doctor --fix`: it renders the catalogs again."
RESTORE = (
    "Run `kfm doctor --fix`: it renders the catalogs again; `kfm verify` names a version that is"
    " gone."
)
REMOVE = "Run `kfm doctor --fix`: it removes what no longer belongs to the dataset."
Digits = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,16}$")]


class Named(msgspec.Struct):
    name: str


class Checksum(msgspec.Struct):
    checksumValue: str
    algorithm: Literal["spdx:checksumAlgorithm_sha256"]


class Distribution(
    msgspec.Struct, rename={"download": "dcat:downloadURL", "access": "dcat:accessURL"}
):
    title: str
    license: str
    mediaType: str
    byteSize: Digits
    download: str
    access: str
    checksum: Checksum


class About(msgspec.Struct, rename={"id": "@id"}):
    id: str


class Location(msgspec.Struct):
    bbox: str


class Dcat(
    msgspec.Struct,
    rename={
        "context": "@context",
        "id": "@id",
        "type": "@type",
        "included": "@included",
        "generation": "kfm:generation",
        "previous": "dcat:previousVersion",
        "records": "kfm:record",
    },
):
    context: Json
    id: str
    type: Literal["dcat:Dataset"]
    identifier: str
    title: str
    description: str
    publisher: Named
    license: str
    accessRights: str
    distribution: list[Distribution]
    generation: int
    version: str | None = None
    previous: str | None = None
    included: list[Json] = []
    records: list[About] = []
    spatial: Location | None = None


class Link(msgspec.Struct):
    rel: str
    href: str


class Asset(msgspec.Struct, rename={"checksum": "file:checksum", "size": "file:size"}):
    href: str
    checksum: str | None = None
    size: int | None = None
    roles: list[str] = []


class Properties(msgspec.Struct):
    datetime: str | None  # required, also when null
    start_datetime: str | None = None
    end_datetime: str | None = None
    license: str | None = None
    version: str | None = None


class Item(msgspec.Struct):
    type: Literal["Feature"]
    stac_version: Literal["1.0.0", "1.1.0"]
    id: str
    geometry: Json
    bbox: list[float]
    properties: Properties
    links: list[Link]
    assets: dict[str, Asset]
    collection: str


class Spatial(msgspec.Struct):
    bbox: list[list[float]]


class Temporal(msgspec.Struct):
    interval: list[tuple[str | None, str | None]]


class Extent(msgspec.Struct):
    spatial: Spatial
    temporal: Temporal


class Collection(msgspec.Struct, rename={"generation": "kfm:generation"}):
    type: Literal["Collection"]
    stac_version: Literal["1.0.0", "1.1.0"]
    id: str
    description: str
    license: str
    extent: Extent
    links: list[Link]
    generation: int
    version: str | None = None


Record = Dcat | Item | Collection


def check_records(
    files: Mapping[str, bytes], described: Described, exists: Callable[[str], bool]
) -> list[Finding]:
    """Every finding about the records in `files` (path below data/ -> bytes); `exists` answers for
    what else lies below data/.
    """
    d = described
    expected: dict[str, type[Record]] = {dcat_path(d.dataset_id): Dcat}
    if d.bbox is not None and d.version_id is not None:
        expected |= {
            collection_path(d.dataset_id): Collection,
            item_path(d.dataset_id, d.version_id): Item,
        }
    found = [
        ("catalog.missing", f"{path} is missing.", AGAIN) for path in expected if path not in files
    ]
    for path in sorted(files):
        older = (
            Item
            if Item in expected.values() and path.startswith(items_folder(d.dataset_id) + "/")
            else None
        )
        shape = expected.get(path, older)
        if shape is not None:
            found += _judged(path, shape, files, d, exists)
    return [*found, *_unexpected(files, d, exists), *_provenance(files, d)]


def _judged(
    path: str,
    shape: type[Record],
    files: Mapping[str, bytes],
    d: Described,
    exists: Callable[[str], bool],
) -> Iterator[Finding]:
    """The findings about one DCAT or STAC record."""
    try:
        record = msgspec.convert(canonical.loads(files[path]), shape)
    except (UsageError, msgspec.ValidationError) as error:
        yield "catalog.invalid", f"{path} is not valid: {error}", AGAIN
        return
    if isinstance(record, Item):
        times = record.properties
        if times.datetime is None and not (times.start_datetime and times.end_datetime):
            yield (
                "catalog.invalid",
                (
                    f"{path} is not valid: no start and end in place of `datetime` - at"
                    " `$.properties.start_datetime`"
                ),
                AGAIN,
            )
    elif record.generation != d.generation:
        yield (
            "catalog.stale",
            (
                f"{path} was rendered from generation {record.generation}; the head is generation"
                f" {d.generation}."
            ),
            AGAIN,
        )
    # an older item speaks of an older version
    if not isinstance(record, Item) or path == item_path(d.dataset_id, str(d.version_id)):
        yield from _disagreements(path, _facts(record, path, d))
    for target in _targets(record, path):
        outside = target.startswith(("..", "/"))
        if outside or (target not in files and not exists(target)):
            yield "catalog.dangling", f"{path} points at {target}, and nothing is there.", RESTORE


def _unexpected(
    files: Mapping[str, bytes], d: Described, exists: Callable[[str], bool]
) -> Iterator[Finding]:
    if d.bbox is None:
        stac = {path for path in files if path.startswith(stac_folder(d.dataset_id) + "/")}
        if exists(collection_path(d.dataset_id)):
            stac.add(collection_path(d.dataset_id))
        for path in sorted(stac):
            yield (
                "catalog.unexpected",
                f"{path} is there, though {d.dataset_id} has no place.",
                REMOVE,
            )


def _provenance(files: Mapping[str, bytes], d: Described) -> Iterator[Finding]:
    """The findings about the PROV records; those of other versions are read, too, but not
    compared.
    """
    folder, version = prov_folder(d.dataset_id) + "/", f"dataset:{d.dataset_id}@{d.version_id}"
    paths = [path for path in sorted(files) if path.startswith(folder)]
    if not paths:
        yield "catalog.missing", f"{folder}run_….json is missing.", AGAIN
    spoken_of = False
    for path in paths:
        try:
            document = prov_load(files[path], whole=True)
        except UsageError as error:
            yield (
                "catalog.invalid",
                f"{path} is not valid: {error.happened} Expected {error.expected}.",
                AGAIN,
            )
            spoken_of = True  # perhaps; one finding for one fault is enough
            continue
        for name in sorted(undeclared(document)):
            yield (
                "catalog.dangling",
                f"{path} speaks of {name}, and does not say what it is.",
                AGAIN,
            )
        entities = {
            name: entity
            for name, entity in document.get("entity", {}).items()
            if isinstance(entity, dict)
        }
        if "kfm:versionDigest" in entities.get(version, {}):
            spoken_of = True
            yield from _disagreements(path, _prov_facts(entities, version, d))
    if paths and not spoken_of and d.version_id is not None:
        yield (
            "catalog.mismatch",
            f"No record in {folder} says how version {d.version_id} was made.",
            AGAIN,
        )


Fact = tuple[str, object, object]  # of what, as the record has it, as the version has it


def _disagreements(path: str, facts: Iterator[Fact]) -> Iterator[Finding]:
    for what, said, true in facts:
        if said != true:
            yield (
                "catalog.mismatch",
                f"{path} gives {said} as {what}; the version has {true}.",
                AGAIN,
            )


def _facts(record: Record, path: str, d: Described) -> Iterator[Fact]:
    if isinstance(record, Dcat):
        return _dcat_facts(record, path, d)
    return (
        _item_facts(record, path, d) if isinstance(record, Item) else _collection_facts(record, d)
    )


def _dcat_facts(record: Dcat, path: str, d: Described) -> Iterator[Fact]:
    yield "dataset", record.identifier, d.dataset_id
    yield "version", record.version, d.version_id
    yield (
        "previous versions",
        [_version_of(iri) for iri in _previous(record)],
        list(dict.fromkeys(d.previous)),
    )
    for licence in [
        record.license,
        *(distribution.license for distribution in record.distribution),
    ]:
        yield "licence", licence, licence_iri(d.licence)
    yield (
        "bounding box",
        record.spatial and record.spatial.bbox,
        canonical.dumps(geometry(d.bbox)).decode() if d.bbox else None,
    )
    said = {
        _target(path, x.download): (f"sha256:{x.checksum.checksumValue}", int(x.byteSize))
        for x in record.distribution
    }
    yield from _artifact_facts(said, d)


def _item_facts(record: Item, path: str, d: Described) -> Iterator[Fact]:
    yield "dataset", record.collection, d.dataset_id
    yield "version", record.id, d.version_id
    yield "version", record.properties.version, d.version_id
    yield "licence", record.properties.license, stac_licence(d)
    yield "bounding box", record.bbox, list(d.bbox or ())
    yield "geometry", record.geometry, geometry(d.bbox) if d.bbox else None
    data = [asset for asset in record.assets.values() if "metadata" not in asset.roles]
    said = {
        _target(path, a.href): (f"sha256:{(a.checksum or '').removeprefix('1220')}", a.size)
        for a in data
    }
    yield from _artifact_facts(said, d)


def _collection_facts(record: Collection, d: Described) -> Iterator[Fact]:
    yield "dataset", record.id, d.dataset_id
    yield "version", record.version, d.version_id
    yield "licence", record.license, stac_licence(d)
    yield "bounding box", record.extent.spatial.bbox[:1], [list(d.bbox or ())]


def _prov_facts(entities: Mapping[str, Json], version: str, d: Described) -> Iterator[Fact]:
    yield "version digest", entities[version]["kfm:versionDigest"], d.version_digest
    said = {
        name: entity.get("kfm:digest")
        for name, entity in entities.items()
        if name.startswith(f"{version}/")
    }
    true = {f"{version}/{href(artifact.path)}": artifact.digest for artifact in d.artifacts}
    for name in sorted(said.keys() | true.keys()):
        yield f"digest of {name}", said.get(name), true.get(name)


def _artifact_facts(said: Mapping[str, object], d: Described) -> Iterator[Fact]:
    true = {
        f"{version_folder(d.dataset_id, d.version_id)}/{artifact.path}": (
            artifact.digest,
            artifact.size,
        )
        for artifact in d.artifacts
    }
    for name in sorted(said.keys() | true.keys()):
        yield f"digest and size of {name}", said.get(name), true.get(name)


def _targets(record: Record, path: str) -> Iterator[str]:
    """Every path below data/ that the record points at."""
    if isinstance(record, Dcat):
        for iri in _previous(record):
            yield (
                f"{versions_folder(iri.removeprefix('kfm://dataset/').replace('@', '/'))}/checksums.sha256"
            )
        addresses = [url for x in record.distribution for url in (x.access, x.download)] + [
            about.id for about in record.records
        ]
    else:
        addresses = [link.href for link in record.links]
        addresses += (
            [asset.href for asset in record.assets.values()] if isinstance(record, Item) else []
        )
    for address in dict.fromkeys(addresses):
        if not urlsplit(address).scheme:
            yield _target(path, address)


def _target(path: str, address: str) -> str:
    """Where a relative address leads; what climbs out of data/ keeps its dots."""
    return posixpath.normpath(
        posixpath.join(posixpath.dirname(path), unquote(urlsplit(address).path))
    )


def _previous(record: Dcat) -> list[str]:
    chain = {
        node["@id"]: node.get("dcat:previousVersion") for node in record.included if "@id" in node
    }
    found, iri = [], record.previous
    while iri is not None and iri not in found:
        found.append(iri)
        iri = chain.get(iri)
    return found


def _version_of(iri: str) -> str:
    return iri.rpartition("@")[2]
