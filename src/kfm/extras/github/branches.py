"""Files on a branch of the repository, written as one commit; the same files are no new commit."""

import hashlib

from kfm.extras.github.client import Hub, once
from kfm.model import Denied, Json

__all__ = ["base_branch", "differing", "drop_branch", "keep_branch"]

Files = dict[str, bytes]  # path in the repository -> content, which is text


def base_branch(hub: Hub) -> str:
    """The branch that pull requests go to."""
    said = hub.get("")
    if said is None:
        raise Denied(
            f"GitHub shows no repository {hub.place.full}.",
            expected="a repository that exists and that the token may see",
            remedy="Check `github.repository` in kfm.yml and what the token may see.",
        )
    return str(said.json["default_branch"])


def keep_branch(hub: Hub, branch: str, base: str, folder: str, files: Files, message: str) -> str:
    """Let the branch hold exactly these files below `folder`; returns its commit.

    A crash in between leaves objects that nothing names; the branch moves last.
    """
    tip = _tip(hub, branch)
    if tip is not None and _below(hub, tip, folder) == _shas(files):
        return tip
    parent = tip or _tip(hub, base)
    if parent is None:
        raise Denied(
            f"There is no branch {base}.",
            expected="the branch that pull requests go to",
            remedy="Make a first commit in the repository.",
        )
    gone = _below(hub, parent, folder).keys() - files.keys()
    entries = [{"path": p, "mode": "100644", "type": "blob", "sha": None} for p in sorted(gone)]
    entries += [
        {"path": p, "mode": "100644", "type": "blob", "content": files[p].decode()}
        for p in sorted(files)
    ]
    tree = hub.post("/git/trees", {"base_tree": parent, "tree": entries}, repeat=True).json["sha"]
    commit = {"message": message, "tree": tree, "parents": [parent]}
    sha = str(hub.post("/git/commits", commit, repeat=True).json["sha"])
    if tip is None:
        return _created(hub, branch, sha)
    hub.patch(f"/git/refs/heads/{branch}", {"sha": sha, "force": False})
    return sha


def _created(hub: Hub, branch: str, sha: str) -> str:
    asked = {"ref": f"refs/heads/{branch}", "sha": sha}

    def make() -> str:
        return str(hub.post("/git/refs", asked).json["object"]["sha"])

    return once(hub, lambda: _tip(hub, branch), make, looked=True)


def drop_branch(hub: Hub, branch: str) -> None:
    """Let a branch of ours be gone."""
    if _tip(hub, branch) is not None:
        hub.delete(f"/git/refs/heads/{branch}")


def differing(hub: Hub, commit: str, folder: str, files: Files) -> list[str]:
    """What a commit holds below `folder` otherwise than `files` say: other bytes, more, or less."""
    there, ours = _below(hub, commit, folder), _shas(files)
    return sorted(name for name in {*there, *ours} if there.get(name) != ours.get(name))


def _tip(hub: Hub, branch: str) -> str | None:
    said = hub.get(f"/git/ref/heads/{branch}")
    return None if said is None else str(said.json["object"]["sha"])


def _below(hub: Hub, commit: str, folder: str) -> dict[str, str]:
    """Path -> name of every file below a folder of a commit."""
    sha: str | None = commit
    for part in folder.split("/"):
        said = hub.get(f"/git/trees/{sha}") if sha is not None else None
        listed: list[Json] = said.json["tree"] if said is not None else []
        sha = next(
            (str(e["sha"]) for e in listed if (e["path"], e["type"]) == (part, "tree")), None
        )
    said = hub.get(f"/git/trees/{sha}", recursive=1) if sha is not None else None
    listed = said.json["tree"] if said is not None else []
    return {f"{folder}/{e['path']}": str(e["sha"]) for e in listed if e["type"] == "blob"}


def _shas(files: Files) -> dict[str, str]:
    """What git calls these contents."""
    return {
        path: hashlib.sha1(
            f"blob {len(content)}\0".encode() + content, usedforsecurity=False
        ).hexdigest()
        for path, content in files.items()
    }
