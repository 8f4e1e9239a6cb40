"""Print what workers did, one line per event of a job, and follow it."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kfm.cli.answer import Call
from kfm.cli.terminal import say, show, sign
from kfm.model import JobLine
from kfm.workspace.folder import open_workspace

__all__ = ["logs"]

_SIGNS = {"started": "RUNNING", "succeeded": "COMMITTED", "failed": "FAILED", "skipped": "NOOP"}


def logs(call: Call, what: str, follow: bool, lines: int, signals: bool) -> None:
    """Lines as they are written: `--json` prints each as it is."""
    folder = open_workspace(call.workspace).path / "ledger" / "logs"
    reader = _Lines(folder, "signals" if signals else "workers")
    found = [line for line in reader.new() if what in line]
    raw = call.json or signals
    for line in found[-lines:]:
        _print(line, raw)
    if not found and not follow:
        say("Nothing was logged. `kfm up` starts a scheduler and a worker.")
    while follow:
        sys.stdout.flush()
        time.sleep(0.2)
        for line in reader.new():
            if what in line:
                _print(line, raw)


class _Lines:
    """Every whole line of the day files, each once, in the order of the days."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._at: dict[str, int] = {}

    def new(self) -> Iterator[str]:
        for path in sorted(self._folder.glob(f"{self._name}-*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._at.get(path.name, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._at[path.name] = self._at.get(path.name, 0) + len(whole)
            yield from whole.decode(errors="replace").splitlines()


def _print(line: str, raw: bool) -> None:
    if raw:
        print(line)
        return
    try:
        said = msgspec.to_builtins(msgspec.json.decode(line, type=JobLine))
    except msgspec.DecodeError:
        return  # cut short by a full disk, or not ours
    error = f"  {said['error']['message']}" if said.get("error") else ""
    took = f"  {said['duration_ms'] / 1000:.2f} s" if said.get("duration_ms") else ""
    names = ",".join(said["dataset_ids"])
    show(
        f"{said['timestamp'][:19]} {sign(_SIGNS.get(said['status'], '?'))} {said['job_type']:<24}"
        f" {names:<20} {said['status']:<10}{took}{error}"
    )
