"""The schemas and the command reference are what the code would make now."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest

from kfm.cli import COMMANDS
from kfm.cli.call import parser_of
from kfm.cli.flags import FILE, help_parser
from kfm.cli.reference import flags, reference
from kfm.model.schemas import documents

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", documents())
def test_a_schema_file_is_current_and_valid(name: str) -> None:
    written = json.loads((ROOT / "schemas" / name).read_text())
    assert written == documents()[name], "run `make schemas`"
    jsonschema_rs.meta.validate(written)


def test_no_schema_file_is_left_over() -> None:
    found = {str(p.relative_to(ROOT / "schemas")) for p in (ROOT / "schemas").rglob("*.json")}
    assert found == set(documents())


def test_the_command_reference_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert (ROOT / "docs" / "commands.md").read_text() == reference(), "run `make schemas`"


def test_what_help_prints_is_current() -> None:
    assert Path(FILE).read_text() == flags(), "run `make schemas`"


@pytest.mark.parametrize("columns", ["50", "80", "140"])
def test_help_is_what_the_parser_of_a_command_would_print(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for name, (module, _) in COMMANDS.items():
        told = help_parser(name)
        parser = parser_of(name, importlib.import_module(f"kfm.cli.{module}"))
        assert told.format_help() == parser.format_help()


def test_help_loads_neither_the_command_nor_the_engine() -> None:
    asked = (
        "from kfm.cli import main\ntry:\n    main(['run', '--help'])\nexcept SystemExit:\n    pass"
    )
    told = "import sys; print(sorted(m for m in sys.modules if m.startswith(('kfm', 'msgspec'))))"
    done = subprocess.run(
        [sys.executable, "-c", f"{asked}\n{told}"], capture_output=True, text=True, check=True
    )
    assert "usage: kfm run" in done.stdout
    assert ast.literal_eval(done.stdout.splitlines()[-1]) == [
        "kfm",
        "kfm.cli",
        "kfm.cli.commands",
        "kfm.cli.flags",
    ]


def test_a_command_is_loaded_without_what_it_can_do_without() -> None:
    code = (
        "import sys; from kfm.cli import main; main(['run', 'x', '-w', 'nowhere']);"
        "assert 'kfm.jobs.drive' in sys.modules;"
        "unneeded = {'typing_extensions', 'yaml', 'cryptography', 'pyarrow', 'httpx', 'ssl'};"
        "print(sorted(unneeded & set(sys.modules))); import typing_extensions"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_names_its_flags(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from kfm.cli import main

    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert "--json" in said and "-w" in said


def test_both_spellings_of_a_flag_are_the_same() -> None:
    from kfm.cli import run
    from kfm.cli.call import parser_of

    parser = parser_of("run", run)
    assert (
        parser.parse(["d", "--dry_run"]).dry_run is parser.parse(["d", "--dry-run"]).dry_run is True
    )
