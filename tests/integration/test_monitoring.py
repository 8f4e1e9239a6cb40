"""What is shipped for Prometheus and Grafana loads in their own tools, shows what runs did, and fires
when something is wrong: on what `kfm worker metrics` tells of a workspace at work.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.brought import go_tool, promtool
from tests.given.stand import Stand, answer
from tests.given.verbs import had

MONITORING = Path(__file__).parents[2] / "monitoring"
RULES = MONITORING / "prometheus" / "rules.yml"
BOARD = MONITORING / "grafana" / "kfm.json"
GOOD = answer("k,v\na,1\nb,2\n")


@pytest.fixture(scope="module")
def tool() -> Path:
    return had(promtool)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a dataset whose runs begin to fail, one that is fresh, one that never came, and of jobs that
    were worked and that wait.
    """
    with Stand(tmp_path_factory.mktemp("told")) as stand:
        for name in ("wells", "quakes", "never"):
            stand.register(name, {"format": "csv"}, cadence="daily")
            stand.speaker.says[f"/{name}"] = GOOD
        stand.publish("quakes")
        stand.publish("wells")
        stand.speaker.says["/wells"] = answer("", "503 Service Unavailable")
        assert stand("run", "wells").code == 4
        assert stand("schedule", "run", "quakes").code == 0
        assert stand("worker", "run", "--until-idle").code == 0
        assert stand("schedule", "run", "quakes").code == 0  # nobody works it
        yield stand("worker", "metrics").out


def run(tool: Path, *args: str, folder: Path, given: str = "") -> None:
    done = subprocess.run(
        [tool, *args], cwd=folder, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def series(text: str) -> list[dict[str, str]]:
    """What was told, as if it had been told every minute for an hour."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return [{"series": name, "values": f"{value}+0x60"} for name, _, value in lines]


def asked_of(tool: Path, folder: Path, told: str, **tests: Any) -> None:
    """Ask Prometheus' own tool what comes of what was told."""
    case = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series(told), **tests}],
    }
    (folder / "case.yml").write_text(yaml.safe_dump(case))
    run(tool, "test", "rules", "case.yml", folder=folder)


def panels() -> dict[str, str]:
    board = json.loads(BOARD.read_text())
    return {f"{p['title']} {t['refId']}": t["expr"] for p in board["panels"] for t in p["targets"]}


def test_what_is_told_is_as_prometheus_reads_it(tool: Path, told: str, tmp_path: Path) -> None:
    run(tool, "check", "metrics", folder=tmp_path, given=told)


def test_every_panel_shows_something_of_runs_that_were_made(
    tool: Path, told: str, tmp_path: Path
) -> None:
    """Latency, promises and how fast budgets burn among them."""
    shown = [
        {
            "expr": f"count({expression.replace('$dataset', '.*')}) > bool 0",
            "eval_time": "30m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        }
        for expression in panels().values()
    ]
    assert len(shown) == 10
    asked_of(tool, tmp_path, told, promql_expr_test=shown)


def test_rules_fire_on_a_forced_fault_and_on_nothing_else(
    tool: Path, told: str, tmp_path: Path
) -> None:
    run(tool, "check", "rules", str(RULES), folder=tmp_path)
    run(tool, "test", "rules", "rules_test.yml", folder=RULES.parent)
    burns = re.search(r'kfm_burn_rate\{dataset="wells",window="1h"\} (\S+)', told)
    assert burns is not None
    rate = float(burns[1])
    fires = {
        "exp_labels": {"severity": "critical", "dataset": "wells"},
        "exp_annotations": {
            "summary": f"the error budget of wells burns {rate:g} times as fast as it may",
            "next": "kfm slo wells",
        },
    }
    stale = {
        "exp_labels": {"severity": "warning", "dataset": "never"},
        "exp_annotations": {
            "summary": "never is older than its entry allows",
            "next": "kfm explain stale never",
        },
    }
    alerts = {"KfmBudgetBurnsFast": [fires], "KfmDatasetStale": [stale], "KfmTelemetryUnsent": []}
    wanted = [
        {"eval_time": "30m", "alertname": name, "exp_alerts": expected}
        for name, expected in alerts.items()
    ]
    asked_of(tool, tmp_path, told, alert_rule_test=wanted)


def test_the_dashboard_loads_as_grafana_defines_it(tmp_path: Path) -> None:
    grafana = had(lambda: go_tool("grafana"))
    run(grafana, folder=tmp_path, given=BOARD.read_text())
    board = json.loads(BOARD.read_text())
    board["panels"][0]["titel"] = "of a member that there is not"
    with pytest.raises(AssertionError, match="titel"):
        run(grafana, folder=tmp_path, given=json.dumps(board))
