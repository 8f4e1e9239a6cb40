"""A workspace that an earlier kfm made (`tests/fixtures/older_workspace.sh` says how) is brought
along, and nothing of it is called false.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.workspace.config import load_dataset
from tests.brought import untar
from tests.given.verbs import Said, caller

Kfm = Callable[..., Said]
OLDER = Path(__file__).parents[1] / "fixtures" / "older_workspace.tar.xz"
# a withheld name, of which profiles and candidates told the first and the last
HIDDEN = b"Hidden hollow 1"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    untar(OLDER, tmp_path / "ws")
    return tmp_path / "ws"


def plain(ws: Path) -> list[str]:
    """Files of the workspace, but for what upstream itself serves, in which a withheld value lies
    in plain text.
    """
    files = (p for p in ws.rglob("*") if p.is_file() and p.relative_to(ws).parts[0] != "inbox")
    return sorted(str(p.relative_to(ws)) for p in files if HIDDEN in p.read_bytes())


def test_an_older_workspace_is_brought_along(
    older: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kfm = caller(older, capsys)
    refused = kfm("run", "sites")
    assert refused.code == 2 and "kfm upgrade" in refused.out + refused.err
    assert len(plain(older)) == 3
    would = kfm("upgrade", "--dry-run", "--json").json
    steps = {"show", "sealed", "root", "lineage"}
    assert {s["kind"] for s in would["steps"]} == steps and len(plain(older)) == 3
    done = kfm("upgrade", "--json")
    assert done.code == 0 and {s["kind"] for s in done.json["steps"]} == steps
    release = load_dataset(older, "sites").release
    assert release is not None and (release.show, release.withhold) == (
        ("period",),
        ("site_no", "name", "visited"),
    )
    assert plain(older) == []
    assert kfm("upgrade", "--json").json["steps"] == []

    checked = kfm("verify")
    assert checked.code == 0 and "made before approvals were recorded" in checked.out
    assert kfm("doctor", "--json").json["findings"] == []
    assert kfm("run", "birds").code == 0 and kfm("run", "sites").code == 7

    (older / "inbox/birds.csv").write_text(
        "id,kind,height_m\n" + "".join(f"{i},owl,{i}.5\n" for i in range(1, 23))
    )
    assert kfm("run", "birds", "--accept-change", "--reason", "counted anew").code == 0
    assert kfm("verify").code == 0, "what is made now stands on what was made before"


def test_references_that_run_something_move_into_the_table_of_kfm_yml(
    older: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kfm = caller(older, capsys)
    entry = older / "data/registry/birds.yml"
    text = entry.read_text().replace(
        '"file:///inbox/birds.csv"',
        '"https://birds.example/b.csv?all=1&token=file:secret.txt", headers: {X-Key: "cmd:echo secret"}',
    )
    entry.write_text(text)
    (older / "kfm.yml").write_text(
        (older / "kfm.yml").read_text() + "credentials:\n  other: env:OTHER\n"
    )
    assert kfm("dataset", "check", "birds").code == 2
    odd = older / "data/registry/odd.yml"
    odd.write_text("- no mapping\n")
    said = kfm("upgrade")
    assert said.code == 2 and "odd.yml: it is a list, not a mapping" in said.err
    odd.unlink()
    assert kfm("upgrade").code == 0
    assert kfm("dataset", "check", "birds").code == 0
    config = (older / "kfm.yml").read_text()
    assert 'birds_x_key: "cmd:echo secret"' in config and 'other: "env:OTHER"' in config
    assert "credential:birds_x_key" in entry.read_text() and "cmd:" not in entry.read_text()
    assert (
        "?all=1&token=credential:birds_token" in entry.read_text()
        and 'birds_token: "file:secret.txt"' in config
    )


def test_a_salt_that_was_lost_is_named_and_not_made_again(
    older: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kfm = caller(older, capsys)
    assert kfm("upgrade").code == 0
    salt = older / "keys/data/sites.salt"
    kept = salt.read_bytes()
    salt.unlink()
    assert kfm("verify", "sites").code == 3 and kfm("run", "sites").code == 3
    assert not salt.exists(), (
        "another one would call everything false that was committed to with the first"
    )
    salt.write_bytes(kept)
    assert kfm("verify", "sites").code == 0
