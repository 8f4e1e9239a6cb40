"""The benchmark's job for Dramatiq: Redis, its defaults."""

import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from queue_body import REDIS, work

__all__ = ["put"]

dramatiq.set_broker(RedisBroker(url=REDIS))


@dramatiq.actor
def line(number: int, put_at: float) -> None:
    work(number, put_at)


def put(number: int) -> None:
    line.send(number, time.time())
