"""The benchmark's job for Celery: Redis, its defaults."""

import time

from celery import Celery
from queue_body import REDIS, work

__all__ = ["app", "put"]

app = Celery("queue_celery", broker=REDIS)


@app.task
def line(number: int, put_at: float) -> None:
    work(number, put_at)


def put(number: int) -> None:
    line.delay(number, time.time())
