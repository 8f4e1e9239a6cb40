"""The peer: a plain script that only converts points to GeoParquet and hashes both files. argv: input, output, json|orjson."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

source, target, parser = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if parser == "orjson":
    import orjson

    features = orjson.loads(source.read_bytes())["features"]
else:
    with source.open("rb") as file:
        features = json.load(file)["features"]
names = list(features[0]["properties"])
columns = {name: pa.array([f["properties"][name] for f in features]) for name in names}
points = np.array([f["geometry"]["coordinates"] for f in features])
columns["geometry"] = pa.array(shapely.to_wkb(shapely.points(points)), pa.binary())
low, high = points.min(0), points.max(0)
geo = {
    "version": "1.1.0",
    "primary_column": "geometry",
    "columns": {"geometry": {"encoding": "WKB", "geometry_types": ["Point"], "bbox": [*low.tolist(), *high.tolist()]}},
}
table = pa.table(columns).replace_schema_metadata({"geo": json.dumps(geo)})
pq.write_table(table, target, compression="zstd")
print(json.dumps({"rows": table.num_rows, "input": sha256(source), "output": sha256(target)}))
