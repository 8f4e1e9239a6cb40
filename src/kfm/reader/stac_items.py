"""Items and collections as STAC has them: a collection is a dataset with a place, an item one of its
versions; links and assets lead to addresses of this reader.
"""

import bisect
import datetime as dt
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

import msgspec

from kfm.access.history import generations_of
from kfm.access.memory import Watched, recall, unsettled
from kfm.catalog.stac import stac_collection, stac_item
from kfm.evidence.append_times import appended_at
from kfm.evidence.version_records import describe
from kfm.model import (
    DatasetEntry,
    Generation,
    IntegrityError,
    Json,
    LedgerRow,
    VersionFacts,
    canonical,
)
from kfm.reader.door import Asking, Hidden
from kfm.reader.kinds import GEOJSON

__all__ = ["GEOJSON", "collection", "collections", "item", "item_of", "link", "moment", "times_of"]

T = TypeVar("T")
_ADDRESSES = 8


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


def item(asking: Asking, dataset_id: str, version_id: str) -> msgspec.Raw:
    """One of them. Raises `Hidden`."""
    ref, facts = asking.facts(f"{dataset_id}@{version_id}")
    if facts.bbox is None or ref.version_id != version_id:
        raise Hidden
    return item_of(asking, dataset_id, ref.generation)


def item_of(asking: Asking, dataset_id: str, generation: int) -> msgspec.Raw:
    """The version of a generation that was let through, as an item."""
    made = generations_of(asking.world, dataset_id)
    at = bisect.bisect_left(made, generation, key=lambda each: each.generation)
    if at == len(made) or made[at].generation != generation:
        raise Hidden
    return _item(asking, made[at])


def times_of(properties: Json) -> tuple[dt.datetime, dt.datetime]:
    """From when to when an item is."""
    at = properties.get("datetime")
    first = properties.get("start_datetime") or at
    last = properties.get("end_datetime") or at
    return moment(str(first)), moment(str(last))


def moment(text: str) -> dt.datetime:
    """A time that a record says."""
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _collection(asking: Asking, entry: DatasetEntry, facts: VersionFacts, number: int) -> Json:
    """Nobody changes what this returns."""
    name = entry.dataset_id

    def found() -> Json:
        now = asking.workspace.require(name)  # looked at here, so that a change of it is seen
        told = asking.facts(f"{name}@{number}")[1]
        return _made_collection(asking, now, told, number)

    return _recall(asking, ("collection", name, number, facts.version_id), found)


def _made_collection(asking: Asking, entry: DatasetEntry, facts: VersionFacts, number: int) -> Json:
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


def _item(asking: Asking, made: Generation) -> msgspec.Raw:
    """The item of a version that was let through, as it was made before where nothing it tells has
    changed.
    """
    name, world = made.dataset_id, asking.world

    def found() -> msgspec.Raw:
        entry = asking.workspace.require(name)
        facts = asking.facts(f"{name}@{made.generation}")[1]
        at = appended_at(world, made)
        if at is None or not _has_ended(asking, made):
            unsettled()  # the moment is told more exactly later
        return msgspec.Raw(msgspec.json.encode(_made_item(asking, entry, made, facts, at)))

    return _recall(asking, ("item", name, made.generation), found)


def _recall(asking: Asking, key: tuple[Hashable, ...], find: Callable[[], T]) -> T:
    """What is told with addresses of this reader. Who asks says how it is called: the first names are
    remembered, and with others everything is told anew.
    """
    world = asking.world
    known: set[str] = world.memory.once("addresses", set) if isinstance(world, Watched) else set()
    if asking.address not in known:
        if len(known) >= _ADDRESSES:
            return find()
        known.add(asking.address)
    return recall(world, (*key, asking.address), find)


def _has_ended(asking: Asking, made: Generation) -> bool:
    if not made.run_id:
        return True
    try:
        row: LedgerRow | None = asking.world.store.read(lambda tx: tx.runs.get(made.run_id))
    except IntegrityError:
        return False
    return row is None or row.ended_at is not None


def _made_item(
    asking: Asking, entry: DatasetEntry, made: Generation, facts: VersionFacts, at: str | None
) -> Json:
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
