"""What something comes from, what comes from it, the way between two, and what would break: from the
command line, as far as the reader may know.
"""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.given.family import Family
from tests.given.stand import Stand


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with Stand(tmp_path) as stand:
        yield Family(stand)


def names(said: dict[str, object], sign: int) -> set[str]:
    points: list[dict[str, object]] = said["points"]  # type: ignore[assignment]
    return {str(p["name"]) for p in points if int(str(p["distance"])) * sign > 0}


def test_before_and_after_reach_through_every_dataset_between(family: Family) -> None:
    said = family.stand("lineage", "show", "all_three", "--json").json
    versions = {n for n in names(said, -1) if n.startswith("version:")}
    assert versions == {
        f"version:{family.version(n)}" for n in ("trees", "kinds", "owners", "both")
    }
    said = family.stand("lineage", "show", "trees", "--json").json
    versions = {n for n in names(said, 1) if n.startswith("version:")}
    assert versions == {f"version:{family.version(n)}" for n in ("both", "all_three")}
    near = family.stand("lineage", "show", "all_three", "--up", "1", "--json").json
    assert f"version:{family.version('trees')}" not in names(near, -1)


def test_a_file_that_was_made_is_told_as_part_of_its_version(family: Family) -> None:
    said = family.stand("lineage", "show", "trees", "--json").json
    parts = {(e["source"], e["target"]) for e in said["lines"] if e["kind"] == "HAS_PART"}
    whole = [f"version:{family.version(n)}" for n in ("both", "all_three")]
    assert {source for source, _ in parts} == {*whole}, "no file of the one that was asked about"
    assert {target.rpartition("/")[2] for _, target in parts} == {
        "both.parquet",
        "all_three.parquet",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nosuch"], "Lineage knows nothing of nosuch."),
        (["trees", "--as-of", "yesterday"], "yesterday is no moment, and no run or version"),
        (["trees", "--as-of", "2026-13-45"], "2026-13-45 is no moment."),
        (["trees", "--up", "-1"], "-1 runs cannot be walked."),
        (["trees", "--down", "-7"], "-7 runs cannot be walked."),
    ],
)
def test_what_cannot_be_meant_is_said_and_nobody_is_sent_to_run_it(
    family: Family, words: list[str], said: str
) -> None:
    told = family.stand("lineage", "show", *words, "--json")
    assert told.code == 2 and told.json["happened"].startswith(said), told.json
    assert "kfm run " not in told.json["remedy"] and told.json["remedy"]


def test_a_tree_tells_it_on_the_terminal(family: Family) -> None:
    said = family.stand("lineage", "show", "all_three").out
    assert "comes from" in said and f"{family.stand.speaker.url}/owners" in said
    assert "└─" in said and "kinds@v" in said


def test_lineage_as_of_a_moment_knows_nothing_that_came_later(family: Family) -> None:
    made = family.made["both"]["run_id"]
    later = names(family.stand("lineage", "show", "trees", "--as-of", made, "--json").json, 1)
    assert f"version:{family.version('both')}" in later
    assert f"version:{family.version('all_three')}" not in later
    before = family.stand("lineage", "show", "trees", "--as-of", "2000-01-01", "--json").json
    assert names(before, 1) == set()


def test_the_shortest_way_leads_from_a_source_to_what_was_made_of_it(family: Family) -> None:
    source = f"{family.stand.speaker.url}/trees"
    said = family.stand("lineage", "path", "all_three", source, "--json")
    ends = [line["target"] for line in said.json["lines"] if line["kind"] == "GENERATED"]
    assert ends == [f"version:{family.version(n)}" for n in ("trees", "both", "all_three")]
    for number in range(4):  # whichever of its answers comes first by its digest
        family.change("trees", f"id,height\nt0,{number}\nt1,7\nt2,7\nt3,7\nt4,7\n")
    said = family.stand("lineage", "path", "all_three", source, "--json")
    assert len(said.json["lines"]) == 6, "an older answer is what it came from"
    none = family.stand("lineage", "path", "trees", "kinds", "--json")
    assert none.code == 1 and none.json["lines"] == []


def test_what_breaks_without_a_source_is_named_with_what_is_official(family: Family) -> None:
    source = f"{family.stand.speaker.url}/trees"
    said = family.stand("lineage", "impact", source, "--json").json
    told = {a["dataset_id"]: (a["official"], a["distance"]) for a in said["affected"]}
    assert told == {
        name: (family.made[name]["version_id"], far)
        for name, far in (("trees", 1), ("both", 2), ("all_three", 3))
    }
    family.change("trees", "id,height\n" + "".join(f"t{n},{n + 1}\n" for n in range(5)))
    said = family.stand("lineage", "impact", "kinds", "--json").json
    assert {a["dataset_id"] for a in said["affected"]} == {"both", "all_three"}


@pytest.mark.parametrize("form", ["svg", "dot", "cypher"])
def test_it_can_be_drawn_and_taken_along(family: Family, form: str, tmp_path: Path) -> None:
    file = tmp_path / f"out.{form}"
    said = family.stand("lineage", "export", "all_three", "--format", form, "-o", str(file))
    assert said.code == 0
    text = file.read_text()
    assert family.version("trees") in text
    if form == "svg":
        root = ElementTree.fromstring(text)
        boxes = root.findall(".//{http://www.w3.org/2000/svg}rect")
        assert len(boxes) == len(
            family.stand("lineage", "show", "all_three", "--json").json["points"]
        )
        assert "href" not in text and "src=" not in text, "nothing is fetched to look at it"


def test_what_a_reader_may_not_know_of_is_left_out_and_looks_like_nothing(family: Family) -> None:
    reasons = ("--yes", "--reason", "asked for")
    assert family.stand("withdraw", "owners", *reasons).code == 0
    said = family.stand("lineage", "show", "all_three", "--json").json
    told = {p["name"] for p in said["points"]}
    assert said["hidden"] and f"version:{family.version('owners')}" not in told
    assert not any(n.startswith(f"asset:{family.stand.speaker.url}/owners") for n in told)
    hidden = family.stand("lineage", "show", f"{family.stand.speaker.url}/owners")
    unknown = family.stand("lineage", "show", f"{family.stand.speaker.url}/nothing")
    assert hidden.code == unknown.code == 2
    assert hidden.err.replace("/owners", "") == unknown.err.replace("/nothing", "")


def test_columns_say_where_they_come_from_and_what_became_of_them(family: Family) -> None:
    said = family.stand("lineage", "show", "all_three", "--columns", "--json").json["columns"]
    told = {c["name"]: (c["how"], {o["uri"] for o in c["of"]}) for c in said}
    assert told["owner"] == ("same", {"kfm://dataset/owners"})
    assert told["id"] == ("same", {"kfm://dataset/both", "kfm://dataset/owners"})
    assert "owner" in family.stand("lineage", "show", "all_three", "--columns").out
    assert family.stand("lineage", "show", "all_three", "--json").json["columns"] is None
    source = family.stand("lineage", "show", f"{family.stand.speaker.url}/trees", "--columns")
    assert source.code == 2 and "Columns are those of a version" in source.err


def test_of_a_dataset_the_reader_may_not_know_no_column_is_told(family: Family) -> None:
    assert family.stand("withdraw", "owners", "--yes", "--reason", "asked for").code == 0
    said = family.stand("lineage", "show", "all_three", "--columns", "--json").json["columns"]
    assert "kfm://dataset/owners" not in str(said) and "kfm://dataset/both" in str(said)
