"""The inputs, the same bytes every time."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["document", "many_files", "points", "random_file"]

_KINDS = ("stream gauge", "rain gauge", "weather station", "well", "seismometer")
_PLACES = (
    "Hays",
    "Dodge City",
    "Garden City",
    "Salina",
    "Topeka",
    "Peñasco Creek",
    "Cañon Draw",
    "Wichita",
)


def points(path: Path, megabytes: int) -> int:
    """A GeoJSON FeatureCollection of points of about `megabytes` MB (10^6); returns the number of
    features.
    """
    note = path.with_suffix(".count")
    if path.is_file() and note.is_file():
        return int(note.read_text())
    temp = path.with_suffix(".tmp")
    limit, size, count = megabytes * 1_000_000, 0, 0
    with temp.open("wb") as out:
        out.write(b'{"type":"FeatureCollection","features":[\n')
        for block in _blocks(random.Random(7)):
            out.write(b",\n" if count else b"")
            out.write(b",\n".join(block))
            count += len(block)
            size += sum(map(len, block)) + 2 * len(block)
            if size >= limit:
                break
        out.write(b"\n]}\n")
    temp.rename(path)
    note.write_text(str(count))
    return count


def _blocks(rnd: random.Random) -> Iterator[list[bytes]]:
    number = 0
    while True:
        block = []
        for _ in range(1000):
            number += 1
            properties = {
                "station_id": f"KS-{number:09d}",
                "name": f"{_PLACES[rnd.randrange(8)]} {_KINDS[rnd.randrange(5)]} no. {rnd.randrange(100_000)}, Kansas, lower reach of the basin",
                "observed_at": f"2026-{rnd.randrange(1, 13):02d}-{rnd.randrange(1, 29):02d}T{rnd.randrange(24):02d}:{rnd.randrange(60):02d}:00Z",
                "value": round(rnd.uniform(-40, 4000), 3),
                "depth_m": rnd.randrange(0, 3000),
                "active": rnd.random() < 0.9,
            }
            place = [round(rnd.uniform(-102.05, -94.59), 6), round(rnd.uniform(36.99, 40.0), 6)]
            feature = {
                "type": "Feature",
                "properties": properties,
                "geometry": {"type": "Point", "coordinates": place},
            }
            block.append(json.dumps(feature, ensure_ascii=False, separators=(",", ":")).encode())
        yield block


def document(size: int = 1_000_000) -> dict[str, Any]:
    """A JSON document of about `size` bytes: floats, text beyond ASCII, nested objects, the shape
    of a large manifest.
    """
    rnd, records, written = random.Random(7), [], 0
    while written < size:
        record = {
            "id": rnd.randrange(10**9),
            "name": "".join(rnd.choices("abcdefghij é√", k=20)),
            "ratio": rnd.random(),
            "amount": round(rnd.uniform(0, 1e6), 2),
            "ok": rnd.random() < 0.5,
            "none": None,
            "tags": [rnd.choice("abcdef") * 5 for _ in range(4)],
            "meta": {
                "source": {
                    "uri": f"file:///data/{rnd.randrange(10**6)}",
                    "sha256": f"{rnd.getrandbits(256):064x}",
                },
                "z": 1,
                "a": {"b": {"c": [1, 2, {"d": 3.5}]}},
            },
        }
        records.append(record)
        written += len(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode())
    return {"records": records, "version": 1}


def random_file(path: Path, size: int) -> None:
    """Bytes no file system can compress away."""
    if path.is_file() and path.stat().st_size == size:
        return
    with path.open("wb") as out:
        left = size
        while left:
            left -= out.write(os.urandom(min(left, 1 << 20)))


def many_files(folder: Path, count: int, size: int) -> None:
    if folder.is_dir() and len(list(folder.iterdir())) == count:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"f{number:05d}.bin").write_bytes(os.urandom(size))
