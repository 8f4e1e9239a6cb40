"""The choice of a runner changes no byte: the lines of its files are called, and what they leave is
compared.
"""

from pathlib import Path

import pytest

from kfm.runners.table import RUNNERS
from tests.given.verbs import QUAKES, Kfm, tree

IMAGE = "registry.example.org/kfm@sha256:" + "0" * 64
FOLDER = "pipelines/orchestration/runners"
CALLING = sorted(set(RUNNERS) - {"gitops"})


@pytest.fixture
def rendered(ws: Path, kfm: Kfm) -> Path:
    with (ws / "kfm.yml").open("a") as file:
        file.write(f"runners: {{image: '{IMAGE}', owners: ['@agency/stewards']}}\n")
    for runner in CALLING:
        assert kfm("runner", "render", runner).code == 0
    assert kfm("run", QUAKES).code == 0
    return ws


def test_every_runner_leaves_the_same_version_bytes_channel_and_receipts(
    rendered: Path, kfm: Kfm
) -> None:
    before = tree(rendered)
    said = kfm("runner", "compare", QUAKES, "--json")
    assert said.code == 0, said.out
    found = said.json["runners"]
    assert sorted(each["runner"] for each in found) == sorted(["by hand", *CALLING])
    assert {each["state"] for each in found} == {"COMMITTED"}
    assert {each["generations"] for each in found} == {1} and len(found[0]["version_id"]) == 33
    assert len({(each["artifacts"], each["receipts"]) for each in found}) == 1
    assert tree(rendered) == before, "the workspace is only read"


@pytest.mark.parametrize(
    ("runner", "file", "before", "after", "said"),
    [
        ("cronjob", f"{FOLDER}/cronjob/cronjob.yaml", "kfm worker run --until-idle", "kfm jobs list #", "COMMITTED"),
        ("tekton", f"{FOLDER}/tekton/tasks.yaml", "run-job", "run-jobs", "kfm-queued: exit 2"),
        ("github", ".github/workflows/pipelines-updater.yml", "kfm runner due --dataset", "echo '[]' --dataset", "it found"),
    ],
)  # fmt: skip
def test_a_line_that_does_something_else_is_noticed(
    rendered: Path, kfm: Kfm, runner: str, file: str, before: str, after: str, said: str
) -> None:
    """They are read from the files, not from memory."""
    text = (rendered / file).read_text()
    assert before in text
    (rendered / file).write_text(text.replace(before, after))
    answer = kfm("runner", "compare", QUAKES, "--runner", runner, "--json")
    assert answer.code == 6 and answer.json["equal"] is False
    hand, other = answer.json["runners"]
    assert said in other["problem"] or (hand["state"] == said != other["state"])


def test_a_runner_that_is_not_rendered_is_named(ws: Path, kfm: Kfm) -> None:
    assert "No runner is rendered" in kfm("runner", "compare", QUAKES).err
    said = kfm("runner", "compare", QUAKES, "--runner", "argo")
    assert said.code == 2 and "kfm runner render argo" in said.err
