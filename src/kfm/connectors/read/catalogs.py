"""What a catalogue of upstream resources offers: STAC, DCAT (data.json) and ArcGIS service
directories, read in the child.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import msgspec

from kfm.connectors.base import Books, Refused, TransformResult, plain
from kfm.connectors.kind import Ask
from kfm.connectors.operations import Catalogue
from kfm.model import Json

__all__ = ["FOUND", "offers"]

FOUND = "found.json"
_MOST_BYTES = 64 << 20
_MOST_OFFERS = 10_000
_LONGEST = 2000  # an address
_SPDX = {
    "creativecommons.org/publicdomain/zero/1.0": "CC0-1.0",
    "creativecommons.org/licenses/by/4.0": "CC-BY-4.0",
    "creativecommons.org/licenses/by-sa/4.0": "CC-BY-SA-4.0",
    "usa.gov/government-works": "CC-PDM-1.0",
    "usa.gov/publicdomain/label/1.0": "CC-PDM-1.0",
}
_FORMATS = {
    "text/csv": "csv",
    "application/json": "json",
    "application/geo+json": "geojson",
    "application/vnd.geo+json": "geojson",
}


def offers(job: Catalogue, scratch: Path, ask: Ask) -> TransformResult:
    """Read the catalogue at `job.url` and leave what it offers in `scratch/found.json`, sorted."""
    url = job.url
    path = ask.get(url, "catalogue", accept="application/json")
    if path.stat().st_size > _MOST_BYTES:
        raise _refused(url, f"is larger than {_MOST_BYTES >> 20} MiB")
    try:
        document = msgspec.json.decode(path.read_bytes(), type=Json)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise _refused(url, f"is no JSON object ({error})") from error
    read = {"stac": _stac, "dcat": _dcat, "arcgis": _arcgis}[job.form]
    found = {o["url"]: o for o in read(document, url)}
    if not found or len(found) > _MOST_OFFERS:
        raise _refused(url, f"offers {len(found)} resources")
    (scratch / FOUND).write_bytes(msgspec.json.encode([found[u] for u in sorted(found)]))
    return TransformResult(
        artifact=job.artifact, books=Books(), schema=(), content_id="", profile={}
    )


def _refused(url: str, why: str) -> Refused:
    return Refused(
        "catalogue",
        f"The catalogue at {url} {why}.",
        expected="a STAC, DCAT or ArcGIS catalogue of at least one resource",
        remedy="Check its address and kind in kfm.yml.",
    )


def _joined(base: str, href: object) -> str:
    try:
        return urljoin(base, str(href))
    except ValueError:  # such as http://[
        return ""


def _objects(value: object) -> list[Json]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _offer(
    name: str, url: str, kind: str, format: str, title: object, more: Json, licence: object
) -> Json:
    text = str(licence or "").strip()
    known = next(
        (spdx for part, spdx in _SPDX.items() if part in text),
        text if re.fullmatch(r"[A-Za-z0-9.+-]{2,40}", text) else "",
    )
    words = plain(" ".join(str(more.get("description") or "").split())[:500])
    return {
        "name": re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:60],
        # whether it may be adopted at all is not for this side to say
        "url": url if len(url) <= _LONGEST else "",
        "kind": kind,
        "format": format,
        "title": plain(str(title or name)[:200]),
        "description": words,
        "licence": "" if known.lower() in ("proprietary", "various", "other") else known,
        "modified": str(more.get("modified") or ""),
        "options": more.get("options") or {},
    }


def _stac(document: Json, url: str) -> Iterator[Json]:
    """Collections of an API, or the children its landing page links to."""
    links = [k for k in _objects(document.get("links")) if isinstance(k.get("href"), str)]
    search = next(
        (_joined(url, k["href"]) for k in links if k.get("rel") == "search"),
        urljoin(url.rstrip("/") + "/", "search"),
    )
    for collection in _objects(document.get("collections")):
        if isinstance(collection.get("id"), str):
            yield _collection(
                collection["id"],
                search,
                collection.get("title"),
                collection.get("description"),
                collection.get("license"),
            )
    for link in links:
        if link.get("rel") == "child":
            name = link["href"].rstrip("/").rpartition("/")[2].partition("?")[0]
            yield _collection(name, search, link.get("title"), "", "")


def _collection(
    name: str, search: str, title: object, description: object, licence: object
) -> Json:
    more = {"description": description, "options": {"collections": [name]}}
    return _offer(name, f"{search}#{name}", "stac", "json", title, more, licence)


def _dcat(document: Json, url: str) -> Iterator[Json]:
    """Distributions kfm can read of the datasets of a data.json."""
    for dataset in _objects(document.get("dataset")):
        for part in _objects(dataset.get("distribution")):
            format = _FORMATS.get(str(part.get("mediaType")).partition(";")[0].strip())
            if isinstance(part.get("downloadURL"), str) and format:
                name, link = (
                    str(dataset.get("title") or dataset.get("identifier") or "dataset"),
                    _joined(url, part["downloadURL"]),
                )
                yield _offer(
                    name,
                    link,
                    "http_file",
                    format,
                    dataset.get("title"),
                    dataset,
                    dataset.get("license"),
                )


def _arcgis(document: Json, url: str) -> Iterator[Json]:
    """Layers of a service, or the services of a directory."""
    for layer in _objects(document.get("layers")):
        if isinstance(layer.get("id"), int):
            address = f"{url.partition('?')[0].rstrip('/')}/{layer['id']}"
            yield _offer(
                str(layer.get("name") or layer["id"]),
                address,
                "arcgis",
                "json",
                layer.get("name"),
                {},
                "",
            )
    root = re.match(r"(.*?/rest/services)", url)
    for service in _objects(document.get("services")):
        if service.get("type") in ("FeatureServer", "MapServer") and root:
            name = str(service.get("name"))
            yield _offer(
                name,
                f"{root[1]}/{name}/{service['type']}/0",
                "arcgis",
                "json",
                name.rpartition("/")[2],
                {},
                "",
            )
