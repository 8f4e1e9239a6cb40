"""The benchmark's job for huey: its SQLite file, synced at each commit as ours is."""

import os
import time

from huey import SqliteHuey
from queue_body import work

__all__ = ["huey", "put"]

huey = SqliteHuey("bench", filename=os.environ["QUEUE_FILE"], fsync=True)


@huey.task()
def line(number: int, put_at: float) -> None:
    work(number, put_at)


def put(number: int) -> None:
    line(number, time.time())
