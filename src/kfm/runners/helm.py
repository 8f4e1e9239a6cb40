"""A chart for Helm: the manifests of `cronjob`, with the image, the tick and the number of workers left
to values. It holds nothing that they do not.
"""

import json
import re
from collections.abc import Mapping

import yaml

from kfm import __version__
from kfm.model import Json
from kfm.runners import cronjob
from kfm.runners.lines import Line, Values
from kfm.runners.settings import Settings
from kfm.runners.yaml_text import Tree, Verbatim, yaml_text

__all__ = ["FOLDER", "files", "filled", "lines"]

FOLDER = "apps/workers/deploy/helm"
_VALUE = re.compile(r"\{\{ \.Values\.([a-z.]+) \}\}")


class _Left(Settings, frozen=True, kw_only=True):
    """Settings that are left to values."""

    @property
    def image(self) -> str:
        return "{{ .Values.image.repository }}@{{ .Values.image.digest }}"

    @property
    def image_digest(self) -> str:
        return "{{ .Values.image.digest }}"


def files(settings: Settings) -> dict[str, str]:
    """The chart. Without an image in kfm.yml it has none, and cannot be installed before one is given:
    its schema takes a digest and no tag.
    """
    left = _Left(
        runners=settings.runners,
        datasets=settings.datasets,
        tick="{{ .Values.tick }}",
        store=settings.store,
    )
    found = {
        "Chart.yaml": yaml_text(_chart()),
        "values.yaml": yaml_text(_values(settings)),
        "values.schema.json": json.dumps(_schema(), indent=2) + "\n",
        "templates/cronjob.yaml": yaml_text(cronjob.tick(left)),
    }
    if settings.store:
        replicas = Verbatim("{{ .Values.workers.replicas }}")
        found["templates/workers.yaml"] = yaml_text(cronjob.workers(left, replicas))
    return {f"{FOLDER}/{name}": text for name, text in found.items()}


def filled(found: Mapping[str, str]) -> dict[str, str]:
    """The manifests of a chart with its own values: what Helm makes of these templates, which use
    nothing else of its language.
    """
    by_name = {path.rpartition("helm/")[2]: text for path, text in found.items()}
    values: Json = yaml.safe_load(by_name["values.yaml"])

    def value(match: re.Match[str]) -> str:
        inner: object = values
        for key in match[1].split("."):
            inner = inner[key] if isinstance(inner, dict) else None
        return str(inner)

    return {
        name.removeprefix("templates/"): _VALUE.sub(value, text)
        for name, text in by_name.items()
        if name.startswith("templates/")
    }


def lines(found: Mapping[str, str], values: Values) -> list[Line]:
    return cronjob.lines(filled(found), values)


def _chart() -> Tree:
    return {
        "apiVersion": "v2",
        "name": "kfm",
        "description": "Keeps the datasets of one workspace fresh",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.27.0-0",
    }


def _values(settings: Settings) -> Tree:
    name, _, digest = (settings.image if settings.runners.image else "").partition("@")
    workers: Tree = {
        "workers": {
            "# as many as you like: the job table decides who does what": None,
            "replicas": 2,
        }
    }
    return {
        "image": {
            "repository": name,
            "# a tag may be another image tomorrow and is refused": None,
            "digest": digest,
        },
        "# a cron line, in UTC": None,
        "tick": settings.tick,
        **(workers if settings.store else {}),
    }


def _schema() -> Json:
    """What `helm install`, `template` and `lint` hold values to."""
    text = {"type": "string"}
    image = {
        "repository": {**text, "pattern": "^[a-z0-9][a-z0-9.:/_-]*$"},
        "digest": {**text, "pattern": "^sha256:[0-9a-f]{64}$"},
    }
    needed = {"image": _object(image), "tick": {**text, "pattern": "^\\S+( \\S+){4}$"}}
    others = {
        "workers": _object({"replicas": {"type": "integer", "minimum": 0}}),
        "global": {"type": "object"},  # what a chart above this one may hand down to it
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **_object(needed, **others),
    }


def _object(properties: Json, **more: Json) -> Json:
    """A mapping that has these properties, may have more, and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(properties),
        "properties": {**properties, **more},
    }
