"""The job every queue works in the benchmark: one appended line `id t_put t_done`."""

import os
import time

__all__ = ["REDIS", "work"]

REDIS = os.environ.get("QUEUE_REDIS", "")
_lines = os.open(os.environ["JOBFILE"], os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)


def work(number: int, put_at: float) -> None:
    os.write(_lines, b"%d %.6f %.6f\n" % (number, put_at, time.time()))
