"""One comment in a pull request, found by its mark and kept up to date."""

from kfm.extras.github.client import Hub, once
from kfm.model import Json

__all__ = ["keep_comment"]

MOST = 65_000  # characters; GitHub takes 65,536
# whose comments we may have written: strangers cannot be any of these
_OURS = {"OWNER", "MEMBER", "COLLABORATOR"}


def keep_comment(hub: Hub, number: int, mark: str, body: str) -> int:
    """Let the comment with this mark say `body`; returns its id. Whoever else made one in between,
    the oldest stays and the others go.
    """
    text = f"<!-- kfm:{mark} -->\n{_cut(body)}"
    path = f"/issues/{number}/comments"

    def look() -> Json | None:
        return next(iter(_marked(hub, path, mark)), None)

    found = once(hub, look, lambda: hub.post(path, {"body": text}).json)
    kept, *others = _marked(hub, path, mark) or [found]
    for other in others:
        hub.delete(f"/issues/comments/{other['id']}")
    if kept["body"] != text:
        hub.patch(f"/issues/comments/{kept['id']}", {"body": text})
    return int(kept["id"])


def _marked(hub: Hub, path: str, mark: str) -> list[Json]:
    """Our comments with this mark, the oldest first. A stranger who copies it is not believed."""
    first = f"<!-- kfm:{mark} -->\n"
    found = [
        c
        for c in hub.pages(path)
        if str(c.get("body") or "").replace("\r\n", "\n").startswith(first)
        and ((c.get("user") or {}).get("type") == "Bot" or c.get("author_association") in _OURS)
    ]
    return sorted(found, key=lambda c: int(c["id"]))


def _cut(body: str) -> str:
    if len(body) <= MOST:
        return body
    return body[: body.rfind("\n", 0, MOST)] + "\n\nThe rest is left out."
