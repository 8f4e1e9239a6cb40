"""OpenLineage events under the schemas of the standard: the event, and each facet by its own."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs

from tests.given.verbs import SHARED

__all__ = ["wrong"]

SCHEMAS = SHARED / "schemas"
EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json"


@cache
def _index() -> dict[str, str]:
    listed: dict[str, str] = json.loads((SCHEMAS / "index.json").read_text())
    return listed


def _schema(url: str) -> Any:
    return json.loads((SCHEMAS / _index()[url.partition("#")[0]]).read_text())


@cache
def _judge(url: str) -> Any:
    return jsonschema_rs.validator_for(_schema(url), retriever=_schema, validate_formats=True)


def _facets(event: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, facet) of the run, the job and every dataset."""
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for holder in holders:
        for member in ("facets", "inputFacets", "outputFacets"):
            yield from holder.get(member, {}).items()


def wrong(event: dict[str, Any]) -> list[str]:
    """What the schemas find wrong with an event; a facet must be one that its schema speaks of."""
    found = [e.message for e in _judge(EVENT).iter_errors(event)]
    for name, facet in _facets(event):
        url = facet["_schemaURL"].partition("#")[0]
        if name not in _schema(url)["properties"]:
            found.append(f"{url} does not speak of {name}")
        found += [f"{name}: {e.message}" for e in _judge(url).iter_errors({name: facet})]
    return found
