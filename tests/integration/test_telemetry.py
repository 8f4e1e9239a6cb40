"""Every run that ended is told of, whatever became of it; a collector delays nobody."""

import fcntl
import json
import os
import re
import signal
import sqlite3
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

import kfm.jobs.drive
import kfm.jobs.promote_here
import kfm.telemetry.background
import kfm.telemetry.unsent
from kfm.cli import main
from kfm.model import STATUS, Energy, EnergyFactors, Ran
from kfm.model.trace import span_id
from kfm.telemetry.background import start_beside
from kfm.telemetry.energy import Meter, carbon_of
from kfm.telemetry.send import send
from kfm.telemetry.unsent import send_beside, sent_so_far, unsent
from kfm.upkeep.retention import alone
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.brought import go_tool
from tests.given.collector import KINDS, Took, attributes, collector, every
from tests.given.stand import Stand, answer
from tests.given.verbs import Said, had, until

SCHEMA = Path(__file__).parents[2] / "schemas/telemetry/reliability/updaters-v1.json"
PAGE = Path(__file__).parents[2] / "docs" / "workers.md"
GOOD = answer("k,v\na,1\nb,2\n")


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with Stand(tmp_path) as made:
        made.register("wells", {"format": "csv"})
        made.speaker.says["/wells"] = GOOD
        yield made


def lines(stand: Stand) -> list[dict[str, Any]]:
    files = sorted((stand.ws / "ledger" / "logs").glob("telemetry-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def config(stand: Stand, **said: Any) -> None:
    file = stand.ws / "kfm.yml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | said))


ENDINGS = [
    ("SUCCESS", None),
    ("SKIPPED", None),
    ("FAILED", "PLAN"),
    ("FAILED", "EXECUTE"),
    ("FAILED", "UPSERT"),
    ("PARTIAL", "UPSERT"),
]


def endings(stand: Stand) -> None:
    """A run of each ending, in the order of `ENDINGS`."""
    assert stand("run", "wells").code == 0
    stand("run", "wells")
    stand.speaker.says["/wells"] = answer("", "503 Service Unavailable")
    assert stand("run", "wells").code == 4
    stand.speaker.says["/wells"] = answer("<html>sorry</html>")
    assert stand("run", "wells").code == 1
    stand.register("unlicensed", {"format": "csv"}, licence=None)
    stand.speaker.says["/unlicensed"] = GOOD
    assert stand("run", "unlicensed").code == 3
    stand.register("thin", {"format": "csv", "completeness": 5})
    stand.speaker.says["/thin"] = GOOD
    assert stand("run", "thin").code == 3


def test_every_ending_leaves_one_valid_line_with_the_stage_it_came_to(stand: Stand) -> None:
    endings(stand)
    assert [(line["status"], line["failure_stage"]) for line in lines(stand)] == ENDINGS
    schema = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))
    for line in lines(stand):
        schema.validate(line)
    for state, status in STATUS.items():
        assert re.search(rf"^\| [^|]*\b{state}\b.*\| {status} \|$", PAGE.read_text(), re.M), state


def test_what_a_line_tells_is_what_the_run_did(stand: Stand) -> None:
    stand.publish("wells")
    (line,) = lines(stand)
    assert (line["inputs_count"], line["outputs_count"], line["bytes_in"]) == (1, 1, 12)
    table = next((stand.ws / "data/processed/wells").rglob("*.parquet"))
    assert line["bytes_out"] == table.stat().st_size
    assert line["slo_ok"] and line["slo_target_latency_ms"] == 600_000
    assert line["energy_kwh"] == line["energy"]["kwh"] > 0 and line["co2e_g"] is None
    assert line["energy"]["method"] in ("rapl", "cpu-time") and line["energy"]["source"]


def test_of_what_is_not_public_no_count_is_told(stand: Stand) -> None:
    hidden = {"sensitivity": "restricted", "policy_label": "restricted"}
    stand.register("wells", {"format": "csv"}, **hidden)
    stand("run", "wells")
    for line in lines(stand):
        assert line["withheld"]
        assert [line[k] for k in ("inputs_count", "outputs_count", "bytes_in", "bytes_out")] == [
            0
        ] * 4


def test_a_dry_run_and_what_waits_for_a_person_are_no_endings(stand: Stand) -> None:
    stand("run", "wells", "--dry-run")
    stand.register("wells", {"format": "csv"}, approvals=1)
    assert stand("run", "wells").code == 7
    assert lines(stand) == []


def killed(stand: Stand, step: str) -> None:
    """`kfm run wells` in a process of its own, killed when the engine has come to `step`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads of the upstream stay with the parent
        pid = os.fork()
    if not pid:
        for module in (kfm.jobs.drive, kfm.jobs.promote_here):
            module.drive = lambda steps, *_: _until(step, steps)  # type: ignore[attr-defined]
        os._exit(main(["-w", str(stand.ws), "run", "wells"]) or 0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"it never came to {step!r}"


def _until(step: str, steps: Any) -> Any:
    while True:
        try:
            said = next(steps)
        except StopIteration as ended:
            return ended.value
        if str(said) == step:
            os.kill(os.getpid(), signal.SIGKILL)


KILLED = [
    ("job and lease taken", "PLAN"),
    ("upstream captured", "PLAN"),
    ("run claimed", "EXECUTE"),
    ("capture stored", "EXECUTE"),
    ("check intended", "EXECUTE"),
    ("transform intended", "EXECUTE"),
    ("part stored", "EXECUTE"),
    ("part DONE", "EXECUTE"),
    ("dataset lease taken", "EXECUTE"),
    ("assemble pinned", "EXECUTE"),
    ("candidate written", "EXECUTE"),
    ("proposal written", "EXECUTE"),
    ("promote: dataset lease taken", "UPSERT"),
    ("judged again", "UPSERT"),
    ("generation named, or none to name", "UPSERT"),
    ("version written", "UPSERT"),
    ("cypher written", "UPSERT"),
    ("lineage and outbox", "LINEAGE"),
    ("receipts sealed", "LINEAGE"),
    ("★", "LINEAGE"),
    ("projections rendered", "LINEAGE"),
]


@pytest.mark.parametrize(("step", "stage"), KILLED)
def test_a_run_that_was_killed_is_told_as_failed_where_it_was(
    stand: Stand, step: str, stage: str
) -> None:
    killed(stand, step)
    # who was killed before it claimed a run left none to resume: who comes next finds its lease
    assert stand(*(["run", "wells"] if stage == "PLAN" else ["resume"])).code == 0
    told = [
        (line["status"], line["failure_stage"], line["wal_replay_count"]) for line in lines(stand)
    ]
    # a worked job asks once more, and finds nothing new
    ended = [each for each in told if each[0] != "SKIPPED"]
    assert ended[0] == ("FAILED", stage, 0) and ended[1][:2] == ("SUCCESS", None), told


@pytest.mark.parametrize("step", ["run COMMITTED", "journal archived"])
def test_the_end_of_a_run_is_told_once_also_where_who_ended_it_was_killed(
    stand: Stand, step: str
) -> None:
    killed(stand, step)
    for _ in range(2):
        assert stand("resume").code == 0 and stand("run", "wells").code == 0
    (ended,) = [line for line in lines(stand) if line["status"] != "SKIPPED"]
    (row,) = [r for r in stand("runs", "wells", "--json").json["runs"] if r["state"] == "COMMITTED"]
    assert (ended["status"], ended["state"]) == ("SUCCESS", "COMMITTED")
    assert (ended["run_id"], ended["outputs_count"] > 0) == (row["run_id"], True)


def test_every_attempt_is_counted_and_is_a_span_of_its_own(stand: Stand) -> None:
    killed(stand, "part stored")
    killed(stand, "judged again")
    assert stand("resume").code == 0
    told = [line for line in lines(stand) if line["status"] != "SKIPPED"]
    assert [(line["status"], line["wal_replay_count"]) for line in told] == [
        ("FAILED", 0),
        ("FAILED", 1),
        ("SUCCESS", 2),
    ]
    spans = {span_id(line["run_id"], line["wal_replay_count"]) for line in told}
    assert len(spans) == 3 and [line["energy"] is None for line in told] == [True, True, False]
    # run again whatever came before, it is a run of its own: nothing was replayed
    assert stand("run", "wells", "--force", "--reason", "again").code == 0
    assert lines(stand)[-1]["wal_replay_count"] == 0


def test_of_two_who_tell_one_ending_the_second_finds_the_line_of_the_first(stand: Stand) -> None:
    stand.publish("wells")
    (first,) = lines(stand)
    with open_world(open_workspace(stand.ws)) as world:
        row = world.store.read(lambda tx: tx.runs.get(first["run_id"]))
        assert row is not None
        ran = Ran(updater_id="x", version="1", ended_at=str(row.ended_at), began=row.timestamp)
        world.telemetry.archiving(world, row, lambda: ran)
        log = world.log("wells")
        log.bind(row.run_id)
        world.telemetry.ended(world, log, row.state, 1, ran)
    assert lines(stand) == [first]


def test_a_journal_that_is_damaged_is_archived_as_it_is(stand: Stand) -> None:
    """What telemetry cannot read does not keep evidence from its place, where it is verified."""
    killed(stand, "run COMMITTED")
    with sqlite3.connect(stand.ws / "ledger" / "idempotency.sqlite") as db:
        db.execute("UPDATE journal SET payload = '{}' WHERE seq = 1")
    assert stand("run", "wells").code == 0
    assert stand("verify").code == 6


def test_what_a_person_ended_is_told(stand: Stand) -> None:
    stand.register("wells", {"format": "csv"}, approvals=1)
    assert stand("run", "wells").code == 7
    assert stand("keys", "new", "--role", "approver", "--name", "A. Person").code == 0
    assert stand("reject", "1", "--reason", "not these", "--key", "A. Person").code == 0
    (ended,) = lines(stand)
    assert (ended["status"], ended["state"]) == ("FAILED", "REJECTED")


def endings_told(stand: Stand) -> list[tuple[str, str | None, str]]:
    """Without looks that found nothing new: a worked job asks once more."""
    told = [line for line in lines(stand) if line["status"] != "SKIPPED"]
    return [(line["status"], line["failure_stage"], line["run_id"]) for line in told]


def test_a_run_that_was_killed_is_told_once_and_under_a_name_of_its_own(stand: Stand) -> None:
    stand.publish("wells")
    stand.speaker.says["/wells"] = answer("k,v\na,3\nb,4\n")
    killed(stand, "upstream captured")
    for _ in range(2):
        assert stand("run", "wells").code == 0
    told = endings_told(stand)
    assert [each[:2] for each in told] == [("SUCCESS", None), ("FAILED", "PLAN"), ("SUCCESS", None)]
    assert len({run_id for *_, run_id in told}) == 3
    schema = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))
    schema.validate(lines(stand)[1])


def test_a_run_that_was_killed_and_is_overtaken_is_told_as_failed_all_the_same(
    stand: Stand,
) -> None:
    killed(stand, "transform intended")
    stand.speaker.says["/wells"] = answer("k,v\na,3\nb,4\n")
    assert stand("run", "wells").code == 0
    (failed, stage, first), (ended, _, second) = endings_told(stand)
    assert (failed, stage, ended) == ("FAILED", "EXECUTE", "SUCCESS") and first != second


def test_upkeep_that_was_killed_is_no_run(stand: Stand) -> None:
    """It holds every lease of a dataset, so that no run begins."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if not pid:
        with open_world(open_workspace(stand.ws)) as world, alone(world, "wells"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert stand("run", "wells").code == 0 and [e[0] for e in endings_told(stand)] == ["SUCCESS"]


class Collector:
    """Takes what an exporter of OTLP/JSON sends."""

    def __init__(self, stand: Stand) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.says = answer("{}", Content_Type="application/json")
        for name in KINDS:
            stand.speaker.says[f"/v1/{name}"] = self._take(name)

    def _take(self, name: str) -> Callable[[str, bytes], bytes]:
        def take(_: str, body: bytes) -> bytes:
            self.bodies.append((name, body))
            return self.says

        return take

    def all(self, kind: str) -> list[Any]:
        return every(kind, [json.loads(body) for name, body in self.bodies if name == kind])


@pytest.fixture(scope="session")
def otlp() -> Path:
    """What judges requests by OpenTelemetry's own definitions."""
    return had(lambda: go_tool("otlp"))


def judged(otlp: Path, kind: str, body: bytes) -> str:
    """What is wrong with a request; nothing when it is as defined."""
    done = subprocess.run([otlp, kind], input=body, capture_output=True, check=False)
    return done.stderr.decode() if done.returncode else ""


def told_of_endings(got: Collector | Took) -> None:
    """Logs, spans and measurements of a run of each ending say how each ended."""
    records, spans, metrics = (got.all(kind) for kind in ("logs", "traces", "metrics"))
    told = [(r["severityText"], attributes(r).get("error.type")) for r in records]
    assert told == ENDINGS
    assert [r["severityNumber"] for r in records] == [9, 9, 17, 17, 17, 13]
    assert [s.get("status", {}).get("code", 0) for s in spans] == [0, 0, 2, 2, 2, 0]
    assert [s["traceId"] + s["spanId"] for s in spans] == [
        r["traceId"] + r["spanId"] for r in records
    ]
    assert len({s["spanId"] for s in spans}) == 6
    assert all(int(s["endTimeUnixNano"]) > int(s["startTimeUnixNano"]) for s in spans)
    told_of = "count duration retries bytes_in bytes_out energy error_budget_burn"  # no co2e
    assert {m["name"] for m in metrics} == {f"kfm.run.{name}" for name in told_of.split()}
    assert added(metrics, "kfm.run.count") == 6
    assert added(metrics, "kfm.run.energy") > 0
    took = [p for m in metrics if m["name"] == "kfm.run.duration" for p in _points(m)]
    assert sum(int(p["count"]) for p in took) == 6
    for point in took:
        assert sum(map(int, point["bucketCounts"])) == int(point["count"])
        assert len(point["bucketCounts"]) == len(point["explicitBounds"]) + 1


def _points(metric: dict[str, Any]) -> list[dict[str, Any]]:
    kind = next(metric[kind] for kind in ("sum", "histogram", "gauge") if kind in metric)
    found: list[dict[str, Any]] = kind["dataPoints"]
    return found


def added(metrics: list[dict[str, Any]], name: str) -> float:
    points = [p for m in metrics if m["name"] == name for p in _points(m)]
    return sum(float(p.get("asInt", p.get("asDouble"))) for p in points)


def test_a_collector_gets_every_ending_as_log_span_and_measurement_as_they_are_defined(
    stand: Stand, otlp: Path
) -> None:
    got = Collector(stand)
    endings(stand)
    folder = stand.ws / "ledger" / "logs"
    assert send(folder, stand.speaker.url, "ws").sent == 6
    assert send(folder, stand.speaker.url, "ws").sent == 6, "nothing is sent twice"
    assert [kind for kind, _ in got.bodies] == ["logs", "traces", "metrics"]
    assert [judged(otlp, kind, body) for kind, body in got.bodies] == ["", "", ""]
    told_of_endings(got)
    for wrong in (b'{"resourceSpan":[]}', b'{"resourceSpans":[{"scopeSpans":[{"spans":["a"]}]}]}'):
        assert judged(otlp, "traces", wrong), "a judge that takes anything"


@pytest.mark.drill
def test_a_real_collector_gets_every_ending(stand: Stand, tmp_path: Path) -> None:
    """The OpenTelemetry collector itself: two minutes of a processor to build, once."""
    with collector(tmp_path) as got:
        config(stand, telemetry={"otlp": got.url})
        endings(stand)
        until(lambda: len(got.all("logs")) == 6 and added(got.all("metrics"), "kfm.run.count") == 6)
        told_of_endings(got)
        assert sent_so_far(stand.ws / "ledger" / "logs").sent == 6


def test_with_an_address_a_process_of_its_own_sends_and_without_nobody_is_called(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    got, folder = Collector(stand), stand.ws / "ledger" / "logs"
    stand.publish("wells")
    assert stand.speaker.asked == ["/wells"] and unsent(folder) > 0
    config(stand, telemetry={"otlp": "env:KFM_TEST_COLLECTOR"})
    monkeypatch.setenv("KFM_TEST_COLLECTOR", stand.speaker.url)
    stand("run", "wells")
    until(lambda: sent_so_far(folder).sent == 2)
    assert len(got.all("traces")) == 2 and unsent(folder) == 0


def test_what_a_collector_cannot_take_now_is_sent_later_and_what_it_never_takes_is_counted(
    stand: Stand,
) -> None:
    got, folder = Collector(stand), stand.ws / "ledger" / "logs"
    stand.publish("wells")
    got.says = answer("", "500 Internal Server Error")
    state = send(folder, stand.speaker.url, "ws")
    assert (state.sent, state.failed) == (0, 1) and unsent(folder) > 0
    got.says = answer("", "400 Bad Request")
    assert send(folder, stand.speaker.url, "ws").refused == 1 and unsent(folder) == 0
    got.says = answer("{}")
    stand("run", "wells")
    assert send(folder, stand.speaker.url, "ws").sent == 1
    got.says = answer('{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}')
    stand("run", "wells")
    state = send(folder, stand.speaker.url, "ws")
    assert (state.sent, state.refused, state.error) == (1, 2, "too old")


def test_a_line_that_is_being_written_or_damaged_is_not_sent(stand: Stand) -> None:
    got, folder = Collector(stand), stand.ws / "ledger" / "logs"
    stand.publish("wells")
    (file,) = folder.glob("telemetry-*.jsonl")
    whole = file.read_text()
    file.write_text("no line\n" + whole + whole[:40])
    assert send(folder, stand.speaker.url, "ws").sent == 1
    file.write_text("no line\n" + whole + whole)
    assert send(folder, stand.speaker.url, "ws").sent == 2 and len(got.all("traces")) == 2


def test_an_error_budget_is_used_by_failures_alone(stand: Stand) -> None:
    stand.register(
        "wells", {"format": "csv"}, slo={"success": 0.5, "latency": "1h", "period": "7d"}
    )
    stand.publish("wells")
    stand.speaker.says["/wells"] = answer("", "503 Service Unavailable")
    stand("run", "wells")
    line = lines(stand)[-1]
    assert line["error_budget_burn"] == 1.0 and line["error_budget_period"] == "7d"
    (found,) = stand("slo", "--json").json["datasets"]
    assert (found["runs"], found["failed"], found["success"], found["ok"]) == (2, 1, 0.5, False)
    stand.speaker.says["/wells"] = GOOD
    stand("run", "wells")
    stand("run", "wells")
    assert lines(stand)[-1]["error_budget_burn"] == 0.5
    (found,) = stand("slo", "wells", "--json").json["datasets"]
    said = stand("slo").out
    assert found["ok"] and "75.0% of 50%" in said and "100" not in said


def test_what_is_promised_makes_no_other_version(stand: Stand) -> None:
    first = stand.publish("wells")
    stand.register("wells", {"format": "csv"}, slo={"latency": "5m"})
    assert stand.run("wells")["state"] == "NOOP"
    assert stand("verify", "wells").code == 0 and first["version_id"]


def test_energy_is_summed_with_what_a_noop_saved(stand: Stand) -> None:
    config(
        stand, telemetry={"energy": {"watts_per_core": 10.0, "g_per_kwh": 400.0, "region": "KS"}}
    )
    stand.register("wells", {"format": "csv"})
    stand.publish("wells")
    stand("run", "wells")
    full, noop = lines(stand)
    assert full["co2e_g"] == pytest.approx(full["energy_kwh"] * 400.0)
    (month,) = stand("energy", "--json").json["months"]
    assert month["kwh"] == pytest.approx(full["energy_kwh"] + noop["energy_kwh"])
    assert month["saved_kwh"] == pytest.approx(max(0.0, full["energy_kwh"] - noop["energy_kwh"]))
    said: Said = stand("energy")
    assert "mg CO2e" in said.out and said.code == 0


def test_energy_is_counted_where_the_processor_tells_and_else_estimated(tmp_path: Path) -> None:
    zone = tmp_path / "intel-rapl:0"
    zone.mkdir()
    (zone / "energy_uj").write_text("1000000")
    spent, busy = [0.0], [0.0]
    meter = Meter(EnergyFactors(), rapl=tmp_path, cpu=lambda: spent[0], busy=lambda: busy[0])
    (zone / "energy_uj").write_text("73000000")  # 72 J, of which a quarter of the time was ours
    spent[0], busy[0] = 1.0, 4.0
    found = meter.read()
    assert (found.method, found.kwh) == ("rapl", pytest.approx(18 / 3.6e6))
    (zone / "energy_uj").write_text("5")  # the counter began again
    spent[0], busy[0] = 3.0, 8.0
    found = meter.read()
    assert (found.method, found.kwh) == ("cpu-time", pytest.approx(2 * 3.5 / 3.6e6))
    assert carbon_of(found, EnergyFactors()) is None
    assert isinstance(found, Energy) and found.watts_per_core == 3.5


def test_no_process_is_begun_to_send_while_another_sends(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.publish("wells")
    begun: list[list[str]] = []
    monkeypatch.setattr(kfm.telemetry.unsent, "start_beside", begun.append)
    logs = stand.ws / "ledger" / "logs"
    with (logs / "telemetry.sent.lock").open("w") as sending:
        fcntl.flock(sending, fcntl.LOCK_EX)
        send_beside(logs, "http://127.0.0.1:1", "s")
    assert begun == []
    send_beside(logs, "http://127.0.0.1:1", "s")
    assert len(begun) == 1


def test_a_process_beside_a_run_comes_after_it_for_the_processor() -> None:
    start_beside(["this"])
    ours, its = (
        os.getpriority(os.PRIO_PROCESS, pid) for pid in (0, kfm.telemetry.background._started[-1])
    )
    assert its == min(19, ours + 10)
