"""STAC 1.1 records of a spatial dataset: a collection, an item per version, and the item a version
keeps of itself.
"""

from collections.abc import Sequence

from kfm.catalog.base import (
    Artifact,
    Described,
    geometry,
    href,
    known,
    licence_iri,
    lineage,
    publisher,
    rendered,
)
from kfm.model import Json, UsageError
from kfm.model.paths import version_folder

__all__ = ["stac_collection", "stac_item", "stac_licence", "version_stac"]

STAC_VERSION = "1.1.0"
EXTENSIONS = {
    "file": "v2.1.0",
    "processing": "v1.2.0",
    "projection": "v2.0.0",
    "table": "v1.2.0",
    "version": "v1.2.0",
}
# An item must have a time. Where the data say none, "at some time" is true and valid; a date of our
# own would be neither found nor right.
ANY_TIME = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")


def stac_item(described: Described, item_versions: Sequence[str] = ()) -> bytes:
    """`catalog/stac/<id>/items/<version_id>/<version_id>.json`; `item_versions` are those that have
    an item too.
    """
    d, version_id = described, str(described.version_id)
    links = [
        _link("root", "../../collection.json"),
        _link("parent", "../../collection.json"),
        _link("collection", "../../collection.json"),
        *(
            _link("predecessor-version", _sibling(older))
            for older in [v for v in d.previous if v in item_versions and v != version_id][:1]
        ),
    ]
    folder = f"../../../../../{version_folder(d.dataset_id, d.version_id)}"
    item = _item(d, folder, links, d.modified) | {"collection": d.dataset_id}
    item["assets"] |= {
        path: _record_asset(folder, path, digest) for path, digest in d.records.items()
    }
    return rendered(item)


def version_stac(described: Described) -> bytes:
    """`processed/<id>/<version_id>/stac.json`: the version for itself, without collection, history
    or time of making.
    """
    return rendered(_item(described, ".", [], None))


def stac_collection(described: Described, item_versions: Sequence[str]) -> bytes:
    """`catalog/stac/<id>/collection.json`, from one generation, with a link to each version that
    has an item.
    """
    d = described
    collection = {
        "type": "Collection",
        "stac_version": STAC_VERSION,
        "stac_extensions": _extensions("version"),
        "id": d.dataset_id,
        "title": d.title,
        "description": d.description or d.title,
        "keywords": list(d.keywords) or None,
        "license": stac_licence(d),
        "providers": [{"name": publisher(d)}],
        "version": d.version_id,
        "extent": {
            "spatial": {"bbox": [_bbox(d)]},
            "temporal": {"interval": [list(d.interval or (None, None))]},
        },
        "links": [
            _link("root", "./collection.json"),
            _licence_link(d),
            *(
                _link("item", f"./items/{version_id}/{version_id}.json", "application/geo+json")
                for version_id in dict.fromkeys(item_versions)
            ),
        ],
        **_labels(d),
        "kfm:generation": d.generation,
    }
    return rendered(known(collection))


def _item(d: Described, folder: str, links: list[dict[str, str]], modified: str | None) -> Json:
    return {
        "type": "Feature",
        "stac_version": STAC_VERSION,
        "stac_extensions": _extensions(*EXTENSIONS),
        "id": d.version_id,
        "geometry": geometry(_bbox(d)),
        "bbox": _bbox(d),
        "properties": (
            _times(d, modified)
            | known(
                {
                    "title": d.title,
                    "description": d.description or d.title,
                    "license": stac_licence(d),
                    "version": d.version_id,
                    "processing:lineage": lineage(d.steps),
                    "proj:code": "EPSG:4326",
                    "kfm:h3_resolution": d.h3_resolution,
                    "kfm:version_digest": d.version_digest,
                    **_labels(d),
                }
            )
        ),
        "links": [*links, _licence_link(d)],
        "assets": {artifact.path: _asset(folder, artifact) for artifact in d.artifacts},
    }


def _times(d: Described, modified: str | None) -> dict[str, str | None]:
    """When the data are from; else when the version was made; else any time."""
    if modified and not d.interval:
        return {"datetime": modified}
    start, end = d.interval or ANY_TIME
    return {"datetime": None, "start_datetime": start, "end_datetime": end}


def _asset(folder: str, artifact: Artifact) -> Json:
    asset = {
        "href": f"{folder}/{href(artifact.path)}",
        "title": artifact.path,
        "type": artifact.media_type,
        "roles": ["data"],
        "file:checksum": _multihash(artifact.digest),
        "file:size": artifact.size,
        "table:columns": (
            [
                known({key: column.get(key) for key in ("name", "type", "description")})
                for column in artifact.columns
            ]
            or None
        ),
    }
    return known(asset)


def _record_asset(folder: str, path: str, digest: str) -> Json:
    return {
        "href": f"{folder}/{href(path)}",
        "type": "application/json",
        "roles": ["metadata"],
        "file:checksum": _multihash(digest),
    }


def _multihash(digest: str) -> str:
    return "1220" + digest.removeprefix("sha256:")  # sha2-256, 32 bytes


def _labels(d: Described) -> Json:
    labels = {
        "kfm:sensitivity": d.sensitivity,
        "kfm:policy_label": d.policy_label,
        "kfm:care_label": d.care_label,
    }
    return {**labels, "kfm:origin": list(d.origin) or None}


def stac_licence(d: Described) -> str:
    """An SPDX id, or STAC's word for everything else."""
    return d.licence if licence_iri(d.licence).startswith("https:") else "other"


def _licence_link(d: Described) -> dict[str, str]:
    return {"rel": "license", "href": licence_iri(d.licence)}


def _link(rel: str, target: str, media_type: str = "application/json") -> dict[str, str]:
    return {"rel": rel, "href": target, "type": media_type}


def _sibling(version_id: str) -> str:
    return f"../{version_id}/{version_id}.json"


def _extensions(*names: str) -> list[str]:
    return [
        f"https://stac-extensions.github.io/{name}/{EXTENSIONS[name]}/schema.json" for name in names
    ]


def _bbox(d: Described) -> list[float]:
    if d.bbox is None:
        raise UsageError(
            f"{d.dataset_id} has no place.",
            expected="a bounding box, which every STAC record needs",
            remedy="Render DCAT only.",
        )
    return list(d.bbox)
