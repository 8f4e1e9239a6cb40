"""The peer: a bare group-commit log, as fast as one can be in Python. argv: folder, steps, runs at
once.

Hash-chained records of 300 bytes; a committer thread appends whatever waits and calls fdatasync
once for all of it.
"""

import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path

folder, steps, runs = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


class Log(threading.Thread):
    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        self._ready = threading.Condition()
        self._waiting: list[tuple[bytes, threading.Lock]] = []

    def run(self) -> None:
        while True:
            with self._ready:
                while not self._waiting:
                    self._ready.wait()
                batch, self._waiting = self._waiting, []
            os.write(self._fd, b"".join(record for record, _ in batch))
            os.fdatasync(self._fd)
            for _, gate in batch:
                gate.release()

    def put(self, record: bytes) -> None:
        gate = threading.Lock()
        gate.acquire()
        with self._ready:
            self._waiting.append((record, gate))
            self._ready.notify()
        gate.acquire()


def work(run: str, count: int) -> None:
    prev = ""
    for number in range(count):
        fields = {"run": run, "n": number, "name": "noop", "out": number, "prev": prev}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
        prev = hashlib.sha256(text).hexdigest()
        log.put(text.ljust(299) + b"\n")


log = Log(folder / "group.log")
log.start()
shares = [steps // runs + (1 if number < steps % runs else 0) for number in range(runs)]
threads = [
    threading.Thread(target=work, args=(f"r{number}", share)) for number, share in enumerate(shares)
]
before = time.perf_counter()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
took = time.perf_counter() - before
assert (folder / "group.log").stat().st_size == steps * 300
print(json.dumps({"per_s": steps / took}), flush=True)
os._exit(0)
