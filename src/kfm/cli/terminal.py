"""How output looks: a sign and a word for each state, 80 columns, colour only where it repeats
them.
"""

import os
import re
import sys
import textwrap
from argparse import Namespace
from pathlib import Path
from typing import TextIO

from kfm.model import Json, UsageError, masked

__all__ = [
    "Progress",
    "agreed",
    "colour",
    "mask_home",
    "program",
    "progress",
    "say",
    "say_error",
    "show",
    "sign",
]

_SIGNS = {
    "COMMITTED": ("+", "+", "32"), "NOOP": ("·", ".", "90"), "FAILED": ("✕", "x", "31"), "REJECTED": ("⊖", "D", "35"),
    "SUPERSEDED": ("·", ".", "90"), "PROPOSED": ("‖", "W", "34"), "STAGED": ("▪", "S", "34"), "FENCED": ("‖", "W", "34"), "RUNNING": ("▸", ">", "34"),
    "PASS": ("✓", "ok", "32"), "LATE": ("◷", "L", "33"),
}  # fmt: skip


def _colours(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def colour(text: str, code: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if _colours(stream or sys.stdout) else text


def sign(state: str, stream: TextIO | None = None) -> str:
    unicode, ascii_, code = _SIGNS.get(state, ("?", "?", "0"))
    return colour(ascii_ if os.environ.get("KFM_ASCII") else unicode, code, stream)


def say(text: str = "") -> None:
    print(masked(text), file=sys.stderr, flush=True)


def show(line: str) -> None:
    """Print a line of the result: cut to the window on a terminal, whole in a pipe."""
    line = masked(line)
    if sys.stdout.isatty():
        width = os.get_terminal_size().columns
        visible = re.sub(r"\x1b\[[0-9;]*m", "", line)
        if len(visible) > width:
            line = visible[: width - 1] + ("~" if os.environ.get("KFM_ASCII") else "…")
    print(line.replace("…", "...") if os.environ.get("KFM_ASCII") else line)


def program() -> str:
    """How to call kfm from here: by name when it is on the PATH, else as this command was
    called.
    """
    import shutil

    called = sys.argv[0]
    return "kfm" if shutil.which("kfm") or not called.endswith("kfm") else called


def mask_home(text: str) -> str:
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


def agreed(question: str) -> bool:
    """Ask a person on a terminal; where nobody can be asked, nothing is taken for a yes."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "Nobody is here to be asked.",
            expected="a terminal, or --yes",
            remedy="--dry-run shows what would happen; --yes does it.",
        )
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def say_error(happened: str, expected: str, remedy: str, exit_code: int) -> None:
    """One sentence each: what, why, next; then the exit code, because people read it in logs.

    A log has one line for each, so that it can be searched; a terminal has short ones, and no path
    or command is broken in two.
    """
    width = (
        max(40, min(100, os.get_terminal_size().columns)) if sys.stderr.isatty() else sys.maxsize
    )

    def fill(text: str, first: str, rest: str) -> str:
        return textwrap.fill(
            text,
            width,
            initial_indent=first,
            subsequent_indent=rest,
            break_long_words=False,
            break_on_hyphens=False,
        )

    say(fill(happened, f"{sign('FAILED', sys.stderr)} ", "  "))
    for name, text in (("expected", expected), ("next", remedy)):
        if text:
            say(fill(text, f"  {name:<9} ", " " * 12))
    say(f"exit {exit_code}")


class Progress:
    """One line per working step on a terminal, redrawn and gone when done; JSON lines otherwise."""

    def __init__(self, verbose: bool, as_json: bool) -> None:
        self._verbose, self._live = verbose, sys.stderr.isatty() and not as_json
        self._drawn = False
        self.wanted = self._verbose or self._live  # whether anything of it is shown

    def __call__(self, event: Json) -> None:
        if self._verbose:
            self.clear()
            facts = " ".join(
                f"{k}={v}"
                for k, v in event.items()
                if k not in ("ts", "event", "level", "stage", "run_id", "dataset_id")
                and v not in (None, "", [])
            )
            say(
                f"{event.get('ts', '')[11:19]} {event.get('dataset_id', ''):<20}"
                f" {event.get('event', ''):<22} {facts}"
            )
        elif self._live:
            rows = f"   {event['rows']:,} rows" if isinstance(event.get("rows"), int) else ""
            line = (
                f"{sign('RUNNING', sys.stderr)} {event.get('stage', ''):<12}"
                f" {event.get('dataset_id', ''):<24} {event.get('event', '')}{rows}"
            )
            print(f"\r\x1b[K{line[:78]}", end="", file=sys.stderr, flush=True)
            self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = False


def progress(args: Namespace) -> Progress:
    return Progress(getattr(args, "verbose", False), getattr(args, "json", False))
