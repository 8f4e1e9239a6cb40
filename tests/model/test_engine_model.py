"""The engine keeps the model's invariants on real state, and the schedules are sharp enough to notice when it does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.explore import SCENARIOS, Schemas, run
from tests.model.mutations import MUTATIONS

ROOT = Path(__file__).parents[2]
SEEDS = range(int(os.environ.get("KFM_SEEDS", "1")))  # `make drill` tries more


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_invariant_holds_on_random_schedules(scenario: str) -> None:
    for seed in SEEDS:
        found = run(scenario, seed)
        assert found is None, f"seed {seed}: invariant {found[0]}: {found[1]}\n" + "\n".join(found[2])


@pytest.mark.parametrize("scenario", ["a-b-a, faults", "two partitions", "expiry", "crashes", "reindex", "rollback"])
def test_every_invariant_holds_with_the_store_on_a_server(scenario: str) -> None:
    found = run(scenario, 0, Schemas)
    assert found is None, f"invariant {found[0]}: {found[1]}\n" + "\n".join(found[2])


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_seeded_mistake_is_noticed(mutation: str, tmp_path: Path) -> None:
    """Each mutation of the model, made in a scratch copy of the engine, breaks an invariant on some schedule."""
    scenario, edits = MUTATIONS[mutation]
    shutil.copytree(ROOT / "src" / "kfm", tmp_path / "kfm", ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in edits:
        path = tmp_path / "kfm" / name
        text = path.read_text()
        assert text.count(old) == 1, f"{mutation}: the engine has changed, {name} holds {text.count(old)} places to mutate"
        path.write_text(text.replace(old, new))
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.model.explore", "--scenario", scenario, "--seeds", "60"],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    noticed = done.returncode == 1 and "invariant" in done.stdout
    assert noticed, f"{mutation} went unnoticed\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
