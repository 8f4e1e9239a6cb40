"""A workspace to read over HTTP: a dataset in every state, and who may have what."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from litestar.testing import TestClient

from kfm.cli import main
from kfm.grants.token import Token, new_token
from kfm.reader.app import ReaderApp, make_app
from kfm.reader.html_pages import NO_PAGES, HtmlPages
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.sites import sites

__all__ = ["ROLES", "STATES", "answers", "called", "entry", "mark", "published", "reader"]

_LATE = "2099-01-01T00:00:00Z"
_RELEASE = "release: {{show: [period], min_records: 5{more}}}\n"
# name -> (label, what its entry says beside it)
STATES: Mapping[str, tuple[str, str]] = {
    "open": ("public", ""),
    "cells": ("sensitive-location", _RELEASE.format(more=", h3_resolution: 5")),
    "groups": ("aggregate-only", _RELEASE.format(more=", aggregate: {by: [period]}")),
    "closed": (
        "restricted",
        _RELEASE.format(more=", h3_resolution: 5, aggregate: {by: [period]}"),
    ),
    "tightened": ("public", ""),  # and its label is another now
    "withdrawn": ("public", ""),  # and it was
    "unlicensed": ("public", ""),  # so it was never official
}


def mark(name: str) -> str:
    """A word that stands in every row of a dataset, and nowhere else."""
    return f"Zyx{name.capitalize()}"


def answers(name: str, role: str) -> int:
    """What the reader answers about a dataset."""
    if name in ("tightened", "withdrawn"):
        return 451
    if name in ("open", "cells", "groups"):
        return 200
    return 200 if name == "closed" and role == "granted" else 404


def published(ws: Path, up: Upstream) -> None:
    """A dataset in every state."""
    for name, (label, more) in STATES.items():
        up.files[f"/{name}.geojson"] = _body(name)
        _register(ws, up, name, label, more, "" if name == "unlicensed" else "CC-BY-4.0")
    called(ws, "keys", "new", "--role", "steward", "--name", "T. Elder", "--for", "The Elders")
    for purpose, person in (("publish", "County"), ("study", "A. Reader")):
        called(ws, "grant", "give", "closed", "--to", person, "--purpose", purpose,
               "--expires", "2099-01-01", "--key", "T. Elder")  # fmt: skip
    for name in STATES:
        if name != "unlicensed":
            called(ws, "run", name)
    called(ws, "withdraw", "withdrawn", "--reason", "asked for", "--yes", "--key", "T. Elder")
    _register(ws, up, "tightened", "restricted", "", "CC-BY-4.0")


def _body(name: str) -> bytes:
    features = sites(200)
    for feature in features:
        feature["properties"]["period"] = mark(name)
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


def _register(ws: Path, up: Upstream, name: str, label: str, more: str, licence: str) -> None:
    (ws / "data" / "registry" / f"{name}.yml").write_text(
        f"dataset_id: {name}\ntitle: Places of {mark(name)}\nsensitivity: {label}\n"
        f"policy_label: {label}\n{f'licence: {licence}' if licence else ''}\n"
        f"source: {{url: '{up.url}/{name}.geojson', format: geojson}}\n"
        f"business_key: [site_no]\ncustodian: The Elders\n{more}"
    )


@cache
def ROLES(ws: Path) -> dict[str, dict[str, str]]:
    """Who asks, and by which header."""
    with open_world(open_workspace(ws)) as world:
        made = {
            who: new_token(world, Token(person=name, roles=(role,), expires=_LATE, made_at=_LATE))
            for who, name, role in (
                ("stranger", "B. Other", "reader"),
                ("granted", "A. Reader", "reader"),
                ("engineer", "E. Stone", "engineer"),
                ("steward", "S. Stone", "steward"),
                ("admin", "R. Root", "admin"),
            )
        }
    shown = {role: {"authorization": f"Bearer {token}"} for role, token in made.items()}
    return {"anybody": {}, **shown}


def entry(ws: Path, name: str, url: str, more: str = "") -> Path:
    """Register a public CSV with trees in it."""
    path = ws / "data" / "registry" / f"{name}.yml"
    path.write_text(
        f"dataset_id: {name}\ntitle: Trees of {name}\nlicence: CC0-1.0\nsensitivity: public\n"
        f"policy_label: public\nsource: {{url: '{url}/{name}.csv', format: csv}}\n"
        f"business_key: [id]\n{more}"
    )
    return path


@contextmanager
def reader(
    ws: Path, html: HtmlPages = NO_PAGES, base: str = "http://testserver.local", **how: Any
) -> Iterator["TestClient[ReaderApp]"]:
    """A reader of a workspace, asked in this process; `how`: as `make_app` is told."""
    app = make_app(open_workspace(ws), html, **how)
    try:
        yield TestClient(app, base_url=base)
    finally:
        app.close()


def called(ws: Path, *args: str) -> None:
    """Call the command line, which must succeed."""
    before = os.environ.get("KFM_FETCH_ATTEMPTS")
    os.environ["KFM_FETCH_ATTEMPTS"] = "2"
    try:
        assert main(["-w", str(ws), *args]) == 0, args
    finally:
        if before is None:
            del os.environ["KFM_FETCH_ATTEMPTS"]
