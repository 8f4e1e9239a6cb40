"""The types that `kfm connector new` writes are those that a run would infer: there is one way to
tell them.
"""

import argparse
import csv
import io
import json

import pytest

from kfm.cli.connector import _drawn

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
    args = argparse.Namespace(
        file=file, url="", kind=None, format=None, title="", licence="", sensitivity="public", policy_label="", key=list(key),
        time_column=None, encoding=None,
    )  # fmt: skip
    _, entry = _drawn("wells", args)
    inferred = made(form, file.read_text(), business_key=tuple(entry["business_key"])).types
    assert (
        {c["name"]: c["type"] for c in entry["schema"]} == inferred
        if form == "csv"
        else "schema" not in entry
    ), "or leaves it to the run"
    assert (inferred["mixed"], inferred["height"], inferred["day"], inferred["site_no"]) == (
        "integer",
        "number",
        "date",
        "string",
    )
    assert entry["business_key"] == key or (form == "csv" and entry["business_key"] == ["site_no"])
