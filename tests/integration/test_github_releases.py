"""Releases on GitHub: every official version is attached once, with its digests; what may not leave
does not, and what is withdrawn is taken back.
"""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.github import TOKEN, github, killed_at, named
from tests.given.github_server import GithubServer
from tests.given.stand import Stand, answer
from tests.given.verbs import each

TAG = "wells/00000001"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[GithubServer]:
    monkeypatch.setenv("KFM_TEST_TOKEN", TOKEN)
    monkeypatch.setenv("KFM_FETCH_ATTEMPTS", "2")
    with github() as server:
        yield server


@pytest.fixture
def stand(tmp_path: Path, hub: GithubServer) -> Iterator[Stand]:
    with Stand(tmp_path) as made:
        named(made.ws, hub, receiver=True)
        made.register("wells", {"format": "csv"})
        yield made


def waiting(stand: Stand) -> list[tuple[str, str]]:
    with open_world(open_workspace(stand.ws)) as world:
        return [(r.state, r.error) for r in world.store.read(lambda tx: tx.deliveries.left())]


def test_an_official_version_is_attached_to_a_release_with_matching_digests(
    stand: Stand, hub: GithubServer
) -> None:
    stand.publish("wells", answer("k,v\na,1\n"))
    (folder,) = (stand.ws / "data/processed/wells").iterdir()
    lying = {p.name: p.read_bytes() for p in folder.iterdir()}
    lying["generation.json"] = (stand.ws / "data/catalog/channels/wells/00000001.json").read_bytes()
    attached = hub.repo.assets_of(TAG)
    assert attached == lying and "wells.parquet" in attached
    (release,) = hub.repo.releases.values()
    stated = {a["name"]: a["digest"] for a in release.assets}
    assert stated == {n: f"sha256:{hashlib.sha256(c).hexdigest()}" for n, c in lying.items()}
    assert hashlib.sha256(lying["wells.parquet"]).hexdigest() in release.body
    assert waiting(stand) == []


def test_each_generation_has_one_release_however_often_it_is_told(
    stand: Stand, hub: GithubServer
) -> None:
    stand.publish("wells", answer("k,v\na,1\n"))
    stand.publish("wells", answer("k,v\na,2\n"))
    stand("reindex")  # what was told is not known any more
    stand("doctor", "--fix")
    tags = [r.tag for r in hub.repo.releases.values()]
    assert tags == [TAG, "wells/00000002"]
    assert hub.repo.git.refs.keys() >= {f"tags/{TAG}"}


def test_github_down_costs_no_run_and_the_release_follows(stand: Stand, hub: GithubServer) -> None:
    for number in range(1, 9):
        hub.fault(number, "close")
    stand.publish("wells", answer("k,v\na,1\n"))
    assert hub.repo.releases == {} and waiting(stand)[0][0] == "waiting"
    hub.mend()
    stand("doctor", "--fix")
    assert "wells.parquet" in hub.repo.assets_of(TAG) and waiting(stand) == []


def test_an_expired_token_is_kept_as_a_failure_with_its_reason(
    stand: Stand, hub: GithubServer
) -> None:
    hub.tokens[TOKEN].expired = True
    stand.publish("wells", answer("k,v\na,1\n"))
    ((state, why),) = waiting(stand)
    assert state == "failed" and "does not accept the token" in why and TOKEN not in why
    hub.tokens[TOKEN].expired = False
    stand("doctor", "--fix")
    assert "wells.parquet" in hub.repo.assets_of(TAG)


def test_of_what_may_not_be_handed_out_github_hears_nothing(
    stand: Stand, hub: GithubServer
) -> None:
    """Its labels became stricter before GitHub could be told."""
    for number in range(1, 9):
        hub.fault(number, "close")
    stand.publish("wells", answer("k,v\na,1\n"))
    hub.mend()
    before = len(hub.calls)
    entry = stand.ws / "data" / "registry" / "wells.yml"
    plain = yaml.safe_load(entry.read_text())
    entry.write_text(yaml.safe_dump(plain | {"sensitivity": "restricted"}))
    stand("doctor", "--fix")
    assert hub.calls[before:] == []
    assert waiting(stand) == [], "that it stays here is no failure"
    entry.write_text(yaml.safe_dump(plain))


def test_bytes_that_are_not_what_became_official_are_not_attached(
    stand: Stand, hub: GithubServer
) -> None:
    for number in range(1, 9):
        hub.fault(number, "close")
    stand.publish("wells", answer("k,v\na,1\n"))
    hub.mend()
    (file,) = (stand.ws / "data/processed/wells").rglob("wells.parquet")
    file.chmod(0o644)
    file.write_bytes(b"other bytes")
    before = len(hub.changes)
    stand("doctor", "--fix")
    assert hub.changes[before:] == []


def test_what_is_withdrawn_is_taken_back_from_its_release(stand: Stand, hub: GithubServer) -> None:
    stand.publish("wells", answer("k,v\na,1\nb,2\n"))
    assert stand("withdraw", "wells", "--reason", "the owner asked", "--yes").code == 0
    assert hub.repo.assets_of(TAG) == {}
    (release,) = hub.repo.releases.values()
    assert "withdrawn" in release.body and "1" not in release.body


@pytest.mark.parametrize("erase", [False, True])
def test_a_withdrawal_reaches_github_also_when_it_was_down(
    stand: Stand, hub: GithubServer, erase: bool
) -> None:
    stand.publish("wells", answer("k,v\na,1\nb,2\n"))
    for number in range(1, 20):
        hub.fault(number, "close")
    more = ("--erase", "--authority", "the county") if erase else ()
    assert stand("withdraw", "wells", "--reason", "asked", "--yes", *more).code == 0
    assert hub.repo.assets_of(TAG) != {}
    hub.mend()
    stand("doctor", "--fix")
    assert hub.repo.assets_of(TAG) == {}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "number", each([pytest.param(n, id=str(n)) for n in range(1, 13)], "2", "4", "12")
)
def test_killed_between_any_two_calls_the_release_is_there_once_and_whole(
    tmp_path: Path, stand: Stand, hub: GithubServer, number: int, after: bool
) -> None:
    for fault in range(1, 9):
        hub.fault(fault, "close")
    stand.publish("wells", answer("k,v\na,1\n"))  # official, and nobody was told
    hub.mend()
    before = tmp_path / "before"
    shutil.copytree(stand.ws, before, symlinks=True)
    hub.repo.releases.clear()
    died = killed_at(hub, number, after, "-w", str(before), "doctor", "--fix")
    assert died, f"{number} calls were made: {hub.calls[-3:]}"
    stand("doctor", "--fix")
    (release,) = hub.repo.releases.values()
    (folder,) = (stand.ws / "data/processed/wells").iterdir()
    assert (release.tag, release.draft) == (TAG, False)
    assert hub.repo.assets_of(TAG).keys() == {p.name for p in folder.iterdir()} | {
        "generation.json"
    }
