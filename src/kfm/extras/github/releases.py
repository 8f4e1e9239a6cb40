"""A release with files attached, each with its digest; nobody sees it before all of them are there."""

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kfm.extras.github.client import Hub, once
from kfm.model import IntegrityError, Json

__all__ = ["Asset", "asset_names", "keep_release", "release_at", "take_back"]

MOST_BYTES = (1 << 31) - 1  # of one file
MOST_FILES = 1000


class Asset(msgspec.Struct, frozen=True):
    """A file to attach."""

    file: Path
    digest: str  # sha256:…
    label: str  # its path in the version


def keep_release(hub: Hub, tag: str, title: str, body: str, assets: Mapping[str, Asset]) -> str:
    """Let the release `tag` exist with exactly these assets; returns where it is shown. What was
    published stays as it is when its assets are right.
    """
    found = release_at(hub, tag)
    if found is None:
        asked = {"tag_name": tag, "name": title, "body": body, "draft": True}
        found = once(hub, lambda: _draft(hub, tag), lambda: hub.post("/releases", asked).json)
    _attach(hub, found, assets)
    if not found["draft"]:
        return str(found["html_url"])
    for other in _drafts(hub, tag):
        if other["id"] != found["id"]:  # of somebody who was at it at the same time
            hub.delete(f"/releases/{other['id']}")
    told = {"tag_name": tag, "name": title, "body": body, "draft": False, "make_latest": "false"}
    return str(hub.patch(f"/releases/{found['id']}", told).json["html_url"])


def release_at(hub: Hub, tag: str) -> Json | None:
    """The published release of a tag."""
    said = hub.get(f"/releases/tags/{tag}")
    return None if said is None else said.json


def take_back(hub: Hub, release: Json, why: str) -> None:
    """Detach everything from a release, and say why in its text."""
    for asset in _attached(hub, release):
        hub.delete(f"/releases/assets/{asset['id']}")
    if release["body"] != why:
        hub.patch(f"/releases/{release['id']}", {"body": why})


def asset_names(paths: Mapping[str, str]) -> dict[str, str]:
    """Path of a version -> name of its asset. GitHub keeps no folders and few characters; what would
    be called the same gets some of its digest.
    """
    plain = {p: re.sub(r"[^A-Za-z0-9._-]+", ".", p).strip(".") or "file" for p in paths}
    called = list(plain.values())
    return {
        path: name if called.count(name) == 1 else f"{paths[path].rpartition(':')[2][:12]}.{name}"
        for path, name in plain.items()
    }


def _drafts(hub: Hub, tag: str) -> list[Json]:
    found = [r for r in hub.pages("/releases") if r["draft"] and r["tag_name"] == tag]
    return sorted(found, key=lambda r: int(r["id"]))


def _draft(hub: Hub, tag: str) -> Json | None:
    return next(iter(_drafts(hub, tag)), None)


def _attached(hub: Hub, release: Json) -> list[Json]:
    return list(hub.pages(f"/releases/{release['id']}/assets"))


def _attach(hub: Hub, release: Json, assets: Mapping[str, Asset]) -> None:
    there = {str(a["name"]): a for a in _attached(hub, release)}
    for name in there.keys() - assets.keys():
        hub.delete(f"/releases/assets/{there[name]['id']}")
    for name, asset in assets.items():
        before = there.get(name)
        if before is not None and not _is(before, asset):
            # cut off, or other bytes
            hub.delete(f"/releases/assets/{before['id']}")
            before = None
        if before is None:
            _upload(hub, release, name, asset)


def _upload(hub: Hub, release: Json, name: str, asset: Asset) -> None:
    def look() -> Json | None:
        for one in _attached(hub, release):
            if one["name"] == name and _is(one, asset):
                return one
            if one["name"] == name:
                hub.delete(f"/releases/assets/{one['id']}")
        return None

    def make() -> Json:
        query = {"name": name, "label": asset.label}
        media_type = "application/octet-stream"
        return hub.upload(str(release["upload_url"]), asset.file, query, media_type).json

    made = once(hub, look, make, looked=True)
    if not _is(made, asset):
        hub.delete(f"/releases/assets/{made['id']}")
        raise IntegrityError(
            f"{asset.label} arrived at GitHub as other bytes: {made.get('digest')}.",
            expected=asset.digest,
            remedy="Do the same again; `kfm verify` looks whether the file here is whole.",
        )


def _is(one: Json, asset: Asset) -> bool:
    """Whether an asset is these bytes; where GitHub states no digest, its size has to do."""
    stated = one.get("digest")
    same = stated == asset.digest if stated else one["size"] == asset.file.stat().st_size
    return bool(one["state"] == "uploaded" and same)
