"""SQL over the tables of one version: read only, in a process of its own that can reach nothing
else and is ended when it takes too much.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import IO

import msgspec

from kfm.model import Denied, KfmError, MissingExtra, UsageError

__all__ = ["BYTES", "SECONDS", "Answer", "ask"]

SECONDS = 60.0
BYTES = 1 << 30
_MOST = 64 << 20  # of an answer
_ROOT = str(Path(__file__).resolve().parents[2])
# Not `-m`: the child must run this very kfm, and load nothing of this room but its own file.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import kfm; sys.path.append(sys.path.pop(0));"
    " import runpy; runpy.run_path(sys.argv[2], run_name='__main__')"
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a question came to."""

    columns: list[tuple[str, str]]  # name, type
    rows: list[list[object]]
    more: bool  # there are rows beside these


class _No(msgspec.Struct, frozen=True, kw_only=True):
    kind: str = ""
    error: str = ""


def ask(
    files: Sequence[Path],
    names: Sequence[str],
    sql: str,
    *,
    rows: int,
    seconds: float = SECONDS,
    most_bytes: int = BYTES,
) -> Answer:
    """The first rows that `sql` gives; the tables are one, under each of `names`. Raises
    `UsageError` when the question is none, `Denied` when it asks for anything else.
    """
    question = {
        "sql": sql,
        "names": list(dict.fromkeys(names)),
        "files": [str(path.resolve()) for path in files],
        "rows": rows,
        "seconds": seconds,
        "bytes": most_bytes,
    }
    raw, late = _exchanged(json.dumps(question).encode(), seconds)
    if late:
        raise KfmError(
            f"The question was not answered in {seconds:g} s.",
            expected="one that takes less",
            remedy=f"Ask for less of it: add a `where`, or count first. `kfm get {names[0]}` hands"
            " the files out for a tool of your own.",
        )
    try:
        return msgspec.json.decode(raw, type=Answer)
    except msgspec.DecodeError:
        pass
    try:
        raise _refused(msgspec.json.decode(raw, type=_No), names[0])
    except msgspec.DecodeError:  # it died
        raise _refused(_No(), names[0]) from None


def _exchanged(question: bytes, seconds: float) -> tuple[bytes, bool]:
    """What the child answers, and whether it was ended for want of time. Empty: it died."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-s",
            "-P",
            "-c",
            _BOOT,
            _ROOT,
            str(Path(__file__).with_name("sql_child.py")),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # nothing of ours: what is not there cannot leak
        env={"LANG": "C.UTF-8"},
        start_new_session=True,
    )
    late = False

    def end() -> None:
        nonlocal late
        late = True
        _kill(child)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        with suppress(BrokenPipeError), child.stdin as told:
            told.write(question)
        with child.stdout as answered:
            raw = _read(answered)
        return raw, late
    finally:
        timer.cancel()
        _kill(child)
        child.wait()


def _read(pipe: IO[bytes]) -> bytes:
    held = bytearray()
    while data := pipe.read(1 << 16):
        held += data
        if len(held) > _MOST:
            return b'{"kind": "long", "error": ""}'
    return bytes(held)


def _kill(child: "subprocess.Popen[bytes]") -> None:
    if child.returncode is None:  # until it is reaped nobody else can have its number
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


def _refused(no: _No, name: str) -> KfmError:
    said = " ".join(no.error.split("\n\n")[0].split())
    if no.kind in ("", "memory", "long"):
        return KfmError(
            {
                "memory": "The question needs more memory than it may have.",
                "long": f"The answer is longer than {_MOST >> 20} MiB.",
            }.get(no.kind, "The engine ended without an answer."),
            expected="one that takes less",
            remedy=f"Ask for less of it. `kfm get {name}` hands the files out for a tool of your"
            " own.",
        )
    if no.kind == "missing":
        return MissingExtra(
            f"{said} is not installed.",
            expected="what answers SQL",
            remedy=f"Run `pip install {said}`.",
        )
    if no.kind == "denied":
        return Denied(
            f"The question reaches beyond {name}: {said}",
            expected="one about this version alone",
            remedy="Files, the network, extensions and settings are closed to it.",
        )
    if no.kind == "statement":
        return UsageError(
            f"It is no question: {said}.",
            expected="one `select`",
            remedy="Nothing can be changed here.",
        )
    return UsageError(
        f"The question cannot be answered: {said}",
        expected=f"SQL as DuckDB has it, about the table {name}, which is called data too",
        remedy=f"`kfm show {name}` lists its columns.",
    )
