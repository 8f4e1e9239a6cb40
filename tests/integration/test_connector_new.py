"""A connector for a CSV that somebody brings: the page that walks it is executed, and what the
scaffold refuses is tried.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.given.verbs import Said, tree

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "connectors.md").read_text()
BLOCK = re.compile(r"^```(\w+)(?: ([^\n]+))?\n(.*?)^```$", re.M | re.S)
CSV = "Well ID;County;Depth\n01;Barton;12,5\n02;Pawnee;3\n"


def test_the_page_leads_from_a_csv_to_an_official_version_with_catalogs(tmp_path: Path) -> None:
    """Every block of docs/connectors.md, in order: named ones are written, the others are run."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    here, said = tmp_path, ""
    for language, name, body in BLOCK.findall(PAGE):
        if name:
            (here / name).write_text(body)
            continue
        assert language == "sh"
        script = f"{body}pwd > {tmp_path / 'where'}\n"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{body}\n{done.stdout}\n{done.stderr}"
        here, said = Path((tmp_path / "where").read_text().strip()), said + done.stdout
    assert "refused with exit code 1" in said and "15 of 15 rules kept" in said
    status = subprocess.run(
        ["kfm", "status", "--json"], cwd=here, env=environment, capture_output=True, check=True
    ).stdout
    (dataset,) = json.loads(status)["datasets"]
    assert dataset["state"] == "official" and dataset["generation"] == 2
    import pyarrow.parquet as pq

    table = pq.read_table(
        here / "data" / "processed" / "my_wells" / dataset["version_id"] / "my_wells.parquet"
    ).to_pylist()
    assert [(r["well_id"], r["county"], r["depth_ft"]) for r in table] == [
        ("W-001", "Barton", 182.5), ("W-002", "Pawnee", 96.0), ("W-004", "Stafford", 211.25), ("W-005", "Rush", 120.0),
    ]  # fmt: skip
    catalog = here / "data" / "catalog"
    assert (catalog / "dcat" / "my_wells.json").is_file() and (
        catalog / "prov" / "my_wells" / "run_2026-02-16T000000Z.json"
    ).is_file()
    verified = subprocess.run(
        ["kfm", "verify", "--json"], cwd=here, env=environment, capture_output=True, check=True
    ).stdout
    assert json.loads(verified)["problems"] == []
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", "scripts/connectors/my_wells/tests"], cwd=here, env=environment, capture_output=True, text=True, check=False)  # fmt: skip
    assert tests.returncode == 0, tests.stdout


def test_the_connector_on_the_page_has_at_most_forty_lines() -> None:
    (code,) = (body for _, name, body in BLOCK.findall(PAGE) if name.endswith("connector.py"))
    assert len(code.splitlines()) <= 40


def test_twice_is_refused_and_nothing_is_ever_overwritten(
    kfm: Callable[..., Said], ws: Path, tmp_path: Path
) -> None:
    (tmp_path / "wells.csv").write_text(CSV)
    given = (
        "connector",
        "new",
        "wells",
        "--file",
        str(tmp_path / "wells.csv"),
        "--licence",
        "CC0-1.0",
        "--json",
    )
    first = kfm(*given)
    assert first.code == 0, first
    mapping = ws / "scripts" / "connectors" / "wells" / "mapping.yml"
    code = (ws / "scripts" / "connectors" / "wells" / "connector.py").read_text()
    assert 'delimiter: ";"' in mapping.read_text()
    assert 'column("well_id", key=True, at="Well ID"),' in code
    mapping.write_text(mapping.read_text() + "# mine\n")
    (ws / "scripts" / "connectors" / "wells" / "README.md").unlink()
    before = tree(ws)
    assert kfm(*given).code == 2 and tree(ws) == before
    forced = kfm(*given, "--force")
    assert (
        forced.code == 0
        and forced.json["files"] == ["scripts/connectors/wells/README.md"]
        and "# mine" in mapping.read_text()
    )


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("new", "wells", "gauges"), "does not take 'gauges'"),
        (("new", "Wells", "--url", "https://example.org/a.csv"), "dataset id"),
        (("new", "wells", "--file", "missing.csv"), "read"),
        (("new", "wells", "--url", "file:///inbox/../keys/root.csv"), "path"),
        (("new", "wells", "--url", "https://example.org/data"), "format"),
        (("new", "wells", "--file", "wells.csv", "--key", "nothing"), "nothing"),
        (("new", "wells", "--file", "wells.csv", "--licence", "NOTSPDX"), "spdx"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    kfm: Callable[..., Said],
    ws: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    word: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wells.csv").write_text(CSV)
    before = tree(ws)
    said = kfm("connector", *args)
    assert said.code == 2 and word in said.err.lower() and tree(ws) == before


@pytest.mark.parametrize(
    "url",
    [
        "file:///keys/secret.csv",
        "file:///scripts/%2e%2e/keys/secret.csv",
        "file:///inbox/link.csv",
        "file:///data/work/x.csv",
    ],
)
def test_a_file_outside_inbox_and_scripts_is_never_published(
    kfm: Callable[..., Said], ws: Path, url: str
) -> None:
    (ws / "keys" / "secret.csv").write_text("a,b\n1,2\n")
    (ws / "data" / "work").mkdir(exist_ok=True)
    (ws / "data" / "work" / "x.csv").write_text("a,b\n1,2\n")
    (ws / "inbox").mkdir()
    (ws / "inbox" / "link.csv").symlink_to(ws / "keys" / "secret.csv")
    said = kfm(
        "dataset",
        "new",
        "stolen",
        "--url",
        url,
        "--licence",
        "CC0-1.0",
        "--sensitivity",
        "public",
        "--policy-label",
        "public",
    )
    assert said.code == 0
    said = kfm("run", "stolen")
    assert said.code == 3 and not list((ws / "data" / "raw").glob("stolen/captures/*"))


def test_an_unchanged_file_is_a_noop_and_a_large_one_is_refused(
    kfm: Callable[..., Said], ws: Path
) -> None:
    (ws / "inbox").mkdir()
    (ws / "inbox" / "a.csv").write_text("a,b\n1,2\n")
    kfm(
        "dataset",
        "new",
        "mine",
        "--url",
        "file:///inbox/a.csv",
        "--licence",
        "CC0-1.0",
        "--sensitivity",
        "public",
        "--policy-label",
        "public",
    )
    assert [kfm("run", "mine", "--json").json["runs"][0]["state"] for _ in range(2)] == [
        "COMMITTED",
        "NOOP",
    ]
    entry = ws / "data" / "registry" / "mine.yml"
    entry.write_text(entry.read_text().replace("format: csv", "format: csv\n  max_bytes: 3"))
    assert kfm("run", "mine").code == 1
    (ws / "inbox" / "a.csv").unlink()
    assert kfm("run", "mine").code == 4


def test_an_id_alone_gives_a_connector_that_passes_every_gate_on_its_own_sample(
    kfm: Callable[..., Said], ws: Path
) -> None:
    assert kfm("connector", "new", "my_first").code == 0
    assert kfm("connector", "check", "my_first").code == 0
    outcome = kfm("run", "my_first", "--json").json["runs"][0]
    assert (outcome["state"], outcome["rows_written"]) == ("COMMITTED", 4)
    assert "synthetic" in (ws / "data" / "registry" / "my_first.yml").read_text()
    assert kfm("doctor", "--json").json["findings"] == []


@pytest.mark.parametrize(
    "args",
    [
        ("connector", "check", "-w", "{ws}", "my_first"),
        pytest.param(("connector", "check", "--json", "my_first"), marks=pytest.mark.drill),
        pytest.param(("connector", "--json", "check", "my_first"), marks=pytest.mark.drill),
        pytest.param(("quarantine", "list", "--all", "my_first"), marks=pytest.mark.drill),
        pytest.param(
            ("connector", "new", "--licence", "CC0-1.0", "my_second"), marks=pytest.mark.drill
        ),
    ],
)
def test_options_may_stand_before_the_names(
    kfm: Callable[..., Said], ws: Path, args: tuple[str, ...]
) -> None:
    assert kfm("connector", "new", "my_first").code == 0
    said = kfm(*(a.format(ws=ws) for a in args))
    assert said.code == 0, said


def test_help_and_what_is_unknown_end_as_before(kfm: Callable[..., Said]) -> None:
    for args, code in (
        (("connector", "check", "--help"), 0),
        (("connector", "check", "--frobnicate"), 2),
        (("connector",), 2),
    ):
        assert kfm(*args).code == code


def test_texts_for_no_value_are_guessed_and_become_null(
    kfm: Callable[..., Said], ws: Path, tmp_path: Path
) -> None:
    (tmp_path / "w.csv").write_text(
        "id,depth,empty,area,note\na,1.5,NA,NA,N/A\nb,-,NA,EU,x\nc,NA,NA,NA,\n"
    )
    assert (
        kfm(
            "connector", "new", "wells", "--file", str(tmp_path / "w.csv"), "--licence", "CC0-1.0"
        ).code
        == 0
    )
    code = (ws / "scripts" / "connectors" / "wells" / "connector.py").read_text()
    assert (
        'column("depth", float, nulls=["-","NA"])' in code
        and 'column("empty", nulls=["NA"])' in code
    )
    assert 'column("area")' in code, "NA may be a value of a text column"
    version = kfm("run", "wells", "--json").json["runs"][0]["version_id"]
    import pyarrow.parquet as pq

    rows = pq.read_table(
        ws / "data" / "processed" / "wells" / version / "wells.parquet"
    ).to_pylist()
    assert [tuple(r.values()) for r in rows] == [
        ("a", 1.5, None, "NA", None),
        ("b", None, None, "EU", "x"),
        ("c", None, None, "NA", None),
    ]


def test_a_row_that_stands_twice_does_not_hide_the_key(
    kfm: Callable[..., Said], ws: Path, tmp_path: Path
) -> None:
    (tmp_path / "w.csv").write_text("id,v\na,1\nb,1\na,1\n")
    assert (
        kfm(
            "connector", "new", "wells", "--file", str(tmp_path / "w.csv"), "--licence", "CC0-1.0"
        ).code
        == 0
    )
    code = (ws / "scripts" / "connectors" / "wells" / "connector.py").read_text()
    assert 'column("id", key=True)' in code
    assert kfm("run", "wells", "--json").json["runs"][0]["rows_written"] == 2


def test_a_key_may_be_named_as_the_file_names_it(
    kfm: Callable[..., Said], ws: Path, tmp_path: Path
) -> None:
    (tmp_path / "w.csv").write_text("Well ID,Seen On\n1,2026-01-01\n2,2026-01-02\n")
    given = (
        "--file",
        str(tmp_path / "w.csv"),
        "--licence",
        "CC0-1.0",
        "--key",
        "Well ID",
        "--time-column",
        "Seen On",
    )
    assert kfm("connector", "new", "wells", *given).code == 0
    entry = (ws / "data" / "registry" / "wells.yml").read_text()
    code = (ws / "scripts" / "connectors" / "wells" / "connector.py").read_text()
    assert 'column("well_id", key=True, at="Well ID")' in code and "time_column: seen_on" in entry


def test_a_sensitive_file_stays_out_of_version_control_and_is_labelled_as_such(
    kfm: Callable[..., Said], ws: Path, tmp_path: Path
) -> None:
    (tmp_path / "nests.csv").write_text("id,lat,lon\n1,38.51234,-98.71234\n")
    said = kfm(
        "connector",
        "new",
        "nests",
        "--file",
        str(tmp_path / "nests.csv"),
        "--sensitivity",
        "sensitive-location",
    )
    assert said.code == 0 and "policy_label: public" not in said.out and "`release`" in said.out
    kept = ws / "inbox" / "nests" / "nests.csv"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert (
        "policy_label: sensitive-location" in (ws / "data" / "registry" / "nests.yml").read_text()
    )
    subprocess.run(["git", "init", "-q"], cwd=ws, check=True)
    listed = subprocess.run(
        ["git", "status", "--porcelain", "-uall"],
        cwd=ws,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "registry/nests.yml" in listed and "inbox" not in listed


def test_a_connector_without_a_slice_says_so_and_names_a_command_that_works(
    kfm: Callable[..., Said], ws: Path
) -> None:
    said = kfm(
        "connector", "new", "gauges", "--url", "https://example.org/a.csv", "--licence", "CC0-1.0"
    )
    shown, _, following = said.out.partition("Next")
    assert (
        said.code == 0
        and "Nothing was tried" in shown
        and "connector check" not in following
        and "run gauges" in following
    )


def test_a_name_nobody_knows_is_a_mistake_and_no_finding(kfm: Callable[..., Said]) -> None:
    said = kfm("connector", "check", "nosuch")
    assert said.code == 2 and "nosuch" in said.err
