"""Orchestration decides when and where, never what: it holds no code of datasets, and its examples
say nothing that may not be said.
"""

import ast
import datetime as dt
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.given.house import SRC, imports

from kfm.jobs import JOB_MODULES, place_of
from kfm.jobs.backfill_plan import grid_of, plan_from
from kfm.jobs.base import job_type
from kfm.jobs.schedule.cadence import Timetable
from kfm.model.errors import UsageError
from kfm.workspace import config
from kfm.workspace.secrets import scan

OWNERS = [
    *sorted((SRC / "jobs").rglob("*.py")),
    SRC / "upkeep" / "pools.py",
]
FOLDER = SRC / "template" / "pipelines" / "orchestration"
EXAMPLES = [
    *sorted((FOLDER / "examples").glob("*")),
    *sorted((FOLDER / "backfills" / "examples").glob("*")),
]
LOADERS = {
    "spec_from_file_location",
    "SourceFileLoader",
    "run_path",
    "run_module",
    "exec",
    "eval",
    "compile",
    "__import__",
}


# ---- no code of datasets -------------------------------------------------------------------------
@pytest.mark.parametrize("path", OWNERS, ids=lambda p: str(p.relative_to(SRC)))
def test_orchestration_imports_no_connector(path: Path) -> None:
    found = {
        m for m in imports(path) if m.startswith("kfm.connectors") and m != "kfm.connectors.base"
    }
    assert not found, f"{path.name} knows how a dataset is read"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = (
                getattr(node.func, "attr", getattr(node.func, "id", ""))
                if ast.unparse(node.func) != "re.compile"
                else ""
            )
            assert name not in LOADERS, f"{path.name}:{node.lineno} loads code by {name}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert "connector.py" not in node.value, (
                f"{path.name}:{node.lineno} names connector code"
            )


def test_no_connector_is_loaded_with_it() -> None:
    """Not by way of others either: a process that has all of orchestration has read no
    connector.
    """
    modules = [
        "kfm.jobs.worker",
        "kfm.upkeep.pools",
        "kfm.jobs.backfill_windows",
        "kfm.jobs.schedule.scheduler",
        "kfm.jobs.base",
        *JOB_MODULES.values(),
    ]
    code = f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\nprint([m for m in sys.modules if m.startswith('kfm.connectors.')])"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    # the words of a job, no code that reads
    assert sorted(ast.literal_eval(said)) == ["kfm.connectors.base", "kfm.connectors.operations"]


def test_a_workspace_keeps_no_code_with_its_schedules() -> None:
    assert {p.suffix for p in FOLDER.rglob("*") if p.is_file()} == {".md", ".yml"}


# ---- examples ------------------------------------------------------------------------------------
PLACES = re.compile(
    r"-?\d{1,3}\.\d{3,}|(?i:\b(?:lat(?:itude)?|lon(?:gitude)?|lng|bbox|geometry|coordinates|point|polygon|h3|area)\b\s*[:=(])"
)
OUTSIDE = re.compile(r"://|@|\b\d{1,3}(?:\.\d{1,3}){3}\b")
# example -> dataset, its next two moments after Friday 6 March 2026 noon UTC, and what else it says
GOLDEN = {
    "annual.yml": ("example_counties", ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"], {}),
    # clocks change on Sunday
    "cron.yml": ("example_prices", ["2026-03-06T12:30:00Z", "2026-03-09T11:30:00Z"], {"catch_up": "latest"}),
    "daily.yml": ("example_gauges", ["2026-03-07T06:00:00Z", "2026-03-08T06:00:00Z"], {"window_s": 86400, "revisit_s": (86400, 604800, 7776000)}),
    "event.yml": ("example_sensors", ["2026-03-06T18:00:00Z", "2026-03-07T00:00:00Z"], {"fallback_s": 21600}),
    "real_time.yml": ("example_alerts", ["2026-03-06T12:02:00Z", "2026-03-06T12:04:00Z"], {"every_s": 120}),
    "static.yml": ("example_treaties", [], {"static": True}),
    "weekly.yml": ("example_images", ["2026-03-09T00:00:00Z", "2026-03-16T00:00:00Z"], {"jitter_s": 1800}),
}  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_an_example_shows_no_place_no_secret_and_nobody(path: Path) -> None:
    text = path.read_text()
    assert not PLACES.findall(text) and not OUTSIDE.findall(text)
    assert list(scan([path])) == []


@pytest.mark.parametrize(
    "text",
    [
        "url: https://agency.test/x",
        "bbox: [-98.5, 38.1]",
        "at: -98.7712",
        "to: ada@agency.test",
        "latitude: 38",
    ],
)
def test_the_scan_finds_what_it_looks_for(text: str) -> None:
    assert PLACES.search(text) or OUTSIDE.search(text)


def loaded(folder: Path, name: str) -> Timetable:
    path = FOLDER / "examples" / name
    dataset = GOLDEN[name][0]
    (folder / "data" / "registry").mkdir(parents=True)
    entry = f"dataset_id: {dataset}\ntitle: T\nsource: {{url: 'https://example.org/t.csv', format: csv}}\n"
    (folder / "data" / "registry" / f"{dataset}.yml").write_text(entry)
    return config.load_schedule(folder, path)


@pytest.mark.parametrize("name", [p.name for p in EXAMPLES if p.parent.parent == FOLDER])
def test_an_example_means_what_it_always_meant(tmp_path: Path, name: str) -> None:
    dataset, moments, more = GOLDEN[name]
    table = loaded(tmp_path, name)
    now, found = dt.datetime(2026, 3, 6, 12, tzinfo=dt.UTC), []
    while len(found) < len(moments):
        now = table.next_tick(now)
        found.append(f"{now.astimezone(dt.UTC):%Y-%m-%dT%H:%M:%SZ}")
    assert (table.dataset, found) == (dataset, moments)
    assert {key: getattr(table, key) for key in more} == more


def test_the_example_of_a_backfill_means_what_it_always_meant(tmp_path: Path) -> None:
    path = FOLDER / "backfills" / "examples" / "city_trees_history.yml"
    plan = plan_from(config._undated(config.parse(path.read_bytes(), path.name)), path.name)
    (tmp_path / "data" / "registry").mkdir(parents=True)
    (tmp_path / "data" / "registry" / "city_trees.yml").write_text(
        "dataset_id: city_trees\ntitle: T\nsource: {url: 'https://example.org/t.csv?since={since}', format: csv}\nbusiness_key: [tree]\nmerge: upsert\n"
    )
    entry = config.load_dataset(tmp_path, plan.dataset)
    assert entry is not None
    grid = grid_of(plan, entry)
    assert (plan.dataset, grid.total, grid.at(0)[0]) == (
        "city_trees",
        1431,
        "1998-08-01T00:00:00Z/1998-08-08T00:00:00Z",
    )


# ---- types of other packages ---------------------------------------------------------------------
def test_a_job_type_is_offered_by_one_package_under_the_name_it_calls_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kfm_odd_job.py").write_text("from kfm.jobs.notify import JOB\nOURS = JOB\n")
    for package, points in {"a": "t.two = x\nt.odd = kfm_odd_job:OURS", "b": "t.two = y"}.items():
        info = tmp_path / f"{package}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[kfm.jobs]\n{points}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"t.two is offered by a 1 and by b 1"):
        job_type("t.two")
    assert place_of("t.odd") == ("kfm_odd_job", "OURS")
    with pytest.raises(UsageError, match=r"t.odd is offered by kfm_odd_job, which calls it notify"):
        job_type("t.odd")
    assert place_of("t.none") is None
