"""A DCAT 3 record, valid under DCAT-AP 3 and DCAT-US 3, of a dataset as it is now or of one
version.
"""

import re
from itertools import pairwise
from urllib.parse import quote

from kfm.catalog.base import (
    Artifact,
    Described,
    contact,
    geometry,
    href,
    known,
    licence_iri,
    lineage,
    publisher,
    rendered,
)
from kfm.model import Json, canonical
from kfm.model.paths import version_folder

__all__ = ["dcat", "version_dcat"]

CONTEXT: Json = {  # inline, so that reading a record never needs the network
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcterms": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "geo": "http://www.opengis.net/ont/geosparql#",
    "kfm": "kfm://vocab/",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    **{
        name: f"dcterms:{name}"
        for name in ("description", "identifier", "publisher", "spatial", "temporal", "title")
    },
    **{name: f"dcat:{name}" for name in ("contactPoint", "distribution", "keyword", "version")},
    **{name: {"@id": f"dcterms:{name}", "@type": "@id"} for name in ("accessRights", "license")},
    **{name: {"@id": f"dcat:{name}", "@type": "xsd:dateTime"} for name in ("endDate", "startDate")},
    **{
        name: {"@id": name, "@type": "@id"}
        for name in (
            "dcat:accessURL",
            "dcat:downloadURL",
            "dcat:hasCurrentVersion",
            "dcat:isVersionOf",
            "dcat:previousVersion",
        )
    },
    "algorithm": {"@id": "spdx:algorithm", "@type": "@id"},
    "bbox": {"@id": "dcat:bbox", "@type": "geo:geoJSONLiteral"},
    "byteSize": {"@id": "dcat:byteSize", "@type": "xsd:nonNegativeInteger"},
    "checksum": "spdx:checksum",
    "checksumValue": {"@id": "spdx:checksumValue", "@type": "xsd:hexBinary"},
    "fn": "vcard:fn",
    "hasEmail": {"@id": "vcard:hasEmail", "@type": "@id"},
    "mediaType": {"@id": "dcat:mediaType", "@type": "@id"},
    "modified": {"@id": "dcterms:modified", "@type": "xsd:dateTime"},
    "name": "foaf:name",
}
ALGORITHM = "spdx:checksumAlgorithm_sha256"
_N, _DAY = r"\d+", r"(?:[0-7]|[A-Za-z]{3})"  # one fixed value of a cron field
FREQUENCIES = {
    "HOURLY": rf"1h|60m|3600s|{_N} \* \* \* \*",
    "DAILY": rf"daily|1d|24h|{_N} {_N} \* \* \*",
    "WEEKLY": rf"weekly|1w|7d|{_N} {_N} \* \* {_DAY}",
    "MONTHLY": rf"{_N} {_N} {_N} \* \*",
    "ANNUAL": rf"annual|{_N} {_N} {_N} (?:{_N}|[A-Za-z]{{3}}) \*",
}


def dcat(described: Described) -> bytes:
    """`catalog/dcat/<id>.json`: the dataset as it is now; carries its generation, so a late writer
    is seen and rendered over.
    """
    d, me = described, _iri(described)
    # A, B, A, B is a history, but no chain
    versions = [f"{me}@{version_id}" for version_id in dict.fromkeys(d.previous)]
    chain = [{"@id": newer, "dcat:previousVersion": older} for newer, older in pairwise(versions)]
    record = _record(d, me, f"../../{version_folder(d.dataset_id, d.version_id)}", chain) | {
        "dcat:hasCurrentVersion": f"{me}@{d.version_id}" if d.version_id else None,
        "dcat:previousVersion": versions[0] if versions else None,
        "modified": d.modified,
        "kfm:generation": d.generation,
        "kfm:record": (
            [
                {
                    "@id": f"../../{version_folder(d.dataset_id, d.version_id)}/{href(path)}",
                    "checksum": _checksum(digest),
                }
                for path, digest in sorted(d.records.items())
            ]
            or None
        ),
    }
    return rendered(known(record))


def version_dcat(described: Described) -> bytes:
    """`processed/<id>/<version_id>/dcat.json`: the version for itself, without generation, history
    or time.
    """
    me = _iri(described)
    record = _record(described, f"{me}@{described.version_id}", ".", []) | {"dcat:isVersionOf": me}
    return rendered(known(record))


def _iri(described: Described) -> str:
    return f"kfm://dataset/{described.dataset_id}"


def _record(d: Described, me: str, folder: str, more: list[Json]) -> Json:
    """What both forms say. Names are those of DCAT-US; what its JSON has no RDF form for is written
    with a prefix.
    """
    name, licence, open_to_all = (
        publisher(d),
        licence_iri(d.licence),
        (d.sensitivity, d.policy_label) == ("public", "public"),
    )
    access = f"http://publications.europa.eu/resource/authority/access-right/{'PUBLIC' if open_to_all else 'RESTRICTED'}"
    media_types = {_media_type(artifact) for artifact in d.artifacts}
    return {
        "@context": CONTEXT,
        "@id": me,
        "@type": "dcat:Dataset",
        "identifier": d.dataset_id,
        "title": d.title,
        "description": d.description or d.title,
        "keyword": [word for word in d.keywords if word] or None,
        "publisher": {
            "@id": f"kfm://agent/{quote(name, safe='')}",
            "@type": "foaf:Agent",
            "name": name,
        },
        "contactPoint": _contact(d),
        "license": licence,
        "accessRights": access,
        "dcterms:rights": (
            {"@type": "dcterms:RightsStatement", "rdfs:label": d.rights} if d.rights else None
        ),
        "dcterms:provenance": {
            "@type": "dcterms:ProvenanceStatement",
            "rdfs:label": lineage(d.steps),
        },
        "dcterms:accrualPeriodicity": _frequency(d.cadence),
        "version": d.version_id,
        "kfm:versionDigest": d.version_digest,
        "kfm:sensitivity": d.sensitivity,
        "kfm:policyLabel": d.policy_label,
        "kfm:careLabel": d.care_label,
        "kfm:h3Resolution": d.h3_resolution,
        "kfm:origin": list(d.origin) or None,
        "spatial": (
            {"@type": "dcterms:Location", "bbox": canonical.dumps(geometry(d.bbox)).decode()}
            if d.bbox
            else None
        ),
        "temporal": (
            [
                {
                    "@type": "dcterms:PeriodOfTime",
                    "startDate": d.interval[0],
                    "endDate": d.interval[1],
                }
            ]
            if d.interval
            else None
        ),
        "distribution": [
            _distribution(d, artifact, f"{folder}/{href(artifact.path)}")
            for artifact in d.artifacts
        ],
        # The profiles ask for the class of everything that is pointed at, also of what others
        # publish.
        "@included": [
            {"@id": licence, "@type": "dcterms:LicenseDocument"},
            {"@id": access, "@type": "dcterms:RightsStatement"},
            {"@id": ALGORITHM, "@type": "spdx:ChecksumAlgorithm"},
            *(
                {"@id": media_type, "@type": "dcterms:MediaType"}
                for media_type in sorted(media_types)
            ),
            *more,
        ],
    }


def _distribution(d: Described, artifact: Artifact, url: str) -> Json:
    return {
        "@id": f"{_iri(d)}@{d.version_id}/{href(artifact.path)}",
        "@type": "dcat:Distribution",
        "title": artifact.path,
        "license": licence_iri(d.licence),
        "mediaType": _media_type(artifact),
        "byteSize": str(artifact.size),
        "dcat:accessURL": url,
        "dcat:downloadURL": url,
        "checksum": _checksum(artifact.digest),
    }


def _media_type(artifact: Artifact) -> str:
    return "https://www.iana.org/assignments/media-types/" + quote(
        artifact.media_type.partition(";")[0].strip(), safe="/+"
    )


def _checksum(digest: str) -> dict[str, str]:
    value = digest.removeprefix("sha256:")
    return {"@type": "spdx:Checksum", "algorithm": ALGORITHM, "checksumValue": value}


def _contact(d: Described) -> dict[str, str] | None:
    """Nobody to write to, no contact point: the profiles take it only with an address, and one that
    is made up helps nobody.
    """
    found = contact(d)
    return (
        {"@type": "vcard:Kind", "fn": found[0], "hasEmail": f"mailto:{found[1]}"} if found else None
    )


def _frequency(cadence: str | None) -> dict[str, str] | None:
    """The EU's word for a cadence, where there is one that is exactly true."""
    word = next(
        (word for word, pattern in FREQUENCIES.items() if re.fullmatch(pattern, cadence or "")),
        None,
    )
    return (
        {
            "@id": f"http://publications.europa.eu/resource/authority/frequency/{word}",
            "@type": "dcterms:Frequency",
        }
        if word
        else None
    )
