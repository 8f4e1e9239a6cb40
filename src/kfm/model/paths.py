"""Where the bytes of a dataset lie: one table, and what an erasure does in each place."""

from typing import Literal, NamedTuple

__all__ = ["PLACES", "Place", "part_folder", "place_of"]

Erased = Literal["all", "but the official version", "what names it", "its sources", "never"]


class Place(NamedTuple):
    """A folder (it ends with a slash) or a file below `data/` or below the workspace; `{id}` is the dataset."""

    zone: Literal["data", "root"]
    path: str
    erased: Erased
    holds: str


# The longest path that fits is the place of a file. Whatever is new below work/ is erased until somebody says here that it stays.
PLACES = (
    Place("data", "raw/{id}/", "never", "the list of captures, rendered from what is there"),
    Place("data", "raw/{id}/captures/", "all", "captures"),
    Place("data", "processed/{id}/", "but the official version", "versions"),
    Place("data", "work/{id}/", "all", "runs, parts, proposals, assemblies, quarantine, indexes, tiles and whatever else is worked on"),
    Place("data", "work/{id}/acts/", "never", "what people are about to do"),
    Place("data", "work/{id}/erasures/", "never", "that something was erased, when and by whose authority"),
    Place("data", "work/{id}/withdrawals/", "never", "rules that keep withdrawn records out"),
    Place("data", "work/{id}/holds/", "but the official version", "versions that a person said stay"),
    Place("data", "work/{id}/derived/", "but the official version", "where what a withdrawal left comes from"),
    Place("data", "catalog/channels/{id}/", "never", "what was official, by commitment"),
    Place("data", "catalog/dcat/{id}.json", "never", "rendered from the head"),
    Place("data", "catalog/stac/{id}/", "never", "rendered from the head"),
    Place("data", "catalog/stac/{id}/items/", "but the official version", "one item for each version"),
    Place("data", "catalog/prov/{id}/", "but the official version", "where each version comes from"),
    Place("data", "catalog/approvals/{id}/", "never", "who agreed to each version, by digest"),
    Place("root", "ledger/quarantine/", "what names it", "damaged rows, journals and parts; stores that were set aside"),
    Place("root", "ledger/notices/", "what names it", "messages that wait to be sent"),
    Place("root", "inbox/", "its sources", "files that people brought; what holds more than was erased goes when it is asked for"),
    Place("root", "releases/{id}/", "never", "what was announced"),
    Place("root", "receipts/", "never", "what was done, by digest or commitment"),
)


def place_of(zone: str, path: str, dataset_id: str) -> Place | None:
    """The place a file lies in; None: the table does not know it."""
    fitting = [p for p in PLACES if p.zone == zone and path.startswith(p.path.format(id=dataset_id))]
    return max(fitting, key=lambda p: len(p.path), default=None)


def part_folder(dataset_id: str, digest: str) -> str:
    """Where a part lies, by its digest."""
    return f"work/{dataset_id}/parts/{digest.removeprefix('sha256:')[:32]}"
