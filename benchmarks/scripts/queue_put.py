"""Put N jobs into a peer's queue, one call each: `queue_put.py PEER N GAP_MS FIRST`."""

import asyncio
import importlib
import sys
import time
from typing import Any

__all__: list[str] = []


async def _stream(module: Any, numbers: range, gap_s: float) -> None:
    await module.broker.startup()
    for number in numbers:
        await module.put(number)
        if gap_s:
            await asyncio.sleep(gap_s)
    await module.broker.shutdown()


def main(peer: str, count: int, gap_s: float, first: int) -> None:
    module, numbers = importlib.import_module(f"queue_{peer}"), range(first, first + count)
    if peer == "taskiq":
        asyncio.run(_stream(module, numbers, gap_s))
        return
    for number in numbers:
        module.put(number)
        if gap_s:
            time.sleep(gap_s)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1000, int(sys.argv[4]))
