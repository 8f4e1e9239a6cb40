"""The files of a version: data artifacts, and the records that lie beside them."""

__all__ = ["ATTESTATION", "RECORDS", "is_record"]

ATTESTATION = "attestation.json"
# listed in checksums.sha256, not part of the version's id
RECORDS = (ATTESTATION, "dcat.json", "stac.json", "version.json")


def is_record(path: str) -> bool:
    """Whether a file of a version folder is a record, not data."""
    return path in RECORDS
