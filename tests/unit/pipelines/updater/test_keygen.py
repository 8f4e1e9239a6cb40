"""The run key, as the template's keygen offers it."""

import hashlib
import importlib.util
import subprocess
import sys
from pathlib import Path

TEMPLATE = Path(__file__).parents[4] / "src/kfm/template/src/pipelines/updater"


def load(name: str) -> object:
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), TEMPLATE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documented_formula_holds_for_ordinary_values() -> None:
    keygen = load("idempotency/keygen")
    plain = 'https://example.org/x|"abc"|2026-01-01T00:00:00Z/2026-01-02T00:00:00Z|1.0.0'
    assert keygen.run_key(*plain.split("|")) == hashlib.sha256(plain.encode()).hexdigest()  # type: ignore[attr-defined]


def test_fields_cannot_run_into_one_another() -> None:
    keygen = load("idempotency/keygen")
    keys = {
        keygen.run_key(*fields)  # type: ignore[attr-defined]
        for fields in (
            ("a|b", "", "", "1"),
            ("a", "b", "", "1"),
            ("a\\|b", "", "", "1"),
            ("a\\", "b", "", "1"),
            ("a", None, "b", "1"),
        )
    }
    assert len(keys) == 5


def test_every_documented_file_is_there_and_loads() -> None:
    for name in (
        "runner",
        "idempotency/keygen",
        "idempotency/ledger",
        "publisher/base",
        "publisher/noop",
        "publisher/github_actions",
    ):
        assert load(name).__all__, name  # type: ignore[attr-defined]
    # `updater` is the command, `runner` the module behind it: either name does the same
    command, runner = (
        [sys.executable, "-m", "updater"],
        [sys.executable, str(TEMPLATE / "runner.py")],
    )
    said = [
        subprocess.run([*words, "run", "--help"], capture_output=True, text=True, check=True).stdout
        for words in (command, runner)
    ]
    assert said[0] == said[1] and "--config" in said[0]
