"""`node updater.mjs run`: the same ledger, keys, artifacts and words as Python's; a change goes to the
engine.
"""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from tests.given.node import OWN, Twins, in_lines, twins
from tests.given.processes import start
from tests.given.updater import ARTIFACTS, ROOT, TEMPLATES, artifacts, write
from tests.given.verbs import QUAKES, Kfm, each, tree, until

from kfm.model.clock import SystemClock
from kfm.model.errors import Fenced
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_store

ALONE = {"KFM_PYTHON": "none"}
JUDGES = {
    "run.jsonl": "artifacts/run-line.json",
    "event_log.jsonl": "telemetry/pipelines-updater-v1.json",
    "publisher_trace.jsonl": "artifacts/publisher-trace-line.json",
}


@pytest.fixture(params=each(OWN, "22-sqlite", "machine-jsonl"))  # each Node, each ledger
def both(request: pytest.FixtureRequest, ws: Path, sample: SampleUpstream) -> Twins:
    node, _, store = request.param.partition("-")
    if store == "jsonl":
        in_lines(ws)
    return twins(write(ws.parent), node, sample.url)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def asked(ws: Path, work: Any) -> Any:
    store = open_store(open_workspace(ws), SystemClock())
    try:
        return store.transaction(work)
    finally:
        store.close()


def test_a_key_committed_by_one_is_a_noop_in_the_other(both: Twins, ws: Path) -> None:
    first = both.call("node", "--json").json
    assert first["state"] == "COMMITTED", "a change goes to the engine"
    said = [both.call(which, "--json", **more) for which, more in (("node", ALONE), ("python", {}))]
    assert [(s.code, s.json["state"]) for s in said] == [(0, "NOOP"), (0, "NOOP")], said[0].err
    one, two = (s.json for s in said)
    assert one | {"run_id": ""} == two | {"run_id": ""}
    noops = asked(ws, lambda tx: [n.run_id for n in tx.looks.noops()])
    assert sorted(noops) == sorted([one["run_id"], two["run_id"]])
    told = [both.call(which).out.rpartition("  ")[0] for which in ("node", "python")]
    assert told[0] == told[1] and "unchanged" in told[0]


def test_the_artifacts_are_those_of_python(both: Twins, ws: Path) -> None:
    both.call("python")
    one, two = (
        artifacts(ws, both.call(which, "--json", **ALONE).json["run_id"])
        for which in ("node", "python")
    )
    assert sorted(p.name for p in one.iterdir()) == sorted(ARTIFACTS)
    for name, schema in JUDGES.items():
        judge = jsonschema_rs.validator_for(json.loads((ROOT / "schemas" / schema).read_text()))
        mine, theirs = lines(one / name), lines(two / name)
        for line in mine:
            judge.validate(line)
        assert [list(line) for line in mine] == [list(line) for line in theirs]
        words = ("event", "call", "name", "stage", "state", "reason", "names", "etag")
        assert [[m.get(w) for w in words] for m in mine] == [
            [t.get(w) for w in words] for t in theirs
        ]
    states = [json.loads((folder / "idempotency.json").read_text()) for folder in (one, two)]
    jsonschema_rs.validator_for(
        json.loads((ROOT / "schemas/artifacts/idempotency.json").read_text())
    ).validate(states[0])
    assert states[0] | {"run_id": ""} == states[1] | {"run_id": ""}
    assert list(states[0]) == list(states[1])


def test_artifacts_leads_to_those_of_the_newest_run_whoever_made_it(both: Twins, ws: Path) -> None:
    view = ws / "artifacts"
    for which in ("python", "node", "python", "node"):
        run_id = both.call(which, "--json", **(ALONE if which == "node" else {})).json["run_id"]
        assert os.path.samefile(view, artifacts(ws, run_id)), which
        assert not os.path.isabs(os.readlink(view)), "the workspace may be moved"
        assert sorted(p.name for p in view.iterdir()) == sorted(ARTIFACTS)
    assert both.call("node", "--dry-run", **ALONE).code == 0
    assert os.path.samefile(view, artifacts(ws, run_id)), "a dry run shows nothing"
    view.unlink()
    view.mkdir()
    assert both.call("node", **ALONE).code == 0 and not [*view.iterdir()], "it is not ours"


def test_the_ledger_is_left_as_python_leaves_it(both: Twins, ws: Path) -> None:
    both.call("python")

    def told(tx: Any) -> dict[str, Any]:
        job = tx.jobs.get(QUAKES, "", "")
        key = tx.index.head_key(QUAKES, "", "")
        newest = tx.looks.newest(QUAKES, "")
        return {
            "job": (
                job.state,
                job.outcome,
                job.forced,
                job.again,
                job.owner,
                job.attempts,
                job.pool,
            ),
            "generations": job.generation,
            "key": (key.run_key, key.spec_hash, key.input_hash, key.etag, key.full_check_at),
            "newest": newest[1] if newest else None,
            "lease": tx.leases.number(f"{QUAKES}/-"),
            "free": tx.leases.is_free(f"{QUAKES}/-"),
        }

    seen = []
    for which in ("node", "python", "node"):
        assert both.call(which, **ALONE).code == 0
        seen.append(asked(ws, told))
    first, second, third = seen
    assert second == first | {"generations": first["generations"] + 1, "lease": first["lease"] + 1}
    assert third == second | {
        "generations": second["generations"] + 1,
        "lease": second["lease"] + 1,
    }


def test_a_dry_run_leaves_nothing_but_its_own_folder(both: Twins, ws: Path) -> None:
    both.call("python")
    before = tree(ws, without=("ledger/turnstile", "ledger/idempotency.sqlite-"))
    outcome = both.call("node", "--dry-run", "--json", **ALONE).json
    after = tree(ws, without=("ledger/turnstile", "ledger/idempotency.sqlite-"))
    own = f"data/work/{QUAKES}/runs/{outcome['run_id']}/"
    assert (outcome["state"], outcome["dry_run"]) == ("NOOP", True)
    assert {k: v for k, v in after.items() if not k.startswith(own)} == before
    for name in JUDGES:
        assert all(line["dry_run"] for line in lines(artifacts(ws, outcome["run_id"]) / name))


def test_node_alone_runs_dry_and_says_what_it_needs_for_more(both: Twins, ws: Path) -> None:
    dry = both.call("node", "--dry-run", "--json", **ALONE)
    assert dry.code == 0, dry.err
    assert (dry.json["state"], dry.json["dry_run"]) == ("CLAIMED", True)
    state = json.loads((artifacts(ws, dry.json["run_id"]) / "idempotency.json").read_text())
    assert not (ws / "ledger").exists()
    real = both.call("node", **ALONE)
    assert real.code == 1 and "needs the engine" in real.err and "KFM_PYTHON" in real.err
    made = both.call("python", "--json").json
    told = json.loads((artifacts(ws, made["run_id"]) / "idempotency.json").read_text())
    assert (state["key"], state["etag"]) == (told["key"], told["etag"])


@pytest.mark.parametrize("name", ["config.example.yml", "sources.example.json"])
def test_the_shipped_examples_run_dry_with_the_same_summary(
    name: str, tmp_path: Path, sample: SampleUpstream
) -> None:
    shutil.copy(TEMPLATES / name, tmp_path / name)
    both = twins(tmp_path / name, "machine", "")
    del both.env["KFM_SAMPLE_UPSTREAM"]
    said = [both.call(which, "--dry-run") for which in ("node", "python")]
    assert [s.code for s in said] == [0, 0], said[0].err
    assert said[0].out.rpartition("  ")[0] == said[1].out.rpartition("  ")[0]


def test_a_change_gives_the_same_publisher_calls(both: Twins, ws: Path) -> None:
    """The engine makes them, whoever was asked."""
    calls = []
    for which in ("node", "python"):
        run_id = both.call(which, "--dry-run", "--json").json["run_id"]
        found = lines(artifacts(ws, run_id) / "publisher_trace.jsonl")
        calls.append([(c["call"], c.get("path", "").replace(run_id, "RUN")) for c in found])
    assert calls[0] == calls[1] and len(calls[0]) > 1


def test_an_unfinished_run_is_left_to_the_engine_and_node_says_so(
    both: Twins, ws: Path, sample: SampleUpstream
) -> None:
    both.call("python")
    sample.control(QUAKES, revision=1)
    run = start(ws, sample, "run", QUAKES)

    def claimed() -> bool:
        return bool(asked(ws, lambda tx: tx.runs.open_runs(QUAKES)))

    until(claimed)
    run.kill()
    said = both.call("node", **ALONE)
    assert said.code == 1 and "not finished" in said.err, said.err
    said = both.call("node")
    assert said.code == 0 and "not finished: it is left to the engine" in said.err
    assert not claimed()


def test_a_holder_that_lost_its_lease_to_node_is_fenced(both: Twins, ws: Path) -> None:
    both.call("python")
    old = asked(ws, lambda tx: tx.leases.take(f"{QUAKES}/-", "frozen", 0.001))
    assert both.call("node", **ALONE).code == 0
    with pytest.raises(Fenced):
        asked(ws, lambda tx: tx.leases.check(old))


@pytest.mark.parametrize("window", ["", "/2026-01-01T00:00:00Z/2026-02-01T00:00:00Z"])
def test_a_lease_that_is_held_keeps_node_out(both: Twins, ws: Path, window: str) -> None:
    both.call("python")
    store = open_store(open_workspace(ws), SystemClock())
    try:
        store.transaction(lambda tx: tx.leases.take(f"{QUAKES}/-{window}", "me", 600))
        said = both.call("node", **ALONE)
        assert said.code == 1 and f"another run holds {QUAKES}/-{window}" in said.err
    finally:
        store.close()
    assert both.call("node", **ALONE).code == 0


def test_a_damaged_ledger_is_no_noop(both: Twins, ws: Path) -> None:
    both.call("python")
    ledger = ws / "ledger" / "ledger.jsonl"
    if ledger.exists():
        ledger.write_bytes(ledger.read_bytes().replace(b'"COMMITTED"', b'"COMMITTEE"'))
        assert both.call("node", **ALONE).code == 6
    else:
        import sqlite3

        with sqlite3.connect(ws / "ledger/idempotency.sqlite") as db:
            db.execute("update ledger set rows_read = 7")
        assert "damaged" in both.call("node", **ALONE).err
        assert both.call("node").code == 0, "the engine mends it"


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("policy", "something else is asked for"),
        ("registry", "something else is asked for"),
        ("version", "something else is asked for"),
        ("generation", "newest generation is not as it was"),
        ("root", "trust root is not the one"),
        ("switch", "switched off"),
        ("connector", "connector is Python"),
        ("label", "not public"),
    ],
)
def test_whatever_is_not_plainly_at_rest_is_the_engines(
    ws: Path, sample: SampleUpstream, what: str, why: str, kfm: Kfm
) -> None:
    in_lines(ws)
    both = twins(write(ws.parent), "machine", sample.url)
    both.call("python")
    registry = ws / "data/registry" / f"{QUAKES}.yml"
    match what:
        case "policy":
            (ws / "policy/more.rego").write_text("package more\n")
        case "registry":
            registry.write_text(registry.read_text() + "freshness: 12h\n")
        case "version":
            write(ws.parent, pipeline_version="2.0.1")
        case "generation":
            file = ws / f"data/catalog/channels/{QUAKES}/00000001.json"
            os.chmod(file, 0o644)
            file.write_bytes(file.read_bytes() + b" ")
        case "root":
            file = ws / "keys" / "root" / "0001.json"
            os.chmod(file, 0o644)
            file.write_bytes(file.read_bytes() + b" ")
        case "switch":
            assert kfm("switch", "off", QUAKES, "--reason", "why").code == 0
        case "connector":
            folder = ws / "scripts/connectors" / QUAKES
            folder.mkdir(parents=True)
            (folder / "connector.py").write_text("def transform(ctx, rows):\n    yield from rows\n")
        case "label":
            registry.write_text(
                registry.read_text().replace("sensitivity: public", "sensitivity: restricted")
            )
    said = both.call("node", **ALONE)
    assert said.code == 1 and why in said.err, said.err


def test_a_copy_of_the_store_waits_for_node(ws: Path, sample: SampleUpstream) -> None:
    """Whoever stands still keeps Node from writing."""
    both = twins(write(ws.parent), "22", sample.url)
    both.call("python")
    with (ws / "ledger/turnstile.lock").open("r+") as turnstile:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        waiting = subprocess.Popen(
            both.command("node"), cwd=ws.parent, env={**os.environ, **both.env, **ALONE}
        )
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1)
    assert waiting.wait(60) == 0


ROUNDS = {
    f"{where}-{many}": (where, count)
    for where, few in (("22-sqlite", 10), ("machine-jsonl", 5))
    for many, count in (("few", few), ("two hundred", 200))
}


def committed(ws: Path) -> list[tuple[Any, ...]]:
    """What the ledger says of runs that became official, oldest first."""
    rows = asked(ws, lambda tx: tx.runs.recent(QUAKES, -1))
    return [
        (r.key, r.spec_hash, r.input_hash, r.version_id, r.version_digest, r.intent)
        for r in reversed(rows)
        if r.state == "COMMITTED"
    ]


@pytest.mark.parametrize("rounds", each(ROUNDS, "22-sqlite-few", "machine-jsonl-few"))
def test_alternating_runs_killed_at_random_leave_the_ledger_and_bytes_of_python_alone(
    rounds: str, ws: Path, sample: SampleUpstream, kfm: Kfm, tmp_path: Path
) -> None:
    where, many = ROUNDS[rounds]
    node, _, store = where.partition("-")
    chance = random.Random(16)
    alone = tmp_path / "alone" / "ws"
    shutil.copytree(ws, alone)
    if store == "jsonl":
        in_lines(ws)
    both = twins(write(ws.parent), node, sample.url)
    control = twins(write(alone.parent), node, sample.url)
    which = ["node", "python"]
    for number in range(many):
        if number % 3 == 0:
            sample.control(QUAKES, revision=number // 3)
            assert control.call("python").code == 0
        if chance.random() < 0.5:
            killed(both, which[number % 2], chance.random() * 2)
        said = both.started(which[(number + 1) % 2])
        assert said.code == 0, said.err
    assert committed(ws) == committed(alone)
    assert asked(ws, lambda tx: tx.runs.open_runs(QUAKES)) == []
    wanted, found = ({k: v for k, v in tree(w / "data/processed").items() if k.endswith(".parquet")} for w in (alone, ws))  # fmt: skip
    assert found == wanted and wanted
    assert kfm("verify").code == 0


def killed(both: Twins, which: str, seconds: float) -> None:
    """A run that is killed after this long, wherever that is; or that has ended by then."""
    run = subprocess.Popen(
        both.command(which),
        cwd=both.config.parent,
        env={**os.environ, **both.env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
