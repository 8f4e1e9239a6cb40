"""The child's side: takes one job from a pipe, runs the transform with nothing to lose, answers in JSON lines.

parent  {"op": "job", "job": …, "scratch": …, "memory_bytes": …, "parent": pid}     {"path": …} | {"error": …}
child   {"op": "progress", …}  {"op": "log", …}  {"op": "fetch", "url": …, "name": …, …}
        {"op": "done", "result": …} | {"op": "refused", code, happened, expected, remedy, detail} | {"op": "failed", message, stack}
"""

import os
import queue
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from kfm.connectors import guard
from kfm.connectors.base import Refused, TransformJob

__all__ = ["main"]


class _Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="job"):
    job: TransformJob
    scratch: str
    memory_bytes: int
    parent: int


class _Wire:
    """The two pipes; prints and reads of user code go elsewhere."""

    def __init__(self) -> None:
        self._in: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._out: BinaryIO = os.fdopen(os.dup(1), "wb")
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def order(self) -> _Order:
        """The job, the first line."""
        return msgspec.json.decode(self._in.readline(), type=_Order)

    def listen(self) -> None:
        """Read answers in a thread, which also notices that the parent has gone."""
        threading.Thread(target=self._listen, name="parent", daemon=True).start()

    def _listen(self) -> None:
        for line in self._in:
            self._answers.put(msgspec.json.decode(line))
        os._exit(1)  # nobody is left to answer to

    def send(self, message: dict[str, Any]) -> None:
        """One line to the parent."""
        self._out.write(msgspec.json.encode(message) + b"\n")
        self._out.flush()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Ask the parent for a file, or for several."""
        self.send(message)
        return self._answers.get()


def main() -> None:
    """Run one job."""
    wire = _Wire()
    order = wire.order()
    isolated = guard.without_network()
    guard.tie_to_parent(order.parent)  # after it: a change of credentials lets go of the parent
    guard.limit(order.memory_bytes)
    reads = guard.reads_of(order.job.connector, [i.path for i in order.job.inputs], order.scratch)
    if reads is not None:
        guard.blind(reads)  # before any thread: only this one and its children are bound
    os.chdir(order.scratch)
    sys.dont_write_bytecode = True
    wire.listen()
    wire.send({"op": "log", "event": "child.start", "fields": {"pid": os.getpid(), "network": not isolated}})
    wire.send(_outcome(order, wire, reads))
    sys.stderr.flush()
    os._exit(0)  # threads of user code do not hold up the answer


def _outcome(order: _Order, wire: _Wire, reads: guard.Reads | None) -> dict[str, Any]:
    try:
        from kfm.connectors.transform import perform  # heavy, and under the memory limit

        guard.close_ways_out(Path(order.scratch), reads)
        return {"op": "done", "result": perform(order.job, Path(order.scratch), emit=wire.send, ask=wire.ask)}
    except Refused as refused:
        return {"op": "refused", **msgspec.to_builtins(refused.refusal)}
    except MemoryError:
        return {
            "op": "failed",
            "message": f"the memory limit of {order.memory_bytes >> 20} MiB was reached",
            "stack": traceback.format_exc(-8),
        }
    except BaseException as error:
        return {"op": "failed", "message": f"{type(error).__name__}: {error}", "stack": traceback.format_exc()}
