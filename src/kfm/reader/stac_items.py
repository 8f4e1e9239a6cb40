"""Items and collections as STAC has them: a collection is a dataset with a place, an item one of its
versions; links and assets lead to addresses of this reader.
"""

import datetime as dt
from collections.abc import Iterator

from kfm.catalog.stac import stac_collection, stac_item
from kfm.evidence.append_times import appended_at
from kfm.evidence.version_records import describe
from kfm.model import DatasetEntry, Generation, Json, VersionFacts, canonical
from kfm.reader.door import Asking, Hidden

__all__ = ["GEOJSON", "collection", "collections", "item", "items", "link", "times_of"]

GEOJSON = "application/geo+json"


def link(
    asking: Asking, rel: str, path: str, kind: str = "application/json", **more: object
) -> Json:
    """A link to an address below /stac."""
    return {"rel": rel, "href": f"{asking.address}/stac{path}", "type": kind, **more}


def collections(asking: Asking) -> Iterator[Json]:
    """Every dataset with a place that this viewer may know of."""
    for entry, ref, facts in asking.datasets():
        if facts.bbox is not None:
            yield _collection(asking, entry, facts, ref.generation)


def collection(asking: Asking, dataset_id: str) -> Json:
    """One of them. Raises `Hidden`."""
    ref, facts = asking.facts(dataset_id)
    if facts.bbox is None:
        raise Hidden
    return _collection(asking, asking.workspace.require(dataset_id), facts, ref.generation)


def items(asking: Asking, dataset_id: str) -> Iterator[Json]:
    """Every version of a dataset that may be shown, newest first, each once."""
    entry, told = asking.workspace.require(dataset_id), set[str]()
    for made, facts in asking.versions(dataset_id):
        if facts.bbox is not None and facts.version_id not in told:
            told.add(facts.version_id)
            yield _item(asking, entry, made, facts)


def item(asking: Asking, dataset_id: str, version_id: str) -> Json:
    """One of them. Raises `Hidden`."""
    ref, facts = asking.facts(f"{dataset_id}@{version_id}")
    if facts.bbox is None or ref.version_id != version_id:
        raise Hidden
    made: Generation | None = asking.world.store.read(
        lambda tx: tx.index.generation(dataset_id, ref.generation)
    )
    if made is None:
        raise Hidden
    return _item(asking, asking.workspace.require(dataset_id), made, facts)


def times_of(properties: Json) -> tuple[dt.datetime, dt.datetime]:
    """From when to when an item is."""
    at = properties.get("datetime")
    first = properties.get("start_datetime") or at
    last = properties.get("end_datetime") or at
    return _moment(str(first)), _moment(str(last))


def _moment(text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _collection(asking: Asking, entry: DatasetEntry, facts: VersionFacts, number: int) -> Json:
    said = describe(entry, facts, generation=number, previous=(), modified=None)
    found: Json = canonical.loads(stac_collection(said, ()))
    at = f"/collections/{entry.dataset_id}"
    licence = [each for each in found["links"] if each["rel"] == "license"]
    found["links"] = [
        link(asking, "self", at),
        link(asking, "root", ""),
        link(asking, "parent", ""),
        link(asking, "items", f"{at}/items", GEOJSON),
        link(asking, "http://www.opengis.net/def/rel/ogc/1.0/queryables", f"{at}/queryables",
             "application/schema+json"),
        {"rel": "describedby", "href": f"{asking.address}/datasets/{entry.dataset_id}",
         "type": "application/json"},
        *licence,
    ]  # fmt: skip
    return found


def _item(asking: Asking, entry: DatasetEntry, made: Generation, facts: VersionFacts) -> Json:
    at = appended_at(asking.world, made)
    said = describe(entry, facts, generation=made.generation, previous=(), modified=at)
    found: Json = canonical.loads(stac_item(said))
    where = f"/collections/{entry.dataset_id}"
    version = f"{asking.address}/datasets/{entry.dataset_id}/versions/{facts.version_id}"
    licence = [each for each in found["links"] if each["rel"] == "license"]
    found["links"] = [
        link(asking, "self", f"{where}/items/{facts.version_id}", GEOJSON),
        link(asking, "root", ""),
        link(asking, "parent", where),
        link(asking, "collection", where),
        {"rel": "via", "href": version, "type": "application/json"},
        *licence,
    ]
    for name, asset in found["assets"].items():
        asset["href"] = f"{version}/files/{name}"
    found["properties"] |= {"created": at} if at else {}
    return found
