"""The evaluator's child: whatever its engine is talked into, it only answers."""

from pathlib import Path

import pytest

from kfm.connectors.child.process import held_here
from kfm.policy import process

HOSTILE = """
import os, socket, sys, types
def tried(*names):
    found = []
    for name in names:
        try:
            {acts}[name]()
            found.append(name)
        except OSError:
            pass
    return found
class Engine:
    def clone(self): return self
    def eval_query_as_json(self, query): return str(tried(*query.split()))
sys.modules["regorus"] = types.SimpleNamespace(Engine=Engine)
"""
ACTS = """{{
    "read": lambda: open({read!r}).read(), "write": lambda: open({write!r}, "w"), "remove": lambda: os.unlink({read!r}),
    "list": lambda: os.listdir("/"), "start": os.fork, "signal": lambda: os.kill(os.getppid(), 0),
    "connect": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM), "answer": lambda: None,
}}"""


def test_an_engine_that_turns_hostile_reads_writes_starts_and_reaches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not held_here().whole:
        pytest.skip("not run: this system cannot hold a process")
    kept = tmp_path / "kept"
    kept.write_text("private")
    hostile = HOSTILE.replace("{acts}", ACTS.format(read=str(kept), write=str(tmp_path / "made")))
    monkeypatch.setattr(process, "_BOOT", hostile + process._BOOT)
    child = process.Child()
    try:
        answer = child.exchange(
            {"queries": ["read write remove list start signal connect answer"]}, 30
        )
    finally:
        child.close()
    assert answer == {"values": ["['answer']"]}
    assert kept.read_text() == "private" and not (tmp_path / "made").exists()
