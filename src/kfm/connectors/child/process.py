"""The parent's side: starts the child, answers its requests, keeps the deadline and always clears
up after it.
"""

import contextlib
import importlib.util
import io
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from kfm.connectors.base import (
    MEMORY_BYTES,
    UNCONFINED,
    CaptureRefused,
    ConnectorFailed,
    ConnectorKilled,
    Held,
    Refusal,
    Refused,
    TransformResult,
)
from kfm.connectors.operations import (
    Acquire,
    Catalogue,
    Chain,
    Collect,
    Govern,
    Measure,
    Merge,
    Read,
    TransformJob,
    Twin,
    code_of,
)
from kfm.model import DatasetEntry, Denied, Json, MissingExtra, is_private, kind_of

__all__ = [
    "MEMORY_BYTES",
    "held_here",
    "kept_cold",
    "kept_warm",
    "printed",
    "run_inline",
    "run_transform",
]

# {url, name, accept, body, keep} -> {path} | {error}
Fetch = Callable[[Json], Json]
OnEvent = Callable[[Json], None]

# Not `-m`: the child must run this very kfm, wherever it was imported from. Its folder stands first
# only for that one import,
# so that nothing beside it can shadow the standard library.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import kfm; sys.path.append(sys.path.pop(0));"
    " from kfm.connectors.child.inside import main; main()"
)
_BOOT_NURSERY = _BOOT.replace(
    "import main; main()",
    "import nursery; nursery(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])",
)
_BOOT_TRIAL, _BOOT_SCRIPT = (
    _BOOT.replace("import main; main()", f"import {name}; {name}()") for name in ("trial", "script")
)
T = TypeVar("T")
_ROOT = str(Path(__file__).resolve().parents[3])
_TAIL = 4096  # of what the child wrote to stderr
_LINE_CAP = 64 << 20  # a longer line is no protocol
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


class _Ended(NamedTuple):
    last: Json | None  # the closing message
    why: str  # when there is none
    late: bool = False  # its time was up


def run_transform(
    job: TransformJob,
    scratch: Path,
    *,
    memory_bytes: int = MEMORY_BYTES,
    timeout_s: float | None = None,
    fetch: Fetch | None = None,
    on_event: OnEvent | None = None,
    entries: Sequence[DatasetEntry] = (),
) -> TransformResult:
    """Run `job` in a child process that can only write below `scratch`.

    It reads nothing but the interpreter and its packages, the job's inputs, `scratch` and the
    folder of connector code: what `fetch` gives lies in `scratch`. `entries` are the job's dataset
    and all it is made from: they say what may run where the system cannot hold a child; its result
    then has a warning. Raises `CaptureRefused` when the capture is refused, `ConnectorFailed` when
    the child raised, crashed or ran out of time, `Denied` when the system cannot hold it, and
    `MissingExtra` when the kind is read with a library that is not installed.
    """
    for part in job.steps if isinstance(job, Chain) else (job,):
        if isinstance(part, Acquire | Read | Merge | Collect | Measure):
            _require_library(part.source_kind)
    scratch = scratch.resolve()
    kept = _NURSERIES.get(os.getpid())
    nursery = kept.of(code_of(job) is not None) if kept is not None else None
    born = nursery.bear(scratch) if nursery is not None else None
    child = _Child(scratch, on_event or _ignore, fetch, born)
    parent = os.getpid() if born is None else born.parent
    order = {
        "op": "job",
        "job": job,
        "scratch": str(scratch),
        "memory_bytes": memory_bytes,
        "parent": parent,
    }
    order["open"] = _may_run_open(job, entries)
    try:
        ended = child.converse(
            order, time.monotonic() + timeout_s if timeout_s is not None else None
        )
    finally:
        child.clear_up()
    if ended.late and timeout_s is not None:
        raise ConnectorFailed(
            f"The step {job.kind} of {job.dataset_id} was not done after {_time(timeout_s)} and was"
            " stopped.",
            expected=(
                f"it to end within {_time(timeout_s)}, its limit by `source.max_step` (1h unless"
                " stated)"
            ),
            remedy=(
                f"{_last_words(child.tail)}If the data really need longer, raise `source.max_step`"
                f" in data/registry/{job.dataset_id}.yml."
            ),
            stack=child.tail.decode("utf-8", "replace"),
        )
    return _answer(ended, child, job)


def _may_run_open(job: TransformJob, entries: Sequence[DatasetEntry]) -> bool:
    """Whether `job` may run where the kernel cannot hold it: for code of the workspace, and for
    what is not public, a person says so.
    """
    if any(e.isolation == "best_effort" for e in entries if e.dataset_id == job.dataset_id):
        return True
    public = isinstance(job, Catalogue) or (
        bool(entries)
        and all(e.sensitivity == "public" for e in entries)
        and not is_private(entries)
    )
    # which has nothing to hold a process with
    return code_of(job) is None and (public or sys.platform == "darwin")


def held_here() -> Held:
    """What this system can do to hold a child: a process that does nothing tries it."""
    found = subprocess.run(
        [sys.executable, "-s", "-P", "-c", _BOOT_TRIAL, _ROOT],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=_environment(),
        check=False,
    )
    try:
        return Held(*msgspec.json.decode(found.stdout))
    except (msgspec.DecodeError, TypeError):
        return Held(why=f"a process that tried it ended with {found.returncode}")


def printed(path: Path, *words: str, entries: Sequence[DatasetEntry] = ()) -> str:
    """What a script of the workspace prints; it may read its folder and change nothing."""
    may_run_open = any(e.isolation == "best_effort" for e in entries)
    command = [
        sys.executable,
        "-s",
        "-P",
        "-c",
        _BOOT_SCRIPT,
        _ROOT,
        "open" if may_run_open else "held",
        str(path),
        *words,
    ]
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            command,
            stdin=quiet,
            stdout=subprocess.PIPE,
            stderr=quiet,
            env=_environment(),
            cwd=path.parent,
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.decode("utf-8", "replace")


def _require_library(kind: str) -> None:
    known = kind_of(kind)
    if known is not None and known.needs and importlib.util.find_spec(known.needs) is None:
        remedy = (
            f"Run `pip install 'kfm[{known.extra}]'`, or `make everything` in a clone; then run it"
            " again."
        )
        raise MissingExtra(
            f"A source of the kind {kind} cannot be read without {known.needs}.",
            expected=f"the extra `{known.extra}`",
            remedy=remedy if known.extra else f"Install {known.needs}, then run it again.",
        )


def _time(seconds: float) -> str:
    """A length of time as the registry writes it."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size:g}{unit}"
    return f"{seconds:g}s"


def run_inline(
    job: TransformJob, scratch: Path, *, fetch: Fetch | None = None, on_event: OnEvent | None = None
) -> TransformResult:
    """Run `job` in this process without any isolation, for tests of connectors; the bytes are the
    same.
    """
    from kfm.connectors.child.perform import perform  # heavy: only who asks for it pays

    try:
        return perform(
            job,
            scratch.resolve(),
            emit=on_event or _ignore,
            ask=lambda message: _fetched(fetch, message),
        )
    except Refused as refused:
        raise CaptureRefused(refused.refusal) from None


@contextlib.contextmanager
def kept_warm(private: bool = True, *, coded: bool = False) -> Iterator[None]:
    """Meanwhile children that run no connector code are forked from one that has loaded what they
    need; each still runs one job.

    What only a `private` dataset needs is loaded for one alone; `coded`: those that run connector
    code are forked too, from one that has run none. It lives no longer than the thread that asked
    for it. Within another `kept_warm` that can do as much, or `kept_cold`, that one holds; what
    another can do is left to it.
    """
    here, outer = os.getpid() in _NURSERIES, _NURSERIES.get(os.getpid())
    if here and (outer is None or outer.coded or not coded):
        yield
        return
    nursery = _NURSERIES[os.getpid()] = _Nursery(private, coded, outer)
    try:
        yield
    finally:
        _NURSERIES.pop(os.getpid(), None)
        if here:
            _NURSERIES[os.getpid()] = outer
        nursery.close()


@contextlib.contextmanager
def kept_cold() -> Iterator[None]:
    """Meanwhile every child is started anew, also where others are forked."""
    here, outer = os.getpid() in _NURSERIES, _NURSERIES.get(os.getpid())
    _NURSERIES[os.getpid()] = None
    try:
        yield
    finally:
        _NURSERIES.pop(os.getpid(), None)
        if here:
            _NURSERIES[os.getpid()] = outer


class _Nursery:
    """The process that children are forked from: it has loaded the libraries and never worked with
    them.
    """

    def __init__(self, private: bool, coded: bool, outer: "_Nursery | None" = None) -> None:
        self._socket, theirs = socket.socketpair()
        self.coded, self._outer = coded, outer
        self._lock = threading.Lock()
        with theirs:
            words = [
                str(theirs.fileno()),
                str(os.getpid()),
                "coded" if coded else "private" if private else "public",
            ]
            command = [sys.executable, "-s", "-P", "-c", _BOOT_NURSERY, _ROOT, *words]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=_environment(),
                start_new_session=True,
            )

    def of(self, code: bool) -> "_Nursery | None":
        """The one that bears a child that runs connector code, or one that runs none."""
        if code:
            return self if self.coded else None
        return self._outer or self

    def bear(self, scratch: Path) -> "_Born | None":
        """A new child in `scratch`; None when the nursery is gone, and one has to be started as
        ever.
        """
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        pid = self._ask(os.fsencode(scratch), theirs)
        for end in theirs:
            os.close(end)
        ours = [
            io.FileIO(fd, mode)
            for fd, mode in ((pipes[0][1], "wb"), (pipes[1][0], "rb"), (pipes[2][0], "rb"))
        ]
        if pid is not None:
            return _Born(self, pid, *ours)
        for end_ in ours:
            end_.close()
        return None

    def _ask(self, message: bytes, fds: list[int]) -> int | None:
        try:
            with self._lock:
                socket.send_fds(self._socket, [message], fds)
                return int(self._socket.recv(32) or b"?")
        except (OSError, ValueError):
            return None

    def wait(self, pid: int) -> int:
        """How a child ended; it is the nursery's to reap. -9 when both are gone."""
        status = self._ask(b"%d" % pid, [])
        return -signal.SIGKILL if status is None else status

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """End it, and with it whatever it started."""
        self._socket.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


# by process: one that was forked has none; None: it wants none
_NURSERIES: dict[int, _Nursery | None] = {}


class _Born:
    """A forked child, with what is used of a started one."""

    def __init__(
        self, nursery: _Nursery, pid: int, stdin: BinaryIO, stdout: BinaryIO, stderr: BinaryIO
    ) -> None:
        self._nursery, self.pid, self.stdin, self.stdout, self.stderr = (
            nursery,
            pid,
            stdin,
            stdout,
            stderr,
        )
        self.parent = nursery.pid
        self.returncode: int | None = None

    def wait(self) -> None:
        self.returncode = (
            self._nursery.wait(self.pid) if self.returncode is None else self.returncode
        )


class _Child:
    """One child process with its pipes."""

    def __init__(
        self, scratch: Path, on_event: OnEvent, fetch: Fetch | None, born: _Born | None = None
    ) -> None:
        self._on_event, self._fetch = on_event, fetch
        self.tail = b""
        self.held: Held | None = None
        self._process: _Born | subprocess.Popen[bytes] = born or subprocess.Popen(
            [sys.executable, "-s", "-P", "-c", _BOOT, _ROOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=scratch,
            env=_environment(),
            start_new_session=True,
            bufsize=0,
        )

    def converse(self, order: Json, deadline: float | None) -> _Ended:
        """Send the order, serve the child until its closing message or its end."""
        if not self._send(order):
            return _Ended(None, "")  # it ended before it took the job: its exit says how
        try:
            for message in self._messages(deadline):
                op = message.get("op")
                if op in ("done", "refused", "failed", "unconfined"):
                    if self._process.stderr is not None:
                        self._drain(self._process.stderr)
                    return _Ended(message, "")
                # its first word, and no connector code has run
                if self.held is None and message.get("event") == "child.start":
                    self.held = Held(*message["fields"]["held"])
                if op == "fetch":
                    self._send(_fetched(self._fetch, message))
                else:
                    self._on_event(message)
        except msgspec.DecodeError as error:
            return _Ended(None, f"it did not keep to the protocol ({error})")
        if deadline is not None and time.monotonic() >= deadline:
            return _Ended(None, "it did not finish in time and was stopped", late=True)
        return _Ended(None, "")

    def _send(self, message: Json) -> bool:
        assert self._process.stdin is not None
        data = memoryview(msgspec.json.encode(message) + b"\n")
        with contextlib.suppress(BrokenPipeError):
            while data:  # unbuffered: one write may take only part
                data = data[self._process.stdin.write(data) :]
            return True
        return False

    def _messages(self, deadline: float | None) -> Iterator[Json]:
        """Protocol lines until the child closes its end or the deadline passes."""
        out, err = self._process.stdout, self._process.stderr
        assert out is not None
        assert err is not None
        held = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            selector.register(err, selectors.EVENT_READ)
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                for key, _ in selector.select(left):
                    data = os.read(key.fd, 1 << 16)
                    if key.fileobj is err:
                        self._heard(data)
                        if not data:
                            selector.unregister(err)
                        continue
                    if not data or len(held) > _LINE_CAP:
                        self._drain(err)
                        return
                    held += data
                    *lines, rest = held.split(b"\n")
                    held = bytearray(rest)
                    for line in lines:
                        yield msgspec.json.decode(line, type=Json)

    def _heard(self, data: bytes) -> None:
        if data:
            self.tail = (self.tail + data)[-_TAIL:]
            self._on_event({"op": "output", "text": data.decode("utf-8", "replace")})

    def _drain(self, err: IO[bytes]) -> None:
        """Last words: what the child wrote before it died is still in the pipe."""
        os.set_blocking(err.fileno(), False)
        with contextlib.suppress(OSError):
            while data := os.read(err.fileno(), 1 << 16):
                self._heard(data)

    def clear_up(self) -> None:
        """End the child and everything it started, and reap it."""
        # Before the wait: until it is reaped nobody else can have its number. A status it already
        # has is kept.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def crashed(self) -> bool:
        """Whether it broke by itself, as C libraries do over bytes they do not expect."""
        return -(self._process.returncode or 0) in _CRASHES

    def killed(self) -> bool:
        """Whether somebody else ended it; the parent ends it only when it has nothing more to
        say.
        """
        return -(self._process.returncode or 0) in (signal.SIGKILL, signal.SIGTERM)

    def how_it_ended(self) -> str:
        """Its exit in words."""
        status = self._process.returncode or 0
        if status < 0:
            return f"it was killed by {signal.Signals(-status).name}"
        return f"it exited with status {status} and no answer"


def _answer(ended: _Ended, child: _Child, job: TransformJob) -> TransformResult:
    last = ended.last
    if last is None and child.crashed() and isinstance(job, Read) and job.connector is None:
        raise CaptureRefused(
            Refusal(
                code="reader.crashed",
                happened=f"The reader crashed over the capture: {child.how_it_ended()}.",
                expected="bytes that a reader can at least refuse",
                remedy=(
                    "Look at the captured bytes with care, they may be an attack; report them"
                    " upstream."
                ),
                detail={"output": child.tail.decode("utf-8", "replace")},
            )
        )
    if last is None and not ended.why and child.killed():
        raise ConnectorKilled(
            f"The transform's child process was ended from outside: {child.how_it_ended()}.",
            expected="a result within the time and memory allowed",
            remedy=(
                "`kfm resume` goes on from its capture; where the machine has too little memory for"
                " it, it is ended again."
            ),
        )
    if last is None:
        raise ConnectorFailed(
            f"The transform's child process gave no result: {ended.why or child.how_it_ended()}.",
            expected="a result within the time and memory allowed",
            remedy=(
                f"{_last_words(child.tail)}Allow more time or memory if the data really needs it."
            ),
            stack=child.tail.decode("utf-8", "replace"),
        )
    held = child.held or Held(why="the child did not say what holds it")
    if last["op"] == "unconfined":
        raise _unconfined(job, held)
    if last["op"] == "done":
        result = _own(_said(last.get("result"), TransformResult), job)
        warnings = (
            result.warnings if held.whole else (*result.warnings, f"{UNCONFINED}: {held.why}.")
        )
        return msgspec.structs.replace(
            result, warnings=warnings, unconfined=UNSET if held.whole else held.why
        )
    if last["op"] == "refused":
        raise CaptureRefused(_said({k: v for k, v in last.items() if k != "op"}, Refusal))
    raise ConnectorFailed(
        f"The transform failed: {last.get('message', 'it did not say why')}.",
        expected="connector code that ends without an exception",
        remedy=(
            f"{_where(last.get('stack', ''))}Nothing was published; `kfm connector try"
            f" {job.dataset_id}` shows the rows that it was given."
        ),
        stack=last.get("stack", ""),
        unfetched=last.get("unfetched") is True,
    )


def _unconfined(job: TransformJob, held: Held) -> Denied:
    whose = "code of the workspace" if code_of(job) is not None else "a dataset that is not public"
    return Denied(
        f"The step {job.kind} of {job.dataset_id} was not started: it is for {whose}, and nothing"
        f" here would hold it ({held.why}).",
        expected=(
            "a Linux kernel with Landlock (5.13 or newer, `lsm=` names it) and seccomp; `kfm"
            " doctor` says what there is"
        ),
        remedy=(
            "Run it on such a system, or say `isolation: best_effort` in"
            f" data/registry/{job.dataset_id}.yml if you trust what it runs."
        ),
    )


def _where(stack: str) -> str:
    """The line of connector code that raised, as a sentence."""
    lines = re.findall(r'/connector\.py", line (\d+)', stack)
    return f"Look at connector.py, line {lines[-1]}. " if lines else ""


def _last_words(tail: bytes) -> str:
    """What a child wrote last, as a sentence."""
    lines = tail.decode("utf-8", "replace").strip().splitlines()
    return f"It last wrote: {lines[-1][:200]!r}. " if lines else ""


def _said(told: object, kind: type[T]) -> T:
    """What the child said, as it must be shaped; whatever else it says is a failure of its dataset
    alone.
    """
    try:
        return msgspec.convert(told, kind)
    except msgspec.ValidationError as error:
        raise ConnectorFailed(
            f"The transform's child process did not keep to the protocol: {error}.",
            expected="a result as kfm's own code writes it",
            remedy=(
                "Connector code has no business with the open files of its process: take out what"
                " writes there."
            ),
        ) from error


def _own(result: TransformResult, job: TransformJob) -> TransformResult:
    """What a job of this kind can say: connector code runs beside the transform and could say more
    in its name.
    """
    steps, step = (result.steps, result.step) if isinstance(job, Govern | Chain) else ((), UNSET)
    made = result.steps_made if isinstance(job, Chain) else ()
    coded = code_of(job) is not None
    files = result.files if isinstance(job, Twin | Merge | Collect | Read) and not coded else ()
    key = result.key if not coded else job.business_key if isinstance(job, Read) else ()
    rows = (
        job.artifact.rpartition(".")[0] + ".quarantine.jsonl"
        if result.quarantine is not None
        else None
    )
    return msgspec.structs.replace(
        result,
        artifact=job.artifact,
        steps=steps,
        step=step,
        steps_made=made,
        files=files,
        key=key,
        quarantine=rows,
    )


def _fetched(fetch: Fetch | None, message: Json) -> Json:
    if fetch is None:
        return {"error": "this run has no fetcher"}
    try:
        return fetch(message)
    except Exception as error:  # the child's request failed, not ours: it is told why
        return {"error": str(error)}


def _environment() -> dict[str, str]:
    """Nothing of ours but the search path: no secret can leak through what is not there."""
    kept = {k: os.environ[k] for k in ("PATH", "SYSTEMROOT") if k in os.environ}
    # One allocator arena and one thread: address space is limited, and the order of work is fixed.
    # The buffers of one batch are used again for the next: given back to the system each time, they
    # come back as pages to be zeroed, a tenth of the work.
    return kept | {
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _ignore(_: Json) -> None:
    pass
