"""Synthetic sites that must not be found: no real place."""

import json
import random
from pathlib import Path
from typing import Any

from kfm.testing import Upstream

SITES = "ks_sites"


RELEASE = "release: {h3_resolution: 5, show: [period], min_records: 5}"


def sites(count: int = 500, seed: int = 1) -> list[dict[str, Any]]:
    """Synthetic archaeological sites, close together in thirty places; no real site."""
    chance = random.Random(seed)
    centres = [(chance.uniform(37.2, 39.8), chance.uniform(-101.5, -95)) for _ in range(30)]
    found = []
    for n in range(count):
        lat, lon = centres[n % 30]
        place = [
            round(lon + chance.uniform(-0.03, 0.03), 6),
            round(lat + chance.uniform(-0.03, 0.03), 6),
        ]
        about = {
            "site_no": f"14XX{n:04d}",
            "name": f"Hidden Mound {n * 7919 % 10007}",
            "period": chance.choice(["Archaic", "Woodland", "Late Ceramic"]),
        }
        found.append(
            {
                "type": "Feature",
                "id": about["site_no"],
                "geometry": {"type": "Point", "coordinates": place},
                "properties": about,
            }
        )
    return found


def body(features: list[dict[str, Any]]) -> bytes:
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


def register(
    ws: Path,
    up: Upstream,
    name: str = SITES,
    more: str = RELEASE,
    sensitivity: str = "sensitive-location",
) -> None:
    (ws / "data" / "registry" / f"{name}.yml").write_text(
        f"dataset_id: {name}\ntitle: Synthetic sites\ncare_label: Generalised only\nlicence: CC-BY-4.0\nsensitivity: {sensitivity}\npolicy_label: {sensitivity}\n"
        f"source: {{url: '{up.url}/{name}.geojson', format: geojson}}\nbusiness_key: [site_no]\ncadence: daily\n{more}\n"
    )
