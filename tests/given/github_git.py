"""Git as GitHub's API shows it: blobs, trees and commits by their real names, and refs."""

import hashlib
import re
from dataclasses import dataclass, field

Tree = dict[str, tuple[str, str]]  # name -> (mode, sha); a folder's mode is 040000


class Unprocessable(Exception):
    """What git does not take; told as 422."""


def _named(kind: str, content: bytes) -> str:
    return hashlib.sha1(f"{kind} {len(content)}\0".encode() + content).hexdigest()


@dataclass(frozen=True)
class Commit:
    tree: str
    parents: tuple[str, ...]
    message: str
    by: str


@dataclass
class Git:
    """One repository's objects; a fork shares them, as on GitHub."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    trees: dict[str, Tree] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)  # heads/main -> commit

    def blob(self, content: bytes) -> str:
        self.blobs[sha := _named("blob", content)] = content
        return sha

    def tree(self, entries: Tree) -> str:
        def order(item: tuple[str, tuple[str, str]]) -> bytes:
            return (item[0] + ("/" if item[1][0] == "040000" else "")).encode()

        raw = b"".join(
            f"{mode.lstrip('0')} {name}".encode() + b"\0" + bytes.fromhex(sha)
            for name, (mode, sha) in sorted(entries.items(), key=order)
        )
        self.trees[sha := _named("tree", raw)] = dict(entries)
        return sha

    def commit(self, tree: str, parents: tuple[str, ...], message: str, by: str = "kfm") -> str:
        lines = [f"tree {tree}", *(f"parent {p}" for p in parents), f"author {by} 0 +0000"]
        sha = _named("commit", "\n".join([*lines, "", message]).encode())
        self.commits[sha] = Commit(tree, parents, message, by)
        return sha

    def files(self, tree: str, under: str = "") -> dict[str, str]:
        """Path -> blob of everything below a tree."""
        found: dict[str, str] = {}
        for name, (mode, sha) in self.trees[tree].items():
            path = f"{under}{name}"
            found |= self.files(sha, f"{path}/") if mode == "040000" else {path: sha}
        return found

    def of_files(self, files: dict[str, str]) -> str:
        """The tree that holds these blobs at these paths."""
        folders: dict[str, dict[str, str]] = {}
        here: Tree = {}
        for path, sha in files.items():
            first, _, rest = path.partition("/")
            if rest:
                folders.setdefault(first, {})[rest] = sha
            else:
                here[first] = ("100644", sha)
        for name, inside in folders.items():
            if name in here:
                raise Unprocessable("GitRPC::BadObjectState")
            here[name] = ("040000", self.of_files(inside))
        return self.tree(here)

    def ancestors(self, sha: str) -> set[str]:
        found, todo = set[str](), [sha]
        while todo:
            if (one := todo.pop()) not in found:
                found.add(one)
                todo += self.commits[one].parents
        return found

    def merge_base(self, a: str, b: str) -> str | None:
        theirs, todo = self.ancestors(b), [a]
        while todo:
            if (one := todo.pop(0)) in theirs:
                return one
            todo += self.commits[one].parents
        return None

    def changed(self, base: str, head: str) -> dict[str, str]:
        """Path -> added, modified or removed between two commits."""
        old, new = (self.files(self.commits[c].tree) for c in (base, head))
        return {
            path: "added" if path not in old else "removed" if path not in new else "modified"
            for path in sorted(old.keys() | new.keys())
            if old.get(path) != new.get(path)
        }

    def merged(self, base: str, head: str, message: str, *, squash: bool) -> str:
        """The commit that brings what changed on `head` onto `base`."""
        common = self.merge_base(base, head)
        assert common is not None
        files = self.files(self.commits[base].tree)
        theirs = self.files(self.commits[head].tree)
        for path, how in self.changed(common, head).items():
            files.pop(path, None)
            files |= {} if how == "removed" else {path: theirs[path]}
        parents = (base,) if squash else (base, head)
        return self.commit(self.of_files(files), parents, message, "a person")


def check_path(path: str) -> None:
    """What GitHub refuses in a tree."""
    parts = path.split("/")
    if not path or {"", ".", "..", ".git"} & set(parts):
        raise Unprocessable("tree.path contains a malformed path component")


def check_ref(name: str) -> None:
    """`git check-ref-format`, as far as names are made by programs."""
    bad = r"[\x00-\x20~^:?*\[\\\x7f]|\.\.|@\{|//|\.$|/$|^/|(^|/)\.|\.lock(/|$)"
    if name.count("/") < 2 or not name.startswith("refs/") or re.search(bad, name):
        raise Unprocessable(f"{name} is not a valid ref name.")
