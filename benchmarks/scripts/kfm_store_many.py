"""Ours: put every file of a folder into a zone. argv: folder of files, zone."""

import sys
from pathlib import Path

from kfm.zones.local import LocalZone

source, root = Path(sys.argv[1]), Path(sys.argv[2])
zone = LocalZone(root)
stored = zone.create_all({f"data/{p.name}": p for p in sorted(source.iterdir())})
zone.close()
print(len(stored))
