"""What is shipped for Prometheus and Grafana asks for metrics that kfm tells, by their names."""

import json
import re
from pathlib import Path

import pytest
import yaml

from kfm.jobs.job_log import metrics
from kfm.telemetry.prometheus import dataset_metrics
from kfm.telemetry.standing import WINDOWS
from kfm.telemetry.unsent import Sent

MONITORING = Path(__file__).parents[2] / "monitoring"
RULES = MONITORING / "prometheus" / "rules.yml"
_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


def told() -> set[str]:
    text = metrics([("j", "duration_ms", 1)], [], 0) + dataset_metrics([], {}, Sent(), 0)
    return set(re.findall(r"^# TYPE (\w+) ", text, re.M))


def asked() -> dict[str, str]:
    """Where -> an expression."""
    board = json.loads((MONITORING / "grafana" / "kfm.json").read_text())
    found = {f"{p['title']} {t['refId']}": t["expr"] for p in board["panels"] for t in p["targets"]}
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return found | {r["alert"]: r["expr"] for g in groups for r in g["rules"]}


@pytest.mark.parametrize("where", asked())
def test_an_expression_asks_for_what_is_told(where: str) -> None:
    names = set(re.findall(r"\bkfm_\w+", asked()[where]))
    assert names and {_HISTOGRAM.sub("", name) for name in names} <= told()


def test_rules_have_the_windows_and_limits_that_people_are_told_by() -> None:
    said = " ".join(asked().values())
    for long, short, limit in WINDOWS:
        assert f'kfm_burn_rate{{window="{long}"}} >= {limit:g}' in said
        assert f'kfm_burn_rate{{window="{short}"}} >= {limit:g}' in said
