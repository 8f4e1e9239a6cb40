"""Types nobody states: inferred once and told, kept from capture to capture, written down by a
command.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from tests.given.verbs import Said


def trees(*odd: str, rows: int = 200, plot: str = "{n}") -> bytes:
    cells = [*(f"{n % 30}.5" for n in range(rows - len(odd))), *odd]
    return (
        "tree,plot,height_m\n"
        + "".join(f"t{n},{plot.format(n=n)},{cell}\n" for n, cell in enumerate(cells))
    ).encode()


def test_a_type_is_inferred_once_told_kept_and_can_be_written_down(
    kfm: Callable[..., Said], ws: Path
) -> None:
    entry = ws / "data" / "registry" / "trees.yml"

    def types() -> dict[str, str]:
        return {
            c["name"]: c["type"] for c in kfm("dataset", "schema", "trees", "--json").json["schema"]
        }

    with Upstream() as up:
        entry.write_text(
            "# who planted them is not known\ndataset_id: trees\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
            f"source: {{url: '{up.url}/trees.csv', format: csv, recheck: '0'}}\nbusiness_key: [tree]\nchange: {{cells: null}}\n"
        )
        assert kfm("dataset", "schema", "trees").code == 2  # nothing was inferred yet

        up.files["/trees.csv"] = trees("tall", plot="0{n}")
        first = kfm("run", "trees", "--json")
        assert first.code == 0 and first.json["runs"][0]["quarantined"] == 1
        run = first.json["runs"][0]["run_id"]
        shown = kfm("quarantine", "show", run).out
        assert "tall" in shown and "201" in shown and "type" in shown
        assert types() == {"tree": "string", "plot": "string", "height_m": "number"}
        said = str(first.json["runs"][0]["warnings"])
        assert (
            "Inferred: tree string (key), plot string (leading zeros" in said
            and "height_m number" in said
        )
        odd = "Column 'height_m' is number; 1 of 200 values is not, and its row is set aside: line 201 for one."
        assert odd in first.json["runs"][0]["warnings"]
        report = ws / "data" / "work" / "trees" / "runs" / run / "validation_report.json"
        assert odd in json.loads(report.read_text())["warnings"]

        # plots without a zero, seen alone, would be numbers
        up.files["/trees.csv"] = trees("9", plot="{n}")
        second = kfm("run", "trees", "--json")
        assert second.code == 0 and types()["plot"] == "string"
        assert second.json["runs"][0]["warnings"] == []
        # it knows what it stood on
        assert kfm("rebuild", _receipt(ws, second.json["runs"][0]["run_id"])).code == 0

        up.files["/trees.csv"] = trees(*["tall"] * 40)
        third = kfm("run", "trees", "--json")
        assert (
            third.code == 7
            and "columns height_m have another type"
            in kfm("review", str(third.json["runs"][0]["proposal"])).out
        )
        assert types()["height_m"] == "number"

        wrote = kfm("dataset", "schema", "trees", "--write")
        assert (
            wrote.code == 0
            and "height_m                 number" in wrote.out
            and "Written to data/registry/trees.yml" in wrote.out
        )
        assert (
            entry.read_text().startswith("# who planted them")
            and kfm("dataset", "schema", "trees", "--json").json["stated"] is True
        )
        stated = open_workspace(ws).require("trees").schema
        assert {c.name: c.type for c in stated} == {
            "tree": "string",
            "plot": "string",
            "height_m": "number",
        }
        up.files["/trees.csv"] = trees("tall")
        assert kfm("run", "trees").code == 0
        table = pq.read_table(next((ws / "data" / "processed" / "trees").glob("*/trees.parquet")))
        assert table.schema.field("height_m").type == "double"


def _receipt(ws: Path, run_id: str) -> str:
    return str(next(p for p in (ws / "receipts").rglob("*.json") if run_id in p.name))
