"""A worker: takes jobs under its own lease, gives each a process of its own, and leaves nothing
behind when it stops.

The lease `worker/<name>` says that it lives. Jobs it has taken come back when the lease is lost,
and whatever it writes about them afterwards is refused. Jobs of the pool `light` run inside the
worker, many to a transaction: their ends, their keyed effects and the next claim are one commit.
"""

import contextlib
import importlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import msgspec

from kfm.jobs import JOB_MODULES, LIGHT_POOL
from kfm.jobs.heartbeat import Heartbeat
from kfm.jobs.job_log import Told
from kfm.model import Clock, Fenced, JobRow, Json, KfmError, StoreUnavailable, Token, ids
from kfm.store.base import Bell, Store, Tx

__all__ = ["Ended", "Limits", "Worker"]

LOOK_S = 1.0  # how often a worker looks whether another one died
STOP_S = 5.0  # how long a job that is told to stop may take
LATER_MS = 2000  # how long a job rests whose partition another run holds
_BATCH_S = 0.02  # how long a batch of light jobs should take
_MOST = 256
_LINE_CAP = 16 << 20


class Limits(msgspec.Struct, frozen=True):
    """What a process of a job may use."""

    timeout_s: float = 3600.0
    memory_mb: int = 4096
    key: str = ""  # what gives it more time


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a job said at its end."""

    status: str  # succeeded, skipped, failed, later
    reason: str = ""
    error: str = ""
    stack: str = ""
    retry: bool = True
    until_ms: int = 0
    zone_in: str = ""
    zone_out: str = ""
    policy_label: str = ""
    receipt: str = ""
    exit_code: int = 0

    @property
    def word(self) -> str:
        """The word of the log: a job that comes again later was passed over."""
        return "skipped" if self.status == "later" else self.status

    def told(self, duration_ms: int, *, cancelled: bool = False) -> Told:
        """What the log tells of it."""
        failed = {"message": self.error or self.reason, "stack": self.stack}
        return Told(
            duration_ms=duration_ms,
            error=failed if self.status == "failed" else None,
            reason=self.reason,
            zone_in=self.zone_in,
            zone_out=self.zone_out,
            policy_label=self.policy_label,
            cancelled=cancelled,
        )


Tell = Callable[[JobRow, str, str, Told], None]  # (job, run_id, status, …)


class _Child(msgspec.Struct):
    """One job in its process. It ends when its stdin does, so it cannot outlive the worker."""

    job: JobRow
    run_id: str
    process: "subprocess.Popen[bytes]"
    began: float
    deadline: float
    limits: Limits = Limits()
    heard: bytearray = msgspec.field(default_factory=bytearray)
    stopped: str = ""  # why we stopped it

    def hear(self) -> bytes:
        """What it has said since; nothing: it has closed its end, or says nothing now."""
        assert self.process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            self.heard += data[: max(0, _LINE_CAP - len(self.heard))]
            return data
        return b""

    def stop(self, why: str, number: int = signal.SIGTERM) -> None:
        self.stopped = self.stopped or why
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


Effects = tuple[tuple[str, str], ...]  # key and digest of each


class _Done(msgspec.Struct, frozen=True):
    """A light job that ended."""

    job: JobRow
    outcome: str  # succeeded, failed
    error: str = ""
    effects: Effects = ()


class Worker:
    """Works the job table until it is told to stop."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        name: str,
        slots: int,
        lease_seconds: float,
        command: Sequence[str] = (),
        tell: Tell = lambda *a: None,
        limits: Callable[[JobRow], Limits] = lambda job: Limits(),
        died: Callable[[JobRow, str, str], None] = lambda *a: None,
        pools: Sequence[str] = (),
        order: Json | None = None,
        beat: Callable[[], None] = lambda: None,
        grace_s: float = 3600.0,
    ) -> None:
        self._store, self._clock, self.name, self._slots = store, clock, name, slots
        # others count a whole lease time from our death
        self._seconds = max(0.9 * lease_seconds, 0.5)
        self._command, self._tell, self._limits, self._died = list(command), tell, limits, died
        self._lights = not pools or LIGHT_POOL in pools
        self._pools, self._order = tuple(pools), order or {}
        self._on_beat, self._grace_s = beat, grace_s
        self._children: dict[int, _Child] = {}
        self._done: list[_Done] = []  # light jobs that ended: to be written down
        self._light: dict[str, Callable[[JobRow], Effects]] = {}
        self._batch, self._hungry, self._draining, self._drain_until = 8, True, 0, 0.0
        self._signal = 0  # that told us to stop
        self._lost_touch = False  # jobs may be ours that we know nothing of
        self._next_look = self._next_beat = 0.0
        # others' jobs may come back to us; a failed job waits for its next try
        self._others = self._retries = False
        self._due: float | None = None
        self.worked = 0
        self._held: Token | None = None  # while it has a name
        self._heart = Heartbeat(store, self._seconds)
        self._selector = selectors.DefaultSelector()
        self._bell: Bell
        self._bell_fd = -1
        self._wake = socket.socketpair()

    # ---- life ------------------------------------------------------------------------------------
    def run(self, *, until_idle: bool = False) -> int:
        """Work until SIGTERM or SIGINT; with `until_idle` until nothing is left that is due.
        Returns the exit code.
        """
        self._join()
        before = self._listen()
        try:
            while not self._is_over(until_idle):
                self._turn(until_idle)
            return self._signal + 128 if self._draining else 0
        finally:
            self._leave(before)

    def _listen(self) -> list[tuple[int, Any]]:
        self._bell = self._store.bell()
        self._hear_bell()
        for end in self._wake:
            end.setblocking(False)
        self._selector.register(self._wake[0], selectors.EVENT_READ, "signal")
        before: list[tuple[int, Any]] = []
        with contextlib.suppress(ValueError):  # not the main thread: whoever started us stops us
            signal.set_wakeup_fd(self._wake[1].fileno(), warn_on_full_buffer=False)
            before = [
                (n, signal.signal(n, self._on_signal)) for n in (signal.SIGTERM, signal.SIGINT)
            ]
        return before

    def _hear_bell(self) -> None:
        """Wait on what rings now: a bell whose server went away has another line."""
        if self._bell_fd >= 0:
            self._selector.unregister(self._bell_fd)
        self._bell_fd = self._bell.fileno()
        self._selector.register(self._bell_fd, selectors.EVENT_READ, "bell")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stop(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """The first time: take nothing new and finish what runs. The second time: stop what runs,
        give it back.
        """
        self._signal = number
        self._draining += 1
        self._drain_until = time.monotonic() + self._grace_s
        with contextlib.suppress(OSError):
            self._wake[1].send(b"\0")

    def _is_over(self, until_idle: bool) -> bool:
        if self._draining >= 2 or (self._draining and time.monotonic() > self._drain_until):
            return True
        idle = not self._children and not self._done
        over = until_idle and not (self._hungry or self._retries or self._others)
        return idle and (bool(self._draining) or over)

    @property
    def _token(self) -> Token:
        """The lease in our hands: without one nothing may be written."""
        if self._held is None:
            raise Fenced(
                f"The worker {self.name} has no lease.",
                expected="a lease",
                remedy="Start it again.",
            )
        return self._held

    def _join(self) -> None:
        """Take the lease; a name that is still in use is refused."""
        lease = f"worker/{self.name}"
        self._held = self._store.transaction(
            lambda tx: tx.leases.take(lease, self.name, self._seconds)
        )
        if self._held is None:
            raise Fenced(
                f"A worker {self.name} is running.",
                expected="a name of its own",
                remedy="Pass another --name.",
            )
        self._heart.add(self._held)
        self._store.transaction(lambda tx: tx.promotions.owe())

    def _leave(self, before: list[tuple[int, Any]]) -> None:
        """Stop what runs, give back what is ours, release the lease."""
        given = [child.job for child in self._children.values()]
        for child in self._children.values():
            child.stop("the worker stops")
        self._end_children(STOP_S)
        for number, handler in before:
            signal.signal(number, handler)
        if before:
            signal.set_wakeup_fd(-1)

        def close(tx: Tx) -> None:
            self._write_down(tx)
            tx.queue.release(self._token, [*given, *tx.queue.mine(self._token)])
            tx.leases.release(self._token)

        with contextlib.suppress(KfmError):
            if self._held is not None:
                self._store.transaction(close)
        self._heart.stop()
        self._selector.close()
        self._bell.close()
        for end in self._wake:
            end.close()

    def _end_children(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for child in self._children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, until - time.monotonic()))
            child.stop("", signal.SIGKILL)
            child.process.wait()
            _close_pipes(child)
        self._children.clear()

    # ---- one turn --------------------------------------------------------------------------------
    def _turn(self, until_idle: bool) -> None:
        if self._draining:
            self._hungry = False
        try:
            self._look()
            if self._done or (self._hungry and not self._draining):
                self._exchange()
            if not self._hungry and not self._done:
                self._store.tidy()
        except Fenced:
            self._rejoin()
        except KfmError as error:  # the store is away: what we know is kept, and we ask again
            if not error.retryable:
                raise
            self._hungry, self._lost_touch = True, True
            time.sleep(0.5)
            return
        if not self._hungry and not self._done:
            self._wait()
        else:
            self._hear(0.0)

    def _exchange(self) -> None:
        """One transaction: what ended is written down, what is next is taken."""
        if not self._done and not self._lost_touch and self._took_light():
            return
        free = 0 if self._draining else self._slots - len(self._children)

        def work(tx: Tx) -> tuple[list[JobRow], int | None, bool]:
            self._write_down(tx)
            strays = []
            if self._lost_touch:  # a claim that did not reach us, an end that was not written
                known = {c.job.job_id for c in self._children.values()} | {
                    done.job.job_id for done in self._done
                }
                strays = [job for job in tx.queue.mine(self._token) if job.job_id not in known]
            light = (
                tx.queue.claim(self._token, self._batch, (LIGHT_POOL,))
                if not self._draining and self._lights
                else []
            )
            heavy = (
                tx.queue.claim(self._token, free, self._pools, (LIGHT_POOL,)) if free > 0 else []
            )
            return strays + light + heavy, *(
                (None, False) if light or heavy else tx.queue.next_at(self._pools)
            )

        jobs, due, self._retries = self._store.transaction(work)
        self._done.clear()
        self._lost_touch = False
        self._due = due / 1000 if due is not None else None
        light = [job for job in jobs if job.pool == LIGHT_POOL]
        for job in jobs:
            if job.pool != LIGHT_POOL:
                self._begin(job)
        self._do_light(light)
        self._hungry = bool(light) or (len(self._children) < self._slots and len(jobs) > len(light))

    def _took_light(self) -> bool:
        """Begin with light jobs. Having taken them need not outlive a power cut: they are asked
        for, and only their end counts.
        """
        if self._draining or not self._lights:
            return False
        jobs = self._store.transaction(
            lambda tx: tx.queue.claim(self._token, self._batch, (LIGHT_POOL,)), durable=False
        )
        self._do_light(jobs)
        return bool(jobs)

    def _write_down(self, tx: Tx) -> None:
        """The ends and keyed effects of light jobs; those that are no longer ours are left out."""
        if not self._done:
            return
        counts: dict[tuple[str, str], int] = {}
        good = [done for done in self._done if done.outcome != "failed"]
        ours = (
            tx.queue.finish_all(self._token, [done.job for done in good], "succeeded")
            if good
            else set()
        )
        ours |= {
            done.job.job_id
            for done in self._done
            if done.outcome == "failed" and tx.queue.fail(self._token, done.job, done.error)
        }
        rows = [
            (key, done.job.job_id, digest)
            for done in good
            if done.job.job_id in ours
            for key, digest in done.effects
        ]
        if rows:
            tx.effects.put_all(rows)
        for done in self._done:
            job_type = done.job.job_type
            if done.job.job_id not in ours:
                continue
            for name in ("started", done.outcome):
                counts[job_type, name] = counts.get((job_type, name), 0) + 1
        for (job_type, name), value in counts.items():
            tx.jobs.tally(job_type, name, value)

    # ---- light jobs ------------------------------------------------------------------------------
    def _do_light(self, jobs: list[JobRow]) -> None:
        if not jobs:
            return
        began = time.perf_counter()
        for job in jobs:
            try:
                effects = self._light_run(job.job_type)(job)
                self._done.append(_Done(job, "succeeded", effects=effects))
            except Exception as error:
                # of job code: whatever it is, the job failed and the worker goes on
                self._done.append(_Done(job, "failed", f"{type(error).__name__}: {error}"))
        each = (time.perf_counter() - began) / len(jobs)
        self.worked += len(jobs)
        self._batch = max(1, min(_MOST, int(_BATCH_S / max(each, 1e-6)), self._batch * 4))

    def _light_run(self, job_type: str) -> Callable[[JobRow], Effects]:
        found = self._light.get(job_type)
        if found is None:
            found = self._light[job_type] = importlib.import_module(JOB_MODULES[job_type]).light
        return found

    # ---- processes -------------------------------------------------------------------------------
    def _begin(self, job: JobRow) -> None:
        """Start a job; one that cannot be started hurts no other."""
        try:
            self._start(job)
        except OSError as error:  # no process, no memory: later
            self._store.transaction(lambda tx: tx.queue.release(self._token, [job], LATER_MS))
            self._tell(job, "", "skipped", Told(reason=str(error)))
        except Exception as error:  # of a package that offers the type
            why = f"its type cannot be loaded: {type(error).__name__}: {error}"
            self._store.transaction(lambda tx: tx.queue.fail(self._token, job, why))

    def _start(self, job: JobRow) -> None:
        limits, run_id, now = self._limits(job), str(ids.new_run_id()), time.monotonic()
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        child = _Child(job, run_id, process, now, now + limits.timeout_s, limits)
        assert process.stdin is not None
        assert process.stdout is not None
        order = {
            **self._order,
            "job": msgspec.to_builtins(job),
            "run_id": run_id,
            "memory_mb": limits.memory_mb,
        }
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(order) + b"\n")
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, child)
        self._children[process.pid] = child
        self._tell(job, run_id, "started", Told(wait_ms=job.wait_ms or 0))

    def _finished(self, child: _Child) -> None:
        """The process has closed its end: hear what it said, and write down what became of the
        job.
        """
        assert child.process.stdout is not None
        self._selector.unregister(child.process.stdout)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(0.0 if child.stopped else 5.0)
        child.stop("", signal.SIGKILL)  # and whatever it left in its group
        code = child.process.wait()
        while len(child.heard) < _LINE_CAP and child.hear():
            pass  # its last words may have come with its end
        _close_pipes(child)
        ended = _said(child, code)
        job, took = child.job, int((time.monotonic() - child.began) * 1000)

        def close(tx: Tx) -> None:
            for name in ("started", ended.status, f"seconds_le_{_bucket(took / 1000)}"):
                tx.jobs.tally(job.job_type, name)
            tx.jobs.tally(job.job_type, "duration_ms", took)
            tx.jobs.tally(f"pool {job.pool}", "pool_wait_ms", job.wait_ms or 0)
            if job.attempts or job.losses:
                tx.jobs.tally(job.job_type, "retries")
            if child.stopped == "cancelled":
                tx.queue.finish(self._token, job, "cancelled", "cancelled")
            elif tx.queue.note(job, ended.status, ended.error):
                pass  # the engine has ended it, in the transaction that ended its run
            elif ended.status == "later":
                tx.queue.release(self._token, [job], LATER_MS)
            elif ended.status == "failed":
                why, denied = ended.error or ended.reason, ended.exit_code == 3
                tx.queue.fail(
                    self._token, job, why, retry=ended.retry, denied=denied, until_ms=ended.until_ms
                )
            else:
                tx.queue.finish(self._token, job, ended.status)

        while True:
            try:
                self._store.transaction(close)
                break
            except Fenced:
                break  # it belongs to another worker now
            except KfmError as error:
                if not error.retryable or self._draining >= 2:
                    # our lease goes on while we live, so nobody else would look at the job: it is
                    # worked again with the next exchange, or given back when we leave
                    self._lost_touch = True
                    break
                time.sleep(0.5)
        del self._children[child.process.pid]
        self.worked += 1
        self._hungry = True
        if not ended.receipt and ended.status != "later":
            # a receipt that cannot be written does not stop the others
            with contextlib.suppress(KfmError, OSError):
                self._died(job, child.run_id, ended.error or ended.reason)
        told = ended.told(took, cancelled=child.stopped == "cancelled")
        self._tell(job, child.run_id, ended.word, told)

    # ---- waiting ---------------------------------------------------------------------------------
    def _look(self) -> None:
        """Now and then: dead workers, cancelled jobs, deadlines."""
        now = time.monotonic()
        for child in self._children.values():
            if now > child.deadline:
                child.stop("time", signal.SIGKILL)
        for child in [
            c
            for c in self._children.values()
            if c.process.poll() is not None and now >= self._next_look
        ]:
            self._finished(child)  # it is gone, whoever else holds its line
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        token = self._token
        lost, cancelled, self._others = self._store.read(
            lambda tx: (tx.queue.lost(), tx.queue.cancelling(token), tx.queue.others(token))
        )
        if lost:

            def reap(tx: Tx) -> None:
                tx.leases.renew([token], self._seconds)  # our own are not lost
                tx.queue.reap()

            self._store.transaction(reap)
            self._hungry = True
        for child in self._children.values():
            if child.job.job_id in cancelled:
                child.stop("cancelled")
                # one that does not listen is killed then
                child.deadline = min(child.deadline, now + STOP_S)
        if now >= self._next_beat:
            self._next_beat = now + 5 * LOOK_S
            self._bell.drain()  # one that lost its server tries another line
            self._hear_bell()
            self._hungry = True
            with contextlib.suppress(KfmError, OSError):  # telemetry may be lost; the work goes on
                self._on_beat()

    def _wait(self) -> None:
        now = time.monotonic()
        until = [self._next_look - now, *(c.deadline - now for c in self._children.values())]
        if self._due is not None:
            until.append(self._due - self._clock.now().timestamp())
        self._hear(max(0.0, min(until)))
        if self._due is not None and self._clock.now().timestamp() >= self._due:
            self._hungry, self._due = True, None

    def _hear(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.data == "bell":
                self._bell.drain()
                self._hear_bell()
                self._hungry = True
            elif key.data == "signal":
                with contextlib.suppress(BlockingIOError):
                    self._wake[0].recv(4096)
            else:
                self._heard(key.data)

    def _heard(self, child: _Child) -> None:
        data = child.hear()
        # it has said all, even when something it started holds the line
        if not data or data.endswith(b"\n"):
            self._finished(child)

    def _rejoin(self) -> None:
        """We were away longer than our lease: what we had is others' now. Begin again."""
        for child in self._children.values():
            assert child.process.stdout is not None
            self._selector.unregister(child.process.stdout)
            child.stop("the worker was away too long", signal.SIGKILL)
        self._end_children(1.0)
        self._done.clear()
        assert self._held is not None
        self._heart.drop(self._held)
        lease, token = self._held.lease, None
        while token is None and self._draining < 2:
            try:
                token = self._store.transaction(
                    lambda tx: tx.leases.take(lease, self.name, self._seconds)
                )
            except StoreUnavailable:
                time.sleep(0.5)
                continue
            if token is None:  # somebody took our name: be another
                lease = f"worker/{self.name}-{os.getpid()}"
        self._held, self._hungry = token, True
        if token is not None:
            self._heart.add(token)


def _close_pipes(child: _Child) -> None:
    for pipe in (child.process.stdin, child.process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()


def _said(child: _Child, code: int) -> Ended:
    """The closing message of a process, or why there is none."""
    if child.stopped == "cancelled":
        return Ended(status="failed", reason="cancelled", error="cancelled", retry=False)
    if child.stopped == "time":
        said = f"it was not done after {child.limits.timeout_s:g} seconds and was stopped"
        return Ended(
            status="failed",
            reason=said,
            error=f"time limit: {said}"
            + (f"; {child.limits.key} gives it longer" if child.limits.key else ""),
        )
    try:
        return msgspec.json.decode(bytes(child.heard).rsplit(b"\n", 2)[-2], type=Ended)
    except (msgspec.DecodeError, IndexError):
        why = (
            f"its process was killed by signal {-code}"
            if code < 0
            else f"its process ended with code {code} and said nothing"
        )
        return Ended(status="failed", reason=why, error=why)


BUCKETS = (0.1, 0.5, 1, 5, 15, 60, 300, 1800)


def _bucket(seconds: float) -> str:
    return next((str(b) for b in BUCKETS if seconds <= b), "inf")
