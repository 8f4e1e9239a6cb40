"""Files for other orchestrators are the same every time, what their makers allow, and call what a
person calls.
"""

import datetime as dt
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from tests.brought import go_tool
from tests.given.manifests import Refused, compose_refuses, judge
from tests.given.verbs import SHARED, Kfm, had

from kfm.cli.flags import parser_of
from kfm.cli.spec import find
from kfm.cli.spec.operate import RUNNERS as SPELT
from kfm.jobs.schedule.cron import next_after
from kfm.runners.lines import Line, Values
from kfm.runners.settings import TICK
from kfm.runners.systemd import calendar
from kfm.runners.table import RUNNERS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IMAGE = "registry.example.org/kfm@sha256:" + "0" * 64
CLUSTER = ("argo", "tekton", "cronjob", "gitops")
WINDOW = "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"


def shown(runner: str) -> dict[str, str]:
    """The files of a runner as `deploy/` shows them."""
    return {
        str(p.relative_to(DEPLOY)): p.read_text()
        for p in sorted((DEPLOY / runner).rglob("*"))
        if p.is_file()
    }


def documents(*runners: str) -> list[Any]:
    return [
        pytest.param(document, id=f"{path}:{document['kind']}")
        for runner in runners
        for path, text in shown(runner).items()
        for document in yaml.safe_load_all(text)
    ]


def lines(runner: str) -> list[Line]:
    values = Values(dataset="ks_counties", window=WINDOW, output=Path("found.json"))
    return RUNNERS[runner].lines(shown(runner), values)


# ---- bytes ---------------------------------------------------------------------------------------
def test_what_is_shown_is_what_is_rendered() -> None:
    spec = importlib.util.spec_from_file_location("draw_runners", ROOT / "tools/draw_runners.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    there = {str(p.relative_to(DEPLOY)): p.read_bytes() for p in DEPLOY.rglob("*") if p.is_file()}
    assert tool.pages() == there, "make schemas"
    for path, content in tool.template().items():
        assert (tool.TEMPLATE / path).read_bytes() == content, "make schemas"
    assert tool.HOURLY in (tool.TEMPLATE / TICK).read_text()


def test_the_table_of_commands_names_every_runner() -> None:
    assert set(SPELT) == set(RUNNERS)


def rendered(ws: Path, kfm: Kfm, runner: str, *more: str) -> dict[str, bytes]:
    said = kfm("runner", "render", runner, "--image", IMAGE, "--json", *more)
    assert said.code == 0, said.err
    return {file["path"]: (ws / file["path"]).read_bytes() for file in said.json["files"]}


def test_a_second_rendering_writes_nothing_and_a_new_dataset_shows(ws: Path, kfm: Kfm) -> None:
    first = rendered(ws, kfm, "argo")
    again = kfm("runner", "render", "argo", "--image", IMAGE, "--json").json
    assert {file["state"] for file in again["files"]} == {"current"}
    assert kfm("runner", "render", "argo", "--image", IMAGE, "--check").code == 0
    kfm("dataset", "new", "ks_trees", "--url", "https://example.org/trees.csv")
    assert kfm("runner", "render", "argo", "--image", IMAGE, "--check").code == 1
    then = rendered(ws, kfm, "argo")
    changed = [path for path in then if then[path] != first[path]]
    assert len(changed) == 1 and b"ks_trees" in then[changed[0]]


def test_what_a_person_changed_is_not_replaced_and_nothing_beside_it_is_written(
    ws: Path, kfm: Kfm
) -> None:
    first = rendered(ws, kfm, "cronjob")
    one, *others = sorted(first)
    (ws / one).write_text((ws / one).read_text() + "# ours\n")
    (ws / others[0]).unlink()
    said = kfm("runner", "render", "cronjob", "--image", IMAGE)
    assert said.code == 2 and one in said.err and "--force" in said.err
    assert (ws / one).read_text().endswith("# ours\n") and not (ws / others[0]).exists()
    assert rendered(ws, kfm, "cronjob", "--force") == first


@pytest.mark.parametrize("runner", ["argo", "tekton", "cronjob", "compose"])
@pytest.mark.parametrize(
    "image", ["", "kfm:latest", "kfm", "kfm@sha256:0", "kfm:1@sha1:" + "0" * 40]
)
def test_an_image_that_may_become_another_is_refused(
    kfm: Kfm, ws: Path, runner: str, image: str
) -> None:
    said = kfm("runner", "render", runner, "--image", image)
    assert said.code == 2 and "sha256" in said.err
    assert not (ws / "pipelines/orchestration/runners").exists()


def test_settings_of_kfm_yml_are_used_and_a_flag_wins(ws: Path, kfm: Kfm) -> None:
    other = IMAGE.replace("0", "1")
    with (ws / "kfm.yml").open("a") as file:
        file.write(f"runners: {{image: '{other}', place: /srv/water}}\n")
    assert kfm("runner", "render", "compose").code == 0
    path = ws / "pipelines/orchestration/runners/compose/compose.yaml"
    assert other in path.read_text()
    rendered(ws, kfm, "compose")
    assert IMAGE in path.read_text() and other not in path.read_text()
    assert all(
        b"/srv/water" in text
        for p, text in rendered(ws, kfm, "systemd").items()
        if p.endswith(".service")
    )


def test_a_setting_that_does_not_fit_is_refused_as_a_flag_too(kfm: Kfm) -> None:
    said = kfm("runner", "render", "gitops", "--repository", "file:///etc")
    assert said.code == 2 and "repository" in said.err


def test_the_tick_is_hourly_until_the_workspace_says_otherwise(ws: Path, kfm: Kfm) -> None:
    shipped = yaml.safe_load((ROOT / "src/kfm/template" / TICK).read_text())
    assert shipped == {"schedule": [{"cron": "0 * * * *"}]}
    (cronjob,) = (t for p, t in rendered(ws, kfm, "cronjob").items() if p.endswith("cronjob.yaml"))
    assert yaml.safe_load(cronjob)["spec"]["schedule"] == "0 * * * *"
    (ws / TICK).parent.mkdir(parents=True)
    (ws / TICK).write_text('schedule:\n  - cron: "*/10 6-20 * * *"\n')
    (cronjob,) = (t for p, t in rendered(ws, kfm, "cronjob").items() if p.endswith("cronjob.yaml"))
    assert yaml.safe_load(cronjob)["spec"]["schedule"] == "*/10 6-20 * * *"
    (ws / TICK).write_text('schedule:\n  - cron: "@daily"\n')
    assert kfm("runner", "render", "cronjob", "--image", IMAGE).code == 2


def test_a_store_that_is_a_file_has_no_workers_elsewhere_and_no_secret(ws: Path, kfm: Kfm) -> None:
    found = rendered(ws, kfm, "cronjob")
    assert [p.rpartition("/")[2] for p in sorted(found)] == ["cronjob.yaml", "kustomization.yaml"]
    assert not any(b"secretKeyRef" in text for text in found.values())


# ---- what their makers allow ---------------------------------------------------------------------
@pytest.mark.parametrize("document", documents(*CLUSTER))
def test_a_manifest_is_what_its_maker_allows_and_an_unknown_member_is_not(
    document: dict[str, Any],
) -> None:
    had(lambda: judge(document))
    with pytest.raises(Refused):
        judge({**document, "schedulez": "x"})
    if "spec" in document:
        with pytest.raises(Refused):
            judge({**document, "spec": {**document["spec"], "schedulez": "x"}})


def test_a_compose_file_keeps_to_the_specification() -> None:
    (text,) = shown("compose").values()
    assert had(lambda: compose_refuses(yaml.safe_load(text))) == ""
    assert compose_refuses({"services": {"up": {"imagez": "x"}}})


SUITES = {
    "CronJob": "kubernetes/cronjob-batch-v1.json",
    "Task": "tekton/task_tekton.dev_v1.json",
    "Pipeline": "tekton/pipeline_tekton.dev_v1.json",
    "PipelineRun": "tekton/pipelinerun_tekton.dev_v1.json",
    "WorkflowTemplate": "argo/schema.json",
    "CronWorkflow": "argo/schema.json",
}


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    "document", [p for p in documents(*CLUSTER) if p.values[0]["kind"] in SUITES]
)
def test_a_manifest_fits_the_published_schema(document: dict[str, Any]) -> None:
    schema = json.loads((SHARED / "schemas/runners" / SUITES[document["kind"]]).read_text())
    jsonschema_rs.validator_for(schema).validate(document)


@pytest.mark.drill
def test_argos_own_linter_finds_nothing_and_would(tmp_path: Path) -> None:
    program = had(lambda: go_tool("argolint"))

    def linted(*files: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *files], capture_output=True, text=True, check=False)

    files = sorted(str(path) for path in (DEPLOY / "argo").glob("*.yaml"))
    said = linted(*files)
    assert said.returncode == 0 and "no linting errors found" in said.stdout, said.stdout
    alone = linted(str(DEPLOY / "argo" / "tick.yaml"))
    assert alone.returncode == 1 and "couldn't find workflow template" in alone.stdout
    dataset = (DEPLOY / "argo" / "dataset.yaml").read_text()
    (tmp_path / "odd.yaml").write_text(
        dataset.replace("inputs.parameters.dataset", "inputs.parameters.x")
    )
    odd = linted(str(tmp_path / "odd.yaml"))
    assert odd.returncode == 1 and "failed to resolve {{inputs.parameters.x}}" in odd.stdout


# nothing but a Linux with systemd has it, and it cannot be brought
systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="not run: systemd-analyze is not installed"
)


@systemd
def test_units_are_what_systemd_reads(tmp_path: Path) -> None:
    for path, text in shown("systemd").items():
        (tmp_path / Path(path).name).write_text(text)
    (tmp_path / "kfm-dataset@.service").rename(tmp_path / "kfm-dataset@ks_counties.service")
    files = sorted(str(p) for p in tmp_path.iterdir())
    assert verified(*files) == ""
    (tmp_path / "odd.service").write_text("[Service]\nExecStart=/usr/bin/env true\nRestrat=no\n")
    assert "Restrat" in verified(str(tmp_path / "odd.service"))


def verified(*files: str) -> str:
    said = subprocess.run(
        ["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False
    )
    return "".join(
        line for line in said.stderr.splitlines(keepends=True) if "kfm-" in line or "odd." in line
    )


@systemd
@pytest.mark.parametrize(
    "cron",
    [
        "0 * * * *",
        "*/10 6-20 * * *",
        "5,35 0 1 * *",
        "0 6 * JAN,JUL *",
        "15 4 * * MON-FRI",
        "0 0 * * 0,6",
        "7-59/15 */3 */10 2-12/5 *",
        "0 12 * * */2",
    ],
)
def test_a_timer_of_systemd_rings_when_the_cron_line_does(cron: str) -> None:
    at, expected = dt.datetime(2026, 3, 1, 0, 0, 30, tzinfo=dt.UTC), []
    for _ in range(5):
        at = next_after(cron, at, dt.UTC)
        expected.append(f"{at:%Y-%m-%d %H:%M:%S} UTC")
    words = ["--iterations=5", "--base-time=2026-03-01 00:00:30 UTC", calendar(cron)]
    said = subprocess.run(
        ["systemd-analyze", "calendar", *words], capture_output=True, text=True, check=True, env={"TZ": "UTC", "PATH": "/usr/bin:/bin"}
    ).stdout  # fmt: skip
    found = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", said.partition("Next elapse:")[2])
    assert [moment for n, moment in enumerate(found) if moment not in found[:n]] == expected


# ---- what they call ------------------------------------------------------------------------------
@pytest.mark.parametrize("runner", sorted(set(RUNNERS) - {"gitops", "github"}))
def test_every_line_is_found_again_and_is_a_call_that_a_person_can_make(runner: str) -> None:
    found = lines(runner)
    assert found
    for line in found:
        for words in commands(line.words):
            command, rest = find(words)
            assert command is not None, words
            parser_of(command).parse(rest)
        assert not re.search(r"[{}$%]", " ".join(line.words).replace('"$0"', "")), line.words
    said = [" ".join(line.words) for line in found]
    assert any("kfm://dataset/ks_counties" in words for words in said) or runner in (
        "cronjob",
        "helm",
    )
    assert any(WINDOW in words for words in said) or runner in ("cronjob", "helm", "systemd")


def commands(words: tuple[str, ...]) -> list[list[str]]:
    """The calls of kfm in a line, as its own table spells them."""
    if words[:2] == ("/bin/sh", "-c"):
        parts = [shlex.split(part.partition(">")[0]) for part in words[2].split("&&")]
        return [call for part in parts for call in commands(tuple(part))]
    words = tuple(word for word in words if word not in ("/usr/bin/env", "exec"))
    if words[:3] == ("python", "-m", "workers"):
        return [["worker", *words[3:]]]
    assert words[0] == "kfm", words
    return [list(words[1:])]


@pytest.mark.parametrize("runner", CLUSTER)
def test_no_secret_stands_in_a_file_and_every_image_is_pinned(runner: str) -> None:
    for text in shown(runner).values():
        assert set(re.findall(r"image: (\S+)", text)) <= {IMAGE}
        for name, value in re.findall(r"- name: ([A-Z_]+)\n\s+value: (\S+)", text):
            assert (name, value) in {
                ("KFM_WORKSPACE", "/workspace"),
                ("KFM_IMAGE_DIGEST", IMAGE.partition("@")[2]),
            }
