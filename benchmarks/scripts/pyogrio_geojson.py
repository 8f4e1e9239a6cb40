"""For comparison: the same conversion by GDAL through pyogrio. argv: input, output. Runs in an
environment of its own.
"""

import hashlib
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio

source, target = Path(sys.argv[1]), Path(sys.argv[2])


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_, table = pyogrio.read_arrow(source)
pq.write_table(pa.table(table), target, compression="zstd")
print(json.dumps({"rows": table.num_rows, "input": sha256(source), "output": sha256(target)}))
