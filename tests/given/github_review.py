"""Calls of the loopback GitHub about commits, pull requests, comments and checks."""

import base64
from typing import Any

from tests.given.github_git import Commit, Git, check_path, check_ref
from tests.given.github_repo import Comment, Pull, Repo
from tests.given.github_server import Answer, Call, Refusal, Token, invalid, route

AT = "2026-11-17T00:00:00Z"
MOST = 65536  # characters of a comment, or of the body of a pull request


def _user(login: str, bot: bool = False) -> dict[str, Any]:
    return {"login": login, "type": "Bot" if bot else "User", "site_admin": False}


def _short(repo: Repo, name: str) -> dict[str, Any]:
    owner, _, rest = name.partition("/")
    return {"name": rest, "full_name": name, "owner": _user(owner), "fork": name != repo.name}


@route("GET ", "metadata:read")
def repository(repo: Repo, token: Token, call: Call) -> Answer:
    return Answer(200, _short(repo, repo.name) | {"default_branch": repo.default, "private": False})


# ---- git ---------------------------------------------------------------------------------------
def _ref(name: str, sha: str) -> Answer:
    return Answer(200, {"ref": f"refs/{name}", "object": {"sha": sha, "type": "commit"}})


@route("GET /git/ref/{ref}", "contents:read")
def get_ref(repo: Repo, token: Token, call: Call, ref: str) -> Answer:
    if ref not in repo.git.refs:
        raise Refusal(404, "Not Found")
    return _ref(ref, repo.git.refs[ref])


@route("POST /git/refs", "contents:write")
def create_ref(repo: Repo, token: Token, call: Call, body: Any) -> Answer:
    check_ref(body["ref"])
    name = body["ref"].removeprefix("refs/")
    if name in repo.git.refs:
        raise Refusal(422, "Reference already exists")
    if any(name.startswith(f"{r}/") or r.startswith(f"{name}/") for r in repo.git.refs):
        raise Refusal(422, "Reference update failed")
    if body["sha"] not in repo.git.commits:
        raise Refusal(422, "Object does not exist")
    repo.git.refs[name] = body["sha"]
    return Answer(201, _ref(name, body["sha"]).json)


@route("PATCH /git/refs/{ref}", "contents:write")
def update_ref(repo: Repo, token: Token, call: Call, ref: str, body: Any) -> Answer:
    if ref not in repo.git.refs:
        raise Refusal(422, "Reference does not exist")
    if body["sha"] not in repo.git.commits:
        raise Refusal(422, "Object does not exist")
    forward = repo.git.refs[ref] in repo.git.ancestors(body["sha"])
    if not forward and not body.get("force"):
        raise Refusal(422, "Update is not a fast forward")
    repo.git.refs[ref] = body["sha"]
    return _ref(ref, body["sha"])


@route("DELETE /git/refs/{ref}", "contents:write")
def delete_ref(repo: Repo, token: Token, call: Call, ref: str, body: Any) -> Answer:
    if ref not in repo.git.refs:
        raise Refusal(422, "Reference does not exist")
    del repo.git.refs[ref]
    return Answer(204)


@route("GET /git/blobs/{file_sha}", "contents:read")
def get_blob(repo: Repo, token: Token, call: Call, file_sha: str) -> Answer:
    if file_sha not in repo.git.blobs:
        raise Refusal(404, "Not Found")
    raw = repo.git.blobs[file_sha]
    text = base64.encodebytes(raw).decode()
    return Answer(200, {"sha": file_sha, "size": len(raw), "content": text, "encoding": "base64"})


@route("POST /git/trees", "contents:write")
def create_tree(repo: Repo, token: Token, call: Call, body: Any) -> Answer:
    git, base = repo.git, body.get("base_tree")
    tree = git.commits[base].tree if base in git.commits else base
    if base is not None and tree not in git.trees:
        raise Refusal(404, "Not Found")
    files = git.files(tree) if base is not None else {}
    if not body["tree"]:
        raise Refusal(422, "Invalid tree info")
    for entry in body["tree"]:
        check_path(entry.get("path", ""))
        if entry.get("mode") != "100644" or entry.get("type") != "blob":
            raise Refusal(422, "tree.mode must be one of 100644 for what the tests know")
        if ("sha" in entry) == ("content" in entry):
            raise Refusal(422, "Must supply either tree.sha or tree.content, but not both")
        if "content" in entry:
            files[entry["path"]] = git.blob(entry["content"].encode())
        elif entry["sha"] is None:
            if files.pop(entry["path"], None) is None:
                raise Refusal(422, "GitRPC::BadObjectState")
        elif entry["sha"] not in git.blobs:
            raise Refusal(422, f"tree.sha {entry['sha']} is not a valid blob")
        else:
            files[entry["path"]] = entry["sha"]
    return Answer(201, _tree(git, git.of_files(files), False))


def _tree(git: Git, sha: str, recursive: bool) -> Any:
    listed = [
        {"path": name, "mode": mode, "type": "tree" if mode == "040000" else "blob", "sha": one}
        for name, (mode, one) in sorted(git.trees[sha].items())
    ]
    if recursive:
        listed = [
            {"path": path, "mode": "100644", "type": "blob", "sha": one}
            for path, one in sorted(git.files(sha).items())
        ]
    return {"sha": sha, "tree": listed, "truncated": False}


@route("GET /git/trees/{tree_sha}", "contents:read")
def get_tree(repo: Repo, token: Token, call: Call, tree_sha: str) -> Answer:
    git = repo.git
    sha = git.commits[tree_sha].tree if tree_sha in git.commits else tree_sha
    if sha not in git.trees:
        raise Refusal(404, "Not Found")
    return Answer(200, _tree(git, sha, "recursive" in call.query))


def _commit(sha: str, one: Commit) -> Any:
    who = {"name": one.by, "email": "kfm@example.org", "date": AT}
    return {
        "sha": sha,
        "message": one.message,
        "tree": {"sha": one.tree},
        "parents": [{"sha": p} for p in one.parents],
        "author": who,
        "committer": who,
    }


@route("POST /git/commits", "contents:write")
def create_commit(repo: Repo, token: Token, call: Call, body: Any) -> Answer:
    if body["tree"] not in repo.git.trees:
        raise Refusal(422, "Tree SHA does not exist")
    parents = tuple(body.get("parents", ()))
    if any(p not in repo.git.commits for p in parents):
        raise Refusal(422, "Parent SHA does not exist or is not a commit object")
    sha = repo.git.commit(body["tree"], parents, body["message"], token.login)
    return Answer(201, _commit(sha, repo.git.commits[sha]))


@route("GET /git/commits/{commit_sha}", "contents:read")
def get_commit(repo: Repo, token: Token, call: Call, commit_sha: str) -> Answer:
    if commit_sha not in repo.git.commits:
        raise Refusal(404, "Not Found")
    return Answer(200, _commit(commit_sha, repo.git.commits[commit_sha]))


# ---- pull requests and comments ----------------------------------------------------------------
def _pull(repo: Repo, pull: Pull, whole: bool) -> Any:
    tip = repo.tip(pull)
    merged = pull.merge_commit is not None
    told: dict[str, Any] = {
        "number": pull.number,
        "state": pull.state,
        "title": pull.title,
        "body": pull.body,
        "draft": pull.draft,
        "locked": pull.locked,
        "user": _user(pull.by, pull.by.endswith("bot")),
        "merged_at": AT if merged else None,
        "merge_commit_sha": pull.merge_commit,
        "html_url": f"https://github.com/{repo.name}/pull/{pull.number}",
        "head": {
            "ref": pull.head,
            "sha": tip,
            "label": f"{pull.from_repo.partition('/')[0]}:{pull.head}",
            "repo": _short(repo, pull.from_repo),
        },
        "base": {
            "ref": pull.base,
            "sha": repo.git.refs[f"heads/{pull.base}"],
            "label": f"{repo.name.partition('/')[0]}:{pull.base}",
            "repo": _short(repo, repo.name),
        },
    }
    return told | ({"merged": merged} if whole else {})


@route("GET /pulls", "pull_requests:read")
def list_pulls(repo: Repo, token: Token, call: Call) -> Answer:
    state, head = call.query.get("state", "open"), call.query.get("head", "")
    if head and ":" not in head:
        head = ""  # GitHub does not look at a head without an owner
    found = [
        _pull(repo, p, False)
        for p in sorted(repo.pulls.values(), key=lambda p: -p.number)
        if state in ("all", p.state)
        and head in ("", f"{p.from_repo.partition('/')[0]}:{p.head}")
        and call.query.get("base", p.base) == p.base
    ]
    return repo.server.page(call, found)


@route("POST /pulls", "pull_requests:write")
def create_pull(repo: Repo, token: Token, call: Call, body: Any) -> Answer:
    if "title" not in body:
        raise invalid("PullRequest", "title", "missing_field")
    head = body["head"].removeprefix(f"{repo.name.partition('/')[0]}:")
    for name, branch in (("head", head), ("base", body["base"])):
        if f"heads/{branch}" not in repo.git.refs:
            raise invalid("PullRequest", name, "invalid")
    if any(
        (p.state, p.head, p.base, p.from_repo) == ("open", head, body["base"], repo.name)
        for p in repo.pulls.values()
    ):
        said = f"A pull request already exists for {repo.name.partition('/')[0]}:{head}."
        error = {"resource": "PullRequest", "code": "custom", "message": said}
        raise Refusal(422, "Validation Failed", [error])
    ours, theirs = (repo.git.refs[f"heads/{b}"] for b in (body["base"], head))
    if theirs in repo.git.ancestors(ours):
        said = f"No commits between {body['base']} and {head}"
        error = {"resource": "PullRequest", "code": "custom", "message": said}
        raise Refusal(422, "Validation Failed", [error])
    _short_enough("PullRequest", body)
    pull = Pull(
        repo.new_id(),
        body["title"],
        body.get("body", ""),
        head,
        body["base"],
        bool(body.get("draft")),
        token.login,
        repo.name,
    )
    repo.pulls[pull.number] = pull
    return Answer(201, _pull(repo, pull, True))


def _short_enough(resource: str, body: Any) -> None:
    if len(body.get("body") or "") > MOST:
        raise invalid(
            resource, "body", "custom", message=f"body is too long (maximum is {MOST} characters)"
        )
    if len(body.get("title") or "") > 256:
        raise invalid(
            resource, "title", "custom", message="title is too long (maximum is 256 characters)"
        )


def _found(repo: Repo, number: str) -> Pull:
    if not number.isdigit() or int(number) not in repo.pulls:
        raise Refusal(404, "Not Found")
    return repo.pulls[int(number)]


@route("GET /pulls/{pull_number}", "pull_requests:read")
def get_pull(repo: Repo, token: Token, call: Call, pull_number: str) -> Answer:
    return Answer(200, _pull(repo, _found(repo, pull_number), True))


@route("GET /pulls/{pull_number}/files", "pull_requests:read")
def pull_files(repo: Repo, token: Token, call: Call, pull_number: str) -> Answer:
    pull = _found(repo, pull_number)
    tip = repo.tip(pull)
    base = repo.git.refs[f"heads/{pull.base}"]
    if pull.merge_commit is not None:
        base = repo.git.commits[pull.merge_commit].parents[0]
    common = repo.git.merge_base(tip, base)
    assert common is not None
    listed = [
        {
            "filename": path,
            "status": how,
            "sha": repo.git.files(repo.git.commits[tip].tree).get(path),
        }
        for path, how in repo.git.changed(common, tip).items()
    ]
    return repo.server.page(call, listed)


@route("PATCH /pulls/{pull_number}", "pull_requests:write")
def update_pull(repo: Repo, token: Token, call: Call, pull_number: str, body: Any) -> Answer:
    pull = _found(repo, pull_number)
    _short_enough("PullRequest", body)
    if body.get("state") == "open" and pull.merge_commit is not None:
        raise Refusal(422, "Validation Failed", [{"message": "state cannot be changed."}])
    if body.get("state") == "closed" and pull.state == "open":
        pull.left_at = repo.tip(pull)
    for name in body.keys() & {"title", "body", "state"}:
        setattr(pull, name, body[name])
    return Answer(200, _pull(repo, pull, True))


def _comment(comment: Comment) -> Any:
    return {
        "id": comment.id,
        "body": comment.body,
        "user": _user(comment.by, comment.bot),
        "author_association": comment.association,
        "created_at": AT,
        "updated_at": AT,
    }


@route("GET /issues/{issue_number}/comments", "pull_requests:read")
def list_comments(repo: Repo, token: Token, call: Call, issue_number: str) -> Answer:
    _found(repo, issue_number)
    return repo.server.page(call, [_comment(c) for c in repo.comments_on(int(issue_number))])


@route("POST /issues/{issue_number}/comments", "pull_requests:write")
def create_comment(repo: Repo, token: Token, call: Call, issue_number: str, body: Any) -> Answer:
    if _found(repo, issue_number).locked:
        raise Refusal(403, "Unable to create comment because issue is locked.")
    if not body["body"].strip():
        raise invalid("IssueComment", "body", "missing_field")
    _short_enough("IssueComment", body)
    said = Comment(
        repo.new_id(),
        int(issue_number),
        body["body"],
        token.login,
        token.app,
        "NONE" if token.app else "MEMBER",
    )
    repo.comments[said.id] = said
    return Answer(201, _comment(said))


@route("PATCH /issues/comments/{comment_id}", "pull_requests:write")
def update_comment(repo: Repo, token: Token, call: Call, comment_id: str, body: Any) -> Answer:
    if int(comment_id) not in repo.comments:
        raise Refusal(404, "Not Found")
    _short_enough("IssueComment", body)
    repo.comments[int(comment_id)].body = body["body"]
    return Answer(200, _comment(repo.comments[int(comment_id)]))


@route("DELETE /issues/comments/{comment_id}", "pull_requests:write")
def delete_comment(repo: Repo, token: Token, call: Call, comment_id: str, body: Any) -> Answer:
    if repo.comments.pop(int(comment_id), None) is None:
        raise Refusal(404, "Not Found")
    return Answer(204)


# ---- checks and statuses -----------------------------------------------------------------------
def _check(one: dict[str, Any]) -> Any:
    return one | {"app": {"id": 7, "slug": "kfm", "name": "kfm"}}


def _checked(body: Any) -> None:
    if "conclusion" in body and body.get("status", "completed") != "completed":
        raise Refusal(422, "Invalid request.\n\nconclusion needs status completed.")
    if body.get("status") == "completed" and "conclusion" not in body:
        raise Refusal(422, "Invalid request.\n\nstatus completed needs a conclusion.")


@route("POST /check-runs", "checks:write")
def create_check(repo: Repo, token: Token, call: Call, body: Any) -> Answer:
    if not token.app:
        raise Refusal(403, "You must authenticate via a GitHub App.")
    if body["head_sha"] not in repo.git.commits:
        raise Refusal(422, f"No commit found for SHA: {body['head_sha']}")
    _checked(body)
    number = repo.new_id()
    repo.checks[number] = {
        "id": number,
        "external_id": None,
        "conclusion": None,
        "status": "completed" if "conclusion" in body else "queued",
        **body,
    }
    return Answer(201, _check(repo.checks[number]))


@route("PATCH /check-runs/{check_run_id}", "checks:write")
def update_check(repo: Repo, token: Token, call: Call, check_run_id: str, body: Any) -> Answer:
    if not token.app:
        raise Refusal(403, "You must authenticate via a GitHub App.")
    if int(check_run_id) not in repo.checks:
        raise Refusal(404, "Not Found")
    _checked(body)
    repo.checks[int(check_run_id)] |= body
    return Answer(200, _check(repo.checks[int(check_run_id)]))


@route("GET /commits/{ref}/check-runs", "checks:read")
def list_checks(repo: Repo, token: Token, call: Call, ref: str) -> Answer:
    if ref not in repo.git.commits:
        raise Refusal(422, f"No commit found for SHA: {ref}")
    found = [_check(c) for c in repo.checks.values() if c["head_sha"] == ref]
    return repo.server.page(call, found, "check_runs")


@route("POST /statuses/{sha}", "statuses:write")
def create_status(repo: Repo, token: Token, call: Call, sha: str, body: Any) -> Answer:
    if sha not in repo.git.commits:
        raise Refusal(422, f"No commit found for SHA: {sha}")
    if len(body.get("description") or "") > 140:
        raise invalid(
            "Status",
            "description",
            "custom",
            message="description is too long (maximum is 140 characters)",
        )
    told = {"state": body["state"], "context": body.get("context", "default")}
    repo.statuses.append(told | {"sha": sha, "description": body.get("description")})
    return Answer(201, told | {"description": body.get("description"), "id": repo.new_id()})


@route("GET /commits/{ref}/statuses", "statuses:read")
def list_statuses(repo: Repo, token: Token, call: Call, ref: str) -> Answer:
    newest_first = [s for s in reversed(repo.statuses) if s["sha"] == ref]
    return repo.server.page(
        call, [{k: v for k, v in s.items() if k != "sha"} for s in newest_first]
    )
