"""The parent's side of the evaluator's child: it keeps the deadline, because the engine cannot be
interrupted from within.
"""

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

from kfm.model import Json
from kfm.policy.base import Trouble

__all__ = ["Child", "place_of"]

# Not `-m`: the child must run this very kfm, wherever it was imported from. Its folder stands first
# only for that one import.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import kfm; sys.path.append(sys.path.pop(0));"
    " from kfm.policy.child import main; main()"
)
_ROOT = str(Path(__file__).resolve().parents[2])
_ANSWER_CAP = 16 << 20
_PLACE = re.compile(r"--> ([^\n]+):(\d+):\d+\n")


class Child:
    """One process with an engine of its own; after any `Trouble` it is dead."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-c", _BOOT, _ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # nothing of ours: what is not there cannot leak
            env={"LANG": "C.UTF-8", "RUST_BACKTRACE": "0"},
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def exchange(self, question: Json, seconds: float) -> Json:
        """One question, one answer. Raises `Trouble` when none comes in time."""
        if not self.alive():  # its pipes may be closed, and their numbers another's
            raise Trouble("policy.error", "The evaluator is not running.")
        deadline = time.monotonic() + seconds
        try:
            self._send(
                memoryview(json.dumps({**question, "seconds": seconds}).encode() + b"\n"), deadline
            )
            answer: Json = json.loads(self._line(deadline))
        except (OSError, ValueError) as error:
            self.close()
            raise Trouble(
                "policy.error", f"The evaluator ended without an answer ({error})."
            ) from error
        except BaseException:
            self.close()
            raise
        if answer.get("kind") == "panic":
            self.close()  # nobody knows what it left behind
        return answer

    def _send(self, data: memoryview, deadline: float) -> None:
        while data:
            _wait(self._in, selectors.EVENT_WRITE, deadline)
            data = data[os.write(self._in, data) :]

    def _line(self, deadline: float) -> bytes:
        held = bytearray()
        while not held.endswith(b"\n"):
            _wait(self._out, selectors.EVENT_READ, deadline)
            data = os.read(self._out, 1 << 16)
            held += data
            if not data or len(held) > _ANSWER_CAP:
                raise ValueError("its answer is too long" if data else "it was killed or crashed")
        return bytes(held)

    def close(self) -> None:
        """End it and reap it; may be repeated."""
        if self._process.returncode is None:
            # Before the wait: until it is reaped nobody else can have its number.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _wait(fd: int, event: int, deadline: float) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(fd, event)
        left = deadline - time.monotonic()
        if left <= 0 or not selector.select(left):
            raise Trouble("policy.timeout", "The rules did not come to an answer in time.")


def place_of(error: str) -> tuple[str, int, str]:
    """File, line and the words of an engine's error; it also quotes the source, which may be
    long.
    """
    place = _PLACE.search(error)
    return (
        (place[1], int(place[2]), error.rsplit("error: ", 1)[-1].strip())
        if place
        else ("", 0, error.strip())
    )
