"""A kfm workspace with one GeoJSON dataset on loopback."""

from pathlib import Path

from benchmarks import peers

__all__ = ["ENTRY", "make_workspace"]

ENTRY = """dataset_id: points
title: Generated points
licence: CC0-1.0
sensitivity: public
policy_label: public
source:
  kind: http_file
  url: {url}
  format: geojson
business_key: [station_id]
"""


def make_workspace(folder: Path, url: str) -> Path:
    peers.run([peers.kfm(), "init", str(folder), "--allow-loopback"])
    (folder / "data" / "registry" / "points.yml").write_text(ENTRY.format(url=url))
    return folder
