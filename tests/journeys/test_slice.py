"""The smallest slice, as the README tells it: from a clean checkout to one answer with its proof."""

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.given.ports import free_port
from tests.given.verbs import until

ROOT = Path(__file__).parents[2]
CHECKOUT = ("src", "tools", "kansas", "README.md", "Makefile", "pyproject.toml", "LICENSE")
LOCKS = ("requirements.lock", "requirements-demo.lock")


def _commands() -> list[str]:
    """The block of the README, line by line."""
    text = (ROOT / "README.md").read_text()
    block = re.search(r"## The smallest slice\n.*?```\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return block[1].strip().splitlines()


def _checkout(folder: Path) -> None:
    """What is in the repository, and an environment that brings its packages but no kfm."""
    aside = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")
    for name in (*CHECKOUT, *LOCKS):
        from_, to = ROOT / name, folder / name
        shutil.copytree(from_, to, ignore=aside) if from_.is_dir() else shutil.copy2(from_, to)
    program = folder / ".venv" / "bin" / "kfm"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH="{folder}/src" exec "{sys.executable}" -m kfm "$@"\n'
    )
    program.chmod(0o755)
    # tests/unit/test_setup.py: what `make setup` fetches and installs
    subprocess.run(["make", "-t", "setup"], cwd=folder, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("make") is None, reason="not run: make is not installed")
@pytest.mark.skipif(shutil.which("curl") is None, reason="not run: curl is not installed")
def test_the_quick_start_does_it_from_a_clean_checkout(tmp_path: Path) -> None:
    """One dataset, one promoted version, one query of the API, and its citations opened."""
    folder = tmp_path / "kfm"
    folder.mkdir()
    _checkout(folder)
    port = free_port()
    lines = [line.replace("8788", str(port)) for line in _commands()]
    *before, serving, query, check = lines
    assert before[0] == "make setup" and serving.endswith("&") and len(before) == 3
    for line in before:
        subprocess.run(["sh", "-ec", line], cwd=folder, check=True, capture_output=True)
    versions = list((folder / "slice" / "data" / "processed").glob("*/v*"))
    assert [v.parent.name for v in versions] == ["ks_earthquakes"], "one dataset, one version"
    served = subprocess.Popen(
        ["sh", "-ec", f"exec {serving.removesuffix('&')}"], cwd=folder, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: _listens(port))
        said = subprocess.run(["sh", "-ec", query], cwd=folder, check=True, capture_output=True)
        (told,) = json.loads(said.stdout)["answers"]
        assert any("CC0-1.0" in sentence["text"] for sentence in told["answer"])
        cited = {c["n"]: c for c in told["evidence"]}
        for sentence in told["answer"]:
            assert sentence["evidence"] and all(cited[n]["address"] for n in sentence["evidence"])
        summed = subprocess.run(["sh", "-ec", check], cwd=folder, check=True, capture_output=True)
        assert f"sha256:{summed.stdout.split()[0].decode()}" in {
            c["digest"] for c in cited.values()
        }
        for one in cited.values():
            with urllib.request.urlopen(one["address"]) as answer:
                assert answer.status == 200
    finally:
        served.terminate()
        served.wait(60)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
