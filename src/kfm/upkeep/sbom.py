"""What kfm is made of here, as SPDX: every installed package it needs, by name and version."""

import datetime as dt
import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

import msgspec

from kfm.model import Json, canonical, ids

__all__ = ["packages", "sbom"]

_NOT_SAID = "NOASSERTION"


def packages() -> dict[str, Distribution]:
    """kfm and what it needs, what that needs, and so on, as far as it is installed."""
    found: dict[str, Distribution] = {}
    waiting = ["kfm"]
    while waiting:
        name = waiting.pop()
        if name not in found and (one := _installed(name)) is not None:
            found[name] = one
            waiting += _needed(one)
    return dict(sorted(found.items()))


def sbom(day: dt.date) -> bytes:
    """An SPDX 2.3 document; the same packages on the same day give the same bytes."""
    found = packages()
    listed = [_package(name, one) for name, one in found.items()]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"kfm-{found['kfm'].version}",
        "documentNamespace": f"kfm://sbom/{ids.digest(canonical.dumps(listed))}",
        "creationInfo": {
            "created": f"{day}T00:00:00Z",
            "creators": [f"Tool: kfm-{found['kfm'].version}"],
        },
        "packages": listed,
        "relationships": list(_relationships(found)),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:  # of an extra, or for another system
        return None


def _needed(one: Distribution) -> Iterator[str]:
    for line in one.requires or ():
        if found := re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line):
            yield re.sub(r"[-_.]+", "-", found[0]).lower()


def _package(name: str, one: Distribution) -> Json:
    return {
        "name": name,
        "SPDXID": _id(name),
        "versionInfo": one.version,
        "downloadLocation": _NOT_SAID,
        "filesAnalyzed": False,
        "licenseConcluded": _NOT_SAID,
        "licenseDeclared": one.metadata.json.get("license_expression") or _NOT_SAID,
        "copyrightText": _NOT_SAID,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:pypi/{name}@{one.version}",
            }
        ],
    }


def _id(name: str) -> str:
    return f"SPDXRef-Package-{name}"


def _relationships(found: dict[str, Distribution]) -> Iterator[Json]:
    yield _related("SPDXRef-DOCUMENT", "DESCRIBES", _id("kfm"))
    for name, one in found.items():
        for other in sorted({*_needed(one)} & found.keys() - {name}):
            yield _related(_id(name), "DEPENDS_ON", _id(other))


def _related(one: str, how: str, other: str) -> Json:
    return {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}
