"""What workers tell: one JSON line per event of a job, signals beside them, and counts as
Prometheus text.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from kfm.model import Clock, JobLine, JobRow, Signal, rfc3339
from kfm.model.masking import mask, private_places
from kfm.store.jobs import Depth

__all__ = ["BUCKETS", "JobLog", "Told", "metrics"]

BUCKETS = ("0.1", "0.5", "1", "5", "15", "60", "300", "1800", "inf")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job when it starts, ends or is passed over."""

    wait_ms: int = 0
    duration_ms: int = 0
    error: dict[str, str] | None = None
    reason: str = ""  # for people: the log does not keep it
    zone_in: str = ""
    zone_out: str = ""
    policy_label: str = ""
    cancelled: bool = False


_NOTHING = Told()


class JobLog:
    """Appends to `ledger/logs/` of a workspace; a line is one write, so lines of several workers never mix."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder, self._clock = folder, clock

    def tell(
        self,
        job: JobRow,
        run_id: str,
        status: str,
        told: Told = _NOTHING,
    ) -> None:
        """The documented log line of a job, and the signals that go with it."""
        carried = msgspec.json.decode(job.envelope)
        line = JobLine(
            timestamp=rfc3339(self._clock.now()),
            service="workers",
            job_type=job.job_type,
            job_id=job.job_id,
            run_id=run_id,
            correlation_id=carried.get("trace", {}).get("correlation_id", ""),
            dataset_ids=(job.dataset_id,) if job.dataset_id else (),
            zone_in=told.zone_in,
            zone_out=told.zone_out,
            policy_label=told.policy_label,
            status=status,  # type: ignore[arg-type]
            duration_ms=told.duration_ms,
            error=told.error,
        )
        self._append("workers", [line])
        ends = {"skipped": "succeeded"}.get(status, status)
        if status == "started":
            self.signal("run.lifecycle", "queued", job, run_id, timestamp=job.put_at)
            self.signal("pool.wait_ms", told.wait_ms, job, run_id)
        self.signal("run.lifecycle", "cancelled" if told.cancelled else ends, job, run_id)

    def fell(self, job_type: str, dataset_id: str, message: str, stack: str) -> None:
        """The log line of work that no worker took and that ended in an error nobody foresaw."""
        line = JobLine(
            timestamp=rfc3339(self._clock.now()),
            service="workers",
            job_type=job_type,
            job_id="",
            run_id="",
            correlation_id="",
            dataset_ids=(dataset_id,),
            zone_in="",
            zone_out="",
            policy_label="",
            status="failed",
            error={"message": message, "stack": stack},
        )
        self._append("workers", [line])

    def signal(
        self,
        name: str,
        value: str | int | float,
        job: JobRow,
        run_id: str,
        *,
        timestamp: str = "",
        uri: str = "",
        target_minutes: float | None = None,
    ) -> None:
        """One signal of a job, of now unless another time is given."""
        self.signals(
            [
                Signal(
                    timestamp=timestamp or rfc3339(self._clock.now()),
                    signal=name,  # type: ignore[arg-type]
                    value=value,
                    job_id=job.job_id,
                    run_id=run_id,
                    job_type=job.job_type,
                    dataset_id=job.dataset_id,
                    pool=job.pool,
                    uri=uri,
                    target_minutes=target_minutes,
                )
            ]
        )

    def signals(self, found: Iterable[Signal]) -> None:
        self._append("signals", found)

    def _append(self, name: str, lines: Iterable[object]) -> None:
        private = private_places(self._folder.parents[1])
        data = b"".join(
            mask(msgspec.json.encode(line).decode(), private).encode() + b"\n" for line in lines
        )
        with contextlib.suppress(OSError):  # telemetry may be lost; the job is not
            self._folder.mkdir(parents=True, exist_ok=True)
            day = rfc3339(self._clock.now())[:10]
            fd = os.open(
                self._folder / f"{name}-{day}.jsonl",
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
                0o644,
            )
            try:
                os.write(fd, data)
            finally:
                os.close(fd)


def metrics(tallies: Iterable[tuple[str, str, int]], depths: Iterable[Depth], now_ms: int) -> str:
    """Counts and depths as Prometheus text."""
    found: dict[str, dict[str, int]] = {}
    for job_type, name, value in tallies:
        found.setdefault(job_type, {})[name] = value
    lines = []
    for word in ("started", "succeeded", "failed", "skipped", "retries"):
        name = "kfm_job_retries_total" if word == "retries" else f"kfm_jobs_{word}_total"
        lines += _head(name, "counter")
        lines += [
            f'{name}{{job_type="{kind}"}} {counts.get(word, 0)}'
            for kind, counts in found.items()
            if not kind.startswith("pool ")
        ]
    lines += _head("kfm_job_duration_seconds", "histogram")
    for kind, counts in found.items():
        if "duration_ms" in counts:
            lines += _histogram(kind, counts)
    lines += _head("kfm_pool_wait_seconds_total", "counter")
    lines += [
        f'kfm_pool_wait_seconds_total{{pool="{pool[5:]}"}} {c["pool_wait_ms"] / 1000}'
        for pool, c in found.items()
        if pool.startswith("pool ")
    ]
    waiting = list(depths)
    lines += _head("kfm_queue_depth", "gauge")
    lines += [f'kfm_queue_depth{{pool="{d.pool}",state="{d.state}"}} {d.jobs}' for d in waiting]
    lines += _head("kfm_queue_lag_seconds", "gauge")
    lines += [
        f'kfm_queue_lag_seconds{{pool="{d.pool}"}} {max(0, now_ms - d.oldest) / 1000:.3f}'
        for d in waiting
        if d.state == "queued"
    ]
    return "\n".join(lines) + "\n"


_HELP = {
    "kfm_jobs_started_total": "workings of jobs that began",
    "kfm_jobs_succeeded_total": "workings that did what was asked",
    "kfm_jobs_failed_total": "workings that failed",
    "kfm_jobs_skipped_total": "workings that found nothing to do",
    "kfm_job_retries_total": "workings of what had failed before",
    "kfm_job_duration_seconds": "how long workings took",
    "kfm_pool_wait_seconds_total": "how long jobs of a pool waited for their turn, all together",
    "kfm_queue_depth": "jobs that wait or run",
    "kfm_queue_lag_seconds": "how long the oldest job that waits has waited",
}


def _head(name: str, kind: str) -> list[str]:
    return [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} {kind}"]


def _histogram(kind: str, counts: Mapping[str, int]) -> list[str]:
    lines, total = [], 0
    for bucket in BUCKETS:
        total += counts.get(f"seconds_le_{bucket}", 0)
        lines.append(
            f'kfm_job_duration_seconds_bucket{{job_type="{kind}",le="{"+Inf" if bucket == "inf" else bucket}"}}'
            f" {total}"
        )
    lines.append(
        f'kfm_job_duration_seconds_sum{{job_type="{kind}"}} {counts["duration_ms"] / 1000}'
    )
    lines.append(f'kfm_job_duration_seconds_count{{job_type="{kind}"}} {total}')
    return lines
