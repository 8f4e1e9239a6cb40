"""Whoever is taken away under load, every job leaves its keyed effect once. Few jobs here; `python
-m benchmarks.queue_kill` has more.
"""

import json
import sys
from pathlib import Path

import pytest

# `benchmarks` lies beside `src` and is not installed
sys.path.append(str(Path(__file__).parents[2]))

from benchmarks import queue_kill

from tests.given import services

SMALL = queue_kill.Plan(jobs=150, job_ms=4, lease_s=2.0, cut_s=4.0, again_s=0.5)


@pytest.mark.parametrize(
    ("store", "scenario", "rounds"),
    [
        ("sqlite", "kill", 2),
        ("sqlite", "freeze", 1),
        ("postgres", "kill", 2),
        pytest.param("postgres", "restart", 1, marks=pytest.mark.drill),
        pytest.param("postgres", "cut", 1, marks=pytest.mark.drill),
    ],
)
def test_no_job_is_lost_and_no_effect_doubled(store: str, scenario: str, rounds: int) -> None:
    if store == "postgres":
        services._programs()  # skips where there is none
    found = queue_kill.run([store], scenario, rounds, SMALL, 7, lambda r: None)
    assert [(r.lost, r.duplicate_effects, r.wrong) for r in found] == [(0, 0, "")] * rounds


def test_the_json_is_one_document_with_the_rounds_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # no measure of the machine
    words = ["--rounds", "1", "--jobs", "60", "--store", "sqlite", "--lease", "60", "--json"]
    code = queue_kill.main(words)
    told = json.loads(capsys.readouterr().out)
    assert list(told) == ["rounds"]
    (found,) = told["rounds"]
    assert {"store", "lost", "duplicate_effects", "takeover_s"} <= set(found)
    assert (code, found["store"], found["lost"], found["duplicate_effects"]) == (0, "sqlite", 0, 0)
