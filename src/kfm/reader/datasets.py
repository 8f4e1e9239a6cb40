"""Datasets: which there are for this viewer, and what is official of each."""

from typing import Annotated

import msgspec
from litestar.handlers import HTTPRouteHandler

from kfm.access.references import Ref
from kfm.access.status import DatasetStatus, Statuses
from kfm.model import Column, DatasetEntry, VersionFacts
from kfm.reader.door import Asking, BadQuestion
from kfm.reader.kinds import kind_of, named
from kfm.reader.route import reads

__all__ = ["ROUTES", "Dataset", "Datasets", "File", "Home", "Listed", "files_of"]


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset in a list."""

    dataset_id: str
    title: str
    licence: str | None
    custodian: str | None
    policy_label: str | None
    sensitivity: str | None
    version_id: str
    generation: int
    rows: int
    bbox: tuple[float, float, float, float] | None
    interval: tuple[str, str] | None
    address: str


class Datasets(msgspec.Struct, frozen=True, kw_only=True):
    """Every dataset this viewer may know of."""

    datasets: list[Listed]


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a version."""

    name: str
    digest: str
    size: int
    media_type: str
    rows: int | None
    address: str


class Dataset(Listed, frozen=True, kw_only=True):
    """A dataset, and what is official of it."""

    description: str
    rights: str | None
    owners: tuple[str, ...]
    care_label: str | None
    cadence: str | None
    business_key: tuple[str, ...]
    version_digest: str
    columns: tuple[Column, ...]
    steps: tuple[dict[str, object], ...]
    files: list[File]
    citation: str


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """Where to begin."""

    title: str
    links: dict[str, str]


@reads("/", page="home")
def home(asking: Asking) -> Home:
    """The addresses one begins with."""
    names = ("datasets", "stac", "dcat", "search", "openapi.json")
    return Home(title="What is published here", links={n: f"{asking.address}/{n}" for n in names})


_Freshness = Annotated[str, named(pattern="^(|fresh|late|other)$")]


@reads("/datasets", page="datasets")
def datasets(
    asking: Asking, q: str = "", label: str = "", licence: str = "", freshness: _Freshness = ""
) -> Datasets:
    """Every dataset that may be shown to whoever asks: with all words of `q`, of a label, of a
    licence, looked at in time (`fresh`) or not (`late`).
    """
    if freshness not in ("", "fresh", "late", "other"):
        raise BadQuestion("freshness is fresh, late or other.", "freshness")
    words, statuses = q.lower().split(), Statuses(asking.world) if freshness else None
    found = []
    for entry, ref, facts in asking.datasets():
        text = f"{entry.dataset_id} {entry.title} {entry.description}".lower()
        if (
            all(word in text for word in words)
            and label in ("", entry.policy_label or entry.sensitivity)
            and licence in ("", entry.licence)
            and (statuses is None or _freshness(statuses.of(entry.dataset_id)) == freshness)
        ):
            found.append(_listed(asking, entry, ref, facts))
    return Datasets(datasets=found)


def _freshness(status: DatasetStatus) -> str:
    """As everybody is told it: how things are run is told to those who run them."""
    if status.state in ("retired", "withdrawn"):
        return "other"
    return "fresh" if status.fresh else "late"


@reads("/datasets/{dataset_id:str}", page="dataset")
def dataset(asking: Asking, dataset_id: str) -> Dataset:
    """One dataset and its official version."""
    ref, facts = asking.facts(dataset_id)
    entry = asking.workspace.require(dataset_id)
    return Dataset(
        **msgspec.structs.asdict(_listed(asking, entry, ref, facts)),
        description=entry.description or entry.title,
        rights=entry.rights,
        owners=tuple(o.split(" <")[0] for o in entry.owners),
        care_label=entry.care_label,
        cadence=entry.cadence,
        business_key=entry.business_key,
        version_digest=ref.version_digest,
        columns=facts.schema,
        steps=facts.steps,
        files=files_of(asking, ref, facts),
        citation=f"{asking.address}/datasets/{dataset_id}/versions/{ref.version_id}/cite",
    )


def _listed(asking: Asking, entry: DatasetEntry, ref: Ref, facts: VersionFacts) -> Listed:
    return Listed(
        dataset_id=entry.dataset_id,
        title=entry.title,
        licence=entry.licence,
        custodian=entry.custodian,
        policy_label=entry.policy_label,
        sensitivity=entry.sensitivity,
        version_id=ref.version_id,
        generation=ref.generation,
        rows=facts.rows,
        bbox=facts.bbox,
        interval=facts.interval,
        address=f"{asking.address}/datasets/{entry.dataset_id}",
    )


def files_of(asking: Asking, ref: Ref, facts: VersionFacts) -> list[File]:
    """The data of a version, and where each file is had."""
    base = f"{asking.address}/datasets/{ref.dataset_id}/versions/{ref.version_id}/files"
    return [
        File(
            name=name,
            digest=said["digest"],
            size=said["size"],
            media_type=kind_of(name),
            rows=said.get("rows"),
            address=f"{base}/{name}",
        )
        for name, said in sorted(facts.artifacts.items())
    ]


ROUTES: tuple[HTTPRouteHandler, ...] = (home, datasets, dataset)
