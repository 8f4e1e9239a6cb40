"""A withdrawal is shown before it is made, nobody is handed what it withdrew, and a person's signed
word undoes it.
"""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kfm.cli import main
from kfm.evidence.projection import ABOUT_PROCESSED
from kfm.keys.trust import statement, unwrap
from kfm.model import ids
from kfm.model.channel import GenerationPredicate, Lift, Lifted
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.processes import Killed, die_at
from tests.given.verbs import Said, tree

Kfm = Callable[..., Said]
ELDER = ("--key", "T. Elder")


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def up(kfm: Kfm, ws: Path) -> Iterator[Upstream]:
    """Ten trees, official, and a steward with a key."""
    with Upstream() as upstream:
        plant(upstream, 10)
        (ws / "data" / "registry" / "trees.yml").write_text(
            "dataset_id: trees\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
            f"source: {{url: '{upstream.url}/trees.csv', format: csv}}\nbusiness_key: [id]\ncadence: daily\n"
        )
        assert kfm("run", "trees").code == 0
        assert kfm("keys", "new", "--name", "T. Elder", "--role", "approver").code == 0
        yield upstream


def plant(up: Upstream, count: int) -> None:
    up.files["/trees.csv"] = b"id,kind\n" + b"".join(b"t%d,oak%d\n" % (n, n) for n in range(count))


def gone(kfm: Kfm, *ids: str, yes: str = "--yes") -> Said:
    return kfm(
        "withdraw",
        "trees",
        *(word for one in ids for word in ("--record", f"id={one}")),
        "--reason",
        "asked for",
        yes,
    )


def rows(ws: Path) -> int:
    version = json.loads((ws / "data/catalog/dcat/trees.json").read_text())["version"]
    return int(
        json.loads((ws / f"data/processed/trees/{version}/version.json").read_text())["artifacts"][
            "trees.parquet"
        ]["rows"]
    )


def test_what_would_go_is_shown_and_asked_before_it_goes(
    kfm: Kfm, ws: Path, up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree(ws, without=("ledger",))
    told = gone(kfm, "t7", yes="--dry-run")
    assert (
        told.code == 0
        and "1 of 10 rows" in told.out
        and "oak7" in told.out
        and "oak6" not in told.out
    )
    both = gone(kfm, "t6", "t7", yes="--dry-run")
    assert both.code == 2 and "--record names id twice" in both.err, "one of them would stay"
    whole = kfm("withdraw", "trees", "--dry-run", "--json", "--limit", "3").json
    assert (whole["status"], whole["rows"], whole["removed"], whole["version_id"]) == (
        "dry_run",
        10,
        10,
        None,
    ) and len(whole["samples"]) == 3
    refused = kfm("withdraw", "trees", "--reason", "x")
    assert refused.code == 2 and "oak7" in refused.out and "--yes" in refused.err, (
        "nobody is there to be asked"
    )
    for word, code in (("\n", 1), ("y\n", 0)):
        assert tree(ws, without=("ledger",)) == before, "nothing has changed so far"
        monkeypatch.setattr("sys.stdin", Keyboard(word))
        monkeypatch.setattr("sys.stderr", keyboard := Keyboard())
        assert kfm("withdraw", "trees", "--record", "id=t7", "--reason", "x").code == code, word
        assert "[y/N]" in keyboard.getvalue()
    monkeypatch.undo()
    assert rows(ws) == 9
    (ws / "policy").rename(ws / "away")
    told = gone(kfm, "t3", yes="--dry-run")
    assert told.code == 0 and "oak3" not in told.out and "not shown" in told.out, (
        "what may not be read is not shown either"
    )


def test_an_erasure_that_was_killed_goes_on_unasked_and_no_other_does(
    kfm: Kfm, ws: Path, up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ("withdraw", "trees", "--erase", "--reason", "x", "--authority", "District Court")
    one, acts, channel = (
        (*whole, "--record", "id=t7"),
        ws / "data/work/trees/acts",
        ws / "data/catalog/channels/trees",
    )
    with monkeypatch.context() as killed:
        die_at("star", 1, killed)
        with pytest.raises(Killed):
            main(["-w", str(ws), *one, "--yes"])
    next(acts.iterdir()).unlink()  # its plan is lost, too
    for other in (whole, (*whole, "--record", "id=t3")):
        refused = kfm(*other)
        assert refused.code == 2 and "rows of trees go" in refused.out and "--yes" in refused.err, (
            "nobody is there to be asked"
        )
        assert not any(acts.iterdir()) and len(list(channel.iterdir())) == 2, (
            "who only asks plans nothing"
        )
    said = kfm(*one)
    assert (
        said.code == 0
        and "destroyed" in said.out
        and len(list(channel.iterdir())) == 2
        and rows(ws) == 9
    )


def test_a_marked_backup_goes_on_where_the_channel_was_when_it_was_marked(
    kfm: Kfm, ws: Path, up: Upstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup, new = tmp_path / "backup", tmp_path / "new"
    assert kfm("backup", str(backup), "--with-keys").code == 0
    assert kfm("backup", str(tmp_path / "keyless")).code == 0
    # the salt of commitments to rules is among the keys from here on, younger than both backups
    assert gone(kfm, "t9").code == 0
    assert kfm("keys", "new", "--name", "A. Later", "--role", "approver").code == 0
    plant(up, 11)
    assert kfm("run", "trees").code == 0, "a generation of its own, under a root of its own"
    order = (
        "withdraw",
        "trees",
        "--erase",
        "--yes",
        "--reason",
        "x",
        "--authority",
        "District Court",
        "--record",
        "id=t7",
    )
    assert kfm(*order, "--json").json["backups"] == {
        str(backup): "marked",
        str(tmp_path / "keyless"): "marked",
    }
    assert kfm("backup", str(backup), "--verify").code == 0
    assert main(["backup", "--restore", str(backup), "-w", str(new)]) == 0
    for name in ("keys/root", "data/catalog/approvals/trees", "data/catalog/channels/trees"):
        assert tree(new / name) == tree(ws / name), name
    assert rows(new) == rows(ws) == 9
    plant(up, 12)
    assert main(["-w", str(new), "run", "trees"]) == 0 and rows(new) == 10, (
        "the rule holds there too"
    )
    assert main(["-w", str(new), "verify"]) == 0
    (key,) = backup.glob("ERASED-*.keys")
    assert (
        key.stat().st_mode & 0o777 == 0o600
        and list((tmp_path / "keyless").glob("ERASED-*.keys")) == []
    )
    capsys.readouterr()
    assert (
        main(
            [
                "backup",
                "--restore",
                str(tmp_path / "keyless"),
                "-w",
                str(tmp_path / "shut"),
                "--json",
            ]
        )
        == 1
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["needs"]) == ("restored_with_findings", "keys")
    assert [(f["code"], f["where"]) for f in told["findings"]] == [
        ("keys.missing", "keys/data/trees")
    ], "the rule cannot be read without it"


def test_no_command_hands_out_what_was_withdrawn_and_the_folder_says_what_it_is(
    kfm: Kfm, ws: Path, up: Upstream, tmp_path: Path
) -> None:
    receipt = str(next((ws / "receipts" / "ingest.pull_source").rglob("*.json")))
    assert gone(kfm, "t7").code == 0
    version = json.loads((ws / "data/catalog/dcat/trees.json").read_text())["version"]
    (old,) = (p.name for p in (ws / "data" / "processed" / "trees").iterdir() if p.name != version)
    out = str(tmp_path / "out")
    for ref in ("trees@1", f"trees@{old}"):
        ways = [
            ("get", ref, "-o", out),
            ("bundle", ref, "-o", out),
            ("diff", ref, "trees"),
            ("cite", ref),
            ("rebuild", receipt),
        ]
        for args in [
            *ways,
            ("search", f"kfm://dataset/{ref}/trees.parquet#r0"),
            ("rollback", "trees", "--to", ref, "--reason", "x"),
        ]:
            said = kfm(*args)
            assert (
                said.code == 3 and "oak7" not in said.out + said.err and not Path(out).exists()
            ), args
    about = (ws / "data" / ABOUT_PROCESSED).read_text()
    assert "Withdrawn records lie on" in about and "kfm get" in about


def test_an_approver_undoes_a_withdrawal_and_no_other(
    kfm: Kfm, ws: Path, up: Upstream, tmp_path: Path
) -> None:
    """The later withdrawal put its number on everything before it; undoing it may not let in what
    the earlier one keeps out.
    """
    assert gone(kfm, "t7").code == 0 and gone(kfm, "t8").code == 0 and rows(ws) == 8
    assert kfm("withdraw", "trees", "--undo", "1", "--reason", "x", *ELDER).code == 2, (
        "no withdrawal"
    )
    assert kfm("withdraw", "trees", "--undo", "3", *ELDER).code == 2, "a reason is needed"
    said = kfm("withdraw", "trees", "--undo", "3", "--reason", "a mistake", *ELDER, "--json")
    assert (
        said.code == 0
        and (said.json["generation"], said.json["by"]) == (4, "T. Elder")
        and rows(ws) == 9
    )
    assert kfm("get", "trees@1", "-o", str(tmp_path / "a")).code == 3, (
        "it holds what generation 2 withdrew"
    )
    assert "signed by T. Elder" in kfm("explain", "trees").out and kfm("verify").code == 0
    assert kfm("withdraw", "trees", "--undo", "3", "--reason", "x", *ELDER).code == 2, (
        "it keeps nothing out any more"
    )
    assert kfm("reindex").code == 0 and kfm("get", "trees@1", "-o", str(tmp_path / "a")).code == 3
    assert kfm("withdraw", "trees", "--undo", "2", "--reason", "that too", *ELDER).code == 0
    assert (
        kfm("run", "trees").code == 0
        and rows(ws) == 10
        and kfm("get", "trees@1", "-o", str(tmp_path / "a")).code == 0
    )
    assert (
        kfm("bundle", "trees", "-o", str(tmp_path / "b")).code == 0
        and kfm("verify", str(tmp_path / "b")).code == 0
    )


def test_without_an_approvers_word_about_it_a_withdrawal_holds(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    """The operator holds the builder's key, and signs a generation that says a withdrawal is
    undone.
    """
    assert gone(kfm, "t7").code == 0
    with open_world(open_workspace(ws)) as world:
        channel = world.channel("trees")
        raw = world.data.read(channel.path(2))
        said = Lifted(
            dataset_id="trees",
            generation=2,
            digest=ids.digest(raw),
            person="T. Elder",
            reason="",
            made_at="2026-01-01T00:00:00Z",
        )
        act = world.keys.sign(
            statement("lift", "kfm://dataset/trees", "0" * 64, msgspec.to_builtins(said))
        )
        first: GenerationPredicate | None = channel.predicate(1)
        assert first is not None
        told = unwrap(raw)["predicate"]
        forged = GenerationPredicate(
            dataset_id="trees", generation=3, kind="rollback", version_id=first.version_id, version_digest=first.version_digest,
            receipts_digest=None, run_id="", token="0.0", prev=ids.digest(raw), reason="forged", lifts=Lift(generation=2, act=act.decode()),
        )  # fmt: skip
        assert told["kind"] == "withdraw" and channel.append(
            msgspec.structs.replace(forged, kind="void", lifts=None)
        )
        assert "does not repeat" in kfm("verify", "--json").json["problems"][0]["what"]
        (ws / "data" / channel.path(3)).unlink()
        assert channel.append(forged)
    assert kfm("get", "trees@1", "-o", str(ws / "out")).code == 3
    assert kfm("get", "trees", "-o", str(ws / "out")).code == 0 and rows(ws) == 9, (
        "what was left is official still"
    )
    said_of = kfm("verify", "--json")
    assert said_of.code == 6 and "lifts generation 2" in said_of.json["problems"][0]["what"]


def test_what_came_in_between_stays_and_the_next_run_brings_the_rest_back(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    assert gone(kfm, "t7").code == 0
    plant(up, 12)
    assert kfm("run", "trees").code == 0 and rows(ws) == 11
    assert (
        kfm("withdraw", "trees", "--undo", "2", "--reason", "a mistake", *ELDER).code == 0
        and rows(ws) == 11
    )
    assert kfm("run", "trees").code == 0 and rows(ws) == 12 and kfm("verify").code == 0
    erased = kfm(
        "withdraw",
        "trees",
        "--record",
        "id=t7",
        "--erase",
        "--authority",
        "court",
        "--reason",
        "ordered",
        "--yes",
        "--json",
    ).json
    assert (
        kfm("withdraw", "trees", "--undo", str(erased["generation"]), "--reason", "x", *ELDER).code
        == 3
    ), "what was erased is gone"
