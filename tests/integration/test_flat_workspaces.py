"""Workspaces of the kfm whose modules lay in one folder (`tests/fixtures/flat_workspaces.sh` says
how) open, verify, resume and go on.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brought import untar
from tests.given.verbs import Said, caller

Kfm = Callable[..., Said]
FIXTURES = Path(__file__).parents[1] / "fixtures"


def trees(many: int) -> str:
    return "id,kind,height_m\n" + "".join(
        f"{i},{'oak' if i % 2 else 'elm'},{5 + i / 10:.1f}\n" for i in range(1, many + 1)
    )


@pytest.fixture
def ws(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    untar(FIXTURES / f"flat_{request.param}.tar.xz", tmp_path / "ws")
    return tmp_path / "ws"


def sound_once_its_lineage_is_read_again(kfm: Kfm) -> None:
    """An older kfm indexed less of it; nothing else is to be mended."""
    found = kfm("doctor", "--fix", "--json").json["findings"]
    assert {(f["code"], f["fixed"]) for f in found} == {("lineage.missing", True)}
    assert kfm("doctor", "--json").json["findings"] == []


@pytest.mark.parametrize("ws", ["killed"], indirect=True)
def test_runs_that_were_killed_are_resumed_as_the_same_runs(
    ws: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kfm = caller(ws, capsys)
    left = {
        r["dataset_id"]: r["run_id"]
        for r in kfm("runs", "--json").json["runs"]
        if r["state"] in ("CLAIMED", "PROPOSED")
    }
    assert left.keys() == {"claimed", "parted", "starred"}
    assert kfm("verify").code == 0
    (ws / "inbox/parted.csv").unlink()  # resuming needs no upstream: the part is there
    assert kfm("resume").code == 0
    ended = {r["run_id"]: r["state"] for r in kfm("runs", "--json").json["runs"]}
    assert {ended[run_id] for run_id in left.values()} == {"COMMITTED"}
    assert {d["generation"] for d in kfm("status", "--json").json["datasets"]} == {2}
    assert kfm("verify").code == 0
    sound_once_its_lineage_is_read_again(kfm)
    (ws / "inbox/parted.csv").write_text(trees(26))
    assert kfm("run", "parted").code == 0 and kfm("verify").code == 0


@pytest.mark.parametrize("ws", ["waiting"], indirect=True)
def test_what_waited_waits_on_and_what_was_rolled_back_stays_out(
    ws: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kfm = caller(ws, capsys)
    assert kfm("verify").code == 0
    back = kfm("run", "trees", "--json").json["runs"][0]
    assert back["state"] == "NOOP" and "rolled back" in back["reason"]
    again = kfm("run", "sites", "--json")
    assert again.code == 7 and again.json["runs"][0]["names"] == "proposal 3"
    assert kfm("keys", "new", "--name", "Ada Steward").code == 0
    (ws / "inbox/trees.csv").write_text(trees(23))
    assert kfm("run", "trees").code == 0 and kfm("verify").code == 0
    sound_once_its_lineage_is_read_again(kfm)
