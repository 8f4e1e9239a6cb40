"""Proposals as pull requests: a merge promotes exactly what was tested, once, and nothing else does."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from kfm.samples.upstream import SampleUpstream
from kfm.testing import Upstream
from tests.given.github import TOKEN, github, killed_at, named
from tests.given.github_server import GithubServer
from tests.given.verbs import QUAKES, Said, each

Kfm = Callable[..., Said]
FOLDER = f"proposals/{QUAKES}"
PROPOSES, PROMOTES = 26, 14  # calls of each command


@pytest.fixture
def hub(ws: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GithubServer]:
    monkeypatch.setenv("KFM_TEST_TOKEN", TOKEN)
    for name in ("GITHUB_EVENT_NAME", "GITHUB_EVENT_PATH", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    with github() as server:
        named(ws, server)
        yield server


def head(hub: GithubServer, number: int) -> str:
    return hub.repo.tip(hub.repo.pulls[number])


def only(hub: GithubServer) -> int:
    (number,) = [n for n, p in hub.repo.pulls.items() if p.from_repo == hub.repo.name]
    return number


def opened(kfm: Kfm, hub: GithubServer) -> int:
    """A pull request for the first version."""
    assert kfm("propose", QUAKES).code == 7
    assert kfm("github", "propose").code == 0
    return only(hub)


def generation(kfm: Kfm) -> int:
    (found,) = [d for d in kfm("status", "--json").json["datasets"] if d["dataset_id"] == QUAKES]
    return int(found["generation"] or 0)


def candidate(ws: Path) -> Path:
    (folder,) = (ws / "data" / "work" / QUAKES / "proposals").iterdir()
    return folder


def test_a_proposal_becomes_a_pull_request_with_evidence_checks_and_numbers(
    kfm: Kfm, ws: Path, hub: GithubServer
) -> None:
    number = opened(kfm, hub)
    sha = head(hub, number)
    files = hub.repo.git.files(hub.repo.git.commits[sha].tree)
    lying = {p.name: p.read_bytes() for p in candidate(ws).glob("*.json")}
    for name, raw in lying.items():
        assert hub.repo.file(f"{FOLDER}/{name}", sha) == raw
    told = json.loads(hub.repo.file(f"{FOLDER}/evidence.json", sha) or b"")
    assert told["artifacts"].keys() == {f"{QUAKES}.parquet"}
    assert not [name for name in files if name.endswith(".parquet")], "digests, never bytes"
    checks = hub.repo.checks_on(sha)
    assert {"kfm/licence", "kfm/attestation", "kfm/policy", "kfm/approvals"} <= checks.keys()
    assert set(checks.values()) == {"success"}
    (comment,) = hub.repo.comments_on(number)
    assert told["candidate_digest"] in comment.body and "150 rows" in comment.body


def test_proposing_twice_is_one_pull_request_and_no_change(kfm: Kfm, hub: GithubServer) -> None:
    opened(kfm, hub)
    before = len(hub.changes)
    assert kfm("github", "propose").code == 0
    assert kfm("github", "sync").code == 0
    assert hub.changes[before:] == []


@pytest.mark.parametrize("squash", [False, True])
def test_a_merge_promotes_exactly_the_tested_digests(
    kfm: Kfm, ws: Path, hub: GithubServer, squash: bool
) -> None:
    number = opened(kfm, hub)
    assert kfm("github", "sync", "--json").json["pulls"][0]["outcome"] == ""
    assert generation(kfm) == 0, "an open pull request promotes nothing"
    sha = head(hub, number)
    told = json.loads(hub.repo.file(f"{FOLDER}/evidence.json", sha) or b"")
    hub.repo.merge(number, squash=squash)
    said = kfm("github", "promote", "--json")
    assert (said.code, said.json["pulls"][0]["outcome"]) == (0, "COMMITTED")
    (folder,) = (ws / "data" / "processed" / QUAKES).iterdir()
    assert folder.name == told["version_id"] and generation(kfm) == 1
    assert hub.repo.checks_on(sha)["kfm/promotion"] == "success"
    assert "Official as generation 1." in hub.repo.comments_on(number)[-1].body
    before = len(hub.calls)
    assert kfm("github", "promote", "--json").json["pulls"] == []
    assert len(hub.calls) == before, "what was told is not looked at again"


def test_bytes_that_changed_after_approval_are_refused_with_a_check_and_a_comment(
    kfm: Kfm, ws: Path, hub: GithubServer
) -> None:
    number = opened(kfm, hub)
    sha = head(hub, number)
    hub.repo.merge(number)
    (file,) = (ws / "data" / "work" / QUAKES / "parts").rglob("*.parquet")
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    said = kfm("github", "promote", "--json")
    assert said.code == 6 and generation(kfm) == 0
    assert hub.repo.checks_on(sha)["kfm/promotion"] == "failure"
    assert "damaged" in hub.repo.comments_on(number)[-1].body
    assert not (ws / "data" / "processed" / QUAKES).exists()


def test_evidence_that_somebody_changed_in_the_branch_is_refused(
    kfm: Kfm, hub: GithubServer
) -> None:
    number = opened(kfm, hub)
    name = f"{FOLDER}/evidence.json"
    told = json.loads(hub.repo.file(name, head(hub, number)) or b"")
    other = json.dumps(told | {"version_digest": "0" * 64}).encode()
    hub.repo.push(hub.repo.pulls[number].head, {name: other})
    hub.repo.merge(number)
    said = kfm("github", "promote", "--json")
    assert said.code == 3 and "not that of the candidate" in said.json["pulls"][0]["reason"]
    assert generation(kfm) == 0
    assert hub.repo.checks_on(head(hub, number))["kfm/promotion"] == "failure"


@pytest.mark.parametrize("name", ["attestation.json", "more.json"])
def test_no_file_beside_the_evidence_is_anybody_elses(
    kfm: Kfm, hub: GithubServer, name: str
) -> None:
    """People look at them, and they stay in the branch that everybody reads."""
    number = opened(kfm, hub)
    hub.repo.push(hub.repo.pulls[number].head, {f"{FOLDER}/{name}": b"{}"})
    hub.repo.merge(number)
    said = kfm("github", "promote", "--json")
    assert said.code == 3 and f"{FOLDER}/{name}" in said.json["pulls"][0]["reason"]
    assert generation(kfm) == 0


def test_a_pull_request_that_changes_other_files_too_is_refused(
    kfm: Kfm, hub: GithubServer
) -> None:
    number = opened(kfm, hub)
    hub.repo.push(hub.repo.pulls[number].head, {".github/workflows/x.yml": b"on: push\n"})
    hub.repo.merge(number)
    said = kfm("github", "promote", "--json")
    assert said.code == 3 and "workflows/x.yml" in said.json["pulls"][0]["reason"]
    assert generation(kfm) == 0


def test_the_button_that_updates_the_branch_does_no_harm(kfm: Kfm, hub: GithubServer) -> None:
    number = opened(kfm, hub)
    hub.repo.push("main", {"docs/x.md": b"words\n"})
    hub.repo.update_branch(number)
    hub.repo.merge(number)
    assert kfm("github", "promote").code == 0 and generation(kfm) == 1


def test_a_forks_pull_request_reaches_no_promotion(kfm: Kfm, ws: Path, hub: GithubServer) -> None:
    """Same branch, same files, merged by mistake: the proposal is not of it."""
    number = opened(kfm, hub)
    sha = head(hub, number)
    files = hub.repo.git.files(hub.repo.git.commits[sha].tree)
    copied = {n: hub.repo.git.blobs[b] for n, b in files.items() if n.startswith("proposals/")}
    theirs = hub.repo.from_fork(hub.repo.pulls[number].head, copied)
    hub.repo.merge(theirs.number, keep_branch=True)
    assert kfm("github", "promote", "--json").json["pulls"] == []
    assert generation(kfm) == 0


@pytest.mark.parametrize("how", ["fork", "pull_request_target"])
def test_a_job_that_may_hold_a_strangers_code_gets_no_further(
    kfm: Kfm, hub: GithubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    number = opened(kfm, hub)
    hub.repo.merge(number)
    head = "stranger/open-data" if how == "fork" else hub.repo.name
    repos = {"head": {"repo": {"full_name": head}}, "base": {"repo": {"full_name": hub.repo.name}}}
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": repos}))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(tmp_path / "event.json"))
    name = "pull_request" if how == "fork" else how
    monkeypatch.setenv("GITHUB_EVENT_NAME", name)
    before = len(hub.calls)
    for verb in ("propose", "promote", "sync"):
        assert kfm("github", verb).code == 3
    assert len(hub.calls) == before and generation(kfm) == 0


def test_an_approval_on_github_is_no_signature(kfm: Kfm, ws: Path, hub: GithubServer) -> None:
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    entry.write_text(yaml.safe_dump(yaml.safe_load(entry.read_text()) | {"approvals": 1}))
    number = opened(kfm, hub)
    sha = head(hub, number)
    assert hub.repo.checks_on(sha)["kfm/approvals"] == "action_required"
    hub.repo.merge(number)
    said = kfm("github", "promote", "--json")
    assert said.code == 7 and generation(kfm) == 0
    assert hub.repo.checks_on(sha)["kfm/promotion"] == "action_required"
    assert kfm("keys", "new", "--name", "A. Lovelace", "--role", "approver").code == 0
    assert kfm("approve", "1", "--key", "A. Lovelace").code == 0
    assert kfm("github", "promote").code == 0
    assert generation(kfm) == 1
    assert hub.repo.checks_on(sha)["kfm/promotion"] == "success"


def test_a_newer_candidate_takes_the_place_of_the_older_in_the_same_pull_request(
    kfm: Kfm, hub: GithubServer, sample: SampleUpstream
) -> None:
    number = opened(kfm, hub)
    first = head(hub, number)
    sample.control(QUAKES, revision=1)
    assert kfm("propose", QUAKES).code == 7
    assert kfm("github", "sync").code == 0
    assert only(hub) == number and head(hub, number) != first
    assert hub.repo.pulls[number].state == "open"
    assert len(hub.repo.comments_on(number)) == 1


def test_what_was_rejected_is_told_and_its_pull_request_closed(kfm: Kfm, hub: GithubServer) -> None:
    number = opened(kfm, hub)
    assert kfm("keys", "new", "--name", "A. Lovelace", "--role", "approver").code == 0
    assert kfm("reject", "1", "--key", "A. Lovelace", "--reason", "the east is missing").code == 0
    kfm("github", "sync")
    assert hub.repo.pulls[number].state == "closed"
    assert hub.repo.checks_on(head(hub, number))["kfm/promotion"] == "failure"


def test_what_not_everybody_may_see_opens_no_pull_request(
    kfm: Kfm, ws: Path, hub: GithubServer
) -> None:
    assert kfm("propose", QUAKES).code == 7
    entry = ws / "data" / "registry" / f"{QUAKES}.yml"
    plain = yaml.safe_load(entry.read_text())
    entry.write_text(yaml.safe_dump(plain | {"sensitivity": "restricted"}))
    assert kfm("github", "propose").code == 3
    assert kfm("github", "sync").code == 0
    assert hub.changes == []


def test_words_of_upstream_mean_nothing_to_github(kfm: Kfm, hub: GithubServer) -> None:
    number = opened(kfm, hub)
    (comment,) = hub.repo.comments_on(number)
    assert "@" not in comment.body.partition("```")[0]


def test_discovery_opens_one_draft_for_a_finding_and_a_second_time_changes_nothing(
    kfm: Kfm, hub: GithubServer
) -> None:
    first = kfm("discover", QUAKES, "--pull-requests", "--json")
    assert first.code == 0
    number = only(hub)
    assert first.json["pulls"][0]["pull"] == number and hub.repo.pulls[number].draft
    sha = head(hub, number)
    assert {"stac.json", "dcat.json", "prov.json"} <= {
        name.rpartition("/")[2] for name in hub.repo.git.files(hub.repo.git.commits[sha].tree)
    }
    before = len(hub.changes)
    second = kfm("discover", QUAKES, "--pull-requests", "--json")
    assert second.json["pulls"] == first.json["pulls"]
    assert only(hub) == number and head(hub, number) == sha and hub.changes[before:] == []
    assert generation(kfm) == 0


def test_what_a_catalogue_offers_is_a_draft_that_says_what_is_missing(
    kfm: Kfm, ws: Path, hub: GithubServer, up: Upstream
) -> None:
    offer = {
        "title": "Fish",
        "distribution": [{"downloadURL": "https://fish.example/f.csv", "mediaType": "text/csv"}],
    }
    up.files["/catalogue.json"] = json.dumps({"dataset": [offer]}).encode()
    file = ws / "kfm.yml"
    file.write_text(
        file.read_text() + f"catalogues:\n  - {{url: '{up.url}/catalogue.json', kind: dcat}}\n"
    )
    for _ in range(2):
        assert kfm("discover", "--catalogues", "--pull-requests", "--json").code == 0
    number = only(hub)
    sha = head(hub, number)
    assert hub.repo.checks_on(sha) == {"kfm/registry": "action_required"}
    entry = json.loads(hub.repo.file("proposals/_discovered/found_fish/registry.json", sha) or b"")
    assert entry["source"]["url"] == "https://fish.example/f.csv"
    assert len(hub.repo.checks) == 1


def test_every_call_is_among_those_that_are_killed_below(kfm: Kfm, hub: GithubServer) -> None:
    assert kfm("propose", QUAKES).code == 7
    assert kfm("github", "propose").code == 0
    first = len(hub.calls)
    hub.repo.merge(only(hub))
    assert kfm("github", "promote").code == 0
    assert (first, len(hub.calls) - first) == (PROPOSES, PROMOTES)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "number", each([pytest.param(n, id=str(n)) for n in range(1, PROPOSES + 1)], "7", "10", "26")
)
def test_proposing_killed_between_any_two_calls_leaves_one_of_each(
    kfm: Kfm, ws: Path, hub: GithubServer, number: int, after: bool
) -> None:
    assert kfm("propose", QUAKES).code == 7
    assert killed_at(hub, number, after, "-w", str(ws), "github", "propose")
    assert kfm("github", "propose").code == 0
    only(hub)
    assert len(hub.repo.comments) == 1
    names = [c["name"] for c in hub.repo.checks.values()]
    assert len(names) == len(set(names)) == 13


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "number", each([pytest.param(n, id=str(n)) for n in range(1, PROMOTES + 1)], "1", "12", "14")
)
def test_promoting_killed_between_any_two_calls_promotes_once_and_tells_it_once(
    kfm: Kfm, ws: Path, hub: GithubServer, number: int, after: bool
) -> None:
    pull = opened(kfm, hub)
    hub.repo.merge(pull)
    assert killed_at(hub, number, after, "-w", str(ws), "github", "promote")
    assert kfm("github", "promote").code == 0
    assert generation(kfm) == 1
    assert [c["conclusion"] for c in hub.repo.checks.values() if c["name"] == "kfm/promotion"] == [
        "success"
    ]
    assert len(hub.repo.comments_on(pull)) == 2
