"""A repository on the loopback GitHub: what it holds, and what people do to it."""

from dataclasses import dataclass, field
from typing import Any

from tests.given.github_git import Git
from tests.given.github_server import GithubServer


@dataclass
class Pull:
    number: int
    title: str
    body: str
    head: str  # the branch
    base: str
    draft: bool
    by: str
    from_repo: str  # another than ours: a fork
    state: str = "open"
    merge_commit: str | None = None
    left_at: str = ""  # where its branch was when it was closed
    locked: bool = False


@dataclass
class Comment:
    id: int
    number: int
    body: str
    by: str
    bot: bool
    association: str


@dataclass
class Release:
    id: int
    tag: str
    name: str
    body: str
    draft: bool
    target: str
    prerelease: bool
    assets: list[dict[str, Any]] = field(default_factory=list)


class Repo:
    """State, and verbs of people."""

    def __init__(self, name: str = "kansas/open-data") -> None:
        self.name, self.git, self.default = name, Git(), "main"
        self.immutable = False  # published releases take no more assets
        self.workflows: tuple[str, ...] = ("kfm-event",)  # what dispatches start
        self.pulls: dict[int, Pull] = {}
        self.comments: dict[int, Comment] = {}
        self.checks: dict[int, dict[str, Any]] = {}
        self.statuses: list[dict[str, Any]] = []
        self.releases: dict[int, Release] = {}
        self.bytes: dict[int, bytes] = {}  # of assets
        self.dispatches: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.server: GithubServer
        self._ids = iter(range(1, 10**9))
        first = self.git.of_files({"README.md": self.git.blob(b"# open data\n")})
        self.git.refs["heads/main"] = self.git.commit(first, (), "begin", "a person")

    def new_id(self) -> int:
        return next(self._ids)

    def file(self, path: str, ref: str = "heads/main") -> bytes | None:
        """What a file holds at a ref or commit."""
        sha = self.git.refs.get(ref, ref)
        blob = self.git.files(self.git.commits[sha].tree).get(path)
        return None if blob is None else self.git.blobs[blob]

    def push(self, branch: str, files: dict[str, bytes], by: str = "a person") -> str:
        """Somebody's commit on a branch."""
        tip = self.git.refs.get(f"heads/{branch}", self.git.refs[f"heads/{self.default}"])
        held = self.git.files(self.git.commits[tip].tree)
        tree = self.git.of_files(held | {p: self.git.blob(c) for p, c in files.items()})
        self.git.refs[f"heads/{branch}"] = self.git.commit(tree, (tip,), "pushed", by)
        return self.git.refs[f"heads/{branch}"]

    def from_fork(self, branch: str, files: dict[str, bytes], title: str = "a change") -> Pull:
        """A pull request whose branch is in a stranger's fork."""
        here = self.git.refs.get(f"heads/{branch}")
        tip = self.push(branch, files, "a stranger")
        self.git.refs[f"pull/{(number := self.new_id())}/head"] = tip
        if here is None:
            del self.git.refs[f"heads/{branch}"]
        else:
            self.git.refs[f"heads/{branch}"] = here
        self.pulls[number] = Pull(
            number, title, "", branch, self.default, False, "stranger", "stranger/open-data"
        )
        return self.pulls[number]

    def tip(self, pull: Pull) -> str:
        if pull.from_repo != self.name:
            return self.git.refs[f"pull/{pull.number}/head"]
        return pull.left_at or self.git.refs[f"heads/{pull.head}"]

    def merge(self, number: int, *, squash: bool = False, keep_branch: bool = False) -> str:
        """A person merges, and the branch goes."""
        pull, base = self.pulls[number], self.git.refs[f"heads/{self.default}"]
        tip = self.tip(pull)
        made = self.git.merged(base, tip, f"{pull.title} (#{number})", squash=squash)
        self.git.refs[f"heads/{self.default}"] = made
        pull.state, pull.merge_commit, pull.left_at = "closed", made, tip
        if not keep_branch:
            self.git.refs.pop(f"heads/{pull.head}", None)
        return made

    def update_branch(self, number: int) -> str:
        """The button that brings the base into the branch."""
        pull, base = self.pulls[number], self.git.refs[f"heads/{self.default}"]
        made = self.git.merged(self.tip(pull), base, "Merge main", squash=False)
        self.git.refs[f"heads/{pull.head}"] = made
        return made

    def say(self, number: int, body: str, association: str = "NONE") -> Comment:
        """A person's comment."""
        told = Comment(self.new_id(), number, body, "somebody", False, association)
        self.comments[told.id] = told
        return told

    def comments_on(self, number: int) -> list[Comment]:
        return [c for c in self.comments.values() if c.number == number]

    def checks_on(self, sha: str) -> dict[str, str | None]:
        """Name -> conclusion."""
        return {c["name"]: c["conclusion"] for c in self.checks.values() if c["head_sha"] == sha}

    def assets_of(self, tag: str) -> dict[str, bytes]:
        (found,) = [r for r in self.releases.values() if r.tag == tag and not r.draft]
        return {a["name"]: self.bytes[a["id"]] for a in found.assets if a["state"] == "uploaded"}
