"""How output looks: a sign and a word for each state, 80 columns, colour only where it repeats
them.
"""

import contextlib
import datetime as dt
import io
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol, TextIO

from kfm.cli.answer import Call
from kfm.cli.spec import HEADS
from kfm.model import Json, UsageError, masked
from kfm.model.masking import renamed

__all__ = [
    "FOOT",
    "Foot",
    "Progress",
    "ago",
    "agreed",
    "at_foot",
    "colour",
    "mask_home",
    "named_workspace",
    "paged",
    "pasted",
    "program",
    "progress",
    "say",
    "say_error",
    "show",
    "sign",
    "table",
    "when",
    "write",
]

_SIGNS = {
    "COMMITTED": ("+", "+", "32"), "NOOP": ("·", ".", "90"), "FAILED": ("✕", "x", "31"), "REJECTED": ("⊖", "D", "35"),
    "SUPERSEDED": ("·", ".", "90"), "PROPOSED": ("‖", "W", "34"), "STAGED": ("▪", "S", "34"), "FENCED": ("‖", "W", "34"), "RUNNING": ("▸", ">", "34"),
    "PASS": ("✓", "ok", "32"), "LATE": ("◷", "L", "33"),
}  # fmt: skip


_COMMAND = re.compile(r"(?<![\w./-])kfm (?=([\w-]+))")
_ANYWHERE = {"init", "demo", "help", "completion"}  # commands that need no workspace


def _colours(stream: TextIO) -> bool:
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def colour(text: str, code: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if _colours(stream or sys.stdout) else text


def sign(state: str, stream: TextIO | None = None) -> str:
    unicode, ascii_, code = _SIGNS.get(state, ("?", "?", "0"))
    return colour(ascii_ if os.environ.get("KFM_ASCII") else unicode, code, stream)


_named: list[Path] = []  # the workspace, where the command line names one


def named_workspace(where: Path | None) -> None:
    """From now on commands that are printed name this workspace too."""
    _named[:] = [where] if where is not None else []


def pasted(text: str) -> str:
    """A text whose commands can be called from where it is printed."""
    if "kfm " not in text:
        return text
    where = "".join(f" -w {shlex.quote(str(each))}" for each in _named)

    def called(found: re.Match[str]) -> str:
        if found[1] not in HEADS:
            return found[0]
        # `kfm init` alone writes what is missing in the workspace that is meant
        alone = found[1] == "init" and found.string[found.end(1) : found.end(1) + 1] == "`"
        return f"{program()}{where if alone or found[1] not in _ANYWHERE else ''} "

    return _COMMAND.sub(called, text)


def say(text: str = "") -> None:
    print(masked(pasted(text)), file=sys.stderr, flush=True)


def write(text: str) -> None:
    """Print a text of the result whole: nothing of a sentence or a command is cut."""
    text = masked(pasted(text))
    print(text.replace("…", "...") if os.environ.get("KFM_ASCII") else text)


def show(line: str, *, data: bool = False) -> None:
    """Print a line of the result: cut to the window on a terminal, whole in a pipe. In `data` of
    strangers nothing is a command of ours.
    """
    line = masked(line if data else pasted(line))
    if sys.stdout.isatty():
        width = os.get_terminal_size().columns
        visible = _COLOUR.sub("", line)
        if len(visible) > width:
            line = visible[: width - 1] + ("~" if os.environ.get("KFM_ASCII") else "…")
    print(line.replace("…", "...") if os.environ.get("KFM_ASCII") else line)


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# what moves the cursor or turns the direction of a line, but for our own colours
_UNSEEN = re.compile(
    r"\x1b(?!\[[0-9;]*m)|[\x00-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()
) -> list[str]:
    """Lines of equal columns, the heads first; those under a head of `right` end at one edge, as
    numbers do.
    """
    rows = [[_UNSEEN.sub("·", cell) for cell in row] for row in rows]
    widths = [max(len(_COLOUR.sub("", cell)) for cell in column) for column in zip(heads, *rows)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            # a sign has no head and stands close to its row
            cell + " " * room + ("  " if head else " ")
            if head not in right
            else " " * room + cell + "  "
            for head, cell, width in zip(heads, cells, widths)
            for room in (width - len(_COLOUR.sub("", cell)),)
        )
        return f"  {''.join(padded)}".rstrip()

    return [line(heads), *map(line, rows)]


def ago(text: str, now: dt.datetime | None = None) -> str:
    """How long ago a moment was, as people say it: `3 min ago`. What lies far back has its date."""
    moment = dt.datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    seconds = ((now or dt.datetime.now(dt.UTC)) - moment).total_seconds()
    far = abs(seconds)
    if far >= 60 * 86_400:
        return f"{moment.astimezone():%Y-%m-%d}"
    size, unit = next(
        (s, u) for s, u in ((2 * 86_400, "days"), (3600, "h"), (60, "min"), (0, "s")) if far >= s
    )
    count = int(far // {"days": 86_400, "h": 3600, "min": 60, "s": 1}[unit])
    if size == 0 and count < 5:
        return "just now"
    return f"{count} {unit} ago" if seconds > 0 else f"in {count} {unit}"


def when(text: str | None) -> str:
    """A moment for a table: how long ago on a terminal, exactly in a pipe."""
    if not text:
        return ""
    return ago(text) if sys.stdout.isatty() else f"{text[:19]}Z"


class _Held(io.StringIO):
    """What is printed, held back; it looks like the terminal it is for."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def paged() -> Iterator[None]:
    """What is printed within goes through a pager when it is longer than the window."""
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    held = _Held()
    try:
        with contextlib.redirect_stdout(held):
            yield
    finally:
        _page(held.getvalue())


def _page(text: str) -> None:
    pager = os.environ.get("KFM_PAGER", os.environ.get("PAGER", "less"))
    if pager and text.count("\n") >= os.get_terminal_size().lines:
        import subprocess

        command = shlex.split(pager)
        flags = {"LESS": os.environ.get("LESS", "-FRX")}
        with contextlib.suppress(OSError, BrokenPipeError):
            subprocess.run(command, input=text.encode(), env=os.environ | flags, check=False)
            return
    print(text, end="")


def program() -> str:
    """How to call kfm from here: by name when it is on the PATH, else as this command was
    called.
    """
    import shutil

    called = sys.argv[0]
    return "kfm" if shutil.which("kfm") or not called.endswith("kfm") else called


def mask_home(text: str) -> str:
    home = str(Path.home())
    return renamed(text, home, "~") if len(home) > 1 else text


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


def say_error(happened: str, expected: str, remedy: str) -> None:
    """One sentence each: what, why, next.

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


class Foot(Protocol):
    """The line at the foot of a terminal: `cli/meter.py`."""

    def event(self, event: Json) -> None:
        """Tell a word of the engine."""

    def rest(self) -> None:
        """A dataset is done; take the line away."""


_foot: list[Foot] = []
FOOT = (
    "kfm-meter"  # the thread that draws it: it holds no lock, so that a fork may come at any time
)


def at_foot(line: Foot | None) -> None:
    """From now on what is told on the way goes to this line."""
    _foot[:] = [line] if line is not None else []


class Progress:
    """What the engine says on its way: lines with --verbose, else one line at the foot of a
    terminal, redrawn and gone when done; nothing where nobody watches.
    """

    def __init__(self, verbose: bool, as_json: bool) -> None:
        self._verbose = verbose
        self._line = None if as_json or verbose or not _foot else _foot[0]
        self.wanted = self._verbose or self._line is not None  # whether anything of it is shown

    def __call__(self, event: Json) -> None:
        if self._line is not None:
            self._line.event(event)
        elif self._verbose and event.get("event") != "step.tick":
            facts = " ".join(
                f"{k}={v}"
                for k, v in event.items()
                if k not in ("ts", "event", "level", "stage", "run_id", "dataset_id", "withheld")
                and v not in (None, "", [])
            )
            say(
                f"{event.get('ts', '')[11:19]} {event.get('dataset_id', ''):<20}"
                f" {event.get('event', ''):<22} {facts}"
            )

    def clear(self) -> None:
        if self._line is not None:
            self._line.rest()


def progress(call: Call) -> Progress:
    """How this call is told of what goes on."""
    return Progress(call.verbose, call.json)
