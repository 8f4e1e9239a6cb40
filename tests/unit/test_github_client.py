"""Asking GitHub: pages, limits, tokens that expired, and effects that are made once whatever is lost."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.given.github import TOKEN, client, github
from tests.given.github_server import GithubServer, Token

from kfm.extras.github.base import Refused, Unsure, repository_of
from kfm.extras.github.branches import differing, keep_branch
from kfm.extras.github.checks import Check, keep_checks
from kfm.extras.github.client import Hub
from kfm.extras.github.comments import keep_comment
from kfm.extras.github.dispatch import dispatch
from kfm.extras.github.pulls import close_pull, keep_pull, pull_at, touched
from kfm.extras.github.releases import Asset, asset_names, keep_release, release_at, take_back
from kfm.fetch.base import AskedToWait
from kfm.model import Denied, UpstreamUnavailable, UsageError, masked
from kfm.model.ids import digest


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[GithubServer]:
    monkeypatch.setenv("KFM_TEST_TOKEN", TOKEN)
    with github() as server:
        yield server


def proposed(hub: GithubServer, files: dict[str, bytes] | None = None) -> int:
    """A pull request of ours."""
    asked = client(hub)
    keep_branch(asked, "kfm/wells", "main", "p/wells", files or {"p/wells/a.json": b"1\n"}, "wells")
    return keep_pull(asked, "kfm/wells", "main", "wells", "<!-- kfm:1 -->\n", draft=False).number


def asset(tmp_path: Path, name: str, content: bytes) -> Asset:
    (tmp_path / name).write_bytes(content)
    return Asset(tmp_path / name, digest(content), name)


CHECKS = [
    Check(name="kfm/licence", conclusion="success", title="CC0-1.0", about="sha256:1"),
    Check(name="kfm/quality", conclusion="neutral", title="150 rows", about="sha256:1"),
]
Effect = Callable[[Hub, Path], object]


def an_event(asked: Hub, _: Path) -> object:
    return dispatch(asked, "event-1", {"source_id": "wells"})


def a_release(asked: Hub, tmp_path: Path) -> object:
    files = {"wells.parquet": b"bytes", "checksums.sha256": b"sums"}
    assets = {name: asset(tmp_path, name, content) for name, content in files.items()}
    return keep_release(asked, "wells/00000001", "wells 1", "words", assets)


def a_review(asked: Hub, _: Path) -> object:
    files = {"p/wells/a.json": b'{"a": 1}\n', "p/wells/b.json": b"{}\n"}
    sha = keep_branch(asked, "kfm/wells", "main", "p/wells", files, "wells")
    pull = keep_pull(asked, "kfm/wells", "main", "wells", "<!-- kfm:1 -->\nwords", draft=True)
    keep_checks(asked, sha, CHECKS)
    return keep_comment(asked, pull.number, "proposal", "numbers")


def held(hub: GithubServer) -> Any:
    """Everything that people see, without the names that GitHub gives."""
    repo = hub.repo
    return {
        "pulls": [(p.title, p.body, p.head, p.draft, p.state) for p in repo.pulls.values()],
        "comments": [c.body for c in repo.comments.values()],
        "checks": sorted((c["name"], c["conclusion"]) for c in repo.checks.values()),
        "statuses": [(s["context"], s["state"]) for s in repo.statuses],
        "releases": [
            (r.tag, r.draft, sorted((a["name"], a["digest"], a["state"]) for a in r.assets))
            for r in repo.releases.values()
        ],
        "dispatches": repo.dispatches,
        "refs": sorted(repo.git.refs),
        "files": repo.git.files(repo.git.commits[repo.git.refs["heads/kfm/wells"]].tree)
        if "heads/kfm/wells" in repo.git.refs
        else {},
    }


# ---- questions ---------------------------------------------------------------------------------
def test_a_list_of_many_pages_is_read_to_its_end_and_no_further_than_wanted(
    hub: GithubServer,
) -> None:
    number = proposed(hub)
    for n in range(250):
        hub.repo.say(number, f"comment {n}")
    before = len(hub.calls)
    found = list(client(hub).pages(f"/issues/{number}/comments"))
    assert [c["body"] for c in found] == [f"comment {n}" for n in range(250)]
    assert len(hub.calls) - before == 3
    assert next(client(hub).pages(f"/issues/{number}/comments"))["body"] == "comment 0"
    assert len(hub.calls) - before == 4


def test_what_did_not_change_is_not_sent_again_and_costs_nothing(hub: GithubServer) -> None:
    asked = client(hub)
    first = asked.get("/git/ref/heads/main")
    left = hub.left
    assert asked.get("/git/ref/heads/main") == first
    assert hub.calls[-1].status == 304 and hub.left == left


@pytest.mark.parametrize("status", [403, 429])
def test_a_limit_that_says_how_long_is_waited_for_exactly(hub: GithubServer, status: int) -> None:
    slept: list[float] = []
    hub.fault(1, "secondary", status=status, wait=7)
    assert client(hub, slept).get("/git/ref/heads/main") is not None
    assert slept == [7.0]


def test_a_primary_limit_is_waited_for_until_it_is_reset(hub: GithubServer) -> None:
    slept: list[float] = []
    hub.fault(1, "primary", wait=20)
    assert client(hub, slept).get("/git/ref/heads/main") is not None
    assert len(slept) == 1 and 19.0 < slept[0] <= 21.0


def test_a_secondary_limit_without_a_time_is_waited_for_a_minute(hub: GithubServer) -> None:
    slept: list[float] = []
    hub.fault(1, "secondary")
    assert client(hub, slept).get("/git/ref/heads/main") is not None
    assert slept == [60.0]


def test_who_is_asked_to_wait_longer_than_a_command_should_is_told_until_when(
    hub: GithubServer,
) -> None:
    slept: list[float] = []
    hub.fault(1, "primary", wait=3000)
    with pytest.raises(AskedToWait) as told:
        client(hub, slept).get("/git/ref/heads/main")
    assert told.value.retryable and slept == []
    assert 2990 < told.value.until - time.time() <= 3001


def test_a_limit_refused_the_effect_so_it_is_asked_for_again_and_made_once(
    hub: GithubServer,
) -> None:
    number = proposed(hub)
    hub.fault(2, "secondary", wait=1)
    keep_comment(client(hub), number, "m", "numbers")
    assert len(hub.repo.comments_on(number)) == 1


@pytest.mark.parametrize("how", ["wrong", "expired", "missing"])
def test_a_token_that_is_not_taken_is_said_and_not_repeated(
    hub: GithubServer, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "expired":
        hub.tokens[TOKEN].expired = True
    if how == "wrong":
        monkeypatch.setenv("KFM_TEST_TOKEN", "another-token")
    if how == "missing":
        monkeypatch.delenv("KFM_TEST_TOKEN")
    with pytest.raises(UsageError if how == "missing" else Denied) as told:
        client(hub).get("/git/ref/heads/main")
    assert not told.value.retryable
    assert len(hub.calls) == (0 if how == "missing" else 1)


def test_a_token_that_may_not_is_told_what_it_lacks(hub: GithubServer) -> None:
    hub.tokens[TOKEN].may.pop("contents")
    with pytest.raises(Denied, match="contents=read"):
        client(hub).get("/git/ref/heads/main")


def test_the_token_is_in_no_message_and_goes_to_no_other_host(hub: GithubServer) -> None:
    asked = client(hub)
    asked.get("")
    assert TOKEN not in masked(f"it is {TOKEN}")
    with pytest.raises(Denied, match=r"leads to elsewhere\.example"):
        asked.upload("https://elsewhere.example/{?name}", Path(__file__), {"name": "x"}, "a/b")


def test_a_next_page_on_another_host_is_refused(
    hub: GithubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = proposed(hub)
    page = hub.page

    def elsewhere(*args: Any, **more: Any) -> Any:
        answer = page(*args, **more)
        answer.headers["Link"] = '<https://elsewhere.example/2>; rel="next"'
        return answer

    monkeypatch.setattr(hub, "page", elsewhere)
    with pytest.raises(Denied, match=r"elsewhere\.example"):
        list(client(hub).pages(f"/issues/{number}/comments"))


@pytest.mark.parametrize("text", ["", "one", "a/b/c", "a b/c", "../x", "a/..", "github://a"])
def test_what_is_no_repository_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no repository"):
        repository_of(text, "https://api.github.com")


def test_plain_http_is_for_loopback_alone(
    hub: GithubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = client(hub)
    asked.place = repository_of("a/b", "http://api.github.com")
    with pytest.raises(Denied, match="without encryption"):
        asked.get("")


# ---- effects -----------------------------------------------------------------------------------
@pytest.mark.parametrize("effect", [a_review, a_release, an_event])
def test_done_twice_is_done_once(hub: GithubServer, tmp_path: Path, effect: Effect) -> None:
    effect(client(hub), tmp_path)
    first, many = held(hub), len(hub.changes)
    effect(client(hub), tmp_path)
    assert held(hub) == first
    assert len(hub.changes) == many, "nothing is even tried"


@pytest.mark.parametrize("effect", [a_review, a_release, an_event])
@pytest.mark.parametrize("how", ["close", "fail"])
@pytest.mark.parametrize("after", [False, True])
def test_whichever_answer_is_lost_the_effect_is_made_once(
    hub: GithubServer, tmp_path: Path, effect: Effect, how: Any, after: bool
) -> None:
    """Each call in turn: before it took effect, or after it."""
    effect(client(hub), tmp_path)
    right, calls = held(hub), len(hub.calls)
    for number in range(1, calls + 1):
        with github() as other:
            other.fault(number, how, after=after)
            effect(client(other), tmp_path)
            assert held(other) == right, f"call {number}: {other.changes}"


@pytest.mark.parametrize("effect", [a_review, a_release, an_event])
@pytest.mark.parametrize("after", [False, True])
def test_who_gave_up_in_between_goes_on_without_doubling(
    hub: GithubServer, tmp_path: Path, effect: Effect, after: bool
) -> None:
    effect(client(hub), tmp_path)
    right, calls = held(hub), len(hub.calls)
    for number in range(1, calls + 1):
        with github() as other:
            other.fault(number, "close", after=after)
            with pytest.raises(UpstreamUnavailable) as told:
                effect(client(other, attempts=1), tmp_path)
            assert told.value.retryable
            effect(client(other), tmp_path)
            assert held(other) == right, f"call {number}: {other.changes}"


def test_a_comment_is_kept_up_to_date_and_a_strangers_mark_is_not_believed(
    hub: GithubServer,
) -> None:
    number = proposed(hub)
    fake = hub.repo.say(number, "<!-- kfm:m -->\nall is well")
    first = keep_comment(client(hub), number, "m", "one")
    assert keep_comment(client(hub), number, "m", "two") == first != fake.id
    assert [c.body for c in hub.repo.comments_on(number)] == [
        "<!-- kfm:m -->\nall is well",
        "<!-- kfm:m -->\ntwo",
    ]


def test_two_who_comment_at_once_leave_one_comment(hub: GithubServer) -> None:
    number = proposed(hub)
    for words in ("a", "b"):
        client(hub).post(f"/issues/{number}/comments", {"body": f"<!-- kfm:m -->\n{words}"})
    keep_comment(client(hub), number, "m", "one")
    assert [c.body for c in hub.repo.comments_on(number)] == ["<!-- kfm:m -->\none"]


def test_a_comment_that_is_too_long_is_cut_at_a_line(hub: GithubServer) -> None:
    number = proposed(hub)
    keep_comment(client(hub), number, "m", "a line of text\n" * 10_000)
    (said,) = hub.repo.comments_on(number)
    assert said.body.endswith("a line of text\n\nThe rest is left out.")


def test_a_branch_holds_exactly_the_files_it_is_given(hub: GithubServer) -> None:
    asked = client(hub)
    keep_branch(asked, "kfm/w", "main", "p/w", {"p/w/a": b"1", "p/w/in/b": b"2"}, "one")
    sha = keep_branch(asked, "kfm/w", "main", "p/w", {"p/w/a": b"1", "p/w/c": "ü".encode()}, "two")
    files = hub.repo.git.files(hub.repo.git.commits[sha].tree)
    assert sorted(files) == ["README.md", "p/w/a", "p/w/c"]
    both = {"p/w/a": b"1", "p/w/c": "ü".encode()}
    assert differing(asked, sha, "p/w", both) == []
    assert differing(asked, sha, "p/w", {**both, "p/w/c": b"u", "p/w/in/b": b"2"}) == [
        "p/w/c",
        "p/w/in/b",
    ]
    assert differing(asked, sha, "p/w", {"p/w/a": b"1"}) == ["p/w/c"], "more than was given"
    assert (
        keep_branch(asked, "kfm/w", "main", "p/w", {"p/w/a": b"1", "p/w/c": "ü".encode()}, "x")
        == sha
    )


def test_a_pull_request_that_a_person_closed_stays_closed_until_something_is_new(
    hub: GithubServer,
) -> None:
    number, asked = proposed(hub), client(hub)
    pull = pull_at(asked, number)
    assert pull is not None
    close_pull(asked, pull)
    again = keep_pull(asked, "kfm/wells", "main", "wells", "<!-- kfm:1 -->\n", draft=False)
    assert (again.number, again.state) == (number, "closed")
    new = keep_pull(asked, "kfm/wells", "main", "wells", "<!-- kfm:2 -->\n", draft=False)
    assert (new.number, new.state) != (number, "open") and new.state == "open"


def test_what_people_write_below_the_mark_stays(hub: GithubServer) -> None:
    number = proposed(hub)
    hub.repo.pulls[number].body += "See the notes of Tuesday."
    keep_pull(client(hub), "kfm/wells", "main", "other", "<!-- kfm:1 -->\n", draft=False)
    assert "Tuesday" in hub.repo.pulls[number].body


def test_a_forks_branch_of_our_name_is_not_ours(hub: GithubServer) -> None:
    theirs = hub.repo.from_fork("kfm/wells", {"p/wells/a.json": b"mine\n"})
    number = proposed(hub)
    assert number != theirs.number
    assert touched(client(hub), number) == ["p/wells/a.json"]


def test_a_persons_token_sets_statuses_instead_of_checks(hub: GithubServer) -> None:
    hub.tokens[TOKEN] = Token(login="ada", app=False)
    sha = hub.repo.git.refs["heads/main"]
    keep_checks(client(hub), sha, CHECKS)
    keep_checks(client(hub), sha, CHECKS)
    assert [(s["context"], s["state"]) for s in hub.repo.statuses] == [
        ("kfm/licence", "success"),
        ("kfm/quality", "success"),
    ]
    keep_checks(
        client(hub), sha, [Check(name="kfm/licence", conclusion="failure", title="none", about="2")]
    )
    assert hub.repo.statuses[-1]["state"] == "failure"


def test_a_check_that_says_something_else_now_is_changed_not_added(hub: GithubServer) -> None:
    sha = hub.repo.git.refs["heads/main"]
    keep_checks(client(hub), sha, CHECKS)
    changed = Check(name="kfm/licence", conclusion="failure", title="none", about="sha256:1")
    keep_checks(client(hub), sha, [changed])
    assert hub.repo.checks_on(sha) == {"kfm/licence": "failure", "kfm/quality": "neutral"}
    assert len(hub.repo.checks) == 2


@pytest.mark.parametrize("state", ["open", "uploaded"])
def test_an_asset_that_was_cut_off_or_is_other_bytes_is_sent_again(
    hub: GithubServer, tmp_path: Path, state: str
) -> None:
    a_release(client(hub), tmp_path)
    (release,) = hub.repo.releases.values()
    release.assets[0] |= {"state": state, "digest": digest(b"other")}
    a_release(client(hub), tmp_path)
    assert hub.repo.assets_of("wells/00000001") == {
        "wells.parquet": b"bytes",
        "checksums.sha256": b"sums",
    }


def test_a_release_is_seen_by_nobody_before_all_its_assets_are_there(
    hub: GithubServer, tmp_path: Path
) -> None:
    hub.repo.immutable = True  # a published release takes no more
    a_release(client(hub), tmp_path)
    order = [c.split("/", 4)[-1] for c in hub.changes]
    assert order == ["releases", "releases/1/assets", "releases/1/assets", "releases/1"]


def test_what_is_taken_back_leaves_a_release_with_the_reason_and_no_file(
    hub: GithubServer, tmp_path: Path
) -> None:
    a_release(client(hub), tmp_path)
    found = release_at(client(hub), "wells/00000001")
    assert found is not None
    take_back(client(hub), found, "Generation 2 withdrew it.")
    assert hub.repo.assets_of("wells/00000001") == {}
    (release,) = hub.repo.releases.values()
    assert release.body == "Generation 2 withdrew it."


def test_names_of_assets_are_flat_and_never_the_same(tmp_path: Path) -> None:
    paths = {"a/b.parquet": "sha256:" + "1" * 64, "a.b.parquet": "sha256:" + "2" * 64, "c d": "x"}
    names = asset_names(paths)
    assert names == {
        "a/b.parquet": "111111111111.a.b.parquet",
        "a.b.parquet": "222222222222.a.b.parquet",
        "c d": "c.d",
    }


def test_an_event_is_told_once_under_its_key(hub: GithubServer) -> None:
    event = {"source_id": "noaa-stations", "trigger": "etag-change", "event_type": "update"}
    assert dispatch(client(hub), "k1", event) is True
    assert dispatch(client(hub), "k1", event) is False
    assert dispatch(client(hub), "k2", event) is True
    assert [d["client_payload"]["key"] for d in hub.repo.dispatches] == ["k1", "k2"]
    assert hub.repo.dispatches[0] == {
        "event_type": "kfm-event",
        "client_payload": {"key": "k1", "event": event},
    }


def test_an_event_that_is_too_large_is_refused_before_it_is_sent(hub: GithubServer) -> None:
    with pytest.raises(UsageError, match="larger"):
        dispatch(client(hub), "k", {"metadata": "x" * 70_000})
    assert hub.calls == []


def test_a_refusal_says_what_github_said(hub: GithubServer) -> None:
    with pytest.raises(Refused, match="head invalid"):
        client(hub).post("/pulls", {"title": "t", "head": "none", "base": "main"})


def test_an_effect_that_may_have_happened_is_not_called_a_failure(hub: GithubServer) -> None:
    number = proposed(hub)
    hub.fault(1, "close", after=True)
    with pytest.raises(Unsure) as told:
        client(hub).post(f"/issues/{number}/comments", {"body": "once"})
    assert told.value.retryable
    assert [c.body for c in hub.repo.comments_on(number)] == ["once"]


def test_the_server_of_these_tests_is_as_strict_as_github(hub: GithubServer) -> None:
    asked = client(hub)
    sha = hub.repo.git.refs["heads/main"]
    for path, body, why in (
        ("/pulls", {"head": "main"}, "base"),
        ("/pulls", {"head": "main", "base": "main", "title": "t", "colour": "red"}, "colour"),
        ("/pulls", {"head": "main", "base": "main", "title": "t"}, "No commits between"),
        ("/git/refs", {"ref": "refs/heads/main", "sha": sha}, "already exists"),
        ("/git/refs", {"ref": "refs/heads/main/x", "sha": sha}, "failed"),
        ("/git/refs", {"ref": "refs/heads/a..b", "sha": sha}, "not a valid ref"),
        ("/git/trees", {"tree": [{"path": "../x", "mode": "100644", "type": "blob", "content": ""}]}, "malformed"),
        ("/check-runs", {"name": "n", "head_sha": "0" * 40}, "No commit found"),
        ("/check-runs", {"name": "n", "head_sha": sha, "conclusion": "fine"}, "fine"),
        (f"/statuses/{sha}", {"state": "success", "description": "x" * 141}, "too long"),
        ("/dispatches", {"event_type": "x" * 101}, "100"),
        ("/dispatches", {"event_type": "x", "client_payload": {str(n): n for n in range(11)}}, "10"),
    ):  # fmt: skip
        with pytest.raises(Refused) as told:
            asked.post(path, body)
        assert why in json.dumps(told.value.said.json), (path, told.value)
    assert hub.repo.pulls == {} and hub.repo.dispatches == []
