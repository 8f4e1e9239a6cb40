"""The runners of a connector: one engine in stages, each resumable, each with its receipt and
nothing written where it may not.
"""

import contextlib
import datetime as dt
import json
import re
import shutil
import subprocess
import sys
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from kfm.cli import main as cli
from kfm.cli.init import make_workspace
from kfm.cli.schemas import documents
from kfm.jobs.stepping import Stopped, drive
from kfm.model.errors import UsageError
from kfm.run.promote import promote
from kfm.runners.stages import FLAGS, STAGES, batches, flags_table, main, parser_of
from kfm.workspace.config import change_entry
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said, tree

ID = "ks_levels"
CSV = "site,day,level\n" + "".join(f"S{d % 3},2026-01-{d:02},{d}.5\n" for d in range(1, 31))
ZONES = ("data/raw", "data/work", "data/processed", "data/catalog")
Runner = Callable[..., Said]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with one connector whose source is a file in it, updated by window."""
    folder = tmp_path_factory.mktemp("made")
    make_workspace(folder / "ws", sample=False)
    (folder / "levels.csv").write_text(CSV)
    new = [
        "connector",
        "new",
        ID,
        "--file",
        str(folder / "levels.csv"),
        "--licence",
        "CC0-1.0",
        "--key",
        "site",
        "--key",
        "day",
    ]
    assert cli(["-w", str(folder / "ws"), *new, "--time-column", "day"]) == 0
    change_entry(folder / "ws", ID, {"merge": "upsert"})
    return folder / "ws"


@pytest.fixture
def here(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "ws"))


@pytest.fixture
def stage(here: Path, capsys: pytest.CaptureFixture[str]) -> Runner:
    def call(name: str, *args: str) -> Said:
        capsys.readouterr()
        try:
            code = main(name, str(here / "scripts" / "connectors" / ID / f"{name}.py"), list(args))
        except SystemExit as end:
            code = int(str(end.code))
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def receipt(here: Path, said: Said) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (here / re.findall(r"receipt +(\S+)", said.out)[-1]).read_text()
    )
    jsonschema_rs.validator_for(documents()["receipts/stage-receipt.json"]).validate(found)
    return found


def zones(here: Path) -> dict[str, dict[str, str]]:
    return {zone: tree(here / zone) for zone in ZONES}


def test_the_stages_lead_to_an_official_version_and_each_writes_only_where_it_may(
    here: Path, stage: Runner
) -> None:
    may = {
        "ingest": {"data/raw", "data/work"},
        "transform": {"data/work"},
        "validate": {"data/work"},
        "promote": set(ZONES) - {"data/raw"},
    }
    stands = {
        "ingest": ("CLAIMED", []),
        "transform": ("CLAIMED", ["parts"]),
        "validate": ("PROPOSED", ["parts", "proposals"]),
    }
    run_ids, state = set(), zones(here)
    for name, changes in may.items():
        said = stage(name)
        assert said.code == 0, said
        after = zones(here)
        assert {z for z in ZONES if after[z] != state[z]} == changes, name
        state = after
        told = receipt(here, said)
        run_ids.add(told["run_id"])
        there = [n for n in ("parts", "proposals") if (here / "data" / "work" / ID / n).exists()]
        assert (told["state"], there) == stands.get(name, ("COMMITTED", ["parts", "proposals"])), (
            "it goes as far as its name says"
        )
        assert (
            told["stage"] == name
            and told["dataset_id"] == ID
            and told["dataset_id_from"] == "folder"
        )
        assert all((here / "data" / path).is_file() for path in told["files"]) and told["files"]
    assert len(run_ids) == 1
    assert told["state"] == "COMMITTED" and told["generation"] == 1
    report = json.loads(
        (
            here / "data" / "work" / ID / "runs" / run_ids.pop() / "validation_report.json"
        ).read_text()
    )
    assert report["ok"] and {"schema", "geo", "time", "licence", "policy"} <= set(
        report["sections"]
    )
    assert cli(["-w", str(here), "verify", ID]) == 0
    again = stage("ingest")
    assert again.code == 0 and receipt(here, again)["state"] == "NOOP"


def test_what_is_validated_waits_for_promote(here: Path, stage: Runner) -> None:
    stage("ingest")
    stage("validate")
    cli(["-w", str(here), "resume"])
    assert not (here / "data" / "processed" / ID).exists()
    assert stage("promote").code == 0 and (here / "data" / "processed" / ID).exists()


def test_the_stages_give_what_one_run_gives(here: Path, stage: Runner, tmp_path: Path) -> None:
    for name in ("ingest", "validate", "promote"):  # transform is optional
        assert stage(name).code == 0
    by_stages = {p.name for p in (here / "data" / "processed" / ID).iterdir()}
    # nothing before it
    assert cli(["-w", str(here), "rollback", ID, "--reason", "to run it again"]) != 0
    assert cli(["-w", str(here), "run", ID, "--force", "--reason", "compare"]) == 0
    assert {p.name for p in (here / "data" / "processed" / ID).iterdir()} == by_stages


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("run_2026-02-16T00:00:00Z", "2026-02-16T000000Z"),
        ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    ],
)
def test_a_run_id_can_be_chosen_and_is_gone_on_with(
    here: Path, stage: Runner, given: str, kept: str
) -> None:
    assert receipt(here, stage("ingest", "--run_id", given))["run_id"] == kept
    (here / "inbox" / ID / "levels.csv").unlink()  # nobody is asked again
    for name in ("transform", "validate", "promote"):
        said = stage(name, "--run_id", given, "--dataset-id", ID)
        assert said.code == 0, said
        assert (
            receipt(here, said)["run_id"] == kept
            and receipt(here, said)["dataset_id_from"] == "flag"
        )
    assert (here / "data" / "catalog" / "prov" / ID / f"run_{kept}.json").is_file()
    once_more = stage("promote", "--run_id", given)
    assert once_more.code == 0 and "official" in once_more.out
    assert cli(["-w", str(here), "bundle", ID, "-o", str(here / "b.kfm")]) == 0
    assert cli(["-w", str(here), "reindex"]) == 0


def test_a_stage_out_of_order_says_which_comes_first(here: Path, stage: Runner) -> None:
    early = stage("validate")
    assert early.code == 2 and "ingest.py" in early.err
    stage("ingest")
    unjudged = stage("promote")
    assert unjudged.code == 2 and "validate.py" in unjudged.err
    assert stage("transform", "--run_id", "no-such-run").code == 2
    assert stage("ingest", "--dataset_id", "other").code == 2


def test_what_moved_on_meanwhile_is_not_asked_for_behind_ones_back(
    here: Path, stage: Runner
) -> None:
    stage("ingest", "--run_id", "early")
    (here / "inbox" / ID / "levels.csv").write_text(CSV + "S9,2026-02-01,1.5\n")
    assert cli(["-w", str(here), "run", ID]) == 0
    stale = stage("validate", "--run_id", "early")
    assert stale.code == 0 and receipt(here, stale)["state"] == "SUPERSEDED"


def test_a_run_whose_base_has_moved_is_left_as_it_is_and_nobody_is_asked(
    here: Path, stage: Runner
) -> None:
    stage("ingest", "--run_id", "early", "--since", "2026-01-01", "--until", "2026-01-11")
    assert cli(["-w", str(here), "run", ID]) == 0
    stale = stage("validate", "--run_id", "early")
    assert stale.code == 3 and "changed since" in stale.err and "ingest.py" in stale.err


def test_what_was_interrupted_in_promotion_is_finished_by_promote_alone(
    here: Path, stage: Runner
) -> None:
    stage("ingest", "--run_id", "cut")
    stage("validate", "--run_id", "cut")
    with open_world(open_workspace(here)) as world, pytest.raises(Stopped):
        drive(promote(world, ID, "cut", wait=True), lambda: None, frozenset({"receipts sealed"}))
    before = {z: tree(here / z) for z in ("data/processed", "data/catalog")}
    other = stage("ingest")
    assert other.code == 3 and "promote.py --run_id cut" in other.err
    assert {z: tree(here / z) for z in ("data/processed", "data/catalog")} == before
    assert stage("promote", "--run_id", "cut").code == 0
    assert cli(["-w", str(here), "verify", ID]) == 0


def test_a_denied_run_says_so_in_its_report(here: Path, stage: Runner) -> None:
    change_entry(here, ID, {"licence": None})
    stage("ingest")
    said = stage("validate")
    told = receipt(here, said)
    assert said.code == 3 and told["state"] == "REJECTED"
    report = json.loads(
        (
            here / "data" / "work" / ID / "runs" / told["run_id"] / "validation_report.json"
        ).read_text()
    )
    assert not report["ok"] and report["sections"]["licence"][0]["verdict"] == "deny"
    assert stage("promote", "--run_id", told["run_id"]).code == 3
    assert not (here / "data" / "processed" / ID).exists()


def test_promote_waits_for_people(here: Path, stage: Runner) -> None:
    change_entry(here, ID, {"approvals": 1})
    stage("ingest")
    assert stage("validate").code == 0
    said = stage("promote")
    assert said.code == 7 and receipt(here, said)["state"] == "PROPOSED"
    assert not (here / "data" / "processed" / ID).exists()


@pytest.mark.parametrize("ending", ["json", "yml"])
def test_a_configuration_file_says_what_flags_say(
    here: Path, stage: Runner, tmp_path: Path, ending: str
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"b": 1.0, "a": 2}')
    config = tmp_path / f"config.{ending}"
    config.write_text(
        json.dumps(
            {
                "dataset_id": ID,
                "spec": str(spec),
                "since": "2026-01-01",
                "until": "2026-01-11",
                "run_id": "from-config",
            }
        )
    )
    told = receipt(here, stage("ingest", "--config", str(config), "--run_id", "from-flag"))
    assert (told["run_id"], told["dataset_id_from"], told["window"]) == (
        "from-flag",
        "config",
        "2026-01-01T00:00:00Z/2026-01-11T00:00:00Z",
    )
    # sha256 of {"a":2,"b":1}
    assert (
        told["spec_file_hash"] == "d3626ac30a87e6f7a6428233b3c68299976865fa5508e4267c5415c76af7a772"
    )
    validated = receipt(here, stage("validate", "--run_id", "from-flag", "--spec", str(spec)))
    record = json.loads(
        (here / "data" / "work" / ID / "runs" / "from-flag" / "run_record.json").read_text()
    )
    assert (
        record["spec_file_hash"] == validated["spec_file_hash"] == told["spec_file_hash"]
        and record["rows_written"] == 10
    )
    spec.write_text('{"a": 3}')
    assert stage("promote", "--run_id", "from-flag", "--spec", str(spec)).code == 2
    config.write_text(json.dumps({"since_when": "2026-01-01"}))
    assert stage("ingest", "--config", str(config)).code == 2


def test_zones_can_lie_elsewhere_and_the_workspace_stays_as_it_was(
    here: Path, stage: Runner, tmp_path: Path
) -> None:
    before = tree(here)
    given = [
        "--raw_dir",
        str(tmp_path / "ci" / "r"),
        "--work-dir",
        str(tmp_path / "ci" / "w"),
        "--processed_dir",
        str(tmp_path / "ci" / "p"),
    ]
    for name in ("ingest", "transform", "validate", "promote"):
        said = stage(name, *given, *(["--emit_catalogs"] if name == "promote" else []))
        assert said.code == 0, said
        told = receipt(here, said)
        assert told["zones"] == {"raw": given[1], "work": given[3], "processed": given[5]}
    assert tree(here) == before
    assert {p.split("/")[1] for p in told["files"] if p.startswith("catalog/")} == {"dcat", "prov"}
    assert (tmp_path / "ci" / "p" / ID / told["version_id"] / f"{ID}.parquet").is_file()
    subprocess.run(
        ["sha256sum", "-c", "--quiet", "checksums.sha256"],
        cwd=tmp_path / "ci" / "r" / ID,
        check=True,
    )
    assert cli(["-w", str(here), "run", ID]) == 0
    assert (here / "data" / "processed" / ID / told["version_id"]).is_dir(), (
        "the same bytes, wherever they lie"
    )
    assert stage("ingest", "--work_dir", str(here / "data" / "elsewhere")).code == 2


def test_a_tree_elsewhere_signs_with_a_key_of_its_own(
    here: Path, stage: Runner, tmp_path: Path
) -> None:
    given = ("--work_dir", str(tmp_path / "ci" / "w"))
    for name in ("ingest", "validate", "promote"):
        assert stage(name, *given).code == 0
    (own,) = (here / "keys").glob("*.key")
    (other,) = (tmp_path / "ci" / "keys").glob("*.key")
    (generation,) = (tmp_path / "ci" / "catalog" / "channels" / ID).glob("*.json")
    (signature,) = json.loads(generation.read_text())["signatures"]
    assert signature["keyid"] == other.stem != own.stem
    assert other.stem not in "".join(p.read_text() for p in (here / "keys" / "root").iterdir())
    assert stage("ingest", "--raw_dir", str(here / "raw")).code == 2, (
        "ledger and keys would be those of the workspace"
    )


def test_what_was_withdrawn_is_not_made_official_in_a_tree_elsewhere(
    here: Path, stage: Runner, tmp_path: Path
) -> None:
    assert cli(["-w", str(here), "run", ID]) == 0
    assert cli(["-w", str(here), "withdraw", "--yes", ID, "--reason", "asked for"]) == 0
    said = stage("ingest", "--work_dir", str(tmp_path / "ci" / "w"))
    assert said.code == 3 and "withdrew" in said.err and not (tmp_path / "ci").exists()


def test_a_new_id_or_another_spec_does_not_take_over_an_open_run(
    here: Path, stage: Runner, tmp_path: Path
) -> None:
    spec, other = tmp_path / "spec.json", tmp_path / "other.json"
    spec.write_text('{"a": 1}')
    other.write_text('{"a": 2}')
    first = receipt(here, stage("ingest", "--run_id", "first", "--spec", str(spec)))
    kept = here / "data" / "work" / ID / "runs" / "first" / "ingest_receipt.json"
    before = kept.read_bytes()
    taken = stage("ingest", "--run_id", "second", "--spec", str(other))
    assert taken.code == 2 and "Run first is open" in taken.err
    assert stage("ingest", "--spec", str(other)).code == 2
    assert kept.read_bytes() == before
    assert receipt(here, stage("ingest")) == first and first["spec_file_hash"]


def test_a_stage_that_is_done_keeps_its_receipt(here: Path, stage: Runner) -> None:
    told = {
        name: receipt(here, stage(name, "--run_id", "once"))
        for name in ("ingest", "transform", "validate", "promote")
    }
    before = tree(here / "data" / "work" / ID / "runs" / "once")
    for name, first in told.items():
        again = stage(name, "--run_id", "once")
        assert again.code == 0 and receipt(here, again) == first, name
    assert tree(here / "data" / "work" / ID / "runs" / "once") == before


def test_every_stage_twice_with_one_run_id_changes_nothing(here: Path, stage: Runner) -> None:
    """Right after it was done, while the run is open, and when all is over: not a byte of data,
    receipts or log, nor a row.
    """

    def everything() -> tuple[dict[str, str], Any]:
        with open_world(open_workspace(here)) as world:
            rows = world.store.read(lambda tx: tx.runs.recent(ID))
        return tree(here, without=("ledger/", "data/.tmp")), rows

    for name in ("ingest", "transform", "validate", "promote"):
        assert stage(name, "--run_id", "once").code == 0
        before = everything()
        again = stage(name, "--run_id", "once")
        assert again.code == 0 and everything() == before, name
    for name in ("ingest", "transform", "validate", "promote"):
        assert stage(name, "--run_id", "once").code == 0 and everything() == before, name


def test_a_stage_of_a_retired_dataset_asks_nobody(here: Path, stage: Runner) -> None:
    change_entry(here, ID, {"retired": "replaced"})
    said = stage("ingest", "--run_id", "late")
    assert (
        said.code == 2
        and f"{ID} is retired: replaced" in said.err
        and not (here / "data" / "raw").exists()
    )


def test_a_promotion_that_waited_gets_its_receipt_when_it_is_done(
    here: Path, stage: Runner
) -> None:
    change_entry(here, ID, {"approvals": 1})
    stage("ingest", "--run_id", "waits")
    stage("validate", "--run_id", "waits")
    assert stage("promote", "--run_id", "waits").code == 7
    assert cli(["-w", str(here), "keys", "new", "--name", "Ada"]) == 0
    assert cli(["-w", str(here), "approve", "1", "--key", "Ada", "--reason", "read"]) == 0
    said = stage("promote", "--run_id", "waits")
    assert said.code == 0 and receipt(here, said)["state"] == "COMMITTED"


def test_the_id_of_a_run_that_changed_nothing_is_used_up(here: Path, stage: Runner) -> None:
    assert cli(["-w", str(here), "run", ID]) == 0
    assert receipt(here, stage("ingest", "--run_id", "idle"))["state"] == "NOOP"
    (here / "inbox" / ID / "levels.csv").write_text(CSV + "S9,2026-02-01,1.5\n")
    said = stage("ingest", "--run_id", "idle")
    assert said.code == 2 and "idle has ended" in said.err


@pytest.mark.parametrize("name", ["ingest", "transform", "validate", "promote"])
def test_a_dry_run_changes_nothing_outside_work(here: Path, stage: Runner, name: str) -> None:
    stage("ingest", "--run_id", "kept")
    before = tree(here, without=("data/work/",))
    said = stage(name, "--dry-run")
    assert said.code == 0, said
    assert tree(here, without=("data/work/",)) == before
    told = receipt(here, said)
    assert told["dry_run"] is True and told["state"] == {
        "promote": "COMMITTED",
        "validate": "PROPOSED",
    }.get(name, "CLAIMED")
    assert stage("validate", "--run_id", "kept").code == 0, "the real run is where it was"


@pytest.mark.parametrize(
    ("args", "code"),
    [((), 0), (("--frobnicate",), 2), (("--since", "2026-01-01"), 2), (("--run_id", "../x"), 2)],
)
def test_with_log_json_every_line_is_an_object(
    here: Path, args: tuple[str, ...], code: int
) -> None:
    command = [
        sys.executable,
        str(here / "scripts" / "connectors" / ID / "ingest.py"),
        "--log_json",
        *args,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in (done.stdout + done.stderr).splitlines()]
    assert done.returncode == code and lines and all(isinstance(line, dict) for line in lines)
    if not code:
        assert json.loads(done.stdout)["event"] == "stage.done" and {
            "run.claimed",
            "source.answered",
        } <= {line["event"] for line in lines}


@pytest.mark.parametrize("name", STAGES)
def test_help_parser_and_documented_table_agree(here: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(here / "scripts" / "connectors" / ID / f"{name}.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    shown = set(re.findall(r"^ +(--[a-z_-]+)", done.stdout, re.M))
    table = (here / "scripts" / "connectors" / "README.md").read_text()
    documented = set(re.findall(r"^\| `(--[a-z_-]+)`", table, re.M))
    taken = {
        action.option_strings[0]
        for action in parser_of(name)._actions
        if action.option_strings[0].startswith("--")
    }
    assert shown == taken == documented - ({"--run_id"} if name == "backfill" else {"--batch"})
    assert flags_table() in table
    wanted = {
        "dataset_id",
        "run_id",
        "spec",
        "since",
        "until",
        "config",
        "raw_dir",
        "work_dir",
        "processed_dir",
        "emit_catalogs",
        "dry-run",
        "log_json",
    }
    assert {flag.lstrip("-") for flag, _ in FLAGS} >= wanted


# ---- backfill ------------------------------------------------------------------------------------
def summary(here: Path) -> dict[str, Any]:
    (path,) = (here / "data" / "work" / ID / "backfills").glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    jsonschema_rs.validator_for(documents()["receipts/stage-receipt.json"]).validate(found)
    return found


WINDOW = ("--since", "2026-01-01", "--until", "2026-01-31", "--batch", "10d")


def rows(here: Path) -> int:
    import pyarrow.parquet as pq

    head = json.loads(sorted((here / "data" / "catalog" / "dcat").glob("*.json"))[0].read_text())
    assert head
    newest = max((here / "data" / "processed" / ID).iterdir(), key=lambda p: p.stat().st_mtime_ns)
    return int(pq.read_metadata(newest / f"{ID}.parquet").num_rows)


def test_a_backfill_is_one_run_per_batch_and_a_restart_skips_what_is_done(
    here: Path, stage: Runner
) -> None:
    source = here / "inbox" / ID / "levels.csv"
    said = stage("backfill", *WINDOW)
    assert said.code == 0 and said.out.startswith("3 batches of 10d")
    done = summary(here)
    assert [b["state"] for b in done["batches"]] == ["COMMITTED"] * 3 and len(
        {b["run_id"] for b in done["batches"]}
    ) == 3
    assert done["window"] == "2026-01-01T00:00:00Z/2026-01-31T00:00:00Z" and rows(here) == 30
    source.unlink()
    again = stage("backfill", *WINDOW)
    assert again.code == 0 and summary(here)["batches"] == done["batches"], (
        "nothing is asked for twice"
    )


def test_a_backfill_that_broke_off_goes_on_where_it_stopped(here: Path, stage: Runner) -> None:
    source = here / "inbox" / ID / "levels.csv"
    whole = source.read_text()
    # two readings of one day, in the second batch
    source.write_text(whole + "S0,2026-01-15,99.5\n")
    broken = stage("backfill", *WINDOW)
    assert broken.code == 1 and [b["state"] for b in summary(here)["batches"]] == [
        "COMMITTED",
        "FAILED",
    ]
    source.write_text(whole)
    assert stage("backfill", *WINDOW).code == 0
    assert [b["state"] for b in summary(here)["batches"]] == ["COMMITTED"] * 3 and rows(here) == 30


def test_a_batch_that_was_denied_is_never_counted_as_done(here: Path, stage: Runner) -> None:
    change_entry(here, ID, {"licence": None})
    for _ in range(3):
        said = stage("backfill", *WINDOW)
        assert said.code == 3 and "runs done" not in said.out
        assert [b["exit_code"] for b in summary(here)["batches"]] == [3]
    assert not (here / "data" / "processed" / ID).exists()


def test_a_backfill_killed_in_the_middle_is_started_again(here: Path, stage: Runner) -> None:
    command = [sys.executable, str(here / "scripts" / "connectors" / ID / "backfill.py"), *WINDOW]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with contextlib.closing(child.stdout):
        for line in child.stdout:
            if "1/3" in line:
                break
        child.kill()
        child.wait()
    assert stage("backfill", *WINDOW).code == 0
    assert {b["window"] for b in summary(here)["batches"]} == set(
        batches("2026-01-01", "2026-01-31", "10d", dt.UTC)
    ) and rows(here) == 30


def test_a_backfill_without_a_window_or_with_a_pointless_one_is_refused(
    here: Path, stage: Runner
) -> None:
    assert stage("backfill").code == 2
    assert stage("backfill", "--since", "7d", "--until", "2026-01-01").code == 2
    assert stage("backfill", *WINDOW, "--run_id", "x").code == 2
    planned = stage("backfill", *WINDOW, "--dry-run")
    assert (
        planned.code == 0
        and planned.out.count("/2026") == 3
        and not (here / "data" / "work" / ID).exists()
    )
    change_entry(here, ID, {"merge": None})
    replaced = stage("backfill", *WINDOW)
    assert replaced.code == 2 and "upsert" in replaced.err


def test_batches_of_days_follow_the_registered_time_zone() -> None:
    chicago = zoneinfo.ZoneInfo("America/Chicago")
    found = batches("2026-03-07T06:00:00Z", "2026-03-10T05:00:00Z", "1d", chicago)
    assert found == [
        "2026-03-07T06:00:00Z/2026-03-08T06:00:00Z",
        "2026-03-08T06:00:00Z/2026-03-09T05:00:00Z",
        "2026-03-09T05:00:00Z/2026-03-10T05:00:00Z",
    ]
    assert (
        batches("2026-01-01", "2026-01-03", "36h", chicago)[-1]
        == "2026-01-02T12:00:00Z/2026-01-03T00:00:00Z"
    )
    with pytest.raises(UsageError):
        batches("2026-01-01", "2026-01-03", "0", chicago)
