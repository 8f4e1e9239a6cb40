"""Print what workers did, one line per event of a job, and follow it."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kfm.cli.call import Parser
from kfm.cli.terminal import say, show, sign
from kfm.model import JobLine
from kfm.workspace.folder import open_workspace

__all__ = ["configure", "main"]

_SIGNS = {"started": "RUNNING", "succeeded": "COMMITTED", "failed": "FAILED", "skipped": "NOOP"}


def configure(parser: Parser) -> None:
    parser.add_argument(
        "what", nargs="?", default="", metavar="DATASET|JOB|RUN", help="only what has to do with it"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on as lines are written")
    parser.add_argument(
        "-n",
        "--lines",
        type=int,
        default=50,
        metavar="N",
        help="how many of the last lines; default: 50",
    )
    parser.add_argument(
        "--signals", action="store_true", help="lifecycle, waiting and freshness signals instead"
    )


def main(args: Namespace) -> int:
    folder = open_workspace(args.workspace).path / "ledger" / "logs"
    name = "signals" if args.signals else "workers"
    reader = _Lines(folder, name)
    found = [line for line in reader.new() if args.what in line]
    for line in found[-args.lines :] if args.lines > 0 else ():
        _print(line, args)
    if not found and not args.follow:
        say("Nothing was logged. `kfm up` starts a scheduler and a worker.")
    while args.follow:
        sys.stdout.flush()
        time.sleep(0.2)
        for line in reader.new():
            if args.what in line:
                _print(line, args)
    return 0


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


def _print(line: str, args: Namespace) -> None:
    if args.json or args.signals:
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
