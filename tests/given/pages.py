"""A workspace that has every state a page shows: several versions, something denied, waiting, failed
and set aside, documents to search in, and a dataset whose every word is an attack.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import yaml

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.testing import Upstream

__all__ = ["ATTACK", "TREES", "lived_in"]

# what would run, were any of it markup; `pwned` is looked for afterwards
ATTACK = (
    "\"'><img src=x onerror=pwned=1><script>pwned=1</script>"
    "<svg onload=pwned=1>`${pwned=1}`{{pwned}}</style></title></textarea>"
)
TREES = 60


def _point(number: int, **properties: object) -> dict[str, object]:
    x, y = -101.5 + (number * 37 % 60) / 9.5, 37.2 + (number * 53 % 60) / 22
    return {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [round(x, 4), round(y, 4)]},
        "properties": {"tree_id": f"t{number:03}", **properties},
    }


def _trees(version: int) -> bytes:
    """Sixty trees; later some went, came, grew and were moved."""
    rows = []
    for number in range(TREES + 4 * (version - 1)):
        if version > 1 and number % 29 == 7:
            continue
        height = 4.25 + number * 7 % 23 + (0.5 if version > 1 and number % 9 == 0 else 0)
        kind = ("oak", "elm", "cottonwood", "hackberry")[number % 4]
        seen = f"2026-0{1 + number % 9}-1{number % 9}T12:00:00Z"
        rows.append(_point(number, kind=kind, height_m=height, seen=seen))
        if version > 2 and number % 17 == 0:
            rows[-1]["geometry"]["coordinates"][0] += 0.4  # type: ignore[index]
    return json.dumps({"type": "FeatureCollection", "features": rows}).encode()


def _attacks() -> bytes:
    rows = [_point(n, name=f"{ATTACK}{n}", note=ATTACK, size=n) for n in range(5)]
    return json.dumps({"type": "FeatureCollection", "features": rows}).encode()


def _register(ws: Path, name: str, url: str, form: str, **more: object) -> None:
    entry: dict[str, object] = {
        "dataset_id": name,
        "title": name.replace("_", " ").capitalize(),
        "description": f"Invented {name.replace('_', ' ')} for looking at pages.",
        "owners": ["County Office <office@example.org>"],
        "licence": "CC0-1.0",
        "sensitivity": "public",
        "policy_label": "public",
        "source": {"url": f"{url}/{name}", "format": form},
        "cadence": "daily",
    }
    path = ws / "data" / "registry" / f"{name}.yml"
    path.write_text(yaml.safe_dump({**entry, **more}, sort_keys=False))


def _run(ws: Path, *args: str) -> int:
    """One command, whatever it ends with; what it says is of no interest here."""
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        return main(["-w", str(ws), *args])


def _backfill(ws: Path, up: Upstream) -> None:
    """Five days of the past, of which upstream has lost one."""
    url = f"{up.url}/levels?since={{since}}&until={{until}}"
    _register(
        ws,
        "past_levels",
        up.url,
        "csv",
        source={"kind": "http_file", "format": "csv", "url": url, "time_column": "day"},
        business_key=["site", "day"],
        schema=[
            {"name": "site", "type": "string", "nullable": False},
            {"name": "day", "type": "date", "nullable": False},
            {"name": "level", "type": "number"},
        ],
        merge="upsert",
    )
    for n in (1, 2, 3, 5):
        asked = f"/levels?since=2026-01-0{n}T00:00:00Z&until=2026-01-0{n + 1}T00:00:00Z"
        rows = "".join(f"S{site},2026-01-0{n},{n}.{site}\n" for site in range(3))
        up.files[asked.replace(":", "%3A")] = b"site,day,level\n" + rows.encode()
    _run(ws, "backfill", "start", "past_levels", "--since", "2026-01-01", "--until", "2026-01-06", "--inline")  # fmt: skip


@contextlib.contextmanager
def lived_in(ws: Path) -> Iterator[Path]:
    """The workspace, while its upstream answers."""
    make_workspace(ws, sample=False, allow_loopback=True)
    os.environ["KFM_FETCH_ATTEMPTS"] = "1"
    with Upstream() as up:
        _register(ws, "city_trees", up.url, "geojson", business_key=["tree_id"])
        _register(ws, "no_licence", up.url, "geojson", licence=None)
        _register(ws, "waits_for_you", up.url, "geojson", business_key=["tree_id"], approvals=1)
        _register(ws, "gone_upstream", up.url, "geojson")
        _register(
            ws,
            "set_aside",
            up.url,
            "csv",
            max_quarantined=0.9,
            business_key=["id"],
            schema=[
                {"name": "id", "type": "string"},
                {"name": "depth_m", "type": "number", "unit": "m", "max": 100.0},
            ],
        )
        _register(
            ws,
            "hostile",
            up.url,
            "geojson",
            title=f"Hostile {ATTACK}",
            description=ATTACK,
            rights=ATTACK,
            custodian=ATTACK,
            owners=[f"{ATTACK} <a@example.org>"],
        )
        up.files["/set_aside"] = b"id,depth_m\n" + b"".join(
            b"%d,%s\n" % (n, b"99999" if n == 3 else b"<img src=x onerror=pwned=1>")
            if n in (3, 5)
            else b"%d,%d\n" % (n, n)
            for n in range(40)
        )
        for name in ("no_licence", "waits_for_you"):
            up.files[f"/{name}"] = _trees(1)
        up.files["/hostile"] = _attacks()
        for version in (1, 2, 3):
            up.files["/city_trees"] = _trees(version)
            _run(
                ws, "run", "city_trees", *(["--accept-change", "--reason", "seen"] * (version > 1))
            )
        _run(ws, "run", "no_licence")
        _run(ws, "run", "waits_for_you")
        _run(ws, "run", "gone_upstream")
        _run(ws, "run", "set_aside")
        _run(ws, "run", "hostile")
        _run(ws, "run", "city_trees")
        _backfill(ws, up)
        yield ws
