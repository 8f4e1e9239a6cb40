"""A canary: another version of an updater on some partitions, a proposal until it was compared,
beside the rest that goes on.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.acts.approve import sign_off
from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.evidence.journal import asked_of
from kfm.evidence.proposal import count, run_of
from kfm.keys.commitments import OPEN
from kfm.workspace.config import change_entry
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import resumed_target, targets_of
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said, caller

ID = "levels"
ENTRY = """dataset_id: levels
title: Levels
licence: CC0-1.0
sensitivity: public
policy_label: public
source: {kind: http_file, format: csv, url: "file:///inbox/{partition}.csv"}
schema: [{name: site, type: string, nullable: false}, {name: level, type: number}]
business_key: [site]
merge: partition
partitions: [a, b, c]
"""
CANARY = {"pipeline_version": "2.0.0", "partitions": ["a"]}
CODE = """
def transform(ctx, rows):
    for row in rows:
        yield {"site": "S9" if row["site"] == "S1" else row["site"], "level": str(10 * float(row["level"]))}
"""
Kfm = Callable[..., Said]


def levels(here: Path, partition: str, first: float = 1.5) -> None:
    (here / "inbox" / f"{partition}.csv").write_text(
        "site,level\n" + "".join(f"S{n},{first + n}\n" for n in range(3))
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three official partitions, and code for a canary that nobody tries yet."""
    folder = tmp_path_factory.mktemp("made") / "ws"
    make_workspace(folder, sample=False)
    (folder / "data" / "registry" / f"{ID}.yml").write_text(ENTRY)
    (folder / "inbox").mkdir()
    for partition in "abc":
        levels(folder, partition)
    assert main(["-w", str(folder), "run", ID]) == 0
    assert main(["-w", str(folder), "keys", "new", "--name", "R. Stone", "--role", "approver"]) == 0
    code = folder / "scripts" / "connectors" / ID / "connector_canary.py"
    code.parent.mkdir(parents=True)
    code.write_text(CODE)
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "ws"))


@pytest.fixture
def kfm(here: Path, capsys: pytest.CaptureFixture[str]) -> Kfm:
    return caller(here, capsys)


@pytest.fixture
def tried(here: Path, kfm: Kfm) -> int:
    """The canary is tried on one partition; the number of its proposal."""
    change_entry(here, ID, {"canary": CANARY})
    said = runs(kfm)
    assert {p: r["state"] for p, r in said.items()} == {
        "a": "PROPOSED",
        "b": "NOOP",
        "c": "NOOP",
    }, said
    return int(said["a"]["proposal"])


def runs(kfm: Kfm) -> dict[str, Any]:
    return {r["partition"]: r for r in kfm("run", ID, "--json").json["runs"]}


def status(kfm: Kfm) -> dict[str, Any]:
    found: dict[str, Any] = kfm("status", "--json").json["datasets"][0]
    return found


def folder(here: Path, number: int) -> Path:
    with open_world(open_workspace(here)) as world:
        return here / "data" / "work" / ID / "proposals" / run_of(world, number).run_id


def test_a_canary_waits_for_a_person_whatever_the_registry_says(
    here: Path, kfm: Kfm, tried: int
) -> None:
    proposal = json.loads((folder(here, tried) / "proposal.json").read_text())
    assert (proposal["canary"], proposal["approvals"]) == (True, 1)  # the registry asks for none
    generation = status(kfm)["generation"]
    said = kfm("run", ID, "--json")
    assert (said.code, {r["partition"]: r["reason"] for r in said.json["runs"]}["a"]) == (
        7,
        "already proposed, waits for a person",
    )
    assert kfm("resume").code in (0, 7)
    assert kfm("promote", str(tried)).code == 7
    assert status(kfm)["generation"] == generation


def test_an_approval_counts_only_after_the_comparison(here: Path, kfm: Kfm, tried: int) -> None:
    said = kfm("approve", str(tried), "--key", "R. Stone")
    assert said.code == 3 and "kfm canary compare levels" in said.err
    with open_world(open_workspace(here)) as world:  # somebody signs all the same, past the command
        row = run_of(world, tried)
        sign_off(world, row, world.keys.person("R. Stone"), "early", "approve")
        assert count(world, row) == (0, 1)
    assert kfm("canary", "compare", ID).code == 0
    with open_world(open_workspace(here)) as world:
        assert count(world, row) == (0, 1)  # it was given before there was anything to look at
    said = kfm("promote", str(tried), "--json")
    assert (said.code, "approval.void" in [r["code"] for r in said.json["reasons"]]) == (7, True)
    assert kfm("approve", str(tried), "--key", "R. Stone", "--json").json["approvals"] == 1
    assert kfm("promote", str(tried), "--json").json["state"] == "COMMITTED"


def test_promoting_what_nobody_compared_says_so(kfm: Kfm, tried: int) -> None:
    said = kfm("promote", str(tried), "--json")
    assert [r["code"] for r in said.json["reasons"]][:2] == [
        "approval.missing",
        "approval.uncompared",
    ]


def test_the_comparison_counts_rows_and_is_written_once(here: Path, kfm: Kfm, tried: int) -> None:
    official = status(kfm)["version_id"]
    (first,) = kfm("canary", "compare", ID, "--json").json["comparisons"]
    assert first["artifacts"] == {"a.parquet": {"added": 1, "removed": 1, "changed": 2}}
    assert (
        first["new"],
        first["official_version"],
        first["partition"],
        first["pipeline_version"],
    ) == (True, official, "a", "2.0.0")
    assert (
        first["by"].startswith("user:")
        and first["at"]
        and first["candidate_digest"].startswith("sha256:")
    )
    path = folder(here, tried) / "comparison.json"
    before = path.read_bytes()
    (second,) = kfm("canary", "compare", ID, "--json").json["comparisons"]
    assert second == first | {"new": False}
    assert path.read_bytes() == before


def test_a_comparison_that_was_edited_voids_what_was_approved(
    here: Path, kfm: Kfm, tried: int
) -> None:
    kfm("canary", "compare", ID)
    assert kfm("approve", str(tried), "--key", "R. Stone").code == 0
    path = folder(here, tried) / "comparison.json"
    path.chmod(0o644)
    path.write_text(path.read_text().replace('"changed": 2', '"changed": 0'))
    said = kfm("promote", str(tried), "--json")
    assert (said.code, said.json["state"]) == (7, "PROPOSED")


def test_a_proposal_that_denies_being_a_canary_is_not_promoted(
    here: Path, kfm: Kfm, tried: int
) -> None:
    path, generation = folder(here, tried) / "proposal.json", status(kfm)["generation"]
    path.chmod(0o644)
    path.write_text(
        path.read_text().replace('"canary":true,', "").replace('"approvals":1', '"approvals":0')
    )
    assert kfm("promote", str(tried)).code in (3, 6)
    assert status(kfm)["generation"] == generation


def test_the_other_partitions_go_on_under_the_old_version_and_nothing_of_the_canary_comes_along(
    here: Path, kfm: Kfm, tried: int
) -> None:
    before = kfm("get", ID, "-o", str(here / "before"))
    assert before.code == 0
    levels(here, "b", 7.0)
    said = runs(kfm)
    assert (said["b"]["state"], said["c"]["state"]) == ("COMMITTED", "NOOP")
    kfm("get", ID, "-o", str(here / "after"))
    assert (here / "after" / "a.parquet").read_bytes() == (
        here / "before" / "a.parquet"
    ).read_bytes()
    assert (here / "after" / "b.parquet").read_bytes() != (
        here / "before" / "b.parquet"
    ).read_bytes()
    with open_world(open_workspace(here)) as world:
        assert (
            world.store.read(lambda tx: tx.runs.get(said["b"]["run_id"])).pipeline_version
            == "1.0.0"
        )
    # the canary stands on what is official: it was proposed anew, and must be compared anew
    again = runs(kfm)["a"]
    with open_world(open_workspace(here)) as world:
        assert run_of(world, tried).state == "SUPERSEDED"
    assert again["state"] in ("PROPOSED", "NOOP")
    (canary,) = kfm("canary", ID, "--json").json["canaries"]
    assert [(p["partition"], p["compared"]) for p in canary["proposals"]] == [("a", False)]
    assert canary["proposals"][0]["proposal"] != tried


def test_accepting_leads_to_one_version_for_all(here: Path, kfm: Kfm, tried: int) -> None:
    assert kfm("canary", "accept", ID).code == 3  # nobody has compared
    kfm("canary", "compare", ID)
    said = kfm("canary", "accept", ID)
    assert (
        said.code == 0
        and f"approve {tried}" in said.out
        and "connector_canary.py" in said.out
        and "2.0.0" in said.out
    )
    assert kfm("approve", str(tried), "--key", "R. Stone").code == 0
    assert kfm("promote", str(tried)).code == 0
    code = here / "scripts" / "connectors" / ID / "connector_canary.py"
    code.rename(code.with_name("connector.py"))
    change_entry(here, ID, {"pipeline_version": "2.0.0", "canary": None})
    assert {p: r["state"] for p, r in runs(kfm).items()} == {
        "a": "NOOP",
        "b": "COMMITTED",
        "c": "COMMITTED",
    }, "a has its bytes already"
    assert {r["state"] for r in runs(kfm).values()} == {"NOOP"}
    assert kfm("verify", ID).code == 0
    assert kfm("canary", "--json").json == {"canaries": []}


def test_a_canary_changes_nothing_for_the_specs_of_the_rest(here: Path) -> None:
    before = {t.partition: t for t in targets_of(open_workspace(here), ID)}
    change_entry(here, ID, {"canary": CANARY})
    after = {t.partition: t for t in targets_of(open_workspace(here), ID)}
    assert [before[p].spec_hash == after[p].spec_hash for p in "abc"] == [False, True, True]
    assert [(t.canary, t.pipeline_version) for t in after.values()] == [
        (True, "2.0.0"),
        (False, "1.0.0"),
        (False, "1.0.0"),
    ]
    assert not any(t.canary for t in targets_of(open_workspace(here), ID, trigger="backfill"))
    assert all("canary" not in t.spec["registry"] for t in after.values()), (
        "workspaces without one keep the hashes they have"
    )


@pytest.mark.parametrize("code", [True, False], ids=["code of its own", "the same code"])
def test_an_interrupted_canary_is_resumed_as_a_canary_or_not_at_all(
    here: Path, kfm: Kfm, code: bool
) -> None:
    if not code:
        (here / "scripts" / "connectors" / ID / "connector_canary.py").unlink()
    change_entry(here, ID, {"canary": CANARY})
    tried = int(runs(kfm)["a"]["proposal"])
    workspace = open_workspace(here)
    with open_world(workspace) as world:
        row = run_of(world, tried)
        journal = world.store.read(lambda tx: tx.journals.get(row.wal_id))
    asked = asked_of(journal, OPEN)
    assert resumed_target(workspace, row, asked).canary
    change_entry(here, ID, {"canary": None})
    with pytest.raises(Exception, match="another registry entry"):
        resumed_target(open_workspace(here), row, asked)


def test_a_dataset_without_partitions_is_tried_as_a_whole(here: Path, kfm: Kfm) -> None:
    change_entry(
        here,
        ID,
        {
            "partitions": None,
            "merge": None,
            "source": {"format": "csv", "url": "file:///inbox/a.csv"},
        },
    )
    (here / "scripts" / "connectors" / ID / "connector_canary.py").unlink()
    assert kfm("run", ID).code == 0
    change_entry(here, ID, {"canary": {"pipeline_version": "2.0.0"}})
    said = kfm("run", ID)
    assert said.code == 7 and "canary 2.0.0" in said.out
    (only,) = kfm("canary", "compare", ID, "--json").json["comparisons"]
    assert only["artifacts"] == {"levels.parquet": {"added": 0, "removed": 0, "changed": 0}}


@pytest.mark.parametrize(
    ("canary", "why"),
    [
        ({"pipeline_version": "2.0.0", "partitions": ["a", "z"]}, "names z"),
        ({"pipeline_version": "2.0.0"}, "names none"),
        ({"pipeline_version": "1.0.0", "partitions": ["a"]}, "as the rest is"),
        ({"pipeline_version": "2.0.0", "partition": ["a"]}, "no key `partition`"),
    ],
)
def test_a_canary_that_means_nothing_is_refused(
    here: Path, kfm: Kfm, canary: dict[str, Any], why: str
) -> None:
    path = here / "data" / "registry" / f"{ID}.yml"
    path.write_text(ENTRY + f"canary: {json.dumps(canary)}\n")
    said = kfm("run", ID)
    assert said.code == 2 and why in said.err


def test_what_is_not_tried_cannot_be_compared(kfm: Kfm) -> None:
    assert kfm("canary", "compare", ID).code == 2
    assert kfm("canary", "compare").code == 2
    assert kfm("canary").code == 0
