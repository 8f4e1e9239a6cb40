"""A DCAT 3 record, rendered from one channel generation."""

from collections.abc import Mapping

from kfm import canonical
from kfm.model.dataset import DatasetEntry
from kfm.model.ledger import Generation

__all__ = ["render_dcat"]

CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcterms": "http://purl.org/dc/terms/",
    "spdx": "http://spdx.org/rdf/terms#",
    "kfm": "kfm://vocab/",
}


def render_dcat(
    dataset_id: str, entry: DatasetEntry | None, head: Generation, digests: Mapping[str, str], sizes: Mapping[str, int]
) -> bytes:
    """`catalog/dcat/<id>.json`; carries its generation, so a late writer is seen and rendered over."""
    record = {
        "@context": CONTEXT,
        "@id": f"kfm://dataset/{dataset_id}",
        "@type": "dcat:Dataset",
        "dcterms:identifier": dataset_id,
        "dcterms:title": entry.title if entry else dataset_id,
        "dcterms:description": (entry.description or entry.title) if entry else dataset_id,
        "dcterms:license": f"https://spdx.org/licenses/{entry.licence}" if entry and entry.licence else None,
        "dcat:version": head.version_id,
        "kfm:generation": head.generation,
        "dcat:distribution": [
            {
                "@id": f"kfm://dataset/{dataset_id}@{head.version_id}/{path}",
                "@type": "dcat:Distribution",
                "dcterms:title": path,
                "dcat:mediaType": "application/vnd.apache.parquet",
                "dcat:byteSize": sizes[path],
                "dcat:downloadURL": f"../../processed/{dataset_id}/{head.version_id}/{path}",
                "spdx:checksum": {
                    "@type": "spdx:Checksum",
                    "spdx:algorithm": "sha256",
                    "spdx:checksumValue": digest.removeprefix("sha256:"),
                },
            }
            for path, digest in sorted(digests.items())
        ],
    }
    return canonical.dumps({k: v for k, v in record.items() if v is not None}) + b"\n"
