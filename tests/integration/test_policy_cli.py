"""`kfm policy`: the rules in the author's terminal."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.access.status import DatasetStatus
from kfm.cli import policy as command
from kfm.policy.base import policy_digest, sources_of
from tests.given.questions import GOOD, changed
from tests.given.verbs import Said

Kfm = Callable[..., Said]


@pytest.fixture
def ask(kfm: Kfm, tmp_path: Path) -> Callable[..., Said]:
    """Ask for a decision on a document."""

    def call(document: Any, *more: str) -> Said:
        (tmp_path / "question.json").write_text(json.dumps(document))
        return kfm("policy", "eval", "--input", str(tmp_path / "question.json"), *more)

    return call


def test_a_new_workspace_has_rules_that_pass_their_own_tests(kfm: Kfm, ws: Path) -> None:
    checked, tested = kfm("policy", "check", "--json"), kfm("policy", "test", "--json")
    assert (checked.code, checked.json) == (0, {"files": 8, "findings": []})
    assert tested.code == 0 and tested.json["failed"] == 0 and len(tested.json["tests"]) >= 30
    assert sources_of(ws / "policy") == sources_of(Path(__file__).parents[2] / "policy")


def test_a_test_that_fails_is_named_and_fails_the_command(kfm: Kfm, ws: Path) -> None:
    (ws / "policy" / "own_test.rego").write_text(
        "package kfm.own_test\ntest_good if true\ntest_bad if 1 == 2\ntest_odd := 1\n"
    )
    said = kfm("policy", "test")
    assert said.code == 1
    assert (
        "FAIL  kfm.own_test.test_bad  (undefined)" in said.out
        and "FAIL  kfm.own_test.test_odd" in said.out
    )
    assert "pass  kfm.own_test.test_good" in said.out and said.out.endswith(", 2 failed\n")


def test_a_changed_rule_fails_its_test(kfm: Kfm, ws: Path) -> None:
    rule = ws / "policy" / "serve.rego"
    rule.write_text(
        rule.read_text().replace(
            'zones := {"processed", "catalog"}', 'zones := {"processed", "catalog", "raw"}'
        )
    )
    said = kfm("policy", "test", "--json")
    assert said.code == 1
    assert [t["name"] for t in said.json["tests"] if not t["passed"]] == [
        "kfm.serve_test.test_raw_and_work_are_never_handed_out"
    ]


def test_no_tests_prove_nothing(kfm: Kfm, ws: Path) -> None:
    for file in (ws / "policy").glob("*_test.rego"):
        file.unlink()
    assert kfm("policy", "test").code == 1


def test_rules_that_cannot_be_loaded_are_a_usage_error(kfm: Kfm, ws: Path) -> None:
    (ws / "policy" / "broken.rego").write_text("package kfm.broken\nx if {\n")
    said = kfm("policy", "test")
    assert said.code == 2 and "kfm policy check" in said.err


def test_findings_are_listed_with_their_places(kfm: Kfm, ws: Path) -> None:
    (ws / "policy" / "own.rego").write_text("package kfm.own\n\nallow if http.send({})\n")
    said = kfm("policy", "check", "--json")
    assert said.code == 2
    assert [(f["file"], f["line"], f["code"]) for f in said.json["findings"]] == [
        ("own.rego", 3, "subset.builtin"),
        ("own.rego", 3, "subset.default"),
    ]
    assert "own.rego:3: http.send" in kfm("policy", "check").out


@pytest.mark.parametrize("action", GOOD)
def test_a_question_goes_to_the_package_that_judges_its_action(
    ask: Callable[..., Said], ws: Path, action: str
) -> None:
    said = ask(GOOD[action], "--json")
    assert said.code == 0 and said.json["allow"] is True and said.json["engine"] == "embedded"
    assert said.json["policy_digest"] == policy_digest(sources_of(ws / "policy"))


def test_a_denial_exits_3_and_says_why(ask: Callable[..., Said]) -> None:
    said = ask(changed("promote", dataset__licence=None))
    assert said.code == 3
    assert (
        said.out.startswith("denied  decision ")
        and "licence.missing: No licence is registered." in said.out
    )
    assert "`kfm licence ask city_trees`" in said.out


def test_another_package_may_be_asked(ask: Callable[..., Said]) -> None:
    said = ask(GOOD["promote"], "--package", "kfm.serve", "--json")
    assert said.code == 3 and "input.action" in {denial["code"] for denial in said.json["deny"]}


def test_the_question_may_come_through_a_pipe(kfm: Kfm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(GOOD["read"]).encode()))
    )
    assert kfm("policy", "eval").code == 0


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}'])
def test_what_is_no_question_is_a_usage_error(kfm: Kfm, tmp_path: Path, text: str) -> None:
    (tmp_path / "q.json").write_text(text)
    assert kfm("policy", "eval", "--input", str(tmp_path / "q.json")).code == 2


def test_a_workspace_without_rules_is_told_how_to_get_them(kfm: Kfm, ws: Path) -> None:
    shutil.rmtree(ws / "policy")
    for action in ("test", "check"):
        said = kfm("policy", action)
        assert said.code == 2 and "kfm init" in said.err


@pytest.fixture
def official(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the three sample datasets are official; one of them has a place."""
    documents = {
        "ks_earthquakes": changed(
            "promote",
            dataset__id="ks_earthquakes",
            candidate__spatial=True,
            candidate__records=["dcat", "prov", "stac"],
        ),
        "ks_stream_gauges": changed("promote", dataset__id="ks_stream_gauges"),
    }
    monkeypatch.setattr(command, "policy_input", lambda world, dataset_id: documents[dataset_id])
    monkeypatch.setattr(
        command,
        "dataset_status",
        lambda world, name: DatasetStatus(
            dataset_id=name, state="official", version_id="v1" if name in documents else None
        ),
    )


@pytest.mark.usefixtures("official")
def test_other_rules_are_tried_on_everything_official(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(ws / "policy", other)
    (other / "no_maps.rego").write_text(
        "package kfm.promotion\n\n"
        'deny contains {"code": "own.maps", "message": "No maps.", "remedy": "None."} if input.candidate.spatial == true\n'
    )
    said = kfm("policy", "simulate", "--policy", str(other), "--json")
    assert said.code == 0 and said.json["official"] == 2
    (only,) = said.json["changed"]
    assert only["dataset_id"] == "ks_earthquakes"
    assert only["now"]["allow"] is True and [d["code"] for d in only["then"]["deny"]] == [
        "own.maps"
    ]
    assert only["now"]["policy_digest"] != only["then"]["policy_digest"]
    words = kfm("policy", "simulate", "--policy", str(other)).out
    assert "allowed  denied (own.maps)" in words and words.endswith("2 official, 1 would change\n")


@pytest.mark.usefixtures("official")
def test_the_same_rules_change_nothing_and_broken_ones_deny_all(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(ws / "policy", other)
    assert kfm("policy", "simulate", "--policy", str(other), "--json").json == {
        "official": 2,
        "changed": [],
    }
    (other / "labels.rego").unlink()
    changes = kfm("policy", "simulate", "--policy", str(other), "--json").json["changed"]
    assert [(c["dataset_id"], c["then"]["allow"]) for c in changes] == [
        ("ks_earthquakes", False),
        ("ks_stream_gauges", False),
    ]


def test_simulation_needs_other_rules(kfm: Kfm) -> None:
    assert kfm("policy", "simulate").code == 2
