"""The schemas and the command reference are what the code would make now."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from kfm.cli import COMMANDS
from kfm.cli.reference import reference
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
