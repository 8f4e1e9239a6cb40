"""One dataset through its whole life: after every step what people are told is compared with what
lies on disk.
"""

import json
import re
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm.cli import main
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.config import change_entry
from tests.given.verbs import Said, caller, tree

QUAKES = "ks_earthquakes"
Kfm = Callable[..., Said]


class Disk:
    """What the files say, read without kfm."""

    def __init__(self, ws: Path) -> None:
        self.ws = ws
        made = sorted((ws / "data" / "catalog" / "channels" / QUAKES).glob("*.json"))
        self.generation = len(made)
        self.kinds = [self._predicate(path)["kind"] for path in made]
        told = self._predicate(made[-1]) if made else {}
        self.version, self.reason, self.run_id = (
            told.get("version_id"),
            told.get("reason", ""),
            told.get("run_id", ""),
        )
        self.folder = ws / "data" / "processed" / QUAKES / str(self.version)

    @staticmethod
    def _predicate(path: Path) -> dict[str, Any]:
        import base64

        found: dict[str, Any] = json.loads(
            base64.b64decode(json.loads(path.read_bytes())["payload"])
        )["predicate"]
        return found

    @property
    def rows(self) -> int:
        return sum(pq.read_metadata(path).num_rows for path in self.folder.glob("*.parquet"))


class Traveller:
    """Asks every command that speaks of the dataset, and believes none of them."""

    def __init__(self, kfm: Kfm, ws: Path, out: Path) -> None:
        self.kfm, self.ws, self.out, self.steps = kfm, ws, out, 0

    def run(self, *more: str) -> dict[str, Any]:
        found: dict[str, Any] = self.kfm("run", QUAKES, "--json", *more).json["runs"][-1]
        disk = Disk(self.ws)
        if found["state"] in ("COMMITTED", "NOOP"):
            assert (found["version_id"], found["generation"]) == (disk.version, disk.generation)
        if found["state"] == "COMMITTED":
            assert found["rows"] == disk.rows, "run counts the rows of the table"
        return found

    def agree(self, state: str) -> None:
        """status, explain, get, bundle, verify and cite against the disk."""
        self.steps += 1
        disk, before = (
            Disk(self.ws),
            tree(self.ws / "data" / "processed") | tree(self.ws / "data" / "catalog" / "channels"),
        )
        status = self.kfm("status", QUAKES, "--json").json
        row = status["datasets"][0]
        assert (row["state"], row["version_id"], row["generation"]) == (
            state,
            disk.version,
            disk.generation,
        ), row
        self._explain(disk, row)
        if disk.version is None:
            said = self.kfm("get", QUAKES, "-o", str(self.out / f"get{self.steps}"))
            assert said.code in (2, 3) and not (self.out / f"get{self.steps}").exists()
            self._works(re.findall(r"`kfm ([^`…]+)`", said.err))
        else:
            self._handed_out(disk)
        self._works(
            [a["next"].removeprefix("kfm ") for a in status["attention"]]
            + [(row["next"] or "kfm status").removeprefix("kfm ")]
        )
        assert not [a for a in status["attention"] if a["kind"] in ("stuck", "dead")]
        assert self.kfm("verify", "--json").json["problems"] == []
        assert (
            tree(self.ws / "data" / "processed") | tree(self.ws / "data" / "catalog" / "channels")
            == before
        ), "asking changes nothing"

    def _explain(self, disk: Disk, row: dict[str, Any]) -> None:
        told = self.kfm("explain", QUAKES, "--json").json
        newest = next((n for n in range(disk.generation, 0, -1) if disk.kinds[n - 1] != "void"), 0)
        if row["state"] in ("official", "withdrawn", "retired") and disk.kinds[newest - 1] in (
            "withdraw",
            "rollback",
        ):
            assert f"Generation {newest} of {QUAKES}" in told["what"] and told["facts"][
                "official"
            ] == (disk.version or "nothing")
        elif row["state"] in ("official", "retired"):
            assert told["facts"]["version"] == disk.version and "COMMITTED" in told["what"]
        elif row["state"] in ("failed", "proposed"):
            assert row["last_run_id"] in told["what"]
        else:
            assert told.get("exit_code") == 3 and told["facts"]["run"] == row["last_run_id"]
        self._works(
            [str(told["next"]).removeprefix("kfm ")] if "\n" not in str(told["next"]) else []
        )

    def _handed_out(self, disk: Disk) -> None:
        got, proof = self.out / f"get{self.steps}", self.out / f"proof{self.steps}.zip"
        assert self.kfm("get", QUAKES, "-o", str(got)).code == 0
        assert tree(got) == tree(disk.folder)
        assert self.kfm("bundle", QUAKES, "-o", str(proof)).code == 0, (
            "what is official can be handed out with its proof"
        )
        checked = self.kfm("verify", str(proof), "--json")
        assert (checked.code, checked.json["version_id"], checked.json["generation"]) == (
            0,
            disk.version,
            disk.generation,
        )
        with zipfile.ZipFile(proof) as bundle:
            tables = [name for name in bundle.namelist() if name.endswith(".parquet")]
            assert tables and all(
                (disk.folder / Path(name).name).read_bytes() == bundle.read(name) for name in tables
            )
        cited = self.kfm("cite", QUAKES)
        assert cited.code == 0 and str(disk.version) in cited.out

    def _works(self, commands: list[str]) -> None:
        """What is named as the next thing is a command that works here and now."""
        for command in commands:
            words = shlex.split(command)
            if words[0] == "run":  # it changes something: that it names this dataset is enough
                assert words[1] == QUAKES, command
            elif words[0] not in ("None", "resume", "up"):
                assert self.kfm(*words).code in (0, 3, 7), command


def test_what_is_said_is_what_is_on_disk(
    kfm: Kfm,
    ws: Path,
    sample: SampleUpstream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")  # `kfm get` hands files out where one is
    past = {"ranges": ["2025-03-01/2025-03-22"], "window": "7d", "expected_runtime": "1m"}
    change_entry(ws, QUAKES, {"merge": "upsert", "backfill": past})
    one = Traveller(kfm, ws, tmp_path / "out")
    assert one.run()["state"] == "COMMITTED"
    one.agree("official")
    made = kfm(
        "backfill",
        "start",
        QUAKES,
        "--inline",
        "--json",
    )
    assert (made.code, made.json["backfill"]["state"], Disk(ws).generation) == (0, "done", 1), (
        "what changes nothing is done"
    )
    one.agree("official")
    sample.control(QUAKES, mode="503")
    assert one.run()["state"] == "FAILED"
    one.agree("failed")
    sample.control(QUAKES, mode="ok")
    assert one.run()["state"] == "NOOP"
    one.agree("official")

    sample.control(QUAKES, revision=1)
    second = one.run()
    assert second["state"] == "COMMITTED"
    event = str(pq.read_table(next(Disk(ws).folder.glob("*.parquet")))["event_id"][0].as_py())
    rows = Disk(ws).rows
    assert (
        kfm(
            "withdraw",
            "--yes",
            QUAKES,
            "--record",
            f"event_id={event}",
            "--reason",
            "a private pond",
        ).code
        == 0
    )
    assert Disk(ws).rows == rows - 1
    one.agree("official")
    sample.control(QUAKES, revision=2)
    assert one.run()["state"] == "COMMITTED", "its rows are counted without what was withdrawn"
    one.agree("official")

    change_entry(ws, QUAKES, {"approvals": 1})
    sample.control(QUAKES, revision=3)
    assert one.run()["state"] == "PROPOSED"
    sample.control(QUAKES, mode="503")
    assert one.run()["state"] == "FAILED"
    one.agree("proposed")
    sample.control(QUAKES, mode="ok")
    assert kfm("keys", "new", "--name", "R. Stone", "--role", "approver").code == 0
    number = re.search(
        r"review (\d+)", str(kfm("status", QUAKES, "--json").json["datasets"][0]["next"])
    )
    assert number is not None and kfm("approve", number[1], "--key", "R. Stone").code == 0
    assert kfm("promote", number[1]).code == 0
    one.agree("failed")  # nobody has looked since the outage
    assert one.run()["state"] == "NOOP"
    one.agree("official")

    change_entry(ws, QUAKES, {"approvals": 0, "licence": ""})
    sample.control(QUAKES, revision=4)
    assert one.run()["state"] == "REJECTED"
    disk = Disk(ws)
    status = kfm("status", QUAKES, "--json").json["datasets"][0]
    assert (status["state"], status["version_id"]) == ("denied", disk.version)
    assert kfm("get", QUAKES, "-o", str(tmp_path / "no")).code == 3, (
        "without a licence nothing is handed out"
    )
    change_entry(ws, QUAKES, {"licence": "CC0-1.0"})
    looser = one.run()
    assert looser["state"] == "PROPOSED", (
        "that nobody has to approve any more is approved by who had to"
    )
    assert (
        kfm("approve", str(looser["proposal"]), "--key", "R. Stone").code == 0
        and kfm("promote", str(looser["proposal"])).code == 0
    )
    assert kfm("rollback", QUAKES, "--reason", "a bad feed").code == 0
    one.agree("official")
    assert kfm("reindex").code == 0
    one.agree("official")

    (ws / "policy").rename(ws / "rules")
    (ws / "policy").symlink_to("rules")
    assert kfm("backup", str(tmp_path / "backup"), "--with-keys").code == 0
    assert (
        main(["backup", "--restore", str(tmp_path / "backup"), "-w", str(tmp_path / "again")]) == 0
    )
    elsewhere = caller(tmp_path / "again", capsys)
    new, there = Disk(tmp_path / "again"), elsewhere("status", QUAKES, "--json").json["datasets"][0]
    assert (there["version_id"], there["generation"]) == (
        new.version,
        new.generation,
    ) and new.version == Disk(ws).version
    assert elsewhere("run", QUAKES, "--json").json["runs"][-1]["state"] == "NOOP", (
        "a restored workspace goes on"
    )

    change_entry(ws, QUAKES, {"retired": "its agency is gone"})
    assert kfm("run", "--all", "--json").code == 0
    assert Disk(ws).generation == disk.generation + 3
    one.agree("retired")
    change_entry(ws, QUAKES, {"retired": None})
    assert kfm("withdraw", "--yes", QUAKES, "--reason", "all of it").code == 0
    one.agree("withdrawn")
