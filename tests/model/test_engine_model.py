"""The engine keeps the model's invariants on real state, and the schedules are sharp enough to
notice when it does not.
"""

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from kfm.run.promote import promote
from tests.given.verbs import each
from tests.model.explore import DATASET, OPERATOR, SCENARIOS, Explorer, Lines, Schemas, run
from tests.model.mutations import MUTATIONS

ROOT = Path(__file__).parents[2]
SEEDS = {"one": range(1), "many": range(1, 48)}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("seeds", each(SEEDS, "one"))
def test_every_invariant_holds_on_random_schedules(scenario: str, seeds: str) -> None:
    for seed in SEEDS[seeds]:
        found = run(scenario, seed)
        assert found is None, f"seed {seed}: invariant {found[0]}: {found[1]}\n" + "\n".join(
            found[2]
        )


@pytest.mark.parametrize("seed", [13, 19])
def test_what_was_published_before_a_late_erasure_is_told_and_traced(seed: int) -> None:
    """Schedules in which a run publishes between a withdrawal and the end of its erasure."""
    found = run("erasure, two partitions", seed)
    assert found is None, f"invariant {found[0]}: {found[1]}\n" + "\n".join(found[2])


@pytest.mark.parametrize(
    "scenario",
    each(
        ["a-b-a, faults", "two partitions", "expiry", "crashes", "reindex", "rollback"],
        "a-b-a, faults",
    ),
)
def test_every_invariant_holds_with_the_store_in_lines(scenario: str) -> None:
    found = run(scenario, 0, Lines)
    assert found is None, f"invariant {found[0]}: {found[1]}\n" + "\n".join(found[2])


@pytest.mark.parametrize(
    "scenario",
    each(
        ["a-b-a, faults", "two partitions", "expiry", "crashes", "reindex", "rollback"],
        "a-b-a, faults",
    ),
)
def test_every_invariant_holds_with_the_store_on_a_server(scenario: str) -> None:
    found = run(scenario, 0, Schemas)
    assert found is None, f"invariant {found[0]}: {found[1]}\n" + "\n".join(found[2])


@pytest.mark.parametrize("sleeps", ["part stored", "ended PROPOSED", "receipts sealed"])
def test_a_run_that_sleeps_through_an_erasure_brings_nothing_back(sleeps: str) -> None:
    """One that has a part, one whose proposal waits, and one that has named the next generation and
    wrote its version already.
    """

    def schedule(explorer: Explorer, partition: str | None) -> None:
        explorer.change()
        explorer.rest()
        explorer.change()
        explorer.until(0, "part stored")
        explorer.erase_one(partition)
        explorer.until(OPERATOR, "create catalog/channels")
        explorer.step(OPERATOR)
        if sleeps != "part stored":
            explorer.until(0, "ended PROPOSED")
        if sleeps == "receipts sealed":
            # the same command goes on
            explorer.workers[0] = (world := explorer.open_world(), promote(world, DATASET))
            explorer.until(0, sleeps)
        explorer.expire()
        explorer.until(OPERATOR, "ended int")
        explorer.to_rest()

    # without anything official nothing is proposed
    for partition in ("p0", None) if sleeps == "part stored" else ("p0",):
        found = run("erasure, two partitions", 0, schedule=partial(schedule, partition=partition))
        assert found is None, (
            f"erasure of {partition}: invariant {found[0]}: {found[1]}\n" + "\n".join(found[2])
        )


def mutated(mutation: str) -> dict[str, str]:
    """Modules of the engine with the mistake in them."""
    found: dict[str, str] = {}
    for name, old, new in MUTATIONS[mutation][1]:
        text = found.get(name) or (ROOT / "src" / "kfm" / name).read_text()
        assert text.count(old) == 1, (
            f"{mutation}: the engine has changed, {name} holds {text.count(old)} places to mutate"
        )
        found[name] = text.replace(old, new)
    return found


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_mistake_can_still_be_seeded(mutation: str) -> None:
    """The drill tries each; here it only has to be one that Python can read."""
    for name, text in mutated(mutation).items():
        compile(text, name, "exec")


@pytest.mark.drill
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_seeded_mistake_is_noticed(mutation: str, tmp_path: Path) -> None:
    """Each mutation of the model, made in a scratch copy of the engine, breaks an invariant on some
    schedule.
    """
    shutil.copytree(
        ROOT / "src" / "kfm", tmp_path / "kfm", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, text in mutated(mutation).items():
        (tmp_path / "kfm" / name).write_text(text)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.model.explore", "--scenario", MUTATIONS[mutation][0], "--seeds", "60"],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    noticed = done.returncode == 1 and "invariant" in done.stdout
    assert noticed, f"{mutation} went unnoticed\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
