"""The peer: no-op steps of one DBOS workflow on SQLite, with its own defaults. argv: folder, steps.
Runs in its own environment.
"""

import json
import os
import sys
import time
from pathlib import Path

from dbos import DBOS

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
DBOS(
    config={
        "name": "steps",
        "system_database_url": f"sqlite:///{folder / 'dbos.sqlite'}",
        "log_level": "ERROR",
    }
)


@DBOS.step()
def noop(number: int) -> int:
    return number


@DBOS.workflow()
def workflow(count: int) -> int:
    for number in range(count):
        noop(number)
    return count


DBOS.launch()
workflow(10)  # connections and statements are warm, as on the other side
before = time.perf_counter()
workflow(steps)
took = time.perf_counter() - before
peak = next(
    int(line.split()[1])
    for line in Path("/proc/self/status").read_text().splitlines()
    if line.startswith("VmHWM:")
)
DBOS.destroy()
print(json.dumps({"per_s": steps / took, "rss_mb": peak / 1024}), flush=True)
os._exit(0)  # its threads do not hold up the measurement
