"""The peer: a script that only converts points to GeoParquet and hashes both files. argv: input,
output, lean|stock.

`lean` is as quick as we can write it: orjson, no garbage collection, WKB by numpy, no tidying up at
the end. `stock` is what one writes first.
"""

import gc
import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

source, target, lean = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "lean"


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if lean:
    import orjson

    gc.disable()
    features = orjson.loads(source.read_bytes())["features"]
else:
    import shapely

    with source.open("rb") as file:
        features = json.load(file)["features"]
rows = [f["properties"] for f in features]
columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]}
points = np.array([f["geometry"]["coordinates"] for f in features])
if lean:
    wkb = np.empty(len(points), [("order", "u1"), ("type", "<u4"), ("at", "<f8", 2)])
    wkb["order"], wkb["type"], wkb["at"] = 1, 1, points
    columns["geometry"] = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(21), len(wkb), [None, pa.py_buffer(wkb)]
    ).cast(pa.binary())
else:
    columns["geometry"] = pa.array(shapely.to_wkb(shapely.points(points)), pa.binary())
geo = {
    "version": "1.1.0",
    "primary_column": "geometry",
    "columns": {
        "geometry": {
            "encoding": "WKB",
            "geometry_types": ["Point"],
            "bbox": [*points.min(0).tolist(), *points.max(0).tolist()],
        }
    },
}
table = pa.table(columns).replace_schema_metadata({"geo": json.dumps(geo)})
pq.write_table(table, target, compression="zstd")
print(
    json.dumps({"rows": table.num_rows, "input": sha256(source), "output": sha256(target)}),
    flush=True,
)
if lean:
    os._exit(0)
