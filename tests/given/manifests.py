"""Judges of rendered manifests: the schemas that their makers publish, read strictly."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import kubernetes_validate
import yaml

from tests.brought import SCHEMAS, go_files

__all__ = ["Refused", "judge"]

Document = dict[str, Any]


class Refused(Exception):
    """What a schema does not allow."""


def judge(document: Document) -> None:
    """Refuse what its kind does not know, or misses."""
    api = document["apiVersion"]
    if api.startswith("kustomize.config.k8s.io"):  # read by a program, not by a cluster
        known = {"apiVersion", "kind", "namespace", "resources"}
        if document.keys() - known:
            raise Refused(sorted(document.keys() - known))
    elif "." not in api.partition("/")[0] or ".k8s.io" in api:
        _kubernetes(document)
    else:
        validator = _resources()[api, document["kind"]]
        try:
            validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            raise Refused(error.message) from error


def _kubernetes(document: Document) -> None:
    try:
        kubernetes_validate.validate(document, "1.30", strict=True)
    except kubernetes_validate.ValidationError as error:
        raise Refused(error.message) from error


@cache
def _resources() -> dict[tuple[str, str], jsonschema_rs.Validator]:
    """Every kind that the makers of runners define."""
    found = {}
    folders = [go_files(each) for name, each in SCHEMAS.items() if name != "compose"]
    for path in sorted(p for folder in folders for p in folder.glob("*.yaml")):
        if path.stat().st_size < 1_400_000:  # a whole workflow: nothing of it is rendered
            for definition in yaml.load_all(path.read_text(), yaml.CSafeLoader):
                found |= _kinds(definition)
    return found


def _kinds(definition: Document) -> dict[tuple[str, str], jsonschema_rs.Validator]:
    if definition.get("kind") != "CustomResourceDefinition":
        return {}
    spec = definition["spec"]
    return {
        (f"{spec['group']}/{version['name']}", spec["names"]["kind"]): jsonschema_rs.validator_for(
            _strict(version["schema"]["openAPIV3Schema"])
        )
        for version in spec["versions"]
    }


def _strict(schema: Any) -> Any:
    """As a server in strict mode reads it: a member that is not named is unknown."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _strict(value) for key, value in schema.items() if key not in ("format", "type")}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    kind = schema.get("type")
    if isinstance(kind, dict):  # a member that is called type
        return {**found, "type": _strict(kind)}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    return {**found, "type": kind} if kind else found


def compose_refuses(document: Document) -> str:
    """What the specification of compose files does not allow; empty: nothing."""
    path = go_files(SCHEMAS["compose"]) / "compose-spec.json"
    validator = jsonschema_rs.validator_for(json.loads(Path(path).read_text()))
    return "; ".join(error.message for error in validator.iter_errors(document))
