"""The contract suite: a good connector has no finding, and every rule can be broken."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.given.verbs import each

from kfm.cli import main as cli
from kfm.cli.init import make_workspace
from kfm.connectors.child.process import kept_warm
from kfm.model.errors import UsageError
from kfm.testing import RULES, check_connector, try_connector, write_golden
from kfm.workspace.config import change_entry

ID = "ks_wells"
CSV = "id,at,depth,lat,lon\n" + "".join(
    f"{n},2026-01-{n:02}T00:00:00Z,{n}.5,38.5,-98.5\n" for n in range(1, 21)
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    make_workspace(folder / "ws", sample=False)
    (folder / "wells.csv").write_text(CSV)
    new = [
        "connector",
        "new",
        ID,
        "--file",
        str(folder / "wells.csv"),
        "--licence",
        "CC0-1.0",
        "--key",
        "id",
        "--time-column",
        "at",
    ]
    assert cli(["-w", str(folder / "ws"), *new]) == 0
    return folder / "ws"


@pytest.fixture
def ws(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "ws"))


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def hook(body: str, name: str = "transform") -> Callable[[Path], None]:
    """A connector.py whose one function is `body`, with the columns it had."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    code = f"import os, pathlib, random, time\n\ndef {name}(ctx, rows=None):\n{lines}"

    def change(folder: Path) -> None:
        before = (folder / "connector.py").read_text()
        stated = before[before.index("src = source(") : before.index("\n)\n") + 3]
        (folder / "connector.py").write_text(
            f"{code}\nfrom kfm.connect import column, source\n{stated}"
        )

    return change


def discovers(found: str) -> Callable[[Path], None]:
    """The connector, which also says what its source can."""
    code = f"from kfm.model.connector import Capabilities\n\n@src.discover\ndef can(ctx):\n    return {found}\n"
    return edit("connector.py", "@src.transform", f"{code}\n@src.transform")


def rename(old: str, new: str) -> Callable[[Path], None]:
    return lambda folder: (folder / old).rename(folder / new) and None


BROKEN = {
    "files: a required stage is missing": ("files", rename("promote.py", "notes.txt")),
    "files: a stage nobody knows": ("files", write("publish.py", "print()\n")),
    "header: something is not said": ("header", edit("ingest.py", "Zone writes:", "Writes:")),
    "header: another stage is named": ("header", edit("validate.py", "Stage: validate", "Stage: promote")),
    "thin: it imports more": ("thin", edit("ingest.py", "import sys", "import sys\nimport urllib.request")),
    "thin: it is long": ("thin", lambda folder: edit("ingest.py", "import sys\n", "import sys\n" + "x = 1\n" * 60)(folder)),
    "help: it takes other flags": ("help", edit("backfill.py", 'main("backfill"', 'main("ingest"')),
    "mapping: it is no mapping": ("mapping", write("mapping.yml", "columns: [\n")),
    "discover: an ability nobody has": ("discover", discovers('Capabilities(endpoints=("x",), formats=("csv",), abilities=("paged",))')),
    "runs: discover returns something else": ("runs", discovers("{}")),
    "runs: it raises": ("runs", hook("raise KeyError('x')")),
    "runs: its own check refuses the fixture": ("runs", hook("return ['too deep']", "validate")),
    "same: rows in an order of chance": ("same", hook("rows = list(rows)\nrandom.shuffle(rows)\nfor r in rows:\n    yield {**r, 'depth': random.random()}")),
    "same: the clock": ("same", hook("for r in rows:\n    yield {**r, 'depth': time.time()}")),
    "retry: it goes on with what was left": ("retry", hook(
        "note = ctx.scratch / 'seen'\nbefore = note.exists()\nnote.write_text('x')\nfor r in rows:\n    yield {**r, 'depth': 1.0 if before else 2.0}")),
    "window: it moves the time": ("window", hook("for r in rows:\n    yield {**r, 'at': '2026-01-05T00:00:00Z' if ctx.window[0] else r['at']}")),
    "writes: outside its scratch folder": ("writes", hook("pathlib.Path(__file__).with_name('left.txt').write_text('x')\nyield from rows")),
    "golden: other rows": ("golden", hook("for r in rows:\n    yield {**r, 'depth': 0.0}")),
    "fixture: there is none": ("fixture", lambda folder: (folder / "fixtures" / "wells.csv").unlink()),
    "runs: it is no Python": ("runs", write("connector.py", "def acquire(ask)\n    pass\n")),
    "runs: a zero byte": ("runs", write("connector.py", "x = 1\0\n")),
    "acquire: nothing to try it on": ("acquire", hook("pass", "acquire")),
}  # fmt: skip


def test_a_new_connector_keeps_every_rule(ws: Path) -> None:
    assert check_connector(ws, ID) == []


QUICK = ("files:", "header:", "thin:", "help:", "mapping:")  # nothing is run to see them


@pytest.mark.parametrize("case", each(BROKEN, *(c for c in BROKEN if c.startswith(QUICK))))
def test_every_rule_can_be_broken(ws: Path, case: str) -> None:
    rule, breaking = BROKEN[case]
    # told also of a connector whose code cannot be tried, and sooner
    if rule in ("files", "header", "thin", "help"):
        (ws / "scripts" / "connectors" / ID / "connector.py").write_text("def")
    breaking(ws / "scripts" / "connectors" / ID)
    found = check_connector(ws, ID)
    assert rule in {f.rule for f in found}, found
    assert all(f.what and f.remedy for f in found)


def test_code_that_is_no_python_is_named_by_its_line_and_not_accepted(ws: Path) -> None:
    (ws / "scripts" / "connectors" / ID / "connector.py").write_text(
        "x = 1\ndef transform(ctx, rows)\n    pass\n"
    )
    (found,) = check_connector(ws, ID)
    assert found.rule == "runs" and "connector.py, line 2" in found.what
    with pytest.raises(UsageError):
        write_golden(ws, ID)


def test_what_code_may_not_do_is_said_in_words(ws: Path) -> None:
    hook("pathlib.Path(__file__).with_name('left.txt').write_text('x')\nyield from rows")(
        ws / "scripts" / "connectors" / ID
    )
    (found,) = (f for f in check_connector(ws, ID) if f.rule == "writes")
    assert (
        found.what.startswith("Connector code may not open")
        and "left.txt" in found.what
        and "raise" not in found.what
    )
    assert "connector.py, line 4" in found.remedy and "below" not in found.remedy


def test_an_ability_nobody_has_and_rows_nobody_accepted_are_found(ws: Path) -> None:
    folder = ws / "scripts" / "connectors" / ID
    discovers('Capabilities(endpoints=("x",), formats=("csv",), abilities=("paged",))')(folder)
    edit("connector.py", "        yield {name: ", "        yield {'depth': 0.0} | {name: ")(folder)
    edit("connector.py", "in row.items()}", "in row.items() if name != 'depth'}")(folder)
    assert {f.rule for f in check_connector(ws, ID)} == {"discover", "golden"}


def test_every_rule_has_a_case() -> None:
    assert {rule for rule, _ in BROKEN.values()} | {"folder"} == set(RULES)


def test_a_folder_that_is_not_registered_is_found(ws: Path) -> None:
    (ws / "scripts" / "connectors" / ID).rename(ws / "scripts" / "connectors" / "other")
    assert "folder" in {f.rule for f in check_connector(ws, "other")}
    assert [f.rule for f in check_connector(ws, ID)] == ["folder"]


def test_a_fixture_of_a_dataset_that_is_not_public_shows_no_exact_place(ws: Path) -> None:
    texts = {
        "1,38.512": True,
        "1,38.5124": False,
        "1,-98.71234": False,
        "v1.2.3,38.51": True,
        "\0": False,
    }
    folder = ws / "scripts" / "connectors" / ID / "fixtures"
    source = {"kind": "http_file", "url": f"file:///inbox/{ID}/wells.csv", "format": "csv"}
    change_entry(
        ws,
        ID,
        {"sensitivity": "sensitive-location", "policy_label": "restricted", "source": source},
    )
    for number, text in enumerate(texts):
        (folder / f"notes{number}.txt").write_text(f"a\n{text}\n")
    found = [f for f in check_connector(ws, ID) if f.rule == "fixture"]
    told = {
        f"notes{number}.txt": any(f"notes{number}.txt" in f.what for f in found)
        for number in range(len(texts))
    }
    assert list(told.values()) == [not fine for fine in texts.values()], found
    assert len(found) == 3


def test_an_acquire_is_tried_on_its_recorded_answers_and_after_a_failure(ws: Path) -> None:
    folder = ws / "scripts" / "connectors" / ID
    (folder / "fixtures" / "replay.json").write_text(
        json.dumps({f"https://example.org/{n}": "wells.csv" for n in "12"})
    )
    code = "def acquire(ask):\n    for n in '12':\n        ask.get(f'https://example.org/{n}', f'page-{n}')\n"
    before = (folder / "connector.py").read_text()
    code += f"{before[before.index('from kfm.connect') : before.index('@src.')]}"
    (folder / "connector.py").write_text(code)
    write_golden(ws, ID)
    assert check_connector(ws, ID) == []
    (folder / "connector.py").write_text(
        "import random\n" + code.replace("f'page-{n}'", "f'page-{n}-{random.random()}'")
    )
    assert [f.rule for f in check_connector(ws, ID)] == ["acquire"]


def test_a_trial_shows_rows_before_and_after_prints_and_the_authors_lines(
    ws: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ws / "scripts" / "connectors" / ID
    body = (
        "print('begun')\nfor r in rows:\n    if r['id'] == '1':\n        ctx.refuse(r, 'the first')\n"
        "    elif r['id'] == '2':\n        ctx.set_aside(r, 'odd')\n"
        "    else:\n        yield {**r, 'depth': r['depth'] * 2}"
    )
    with kept_warm(private=False, coded=True):
        hook(body)(folder)
        found = try_connector(ws, ID, 3)
        assert [r["depth"] for r in found.before] == [1.5, 2.5, 3.5]
        assert [r["depth"] for r in found.after] == [7.0, 9.0, 11.0]
        assert [(x.reason, x.row["id"]) for x in found.left] == [("the first", "1")]
        assert [(x.reason, x.row["id"]) for x in found.aside] == [("odd", "2")]
        assert found.columns == ("id", "at", "depth", "lat", "lon")
        assert found.printed == "begun\n"
        assert found.problem == (
            "A run would refuse this: 1 of 20 records are set aside; the first: odd."
        )
        assert found.counts is not None
        assert (found.counts["written"], found.counts["quarantined"]) == (18, 1)
        hook(body + "\n        r['nothing']")(folder)
        assert cli(["-w", str(ws), "connector", "try", ID, "--rows", "2"]) == 1
        said = capsys.readouterr().out
        assert "KeyError: 'nothing'" in said and "begun" in said
        assert "connector.py, line 12, in transform: r['nothing']" in said
        assert "feed.py" not in said
        shutil.rmtree(folder / "fixtures")
        with pytest.raises(UsageError, match="nothing to try"):
            try_connector(ws, ID)


def test_the_command_says_what_is_wrong_and_exits_1(
    ws: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (ws / "scripts" / "connectors" / ID / "publish.py").write_text("")
    # nothing is tried: what is said is asked here
    (ws / "scripts" / "connectors" / ID / "connector.py").write_text("def")
    assert cli(["-w", str(ws), "connector", "check"]) == 1
    assert "files: publish.py is no stage." in capsys.readouterr().out
    assert cli(["-w", str(ws), "connector", "check", "--json"]) == 1
    (checked,) = json.loads(capsys.readouterr().out)["connectors"]
    assert checked["dataset_id"] == ID and checked["findings"][0]["rule"] == "files"
