"""The benchmark's job for taskiq: a Redis stream, its defaults."""

import time

from queue_body import REDIS, work
from taskiq_redis import RedisStreamBroker

__all__ = ["broker", "put"]

broker = RedisStreamBroker(url=REDIS)


@broker.task(task_name="line")
async def line(number: int, put_at: float) -> None:
    work(number, put_at)


async def put(number: int) -> None:
    await line.kiq(number, time.time())
