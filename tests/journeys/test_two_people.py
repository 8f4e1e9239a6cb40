"""The two-person rule as an outsider sees it: who agreed is in the evidence, and the publisher's
word for it is not needed.
"""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.access.references import resolve
from kfm.samples.upstream import SampleUpstream
from kfm.upkeep.bundle import bundle, verify_bundle
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said

Kfm = Callable[..., Said]
QUAKES = "ks_earthquakes"
NOW = dt.datetime.now(dt.UTC)


def ask_for(ws: Path, approvals: int) -> None:
    path = ws / "data" / "registry" / f"{QUAKES}.yml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith("approvals:")]
    path.write_text("\n".join([*kept, f"approvals: {approvals}"]) + "\n")


def problems(ws: Path) -> list[str]:
    """What is wrong with the bundle of what is official, to somebody who has nothing else."""
    with open_world(open_workspace(ws)) as world:
        raw = b"".join(bundle(world, resolve(world, QUAKES)))
    return [f"{p['where']}: {p['what']}" for p in verify_bundle(raw, NOW).problems]


def test_who_publishes_without_the_approvals_that_are_asked_for_is_found_out(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    ask_for(ws, 1)
    number = str(kfm("run", QUAKES, "--json").json["runs"][0]["proposal"])
    assert kfm("promote", number).code == 7, "it waits for a person"
    with pytest.MonkeyPatch.context() as operator:  # takes the count out of the program
        operator.setattr("kfm.evidence.proposal.weigh", lambda *args, **more: (1, 1))
        operator.setattr("kfm.evidence.proposal.missing", lambda *args: [])
        assert kfm("promote", number).code == 0
    for command in ("verify", "gates"):
        said = kfm(command, *(() if command == "verify" else (QUAKES,)))
        assert said.code == 3 and "1 approval needed, 0 valid" in said.out, command
    said = kfm("get", QUAKES, "-o", str(tmp_path / "got"))
    assert (
        said.code == 3
        and "1 approval needed, 0 valid" in " ".join(said.err.split())
        and not (tmp_path / "got").exists()
    )
    told = kfm("status", QUAKES, "--json").json["datasets"][0]
    assert told["state"] == "denied" and "1 approval needed, 0 valid" in told["reason"]
    for way in (("cite", QUAKES), ("diff", QUAKES, QUAKES)):
        assert kfm(*way).code == 3, way
    assert (
        kfm("done", QUAKES).code != 0
        and kfm("doctor").code != 0
        and kfm("bundle", QUAKES, "-o", str(tmp_path / "a")).code == 3
    )
    assert problems(ws) == ["approvals/00000001.json: 1 approval needed, 0 valid"]


def test_approvals_are_evidence_and_a_looser_entry_needs_those_of_the_stricter_one(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    kfm("keys", "new", "--name", "R. Stone")
    ask_for(ws, 1)

    def run() -> Said:
        return kfm("run", QUAKES, "--json")

    def agree(waiting: Said) -> None:
        assert waiting.code == 7
        number = str(waiting.json["runs"][0]["proposal"])
        assert kfm("approve", number, "--key", "R. Stone").code == 0
        assert (
            "R. Stone approved from the account that holds the builder's key"
            in kfm("gates", f"proposal/{number}").out
        )
        assert kfm("promote", number).code == 0

    waiting = run()
    for word in (("approve",), ("reject", "--reason", "no")):
        said = kfm(word[0], str(waiting.json["runs"][0]["proposal"]), *word[1:])
        assert said.code == 2 and "the only one here is that of R. Stone" in said.err, (
            "nobody signs with a key that happens to lie there"
        )
    agree(waiting)
    assert kfm("gates", QUAKES, "--json").json["one_account"] == ["R. Stone"]
    assert kfm("verify").code == 0 and problems(ws) == []
    ask_for(ws, 0)
    sample.control(QUAKES, revision=1)
    waiting = run()
    assert "asks for 1 approval" in waiting.json["runs"][0]["reason"]
    number = str(waiting.json["runs"][0]["proposal"])
    assert (
        kfm("run", QUAKES, "--accept-change", "--reason", "fine").code
        == 7
        == kfm("promote", number).code
    )
    with pytest.MonkeyPatch.context() as operator:
        operator.setattr("kfm.evidence.proposal.terms_before", lambda *args: ())
        operator.setattr("kfm.judge.verdicts.terms_before", lambda *args: ())
        assert kfm("run", QUAKES, "--force", "--reason", "x").code == 0
    assert problems(ws) == ["approvals/00000002.json: 1 approval needed, 0 valid"]
    sample.control(QUAKES, revision=2)
    assert run().code == 0, "the loosened entry is what counts from there on"
    assert kfm("verify").code == 3 and len(problems(ws)) == 1, (
        "and how it came to be stays to be seen"
    )
