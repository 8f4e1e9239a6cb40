"""One pull request for a branch of ours."""

import msgspec

from kfm.extras.github.client import Hub, once
from kfm.model import Json

__all__ = ["Pull", "close_pull", "keep_pull", "pull_at", "touched"]


class Pull(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request as far as it matters here."""

    number: int
    state: str
    merged: bool
    draft: bool
    head: str  # the commit
    branch: str
    from_repository: str  # "": it is gone
    base: str
    merge_commit: str | None
    title: str
    body: str
    url: str


def keep_pull(hub: Hub, branch: str, base: str, title: str, body: str, *, draft: bool) -> Pull:
    """Let an open pull request for the branch say this. The first line of `body` is its mark: what
    people wrote below stays while that is the same, and one that they closed stays closed.
    """

    def look() -> Pull | None:
        found = _listed(hub, branch, base)
        opened = next((p for p in found if p.state == "open"), None)
        return opened or next((p for p in found if _mark(p.body) == _mark(body)), None)

    def make() -> Pull:
        asked = {"title": title, "head": branch, "base": base, "body": body, "draft": draft}
        return _pull(hub.post("/pulls", asked).json)

    found = once(hub, look, make)
    if found.state == "open" and _mark(found.body) != _mark(body):
        return _pull(hub.patch(f"/pulls/{found.number}", {"title": title, "body": body}).json)
    return found


def _mark(body: str) -> str:
    return body.partition("\n")[0]


def pull_at(hub: Hub, number: int) -> Pull | None:
    said = hub.get(f"/pulls/{number}")
    return None if said is None else _pull(said.json)


def close_pull(hub: Hub, pull: Pull) -> None:
    if pull.state == "open":
        hub.patch(f"/pulls/{pull.number}", {"state": "closed"})


def touched(hub: Hub, number: int) -> list[str]:
    """The files that a pull request changes, by their names before and after."""
    return [
        str(name)
        for file in hub.pages(f"/pulls/{number}/files")
        for name in (file["filename"], file.get("previous_filename"))
        if name
    ]


def _listed(hub: Hub, branch: str, base: str) -> list[Pull]:
    """Pull requests of our own branch, a fork's of the same name left out; the newest first."""
    head = f"{hub.place.owner}:{branch}"
    found = (_pull(p) for p in hub.pages("/pulls", state="all", head=head, base=base))
    return [p for p in found if p.from_repository == hub.place.full and p.branch == branch]


def _pull(told: Json) -> Pull:
    head = told["head"]
    return Pull(
        number=told["number"],
        state=told["state"],
        merged=bool(told.get("merged_at")),
        draft=bool(told.get("draft")),
        head=head["sha"],
        branch=head["ref"],
        from_repository=str((head.get("repo") or {}).get("full_name") or ""),
        base=told["base"]["ref"],
        merge_commit=told.get("merge_commit_sha"),
        title=told["title"],
        body=str(told.get("body") or "").replace("\r\n", "\n"),
        url=told["html_url"],
    )
