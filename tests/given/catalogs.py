"""Descriptions of datasets, and every record and folder that a catalog of them holds."""

import hashlib

import msgspec

from kfm.catalog.base import Artifact, Described
from kfm.catalog.dcat import dcat
from kfm.catalog.prov import ProvRun, prov
from kfm.catalog.stac import stac_collection, stac_item
from kfm.model.paths import collection_path, dcat_path, item_path, prov_path

V1, V2, V3 = ("v" + character * 32 for character in "123")


RUN = "01980000-0000-7000-8000-000000000001"


STEPS = (
    {
        "id": "h3",
        "kind": "generalise",
        "discharges": "generalise",
        "settings": {"h3_resolution": 6, "min_records": 5},
    },
    {
        "id": "groups",
        "kind": "aggregate",
        "discharges": "aggregate",
        "settings": {"by": ["county"]},
    },
)


COLUMNS = (
    {"name": "tree_id", "type": "string", "unit": None},
    {"name": "height", "type": "number", "unit": "m"},
)


def content(path: str) -> bytes:
    return f"the bytes of {path}".encode()


def artifact(path: str, media_type: str = "application/vnd.apache.parquet") -> Artifact:
    raw = content(path)
    return Artifact(
        path=path,
        digest=f"sha256:{hashlib.sha256(raw).hexdigest()}",
        size=len(raw),
        media_type=media_type,
        columns=COLUMNS,
    )


PLAIN = Described(
    dataset_id="city_trees", title="City trees", description="Every tree.", owners=(), licence="CC-BY-4.0", sensitivity="public", policy_label="public",
    version_id=V3, version_digest="3" * 64, generation=1, artifacts=(artifact("city_trees.parquet"),),
)  # fmt: skip


SPATIAL = msgspec.structs.replace(
    PLAIN,
    bbox=(-102.05, 36.99, -94.59, 40.0),
    interval=("2020-01-01T00:00:00Z", "2024-12-31T00:00:00Z"),
    modified="2025-01-01T00:00:00Z",
)


CASES = {
    "plain": PLAIN,
    "tabular": msgspec.structs.replace(
        PLAIN, owners=("Ada <ada@example.org>", "Bo"), custodian="City of Trees", rights="Name the city.", keywords=("trees", "city"), cadence="1d"
    ),
    "spatial": SPATIAL,
    "spatial, with history": msgspec.structs.replace(SPATIAL, previous=(V2, V1), generation=3, records={"dcat.json": artifact("d").digest}),
    "back and forth": msgspec.structs.replace(SPATIAL, previous=(V2, V3, V2, V1), generation=5),
    "spatial, nothing known of time": msgspec.structs.replace(PLAIN, bbox=(1.5, 2.0, 3.0, 4.25)),
    "spatial, made at a known time": msgspec.structs.replace(SPATIAL, interval=None),
    "a point": msgspec.structs.replace(SPATIAL, bbox=(10.0, 20.0, 10.0, 20.0)),
    "a line": msgspec.structs.replace(SPATIAL, bbox=(10.0, 20.0, 11.0, 20.0)),
    "across the antimeridian": msgspec.structs.replace(SPATIAL, bbox=(170.0, -20.0, -170.0, -10.0)),
    "up to the antimeridian": msgspec.structs.replace(SPATIAL, bbox=(170.0, -20.0, -180.0, -10.0)),
    "many artifacts": msgspec.structs.replace(SPATIAL, artifacts=tuple(artifact(f"part {n}/a#b?{n}.csv", "text/csv; charset=utf-8") for n in range(20))),
    "odd characters": msgspec.structs.replace(
        SPATIAL, title='<b>"Bäume"</b> & \\ 🌳 \u0000\n', description="@id {}", owners=('Ad"a % <ada+x@example.org>',), custodian="A <b> 中", keywords=("@x",)
    ),
    "governed": msgspec.structs.replace(
        SPATIAL, sensitivity="sensitive-location", policy_label="stewarded", care_label="By request", steps=STEPS, h3_resolution=6
    ),
    "a private licence": msgspec.structs.replace(SPATIAL, licence="LicenseRef-city AND MIT"),
    "withdrawn": msgspec.structs.replace(PLAIN, version_id=None, version_digest=None, artifacts=(), generation=4, previous=(V2, V1)),
}  # fmt: skip


MADE = {name: described for name, described in CASES.items() if described.version_id}


def run_of(d: Described) -> ProvRun:
    return ProvRun(
        run_id=RUN, dataset_id=d.dataset_id, version_id=d.version_id or V2, version_digest=d.version_digest or "2" * 64, updater_id=d.dataset_id,
        updater_version="1.0.0", started_at="2025-01-01T00:00:00Z", ended_at=d.modified, agent="sha256:abc", approvals=("Ada Ö",) if d.owners else (),
        inputs=({"uri": "https://example.org/a b.csv", "digest": "sha256:" + "a" * 64}, {"uri": "https://example.org/c", "commitment": "hmac:1"}),
        outputs=tuple({"path": a.path, "digest": a.digest} for a in d.artifacts), steps=d.steps,
        base_version=d.previous[0] if d.previous else None, care_label=d.care_label, sensitivity=d.sensitivity,
    )  # fmt: skip


def items_of(d: Described) -> dict[str, Described]:
    """The versions that have an item, with what each was."""
    history = [str(d.version_id), *d.previous]
    return {
        v: msgspec.structs.replace(d, version_id=v, previous=d.previous[history.index(v) :])
        for v in dict.fromkeys(history)
    }


def records_of(d: Described) -> dict[str, bytes]:
    """Every catalog record of a dataset, by path below data/."""
    files = {dcat_path(d.dataset_id): dcat(d), prov_path(d.dataset_id, RUN): prov(run_of(d))}
    if d.bbox is not None:
        items = items_of(d)
        files |= {
            item_path(d.dataset_id, v): stac_item(old, tuple(items)) for v, old in items.items()
        }
        files[collection_path(d.dataset_id)] = stac_collection(d, tuple(items))
    return files


def folders_of(d: Described) -> dict[str, bytes]:
    """What lies in the folders the records point at."""
    files = {}
    for version in (v for v in (d.version_id, *d.previous) if v):
        folder = f"processed/{d.dataset_id}/{version}"
        files |= {
            f"{folder}/{path}": content(path)
            for path in ("checksums.sha256", *(a.path for a in d.artifacts), *d.records)
        }
    return files
