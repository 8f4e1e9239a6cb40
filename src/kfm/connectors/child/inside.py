"""The child's side: takes one job from a pipe, runs the transform with nothing to lose, answers in
JSON lines.

parent  {"op": "job", "job": …, "scratch": …, "memory_bytes": …, "parent": pid, "open": …}     {"path": …} | {"error": …}
child   {"op": "log", "event": "child.start", "fields": {"pid": …, "held": …}}, before any connector code
        {"op": "progress", …}  {"op": "log", …}  {"op": "fetch", "url": …, "name": …, …}
        {"op": "done", "result": …} | {"op": "refused", code, happened, expected, remedy, detail} | {"op": "failed", message, stack}
        {"op": "unconfined"}: the system cannot hold it and the job may not run `open`
"""

import contextlib
import gc
import os
import queue
import runpy
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import BinaryIO

import msgspec

from kfm.connectors.base import MEMORY_BYTES, Held, Refused
from kfm.connectors.child import guard
from kfm.connectors.operations import TransformJob, code_of
from kfm.model import Json
from kfm.sandbox import confine

__all__ = ["main", "nursery", "script", "trial"]


class _Order(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="job"
):
    job: TransformJob
    scratch: str
    memory_bytes: int
    parent: int
    open: bool  # may run where the system cannot hold it


class _Wire:
    """The two pipes; prints and reads of user code go elsewhere."""

    def __init__(self) -> None:
        self._in: BinaryIO = os.fdopen(os.dup(0), "rb")
        self._out: BinaryIO = os.fdopen(os.dup(1), "wb")
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        self._answers: queue.SimpleQueue[Json] = queue.SimpleQueue()

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

    def send(self, message: Json) -> None:
        """One line to the parent."""
        self._out.write(msgspec.json.encode(message) + b"\n")
        self._out.flush()

    def ask(self, message: Json) -> Json:
        """Ask the parent for a file, or for several."""
        self.send(message)
        return self._answers.get()


def main() -> None:
    """Run one job."""
    wire = _Wire()
    order = wire.order()
    guard.tie_to_parent(order.parent)
    guard.limit(order.memory_bytes)
    os.chdir(order.scratch)
    sys.dont_write_bytecode = True
    if not _room(order.memory_bytes):
        wire.send(_no_memory(order))
        os._exit(0)
    if code_of(order.job) is None:
        sys.meta_path.insert(0, _NoPandas)
    held = _held(order)
    wire.send({"op": "log", "event": "child.start", "fields": {"pid": os.getpid(), "held": held}})
    if not held.whole and not order.open:
        wire.send({"op": "unconfined"})
        os._exit(0)
    wire.listen()
    outcome = _outcome(order, wire)
    for said in (sys.stdout, sys.stderr):  # what code printed comes before the last word
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it may have closed them
            said.flush()
    wire.send(outcome)
    os._exit(0)  # threads of user code do not hold up the answer


def trial() -> None:
    """Only say how far the kernel would hold a child."""
    held = confine.confine((), None)
    os.write(1, msgspec.json.encode(held))


def script() -> None:
    """Run a script of the workspace that may only read and print; 3 when the system cannot hold it
    and it may not run `open`.
    """
    may_run_open, path = sys.argv[2] == "open", os.path.abspath(sys.argv[3])
    guard.limit(MEMORY_BYTES)
    held = confine.confine(confine.readable([], path, path), None)
    if not held.whole and not may_run_open:
        os._exit(3)
    sys.argv[:] = sys.argv[3:]
    sys.dont_write_bytecode = True
    runpy.run_path(path, run_name="__main__")


def nursery(fd: int, parent: int, what: str) -> None:
    """Load what a transform needs, then fork a child for every message that names a folder; one
    that names a child waits for it.

    Nothing is worked on here, so that a child starts as if it had loaded everything itself.
    """
    guard.tie_to_parent(parent)
    if what != "coded":
        sys.meta_path.insert(0, _NoPandas)
    import pyarrow

    from kfm.connectors.child import perform  # noqa: F401
    from kfm.connectors.read import archive  # noqa: F401
    from kfm.connectors.table import collect, merge  # noqa: F401

    if what == "private":
        # of extras: who lacks them is told by the child that needs them
        with contextlib.suppress(ImportError):
            from kfm.connectors.release import govern, search, twin  # noqa: F401
    pyarrow.array([0])  # only now does pyarrow look for the libraries it works with
    confine.packages()
    gc.freeze()  # a collection in a child would copy every page of them
    line = socket.socket(fileno=fd)
    while True:
        message, fds, _, _ = socket.recv_fds(line, 4096, 3)
        if not message:
            os._exit(0)
        if not fds:
            line.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(int(message), 0)[1]))
            continue
        pid = os.fork()
        if pid == 0:
            line.close()
            _begin(message, fds)
        with contextlib.suppress(OSError):  # it may have ended, or have done so itself
            # before anybody knows it, so that whoever stops it stops all of it
            os.setpgid(pid, pid)
        for end in fds:
            os.close(end)
        line.send(b"%d" % pid)


def _begin(folder: bytes, fds: list[int]) -> None:
    """What the system does for a process that is started: a group, a folder and three pipes of its
    own; the nursery has no terminal.
    """
    try:
        signal.set_wakeup_fd(-1)
        os.setpgid(0, 0)
        os.chdir(folder)
        for number, end in enumerate(fds):
            os.dup2(end, number)
            os.close(end)
        main()
    finally:
        os._exit(1)


class _NoPandas:
    """pyarrow loads pandas wherever it is installed, which takes as long as all the rest, and
    nothing of kfm's works with it.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Asked before all others."""
        if name == "pandas":
            raise ModuleNotFoundError("only connector code is given pandas", name=name)


def _held(order: _Order) -> Held:
    """Let the kernel hold this process, as far as it can."""
    job = order.job
    held = confine.confine(
        confine.readable([i.path for i in job.inputs], code_of(job), order.scratch), order.scratch
    )
    if not held.seccomp and not held.landlock and guard.without_network():
        guard.tie_to_parent(order.parent)  # again: a change of credentials lets go of the parent
    return held


def _room(limit: int) -> bool:
    """Whether the limit leaves anything: a thread that gets no memory for its first steps would be
    waited for without end.
    """
    try:
        return (
            int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
            + (1 << 26)
            < limit
        )
    except (OSError, ValueError):
        return True  # not Linux


def _no_memory(order: _Order) -> Json:
    message = f"the memory limit of {order.memory_bytes >> 20} MiB was reached"
    return {"op": "failed", "message": message, "stack": traceback.format_exc(-8)}


def _outcome(order: _Order, wire: _Wire) -> Json:
    job = order.job
    try:
        from kfm.connectors.child.perform import perform  # heavy, and under the memory limit

        guard.close_ways_out(
            Path(order.scratch),
            guard.reads_of(code_of(job), [i.path for i in job.inputs], order.scratch),
        )
        return {
            "op": "done",
            "result": perform(order.job, Path(order.scratch), emit=wire.send, ask=wire.ask),
        }
    except Refused as refused:
        return {"op": "refused", **msgspec.to_builtins(refused.refusal)}
    except MemoryError:
        return _no_memory(order)
    except BaseException as error:
        from kfm.connect import NotFetched

        said = {
            "op": "failed",
            "message": f"{type(error).__name__}: {error}",
            "stack": traceback.format_exc(),
        }
        return said | {"unfetched": isinstance(error, NotFetched)}
