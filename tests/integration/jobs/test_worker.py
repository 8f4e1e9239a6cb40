"""Workers as an operator meets them: real processes, real signals."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kfm.cli import main as cli
from kfm.cli import runjob
from kfm.cli.worker import _limits
from kfm.jobs.job_log import JobLog
from kfm.jobs.worker import Ended, Worker
from kfm.model.clock import SystemClock
from kfm.model.job import Request
from kfm.store.sqlite import SqliteStore
from kfm.workspace.folder import open_workspace
from tests.given.verbs import Said, run_out
from tests.given.workers import Workers


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    try:
        with open(f"/proc/{pid}/stat") as stat:  # a zombie waits for its parent only
            return stat.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # just now
        return True


def test_four_jobs_run_at_once_and_the_fifth_waits(workers: Workers) -> None:
    """And SIGTERM drains: what runs ends, what waits goes on waiting."""

    def waiting() -> int:
        return len(workers.store.read(lambda tx: tx.jobs.listing(state="queued")))

    for n in range(5):
        workers.put(f"j{n}", hold=True)
    worker = workers.start("--concurrency=4")
    workers.until(lambda: len(workers.lines("began")) == 4, "four begin")
    assert waiting() == 1
    worker.send_signal(signal.SIGTERM)
    workers.go()
    assert worker.wait(180) == 143
    assert (len(workers.lines("ended")), len(workers.lines("began")), waiting()) == (4, 4, 1)
    assert workers.kfm("worker", "run", "--until-idle").returncode == 0
    assert sorted(workers.lines("ended")) == [f"j{n}" for n in range(5)]


def test_the_first_sigterm_finishes_what_runs_and_takes_nothing_new(workers: Workers) -> None:
    for n in range(3):
        workers.put(f"j{n}", hold=True)
    worker = workers.start("--concurrency=2")
    workers.until(lambda: len(workers.lines("began")) == 2)
    worker.send_signal(signal.SIGTERM)
    workers.go()
    assert worker.wait(180) == 143
    assert len(workers.lines("ended")) == 2
    assert len(workers.lines("began")) == 2
    assert [j.state for j in workers.store.read(lambda tx: tx.jobs.listing(state="queued"))] == [
        "queued"
    ]
    assert (
        workers.store.read(lambda tx: [h for h in tx.leases.held() if h.name.startswith("worker/")])
        == []
    )


def test_the_second_signal_stops_at_once_and_gives_the_jobs_back(workers: Workers) -> None:
    job_id = workers.put("long", hold=True)
    worker = workers.start("--concurrency=1")
    workers.until(lambda: workers.lines("began"))
    # two of one kind are one to a process that had no turn in between
    worker.send_signal(signal.SIGINT)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(180) in (130, 143), "of two at once either may be heard last"
    job = workers.job(job_id)
    assert (job.state, job.owner, job.attempts) == ("queued", None, 0)
    workers.until(lambda: all(gone(pid) for pid in workers.pids()), "its process is gone")


def test_nothing_outlives_a_killed_worker_and_another_takes_its_job(workers: Workers) -> None:
    job_id = workers.put("shared", hold=True)
    first = workers.start("--concurrency=1")
    workers.until(lambda: workers.lines("began"))
    first.kill()
    first.wait()
    workers.until(lambda: all(gone(pid) for pid in workers.pids()), "its processes are gone")
    workers.go()
    workers.start("--concurrency=1", "--until-idle")
    workers.until(lambda: workers.lines("ended") == ["shared"], "another worker does it")
    job = workers.until(lambda: workers.job(job_id).state == "ended" and workers.job(job_id))
    assert job.outcome == "succeeded"


def test_a_frozen_worker_that_wakes_up_cannot_end_a_job_that_is_anothers(workers: Workers) -> None:
    job_id = workers.put("shared", hold=True)
    first = workers.start("--concurrency=1", "--name", "first")
    workers.until(lambda: workers.lines("began"))

    def lease() -> Any:
        held = workers.store.read(lambda tx: tx.leases.held())
        return next((h.token for h in held if h.name == "worker/first"), None)

    first.send_signal(signal.SIGSTOP)
    before = lease()
    run_out(workers.ws, "worker/first")
    workers.start("--concurrency=1", "--name", "second")
    workers.until(lambda: len(workers.lines("began")) == 2, "the second takes it over")
    assert workers.job(job_id).owner == "worker/second"
    workers.go(workers.pids()[0])
    workers.until(
        lambda: workers.lines("ended"), "the process of the first is done, and says so to nobody"
    )
    first.send_signal(signal.SIGCONT)
    workers.until(lambda: lease() not in (None, before), "it goes on with a new lease")
    assert workers.job(job_id).state != "ended"
    workers.go()
    workers.until(lambda: workers.job(job_id).state == "ended")
    assert (workers.job(job_id).generation, workers.job(job_id).outcome) == (1, "succeeded")
    assert first.poll() is None
    tallies = {(t, n): v for t, n, v in workers.store.read(lambda tx: tx.jobs.tallies())}
    assert tallies["test.nap", "succeeded"] >= 1


def test_a_failing_job_is_tried_again_after_a_pause_and_then_put_aside(workers: Workers) -> None:
    job_id = workers.put("bad", end="error")
    workers.store.transaction(lambda tx: tx.jobs._save(tx.jobs.of(job_id), max_attempts=2))
    first = workers.kfm("worker", "run", "--until-idle")
    assert first.returncode == 0, first.stderr
    job, tries = workers.job(job_id), len(workers.lines("began"))
    # whatever the number of its tries within a minute
    assert (job.state, job.outcome, job.attempts) == ("queued", "failed", 1)
    workers.store.transaction(
        lambda tx: tx.jobs._save(job, ended_at="2026-01-01T00:00:00Z", not_before=0)
    )
    assert workers.kfm("worker", "run", "--until-idle").returncode == 0
    job = workers.job(job_id)
    assert (job.state, job.outcome, len(workers.lines("began"))) == ("ended", "dead", tries + 1)
    assert "as asked" in job.error
    listed = json.loads(workers.kfm("jobs", "dead", "--json").stdout)["jobs"]
    assert [j["job_id"] for j in listed] == [job_id]
    receipts = [
        json.loads(p.read_text()) for p in (workers.ws / "receipts" / "test.nap").rglob("*.json")
    ]
    assert [r["status"] for r in receipts] == ["failed"] * (tries + 1)
    stack = receipts[0]["errors"][0]["stack"]
    assert "ValueError" in stack and 'File "jobs/base.py", line' in stack
    assert str(workers.ws) not in stack and not re.search(r"File \"/", stack)
    assert workers.kfm("jobs", "retry", job_id[:8]).returncode == 0
    assert workers.job(job_id).state == "queued"


def test_a_denied_job_is_not_tried_again(workers: Workers) -> None:
    job_id = workers.put("no", end="deny")
    workers.kfm("worker", "run", "--until-idle")
    assert (workers.job(job_id).state, workers.job(job_id).outcome) == ("ended", "failed")
    assert len(workers.lines("began")) == 1
    receipt = json.loads(next((workers.ws / "receipts" / "test.nap").rglob("*.json")).read_text())
    assert receipt["provenance"]["policy_decisions"][0]["decision"] == "deny"


@pytest.mark.parametrize(
    ("parameters", "env", "error"),
    [
        ({"hold": True}, {"KFM_TEST_TIMEOUT": "2"}, "time limit"),
        ({"megabytes": 900}, {"KFM_TEST_MEMORY": "300"}, "MemoryError"),
        ({"end": "kill"}, {}, "killed by signal 9"),
    ],
    ids=["time", "memory", "killed"],
)
def test_a_job_that_takes_too_much_ends_alone_and_leaves_a_receipt(
    workers: Workers, parameters: Any, env: dict[str, str], error: str
) -> None:
    job_id = workers.put("greedy", **parameters)
    other = workers.store.transaction(
        lambda tx: tx.jobs.submit(Request(job_type="test.calm", parameters={"mark": "modest"}))
    ).job_id
    said = workers.kfm("worker", "run", "--until-idle", "--concurrency=2", **env)
    assert said.returncode == 0, said.stderr
    assert workers.job(job_id).outcome == "dead"
    assert error in workers.job(job_id).error
    assert workers.job(other).outcome == "succeeded"
    receipts = [json.loads(p.read_text()) for p in (workers.ws / "receipts").rglob("*.json")]
    assert sorted(r["status"] for r in receipts) == ["failed", "succeeded"]


def test_a_job_has_time_for_its_steps_whatever_the_registry_gives_them(workers: Workers) -> None:
    entry = workers.ws / "data" / "registry" / "ks_earthquakes.yml"
    job = workers.store.transaction(lambda tx: tx.jobs.put("ks_earthquakes", "", ""))
    assert _limits(open_workspace(workers.ws), job).timeout_s == 6 * 3600
    entry.write_text(entry.read_text().replace("source:\n", "source:\n  max_step: 4h\n"))
    limits = _limits(open_workspace(workers.ws), job)
    assert (limits.timeout_s, "`source.max_step`" in limits.key) == (24 * 3600, True)


def test_until_idle_waits_for_no_job_of_another_day(workers: Workers) -> None:
    workers.kfm(
        "jobs",
        "put",
        "notify",
        "--dataset",
        "kfm://dataset/ks_earthquakes",
        "--not-before",
        "2999-01-01T00:00:00Z",
    )
    said = workers.kfm("worker", "run", "--until-idle")
    assert (said.returncode, "0 jobs worked" in said.stderr) == (0, True)


def test_a_job_that_leaves_a_process_behind_has_ended_when_it_says_so(workers: Workers) -> None:
    job_id = workers.put("father", end="daemon")
    assert workers.kfm("worker", "run", "--until-idle").returncode == 0
    assert (workers.job(job_id).outcome, workers.lines("began")) == ("succeeded", ["father"])
    for pid in [
        int(line.split()[2])
        for line in workers.marks.read_text().splitlines()
        if line.startswith("daemon")
    ]:
        os.kill(pid, signal.SIGKILL)


def test_a_typing_mistake_in_the_configuration_loses_no_job(workers: Workers) -> None:
    job_id = workers.put("kept")
    workers.store.transaction(lambda tx: tx.jobs._save(tx.jobs.of(job_id), max_attempts=2))
    told = (workers.ws / "kfm.yml").read_text()
    workers.start("--concurrency=1", "--until-idle")
    workers.until(lambda: workers.job(job_id).state == "ended")
    workers.kfm("jobs", "retry", job_id)
    worker = workers.start("--concurrency=1")
    workers.until(
        lambda: workers.job(job_id).outcome == "succeeded" and workers.job(job_id).state == "ended"
    )
    (workers.ws / "kfm.yml").write_text(told + "pools: [oops\n")
    workers.store.transaction(lambda tx: tx.jobs.retry(job_id))
    workers.until(lambda: workers.job(job_id).attempts, "it is tried in vain")
    (workers.ws / "kfm.yml").write_text(told)
    workers.until(lambda: workers.job(job_id).state == "ended")
    assert workers.job(job_id).outcome == "succeeded"
    worker.kill()


def test_a_type_that_cannot_be_loaded_hurts_no_other_job(workers: Workers) -> None:
    folder = workers.marks.parent / "package"
    (folder / "kfmnap-1.dist-info" / "entry_points.txt").write_text(
        "[kfm.jobs]\ntest.nap = kfmnap:JOB\ntest.broken = kfmbroken\n"
    )
    broken = workers.store.transaction(
        lambda tx: tx.jobs.submit(Request(job_type="test.broken", max_attempts=1))
    )
    good = workers.put("good")
    assert workers.kfm("worker", "run", "--until-idle").returncode == 0
    assert (workers.job(broken.job_id).outcome, workers.job(good).outcome) == ("dead", "succeeded")


def test_a_log_that_cannot_be_written_stops_no_job(workers: Workers) -> None:
    (workers.ws / "ledger" / "logs").write_text("no folder")
    job_id = workers.put("good")
    assert workers.kfm("worker", "run", "--until-idle").returncode == 0
    assert workers.job(job_id).outcome == "succeeded"


@pytest.mark.parametrize(
    "flags",
    [
        ["--not-before", "soon"],
        ["--not-before", "9999-12-31T23:59:59-14:00"],
        ["--priority", "99999999999"],
        ["--window", "x"],
        ["--partition", "../x"],
        ["--pool", 'a"b'],
        ["--pool", "light"],
    ],
    ids=" ".join,
)
def test_a_job_that_makes_no_sense_is_refused_when_it_is_put(
    workers: Workers, flags: list[str]
) -> None:
    said = workers.kfm(
        "jobs", "put", "ingest.pull_source", "--dataset", "kfm://dataset/ks_earthquakes", *flags
    )
    assert said.returncode == 2, said.stderr
    assert workers.store.read(lambda tx: tx.jobs.listing()) == []


def test_a_running_job_can_be_cancelled(workers: Workers) -> None:
    job_id = workers.put("long", hold=True)
    workers.start("--concurrency=1", "--until-idle")
    workers.until(lambda: workers.lines("began"))
    assert workers.kfm("jobs", "cancel", job_id).returncode == 0
    workers.until(lambda: workers.job(job_id).state == "ended")
    assert workers.job(job_id).outcome == "cancelled"
    workers.until(lambda: all(gone(pid) for pid in workers.pids()), "its process is gone")
    workers.until(
        lambda: (
            '"cancelled"'
            in "".join(p.read_text() for p in (workers.ws / "ledger" / "logs").glob("signals-*"))
        )
    )
    signals = "".join(p.read_text() for p in (workers.ws / "ledger" / "logs").glob("signals-*"))
    lifecycle = [
        json.loads(line)["value"]
        for line in signals.splitlines()
        if json.loads(line)["signal"] == "run.lifecycle"
    ]
    assert lifecycle == ["queued", "started", "cancelled"]


def test_a_cancelled_job_that_does_not_listen_is_killed(workers: Workers) -> None:
    job_id = workers.put("deaf", hold=True, end="deaf")
    workers.start("--concurrency=1")
    workers.until(lambda: workers.lines("began"))
    assert workers.kfm("jobs", "cancel", job_id).returncode == 0
    workers.until(lambda: workers.job(job_id).state == "ended")
    assert workers.job(job_id).outcome == "cancelled"
    workers.until(lambda: all(gone(pid) for pid in workers.pids()), "its process is gone")


def test_an_error_of_any_length_and_any_character_is_told(workers: Workers) -> None:
    job_id = workers.put("odd", end="odd")
    workers.start("--concurrency=1")
    job = workers.until(lambda: workers.job(job_id).attempts and workers.job(job_id))
    assert job.error.startswith("test.nap met ValueError: ??yyy")
    assert len(job.error) <= 8000


def test_what_a_process_said_with_its_last_breath_counts(workers: Workers) -> None:
    says = 'import sys; sys.stdin.readline(); print(\'{"status": "succeeded", "receipt": "-"}\')'
    job_id = workers.put("last words")
    worker = Worker(
        workers.store,
        SystemClock(),
        name="w",
        slots=1,
        lease_seconds=15,
        command=[sys.executable, "-c", says],
    )
    worker._join()
    before = worker._listen()
    worker._exchange()
    (child,) = worker._children.values()
    child.process.wait()
    worker._look()  # sees that it is gone before anybody has heard what it said
    worker._leave(before)
    assert (workers.job(job_id).outcome, workers.job(job_id).attempts) == ("succeeded", 0)


def test_a_job_whose_end_cannot_be_written_is_worked_again_by_the_worker_that_lives(
    workers: Workers,
) -> None:
    says = 'import sys; sys.stdin.readline(); print(\'{"status": "succeeded", "receipt": "-"}\')'
    job_id, clock = workers.put("unwritten"), SystemClock()
    store = SqliteStore(workers.ws / "ledger" / "idempotency.sqlite", clock)
    command = [sys.executable, "-c", says]
    worker = Worker(store, clock, name="w", slots=1, lease_seconds=15, command=command)
    worker._join()
    before = worker._listen()
    worker._exchange()
    (child,) = worker._children.values()
    store._db.execute("pragma query_only = on")  # the disk takes nothing
    worker._finished(child)
    store._db.execute("pragma query_only = off")
    assert workers.job(job_id).state == "running"
    worker._exchange()
    (again,) = worker._children.values()
    worker._finished(again)
    worker._leave(before)
    store.abandon()
    assert (workers.job(job_id).outcome, workers.job(job_id).attempts) == ("succeeded", 0)


def test_what_run_job_cannot_work_now_is_left_to_the_workers(workers: Workers) -> None:
    workers.store.transaction(lambda tx: tx.leases.take("ks_earthquakes/-", "another run", 60))
    job_id = workers.kfm(
        "jobs", "put", "ingest.pull_source", "--dataset", "kfm://dataset/ks_earthquakes"
    ).stdout.strip()
    said = workers.kfm(
        "worker",
        "run-job",
        "ingest.pull_source",
        "--dataset",
        "kfm://dataset/ks_earthquakes",
        "--upstream",
        "sample",
        "--json",
    )
    assert said.returncode == 5, said.stderr
    (told,) = json.loads(said.stdout)["jobs"]
    assert (told["status"], told["receipt"]) == ("later", None)
    assert (workers.job(job_id).state, workers.job(job_id).owner) == ("queued", None)


def test_a_receipt_whose_job_is_given_back_untried_is_told_so_and_not_compared(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = workers.job(workers.put("first"))
    assert workers.kfm("worker", "run-job", "test.nap", "--set", "mark=first").returncode == 0
    receipt = next((workers.ws / "receipts" / "test.nap").rglob("*.json"))
    later = Ended(status="later", reason="another run is at it", exit_code=5)
    monkeypatch.setattr(runjob, "_worked", lambda *a, **k: [(job, later)])
    assert cli(["-w", str(workers.ws), "worker", "run-job", "--receipt", str(receipt)]) == 5
    assert "another run is at it" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--concurrency", "0", "--until-idle"],
        ["worker", "run", "--name", "../x"],
        ["jobs", "list", "--limit", "-5"],
        ["jobs", "list", "--limit", "99999999999999999999"],
        ["jobs", "show", "\udcff"],
    ],
    ids=lambda words: " ".join(words).encode(errors="replace").decode(),
)
def test_what_makes_no_sense_is_refused_in_words(
    kfm: Callable[..., Said], words: list[str]
) -> None:
    assert kfm(*words).code == 2


def test_logs_print_as_many_lines_as_asked_for_and_pass_over_what_is_not_theirs(
    workers: Workers, kfm: Callable[..., Said]
) -> None:
    job = workers.store.transaction(lambda tx: tx.jobs.submit(Request(job_type="notify")))
    log = JobLog(workers.ws / "ledger" / "logs", SystemClock())
    for _ in range(3):
        log.tell(job, "", "started")
    (file,) = (workers.ws / "ledger" / "logs").glob("workers-*")
    file.write_text('{"a": 1}\n[]\ncut sho\n' + file.read_text())
    assert [kfm("logs", "-n", n).out.count("notify") for n in ("0", "2", "50")] == [0, 2, 3]


def test_a_failing_job_is_shown_however_many_wait_behind_it(
    workers: Workers, kfm: Callable[..., Said]
) -> None:
    def fill(tx: Any) -> None:
        token = tx.leases.take("worker/w", "w", 15)
        tx.jobs.submit(Request(job_type="repair"))
        (first,) = tx.queue.claim(token, 1)
        tx.queue.fail(token, first, "as asked")
        for n in range(1001):
            tx.jobs.submit(Request(job_type="notify", event=str(n)))

    workers.store.transaction(fill)
    needs = json.loads(kfm("status", "--json").out)["attention"]
    assert [(n["kind"], n["what"]) for n in needs if n["kind"] == "failing"] == [
        ("failing", "repair")
    ]


def test_a_pool_caps_what_runs_on_all_workers_together(workers: Workers) -> None:
    (workers.ws / "kfm.yml").write_text(
        (workers.ws / "kfm.yml").read_text() + "\npools: {narrow: {slots: 1}}\n"
    )
    for n in range(3):
        workers.put(f"n{n}", seconds=0.3, pool="narrow")
    for name in ("a", "b"):
        workers.start("--concurrency=2", "--until-idle", "--name", name)
    workers.until(lambda: len(workers.lines("ended")) == 3)
    assert [line.split()[0] for line in workers.marks.read_text().splitlines()] == [
        "began",
        "ended",
    ] * 3


def test_a_switched_off_type_does_not_start_until_it_is_on_again(workers: Workers) -> None:
    said = workers.kfm("switch", "off", "ks_earthquakes", "--reason", "upstream is under attack")
    assert said.returncode == 0, said.stderr
    assert (
        workers.kfm(
            "jobs", "put", "ingest.pull_source", "--dataset", "kfm://dataset/ks_earthquakes"
        ).returncode
        == 0
    )
    workers.kfm("worker", "run", "--until-idle", "--upstream", "sample")
    run = workers.kfm("run", "ks_earthquakes", "--upstream", "sample")
    assert run.returncode == 3
    assert "under attack" in run.stderr + run.stdout
    assert [
        j.state for j in workers.store.read(lambda tx: tx.jobs.listing(dataset_id="ks_earthquakes"))
    ] == ["queued"]
    assert workers.kfm("switch", "on", "ks_earthquakes").returncode == 0
    workers.kfm("worker", "run", "--until-idle", "--upstream", "sample")
    assert workers.kfm("status", "--json").stdout.count('"official"') == 1


def test_the_log_has_the_documented_fields_and_no_others(workers: Workers) -> None:
    workers.put("good")
    workers.put("bad", end="deny")
    workers.kfm("worker", "run", "--until-idle")
    lines = [
        json.loads(line)
        for p in (workers.ws / "ledger" / "logs").glob("workers-*")
        for line in p.read_text().splitlines()
    ]
    always = {
        "timestamp",
        "service",
        "job_type",
        "job_id",
        "run_id",
        "correlation_id",
        "dataset_ids",
        "zone_in",
        "zone_out",
        "policy_label",
        "status",
    }
    assert {line["status"] for line in lines} == {"started", "succeeded", "failed"}
    for line in lines:
        assert line.keys() - {"duration_ms", "error"} == always
        assert ("error" in line) == (line["status"] == "failed")
        assert line["service"] == "workers"
    failed = next(line for line in lines if line["status"] == "failed")
    assert failed["error"].keys() == {"message", "stack"}
    receipt = next(
        p
        for p in (workers.ws / "receipts" / "test.nap").rglob("*.json")
        if failed["run_id"] in p.name
    )
    assert json.loads(receipt.read_text())["correlation_id"] == failed["correlation_id"]
    metrics = workers.kfm("worker", "metrics").stdout
    for name in ("started", "succeeded", "failed"):
        assert f'kfm_jobs_{name}_total{{job_type="test.nap"}}' in metrics
    assert 'kfm_job_duration_seconds_bucket{job_type="test.nap",le="+Inf"} 2' in metrics
    assert 'kfm_job_retries_total{job_type="test.nap"} 0' in metrics
    workers.put("waits")
    metrics = workers.kfm("worker", "metrics").stdout
    assert 'kfm_queue_depth{pool="default",state="queued"} 1' in metrics
    assert re.search(r'kfm_queue_lag_seconds\{pool="default"\} \d+\.\d+', metrics)


@pytest.mark.parametrize("bad", ["./x.csv", "/etc/passwd", "kfm://dataset/../x", "file:///x.csv"])
def test_an_input_that_is_a_path_is_refused(workers: Workers, bad: str) -> None:
    said = workers.kfm("worker", "run-job", "transform.build_tiles", "--dataset", bad)
    assert said.returncode == 2
    assert "never a path" in said.stderr


def test_an_unknown_type_is_refused_by_name(workers: Workers) -> None:
    said = workers.kfm(
        "worker", "run-job", "transform.build_tile", "--dataset", "kfm://dataset/ks_earthquakes"
    )
    assert said.returncode == 2
    assert "transform.build_tile'" in said.stderr
