"""What people do to a channel: ★ stands in no transaction, and what it leaves to do is done by
whoever comes next.
"""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.model.errors import StoreUnavailable
from kfm.samples.upstream import SampleUpstream
from kfm.store.sqlite import SqliteStore
from tests.given.verbs import QUAKES, Said, revisions

Kfm = Callable[..., Said]


def official(kfm: Kfm, dataset: str = QUAKES) -> str | None:
    return next(
        d["version_id"]
        for d in kfm("status", "--json").json["datasets"]
        if d["dataset_id"] == dataset
    )


def generations(ws: Path, dataset: str = QUAKES) -> int:
    return len(list((ws / "data" / "catalog" / "channels" / dataset).iterdir()))


def lose_commits_after(ws: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No transaction commits once the channel has that many generations; the list says how many did
    not.
    """
    real, failed = SqliteStore.transaction, list[int]()

    def transaction(self: SqliteStore, work: Any, **more: Any) -> Any:
        def failing(tx: Any) -> Any:
            found = work(tx)
            if generations(ws) >= number:
                failed.append(number)
                raise StoreUnavailable(
                    "The disk is full.", expected="space", remedy="Nothing is lost: run again."
                )
            return found

        return real(self, failing, **more)

    monkeypatch.setattr(SqliteStore, "transaction", transaction)
    return failed


def test_a_second_rollback_goes_further_back_and_never_to_what_the_first_one_left(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = revisions(kfm, sample, 0, 1, 2)
    with monkeypatch.context() as broken:
        failed = lose_commits_after(ws, 4, broken)
        assert kfm("rollback", QUAKES, "--reason", "bad feed").code == 0
        assert failed and generations(ws) == 4, (
            "the store refused what comes after ★, and the rollback stands"
        )
    assert "act.unfinished" in kfm("doctor", "--json").out
    assert official(kfm) == two
    assert kfm("rollback", QUAKES, "--reason", "bad feed").code == 0 and official(kfm) == one
    said = kfm("rollback", QUAKES, "--reason", "bad feed", "--json")
    assert said.code == 2 and "generation" in said.json["happened"] and official(kfm) == one, (
        "the rest was left by rollbacks"
    )
    assert (
        kfm("rollback", QUAKES, "--to", three, "--reason", "it was right").code == 0
        and official(kfm) == three
    )
    assert not list((ws / "data" / "work" / QUAKES / "acts").iterdir())
    assert json.loads(kfm("doctor", "--json").out)["findings"] == [] and kfm("verify").code == 0


def test_an_act_killed_before_its_generation_changes_nothing(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its intent pins the version it meant until another takes the number."""
    from kfm.channel.generations import Channel

    one, two = revisions(kfm, sample, 0, 1)
    with monkeypatch.context() as killed:
        killed.setattr(Channel, "append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        kfm("rollback", QUAKES, "--reason", "bad feed")
    (act,) = (ws / "data" / "work" / QUAKES / "acts").iterdir()
    assert json.loads(act.read_bytes())["predicate"]["version_id"] == one
    assert official(kfm) == two and json.loads(kfm("doctor", "--json").out)["findings"] == []
    revisions(kfm, sample, 2)
    assert not act.exists(), "the run after it took the number, and its tick dropped the intent"


def test_a_run_whose_child_is_killed_goes_on_when_it_is_resumed(
    kfm: Kfm, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ledger row, whoever ended the child; one that is ended every time fails in the end."""
    from kfm.connectors.child.process import _Child

    real, kills = _Child.converse, [1]

    def converse(self: _Child, *args: Any) -> Any:
        if kills[0] > 0:
            kills[0] -= 1
            os.killpg(self._process.pid, signal.SIGKILL)
        return real(self, *args)

    monkeypatch.setattr(_Child, "converse", converse)
    said = kfm("run", QUAKES, "--json")
    assert said.code == 1 and "SIGKILL" in said.json["runs"][0]["reason"]
    (first,) = kfm("runs", QUAKES, "--json").json["runs"]
    assert kfm("run", QUAKES).code == 0
    (row,) = kfm("runs", QUAKES, "--json").json["runs"]
    assert (row["run_id"], row["state"]) == (first["run_id"], "COMMITTED")
    kills[0] = 99
    for _ in range(5):
        kfm("run", QUAKES, "--force", "--reason", "again") if _ == 0 else kfm("resume")
    assert [r["state"] for r in kfm("runs", QUAKES, "--json").json["runs"]] == [
        "FAILED",
        "COMMITTED",
    ]


def test_verify_knows_what_the_next_tick_will_make(
    kfm: Kfm, ws: Path, sample: SampleUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after ★ nothing is shown or archived yet; the official version is whole all the
    same.
    """

    class Killed(BaseException):
        pass

    for name in ("project", "finish", "deliver"):
        with monkeypatch.context() as killed:
            killed.setattr(f"kfm.run.promote.{name}", lambda *_: (_ for _ in ()).throw(Killed))
            sample.control(QUAKES, revision=("project", "finish", "deliver").index(name))
            with pytest.raises(Killed):
                kfm("run", QUAKES)
        said = kfm("verify", "--json")
        assert (said.code, said.json["problems"]) == (0, []), name
    kfm("run", QUAKES)
    (ws / "data" / "catalog" / "prov" / QUAKES).rename(tmp_path / "prov")
    shutil.rmtree(ws / "data" / "work" / QUAKES / "proposals")
    assert kfm("verify").code == 3, "nobody will make it"
