"""What started a run, and who, is in the ledger for every way in."""

from tests.jobs.conftest import Workers

DATASET = "ks_earthquakes"


def work_at(workers: Workers, version: str) -> None:
    """Work the queue under a new pipeline version, so that the run has a row of its own."""
    entry = workers.ws / "data" / "registry" / f"{DATASET}.yml"
    kept = [line for line in entry.read_text().splitlines() if not line.startswith("pipeline_version")]
    entry.write_text("\n".join([*kept, f"pipeline_version: {version}", ""]))
    said = workers.kfm("worker", "run", "--until-idle", "--upstream", "sample")
    assert said.returncode == 0, said.stderr


def test_the_ledger_names_what_started_each_run_and_who(workers: Workers) -> None:
    """Manual, cron and event: one run of each."""
    assert workers.kfm("run", DATASET, "--upstream", "sample").returncode == 0
    assert workers.kfm("scheduler", "--once").returncode == 0
    work_at(workers, "1.1.0")
    assert workers.kfm("schedule", "event", DATASET, "--digest", "sha256:" + "e" * 64).returncode == 0
    work_at(workers, "1.2.0")
    manual, cron, event = [row.trigger_type for row in reversed(workers.store.read(lambda tx: tx.runs.recent(DATASET)))]
    assert manual.startswith("manual:user:")
    assert cron.startswith("cron:scheduler@")
    assert event.startswith("event:user:")
