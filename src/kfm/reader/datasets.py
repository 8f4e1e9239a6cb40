"""Datasets: which there are for this viewer, and what is official of each."""

import msgspec
from litestar.handlers import HTTPRouteHandler

from kfm.access.references import Ref
from kfm.model import Column, DatasetEntry, VersionFacts
from kfm.reader.door import Asking
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


@reads("/datasets", page="datasets")
def datasets(asking: Asking) -> Datasets:
    """Every dataset that may be shown to whoever asks."""
    return Datasets(datasets=[_listed(asking, *found) for found in asking.datasets()])


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
            media_type=said.get("media_type", "application/octet-stream"),
            rows=said.get("rows"),
            address=f"{base}/{name}",
        )
        for name, said in sorted(facts.artifacts.items())
    ]


ROUTES: tuple[HTTPRouteHandler, ...] = (home, datasets, dataset)
