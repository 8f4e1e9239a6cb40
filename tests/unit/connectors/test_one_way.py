"""The types that `kfm connector new` writes are those that a run would infer: there is one way to
tell them.
"""

import csv
import io
import json
from pathlib import Path

import msgspec
import pytest

from kfm.workspace.config import new_entry
from kfm.workspace.connector_says import with_stated
from kfm.workspace.new_connector import Asked, draw

ROWS = [
    {"site_no": f"{n:05d}", "plot": n, "zip": str(66000 + n), "height": n + 0.5, "mixed": n, "day": f"2024-01-{n % 28 + 1:02d}",
     "at": f"2024-01-{n % 28 + 1:02d}T00:00:00Z", "flag": bool(n % 2), "fips": f"0{n % 9}", "word": f"w{n}", "long": str(10**15 + n)}
    for n in range(1000)
]  # fmt: skip
ROWS[500] |= {"height": "tall", "day": "yesterday"}  # far behind the first rows
ROWS[3] |= {"mixed": "x"}  # among the first 200 it is one in 200
FEATURES = [
    {
        "type": "Feature",
        "id": n,
        "properties": r,
        "geometry": {"type": "Point", "coordinates": [-98, 38]},
    }
    for n, r in enumerate(ROWS)
]


def text_of(form):
    if form != "csv":
        return json.dumps(
            ROWS if form == "json" else {"type": "FeatureCollection", "features": FEATURES}
        )
    out = io.StringIO(newline="")
    rows = csv.DictWriter(out, list(ROWS[0]), lineterminator="\n")
    rows.writeheader()
    rows.writerows(ROWS)
    return out.getvalue()


@pytest.mark.parametrize("form", ["csv", "json", "geojson"])
@pytest.mark.parametrize("key", [["site_no"], ["plot"], []])
def test_what_a_new_connector_states_is_what_a_run_infers(made, tmp_path, form, key):
    file = tmp_path / f"wells.{form}"
    file.write_text(text_of(form))
    files, drawn = msgspec.structs.astuple(draw("wells", Asked(file=file, key=tuple(key))))
    code = files[Path("scripts", "connectors", "wells", "connector.py")]
    entry = with_stated(new_entry(drawn), code)
    inferred = made(form, file.read_text(), business_key=entry.business_key).types
    assert (
        {c.name: c.type for c in entry.schema} == inferred if form == "csv" else not entry.schema
    ), "or leaves it to the run"
    assert (inferred["mixed"], inferred["height"], inferred["day"], inferred["site_no"]) == (
        "integer",
        "number",
        "date",
        "string",
    )
    stated = [*entry.business_key]
    assert stated == key or (form == "csv" and stated == ["site_no"])
