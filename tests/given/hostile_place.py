"""What lies outside of the workspace of a hostile connector."""

import shutil
from pathlib import Path

RASTER = bytes.fromhex(  # one pixel
    "49492a000a00000001000800000103000100000001000000010103000100000001000000020103000100000008000000030103000100000001000000"
    "06010300010000000100000011010400010000000800000016010300010000000100000017010400010000000100000000000000"
)


def fill(outside: Path) -> None:
    """What lies outside, as it was."""
    shutil.rmtree(outside, ignore_errors=True)
    (outside / "folder").mkdir(parents=True)
    for name in ("victim", "secret", "folder/victim"):
        (outside / name).write_text("as it was")
    (outside / "raster.tif").write_bytes(RASTER)
    (outside / "secret.geojson").write_text('{"type": "Point", "coordinates": [1, 2]}')
