"""Who gave a cell its value: the same as a naive search through all versions finds, with the line
of the source that said it.
"""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm.testing import Upstream
from tests.given.sites import SITES
from tests.given.verbs import Kfm, each

WELLS = "wells"
COLUMNS = ("county", "depth", "status")


def table_of(chance: random.Random, rows: dict[str, dict[str, str]]) -> None:
    """Change some cells, take some rows away, bring some new ones; values come back at times."""
    for name in list(rows):
        if chance.random() < 0.05 and len(rows) > 20:
            del rows[name]
        elif chance.random() < 0.4:
            column = chance.choice(COLUMNS)
            rows[name][column] = (
                str(chance.randint(1, 3)) if column == "depth" else chance.choice("abc")
            )
    for _ in range(chance.randint(0, 2)):
        rows[f"w{chance.randint(0, 60):03}"] = {"county": "a", "depth": "1", "status": "b"}


def csv_of(rows: dict[str, dict[str, str]]) -> bytes:
    lines = [f"{name},{r['county']},{r['depth']},{r['status']}" for name, r in rows.items()]
    return "\n".join(["well_id,county,depth,status", *lines, ""]).encode()


def register(ws: Path, up: Upstream) -> None:
    (ws / "data" / "registry" / f"{WELLS}.yml").write_text(
        f"dataset_id: {WELLS}\ntitle: Wells\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
        f"source: {{url: '{up.url}/wells.csv', format: csv}}\nbusiness_key: [well_id]\n"
        "change: {rows: null, cells: null, deletions: null}\n"
        "schema: [{name: well_id, type: string}, {name: county, type: string},"
        " {name: depth, type: integer}, {name: status, type: string}]\n"
    )


def naive(ws: Path, kfm: Kfm) -> list[dict[str, Any]]:
    """Every generation as a dict of rows, read whole."""
    told = kfm("history", WELLS, "--limit", "100", "--json").json["generations"]
    found = []
    for entry in reversed(told):
        path = ws / "data" / "processed" / WELLS / entry["version_id"] / f"{WELLS}.parquet"
        rows = {r["well_id"]: r for r in pq.read_table(path).to_pylist()}
        found.append({"kind": entry["kind"], "run_id": entry["run_id"], "rows": rows})
    return found


def searched(past: list[dict[str, Any]], name: str, column: str) -> tuple[Any, int]:
    """(value, generation since which it is so), by going through all of them."""
    value = past[-1]["rows"][name][column]
    since = len(past)
    for number in range(len(past), 0, -1):
        row = past[number - 1]["rows"].get(name)
        if row is None or row[column] != value:
            break
        since = number
    return value, since


CELLS = {"twelve cells over six": (12, 6), "fifty cells over twenty": (50, 20)}


@pytest.mark.parametrize("many", each(CELLS, "twelve cells over six"))
def test_cells_over_many_generations_agree_with_a_naive_search(
    many: str, kfm: Kfm, ws: Path, up: Upstream
) -> None:
    (cells, generations), seed = CELLS[many], 17
    chance = random.Random(seed)
    rows = {f"w{n:03}": {"county": "a", "depth": "1", "status": "b"} for n in range(40)}
    register(ws, up)
    served: list[list[str]] = []
    while len(served) < generations:
        up.files["/wells.csv"] = csv_of(rows)
        said = kfm("run", WELLS, "--json").json["runs"][0]
        if said["state"] == "COMMITTED":
            served.append(csv_of(rows).decode().splitlines())
        table_of(chance, rows)
    past = naive(ws, kfm)
    assert len(past) == generations
    for _ in range(cells):
        name, column = chance.choice(sorted(past[-1]["rows"])), chance.choice(COLUMNS)
        value, since = searched(past, name, column)
        told = kfm("blame", WELLS, "--key", name, "--column", column, "--json").json
        cell = told["cells"][0]
        assert (cell["value"], cell["generation"]) == (value, since), (seed, name, column)
        assert cell["run_id"] == past[since - 1]["run_id"] and cell["given_by"] == since
        origin, lines = told["origin"], served[since - 1]
        assert [lines[n - 1].split(",")[0] for n in origin["lines"]] == [name], (seed, name)
        assert lines[origin["lines"][0] - 1].split(",")[1 + COLUMNS.index(column)] == str(value)
        assert (ws / origin["file"]).read_bytes().decode().splitlines() == lines
        assert (ws / origin["receipt"]).is_file()


def test_a_row_that_other_columns_name_is_followed_by_its_business_key(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    """`status` names w1 now, named w2 before, and both of them at first."""
    register(ws, up)
    for text in (b"w1,a,1,x\nw2,a,1,x\n", b"w1,a,2,y\nw2,a,1,x\n", b"w1,a,2,x\nw2,b,1,y\n"):
        up.files["/wells.csv"] = b"well_id,county,depth,status\n" + text
        assert kfm("run", WELLS).code == 0
    (own, other) = (
        {
            c["column"]: c["generation"]
            for c in kfm("blame", WELLS, "--key", key, "--json").json["cells"]
        }
        for key in ("well_id=w1", "status=x")
    )
    assert own == {"county": 1, "depth": 2, "status": 3}
    assert other == {"well_id": 1, "county": 1, "depth": 2}


def test_a_row_tells_each_of_its_cells_and_what_they_were(kfm: Kfm, ws: Path, up: Upstream) -> None:
    register(ws, up)
    for text in (b"w1,a,1,b\nw2,a,1,b\n", b"w1,a,2,b\nw2,a,1,b\n", b"w1,a,2,c\n"):
        up.files["/wells.csv"] = b"well_id,county,depth,status\n" + text
        assert kfm("run", WELLS).code == 0
    told = kfm("blame", WELLS, "--key", "well_id=w1", "--json").json
    assert {c["column"]: c["generation"] for c in told["cells"]} == {
        "county": 1,
        "depth": 2,
        "status": 3,
    }
    assert told["origin"]["lines"] == [2]
    was = kfm("blame", WELLS, "--key", "w1", "--column", "depth", "--json").json["was"]
    assert [(w["generation"], w["value"]) for w in was] == [(2, 2), (1, 1)]
    gone = kfm("blame", WELLS, "--key", "w2", "--json").json
    assert (gone["there"], gone["last_seen"], gone["gone_by"]) == (False, 2, 3)
    assert kfm("rollback", WELLS, "--to", "1", "--reason", "wrong").code == 0
    back = kfm("blame", WELLS, "--key", "w1", "--column", "depth", "--json").json["cells"][0]
    assert (back["value"], back["generation"], back["given_by"]) == (1, 4, 1)
    assert kfm("blame", WELLS, "--key", "nobody").out.startswith("No version up to wells@4")
    assert (
        kfm("blame", WELLS).code == 2
        and kfm("blame", WELLS, "--key", "w1", "--column", "x").code == 2
    )
    assert "generation 4" in kfm("blame", WELLS, "--key", "w1").out
    other = kfm("blame", WELLS, "--key", "wel_id=w1")
    assert other.code == 2 and "no column wel_id" in other.err and "well_id" in other.err


def test_of_records_that_are_not_public_neither_capture_nor_line_is_told(
    kfm: Kfm, ws: Path, released: bytes
) -> None:
    version = kfm("status", SITES, "--json").json["datasets"][0]["version_id"]
    path = ws / "data" / "processed" / SITES / version / f"{SITES}.parquet"
    rows = pq.read_table(path).to_pylist()
    shown = rows[0]
    key = ["--key", f"h3_cell={shown['h3_cell']}", "--key", f"period={shown['period']}"]
    told = kfm("blame", SITES, *key, "--json")
    assert told.code == 0, told.err
    origin = told.json["origin"]
    assert not origin["capture"] and not origin["lines"] and "not public" in origin["note"]
    assert kfm("blame", SITES, "--key", "site_no=14XX0001").code == 2, "no column that is shown"
    assert "14XX0001" not in json.dumps(told.json)


def test_a_withdrawn_version_is_named_and_not_looked_at(kfm: Kfm, ws: Path, up: Upstream) -> None:
    register(ws, up)
    for text in (b"w1,a,1,b\nw2,a,1,b\n", b"w1,a,1,b\nw2,a,2,b\n"):
        up.files["/wells.csv"] = b"well_id,county,depth,status\n" + text
        assert kfm("run", WELLS).code == 0
    assert (
        kfm("withdraw", WELLS, "--record", "well_id=w2", "--yes", "--reason", "asked for").code == 0
    )
    told = kfm("blame", WELLS, "--key", "w1", "--column", "depth", "--json").json
    assert told["not_shown"] and not told["cells"][0]["certain"]
    assert kfm("blame", WELLS, "--key", "w2", "--json").json["last_seen"] is None
