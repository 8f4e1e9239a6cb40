"""Calls of the loopback GitHub about releases and events."""

import hashlib
import re
from typing import Any

from tests.given.github_git import check_ref
from tests.given.github_repo import Release, Repo
from tests.given.github_server import Answer, Call, Refusal, Token, invalid, route

AT = "2026-11-17T00:00:00Z"


# ---- releases ----------------------------------------------------------------------------------
def _release(repo: Repo, release: Release) -> Any:
    return {
        "id": release.id,
        "tag_name": release.tag,
        "name": release.name,
        "body": release.body,
        "draft": release.draft,
        "prerelease": release.prerelease,
        "target_commitish": release.target,
        "upload_url": f"{repo.server.url}/repos/{repo.name}/releases/{release.id}/assets{{?name,label}}",
        "html_url": f"https://github.com/{repo.name}/releases/tag/{release.tag}",
        "assets": release.assets,
    }


@route("GET /releases", "contents:read")
def list_releases(repo: Repo, token: Token, call: Call) -> Answer:
    drafts = token.may.get("contents") == "write"  # who may not push sees none
    found = [_release(repo, r) for r in reversed(repo.releases.values()) if drafts or not r.draft]
    return repo.server.page(call, found)


@route("POST /releases", "contents:write")
def create_release(repo: Repo, token: Token, call: Call, body: Any) -> Answer:
    check_ref(f"refs/tags/{body['tag_name']}")
    draft = bool(body.get("draft"))
    _tag_free(repo, body["tag_name"], draft)
    release = Release(
        repo.new_id(),
        body["tag_name"],
        body.get("name") or "",
        body.get("body") or "",
        draft,
        body.get("target_commitish") or repo.default,
        bool(body.get("prerelease")),
    )
    repo.releases[release.id] = release
    _tagged(repo, release)
    return Answer(201, _release(repo, release))


def _tag_free(repo: Repo, tag: str, draft: bool, but: int = 0) -> None:
    taken = any(r.tag == tag and not r.draft and r.id != but for r in repo.releases.values())
    if taken and not draft:
        raise invalid("Release", "tag_name", "already_exists")


def _tagged(repo: Repo, release: Release) -> None:
    if release.draft or f"tags/{release.tag}" in repo.git.refs:
        return
    target = repo.git.refs.get(f"heads/{release.target}", release.target)
    if target not in repo.git.commits:
        raise invalid("Release", "target_commitish", "invalid")
    repo.git.refs[f"tags/{release.tag}"] = target


@route("GET /releases/tags/{tag}", "contents:read")
def release_by_tag(repo: Repo, token: Token, call: Call, tag: str) -> Answer:
    for release in repo.releases.values():
        if release.tag == tag and not release.draft:
            return Answer(200, _release(repo, release))
    raise Refusal(404, "Not Found")


def _held(repo: Repo, number: str) -> Release:
    if not number.isdigit() or int(number) not in repo.releases:
        raise Refusal(404, "Not Found")
    return repo.releases[int(number)]


@route("GET /releases/{release_id}", "contents:read")
def get_release(repo: Repo, token: Token, call: Call, release_id: str) -> Answer:
    return Answer(200, _release(repo, _held(repo, release_id)))


@route("PATCH /releases/{release_id}", "contents:write")
def update_release(repo: Repo, token: Token, call: Call, release_id: str, body: Any) -> Answer:
    release = _held(repo, release_id)
    if body.get("draft") is False:
        _tag_free(repo, release.tag, False, release.id)
    for given, kept in (("name", "name"), ("body", "body"), ("draft", "draft")):
        if given in body:
            setattr(release, kept, body[given])
    _tagged(repo, release)
    return Answer(200, _release(repo, release))


@route("DELETE /releases/{release_id}", "contents:write")
def delete_release(repo: Repo, token: Token, call: Call, release_id: str, body: Any) -> Answer:
    del repo.releases[_held(repo, release_id).id]
    return Answer(204)


@route("GET /releases/{release_id}/assets", "contents:read")
def list_assets(repo: Repo, token: Token, call: Call, release_id: str) -> Answer:
    return repo.server.page(call, _held(repo, release_id).assets)


@route("POST /releases/{release_id}/assets", "contents:write")
def upload_asset(repo: Repo, token: Token, call: Call, release_id: str, body: bytes) -> Answer:
    release = _held(repo, release_id)
    if "content-type" not in call.headers or not call.query.get("name"):
        raise Refusal(422, "Multipart form data required")
    if repo.immutable and not release.draft:
        raise Refusal(422, "Cannot upload assets to an immutable release.")
    if not body:
        raise Refusal(400, "Bad Content-Length")
    name = re.sub(r"[^A-Za-z0-9._+@-]+", ".", call.query["name"]).strip(".")
    if any(a["name"] == name for a in release.assets):
        raise invalid("ReleaseAsset", "name", "already_exists")
    asset = {
        "id": repo.new_id(),
        "name": name,
        "label": call.query.get("label"),
        "state": "uploaded" if len(body) == int(call.headers["content-length"]) else "open",
        "content_type": call.headers["content-type"],
        "size": len(body),
        "digest": f"sha256:{hashlib.sha256(body).hexdigest()}",
    }
    if asset["state"] == "open":
        asset |= {"digest": None, "size": 0}
    release.assets.append(asset)
    repo.bytes[asset["id"]] = body
    return Answer(201, asset)


@route("DELETE /releases/assets/{asset_id}", "contents:write")
def delete_asset(repo: Repo, token: Token, call: Call, asset_id: str, body: Any) -> Answer:
    for release in repo.releases.values():
        for asset in release.assets:
            if asset["id"] == int(asset_id):
                if repo.immutable and not release.draft:
                    raise Refusal(422, "Cannot delete assets of an immutable release.")
                release.assets.remove(asset)
                return Answer(204)
    raise Refusal(404, "Not Found")


# ---- events ------------------------------------------------------------------------------------
@route("POST /dispatches", "contents:write")
def dispatch(repo: Repo, token: Token, call: Call, body: Any) -> Answer:
    if len(call.body) > 64 * 1024:
        raise Refusal(422, "client_payload is too large.")
    repo.dispatches.append(body)
    if body["event_type"] in repo.workflows:
        payload = body.get("client_payload") or {}
        repo.runs.append(
            {
                "id": repo.new_id(),
                "event": "repository_dispatch",
                "display_title": str(payload.get("key") or body["event_type"]),
                "status": "queued",
                "conclusion": None,
                "created_at": AT,
            }
        )
    return Answer(204)


@route("GET /actions/runs", "actions:read")
def list_runs(repo: Repo, token: Token, call: Call) -> Answer:
    wanted = call.query.get("event")
    found = [r for r in reversed(repo.runs) if wanted in (None, r["event"])]
    return repo.server.page(call, found, "workflow_runs")
