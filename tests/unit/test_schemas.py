"""The schemas and the pages of commands and keys are what the code would make now."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest

from kfm.cli.reference import reference
from kfm.cli.schemas import documents
from kfm.runners.stages import flags_table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", documents())
def test_a_schema_file_is_current_and_valid(name: str) -> None:
    written = json.loads((ROOT / "schemas" / name).read_text())
    assert written == documents()[name], "run `make schemas`"
    jsonschema_rs.meta.validate(written)


def test_no_schema_file_is_left_over() -> None:
    found = {str(p.relative_to(ROOT / "schemas")) for p in (ROOT / "schemas").rglob("*.json")}
    assert found == set(documents())


def test_no_command_flag_or_key_changes_without_its_page() -> None:
    """Every command with its flags, every runner's, every key of every file that people write."""
    assert (ROOT / "docs" / "commands.md").read_text() == reference(), "run `make schemas`"
    runners = ROOT / "src/kfm/template/scripts/connectors/README.md"
    assert flags_table() in runners.read_text()
    spec = importlib.util.spec_from_file_location("draw_fields", ROOT / "tools" / "draw_fields.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = (ROOT / "docs" / "fields.md").read_text()
    assert page == tool.page(), "run `make schemas`"
    for name, document in documents().items():
        for record, shape in document["$defs"].items() if name.startswith("config/") else ():
            for key in shape.get("properties", ()):
                assert f"| `{key}` |" in page, f"{record}: {key}"


def test_types_of_telemetry_are_made_from_its_schemas() -> None:
    made = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "telemetry_types.py")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert (ROOT / "types" / "telemetry.ts").read_text() == made
    for file in ("reliability/updaters-v1", "energy-v2", "carbon-v2", "pipelines-updater-v1"):
        schema = json.loads((ROOT / "schemas" / "telemetry" / f"{file}.json").read_text())
        jsonschema_rs.meta.validate(schema)
        name = schema["$ref"].rsplit("/", 1)[-1]
        for key in schema["$defs"][name]["required"]:
            assert f"readonly {key}:" in made.partition(f"interface {name} {{")[2], key
