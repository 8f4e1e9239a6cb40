"""The kill switch: nothing new of what is off begins, whichever way it is asked for; who, when and
why is recorded and shown.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import updater as updater_cli
from kfm.cli.init import make_workspace
from kfm.cli.worker import make_worker
from kfm.jobs import backfill_batch
from kfm.jobs import backfill_windows as backfill
from kfm.jobs.stepping import drive
from kfm.model.errors import Denied
from kfm.run.update import update
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from tests.given.verbs import Said, caller

ID = "levels"
ENTRY = """dataset_id: levels
title: Levels
licence: CC0-1.0
sensitivity: public
policy_label: public
cadence: daily
source: {{kind: http_file, format: csv, url: "{url}/levels.csv", time_column: day}}
schema: [{{name: site, type: string, nullable: false}}, {{name: day, type: date, nullable: false}}, {{name: level, type: number}}]
business_key: [site, day]
merge: upsert
"""
UPDATER = "dataset_id: levels\npipeline_version: 1.0.0\nworkspace: .\nsources: [{{source_id: source, source_url: '{url}/levels.csv', format: csv}}]\n"
SPAN = ("--since", "2026-01-01", "--until", "2026-01-03", "--window", "1d")
Kfm = Callable[..., Said]


@pytest.fixture
def up() -> Iterator[Upstream]:
    with Upstream() as server:
        server.files["/levels.csv"] = b"site,day,level\n" + b"".join(
            f"S{s},2026-01-{d:02},{d}.{s}\n".encode() for d in (1, 2) for s in (0, 1)
        )
        yield server


@pytest.fixture
def here(tmp_path: Path, up: Upstream) -> Path:
    folder = tmp_path / "ws"
    make_workspace(folder, sample=False, allow_loopback=True)
    (folder / "data" / "registry" / f"{ID}.yml").write_text(ENTRY.format(url=up.url))
    (folder / "updater.yml").write_text(UPDATER.format(url=up.url))
    return folder


@pytest.fixture
def kfm(here: Path, capsys: pytest.CaptureFixture[str]) -> Kfm:
    return caller(here, capsys)


def seen(here: Path, look: Callable[[Any], Any]) -> Any:
    with open_world(open_workspace(here)) as world:
        return world.store.read(look)


def runs(here: Path) -> list[Any]:
    found: list[Any] = seen(here, lambda tx: tx.runs.recent(ID, 100))
    return found


def script(here: Path, stage: str, *flags: str) -> int:
    """What scripts/connectors/levels/<stage>.py calls."""
    from kfm.runners.stages import main as stages

    return stages(stage, str(here / "scripts" / "connectors" / ID / f"{stage}.py"), list(flags))


WAYS: dict[str, Callable[[Path, Kfm], int]] = {
    "kfm run": lambda here, kfm: kfm("run", ID).code,
    "kfm run --force": lambda here, kfm: kfm("run", ID, "--force", "--reason", "now").code,
    "kfm run --dry-run": lambda here, kfm: kfm("run", ID, "--dry-run").code,
    "kfm propose": lambda here, kfm: kfm("propose", ID).code,
    "python -m updater": lambda here, kfm: updater_cli.main(
        ["run", "--config", str(here / "updater.yml")]
    ),
    "run-job": lambda here, kfm: (
        kfm("worker", "run-job", "ingest.pull_source", "--dataset", f"kfm://dataset/{ID}").code
    ),
    "kfm backfill": lambda here, kfm: kfm("backfill", "start", ID, *SPAN, "--inline").code,
    "kfm backfill, a version per partition": lambda here, kfm: (
        kfm("backfill", "start", ID, *SPAN, "--assemble-every", "1", "--inline").code
    ),
    "ingest.py": lambda here, kfm: script(here, "ingest"),
    "ingest.py into another tree": lambda here, kfm: script(
        here, "ingest", "--work_dir", str(here.parent / "else" / "work")
    ),
    "backfill.py": lambda here, kfm: script(
        here, "backfill", "--since", "2026-01-01", "--until", "2026-01-03"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_what_is_off_begins_whichever_way_it_is_asked_for(
    here: Path, kfm: Kfm, up: Upstream, way: str
) -> None:
    assert kfm("switch", "off", f"http_file.{ID}", "--reason", "upstream asked us to").code == 0
    assert WAYS[way](here, kfm) == 3
    assert up.asked == [] and runs(here) == []
    assert kfm("switch", "on", ID).code == 0
    again = "kfm backfill" in way  # it was begun, and stands where it stood
    code = kfm("backfill", "resume", ID, "--inline").code if again else WAYS[way](here, kfm)
    assert code in (0, 7) and up.asked != []


def test_a_worker_leaves_it_in_the_queue_until_it_is_on(here: Path, kfm: Kfm, up: Upstream) -> None:
    kfm("jobs", "put", "ingest.pull_source", "--dataset", f"kfm://dataset/{ID}")
    kfm("switch", "off", ID, "--reason", "upstream asked us to")
    assert kfm("worker", "run", "--until-idle").code == 0
    assert [j.state for j in seen(here, lambda tx: tx.jobs.listing(dataset_id=ID))] == [
        "queued"
    ] and up.asked == []
    kfm("switch", "on", ID)
    assert kfm("worker", "run", "--until-idle").code == 0
    assert [r.state for r in runs(here)] == ["COMMITTED"]


@pytest.mark.parametrize("name", [ID, "ingest.pull_source"])
def test_a_job_that_was_taken_just_before_is_given_back_untried(
    here: Path, kfm: Kfm, up: Upstream, name: str
) -> None:
    kfm("jobs", "put", "ingest.pull_source", "--dataset", f"kfm://dataset/{ID}")
    off = [sys.executable, "-m", "kfm", "-w", str(here), "switch", "off", name, "--reason", "now"]
    late = f"import subprocess; subprocess.run({off!r}, stdin=subprocess.DEVNULL, check=True, stdout=2)\nfrom kfm.workspace.job_process import main\nmain()"
    with open_world(open_workspace(here)) as world:
        worker = make_worker(open_workspace(here), world.store, slots=1)
        worker._command = [sys.executable, "-c", late]
        worker.run(until_idle=True)
        (job,) = world.store.read(lambda tx: tx.jobs.listing())
    assert (job.state, job.owner, job.attempts, job.error) == ("queued", None, 0, "")
    assert up.asked == []
    assert not list((here / "receipts").rglob("*.json"))


def test_asking_a_schedule_is_refused_and_puts_nothing(here: Path, kfm: Kfm) -> None:
    kfm("switch", "off", ID, "--reason", "upstream asked us to")
    said = kfm("schedule", "run", ID)
    assert (
        said.code == 3 and "upstream asked us to" in said.err and f"kfm switch on {ID}" in said.err
    )
    assert seen(here, lambda tx: tx.jobs.listing(dataset_id=ID)) == []
    kfm("switch", "on", ID)
    assert kfm("schedule", "run", ID).code == 0
    assert len(seen(here, lambda tx: tx.jobs.listing(dataset_id=ID))) == 1


def test_others_go_on(here: Path, kfm: Kfm, up: Upstream) -> None:
    entry = (here / "data" / "registry" / f"{ID}.yml").read_text()
    (here / "data" / "registry" / "other.yml").write_text(
        entry.replace("dataset_id: levels", "dataset_id: other")
    )
    kfm("switch", "off", ID, "--reason", "upstream asked us to")
    said = kfm("run", "--all", "--json")
    assert {r["dataset_id"]: r["exit_code"] for r in said.json["runs"]} == {ID: 3, "other": 0}


def test_a_run_that_waited_for_its_lease_does_not_begin_after_the_switch(
    here: Path, up: Upstream
) -> None:
    """The check is in the transaction that takes job and lease, so there is no moment between
    them.
    """
    workspace = open_workspace(here)
    with open_world(workspace) as world:
        (target,) = targets_of(workspace, ID)
        world.store.transaction(lambda tx: tx.jobs.put(ID, "", ""))
        world.store.transaction(lambda tx: tx.switches.off(ID, "just now", "user:me"))
        with pytest.raises(Denied, match="just now"):
            drive(update(world, target), lambda: None)
        assert world.store.read(lambda tx: tx.leases.is_free(target.partition_lease))
    assert up.asked == []


def test_a_batch_stops_at_once_and_what_it_did_is_kept(
    here: Path, kfm: Kfm, up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = backfill_batch._part

    def then_off(world: World, *rest: Any) -> Any:
        found = part(world, *rest)
        world.store.transaction(lambda tx: tx.switches.off(ID, "in the middle", "user:me"))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(backfill_batch, "_part", then_off)
        assert kfm("backfill", "start", ID, *SPAN, "--inline").code == 3
    assert [r.state for r in runs(here)] == ["STAGED"] and len(up.asked) == 1
    assert kfm("backfill", "status", ID, "--json").json["backfills"][0]["counts"]["STAGED"] == 1
    assert kfm("backfill", "resume", ID, "--inline").code == 3
    kfm("switch", "on", ID)
    assert kfm("backfill", "resume", ID, "--inline").code == 0
    assert len(up.asked) == 2, "what was staged before is not asked for again"


def test_what_is_staged_is_not_assembled_while_it_is_off(
    here: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble = backfill.assemble

    def off_first(world: World, *rest: Any) -> Any:
        world.store.transaction(lambda tx: tx.switches.off(ID, "before the end", "user:me"))
        return assemble(world, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(backfill, "assemble", off_first)
        assert kfm("backfill", "start", ID, *SPAN, "--inline").code == 3
    assert {r.state for r in runs(here)} == {"STAGED"}
    kfm("switch", "on", ID)
    assert kfm("backfill", "resume", ID, "--inline").code == 0
    assert {r.state for r in runs(here)} == {"COMMITTED"}


def test_a_type_of_job_can_be_switched_off_for_all_datasets(
    here: Path, kfm: Kfm, up: Upstream
) -> None:
    kfm("switch", "off", "ingest.pull_source", "--reason", "an incident")
    assert kfm("run", ID).code == 3 and script(here, "ingest") == 3 and up.asked == []


def test_who_when_and_why_is_recorded_and_shown(
    here: Path, kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "rstone")
    assert kfm("switch", "off", ID).code == 2  # without a reason
    kfm("switch", "off", ID, "--reason", "upstream asked us to")
    (switch,) = kfm("switch", "list", "--json").json["switches"]
    assert (switch["name"], switch["by_whom"], switch["reason"]) == (
        ID,
        "user:rstone",
        "upstream asked us to",
    )
    (shown,) = [a for a in kfm("status", "--json").json["attention"] if a["kind"] == "off"]
    assert shown["what"] == ID and shown["next"] == f"kfm switch on {ID}"
    assert (
        "upstream asked us to" in shown["why"]
        and "user:rstone" in shown["why"]
        and switch["at"][:19] in shown["why"]
    )
    assert "upstream asked us to" in kfm("status").out
    kfm("switch", "on", ID, "--reason", "settled")
    assert [a for a in kfm("status", "--json").json["attention"] if a["kind"] == "off"] == []
    lines = [
        json.loads(line) for line in (here / "ledger" / "switches.jsonl").read_text().splitlines()
    ]
    assert [(x["name"], x["state"], x["by"], x["reason"]) for x in lines] == [
        (ID, "off", "user:rstone", "upstream asked us to"), (ID, "on", "user:rstone", "settled"),
    ]  # fmt: skip
    assert all(x["at"] for x in lines)


def test_a_name_that_stops_nothing_is_refused(kfm: Kfm) -> None:
    for name in ("levles", "arcgis.levels", "ingest.pull_sources"):
        assert kfm("switch", "off", name, "--reason", "x").code == 2, name
