"""An operator takes one check out of the publisher; somebody outside, with the bundle alone, is
told which one is missing.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kfm.access.references import resolve
from kfm.evidence import proposal
from kfm.evidence import version_records as records
from kfm.gates import mandatory as kernel
from kfm.judge import verdicts
from kfm.model.clock import SystemClock
from kfm.model.verdict import REQUIRED
from kfm.policy.base import Decision
from kfm.run import name_generation, propose, publish
from kfm.samples.upstream import SampleUpstream
from kfm.store.leases import LeaseView
from kfm.upkeep.bundle import bundle, verify_bundle
from kfm.workspace import wiring
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said

Patch = Callable[[pytest.MonkeyPatch], None]
QUAKES = "ks_earthquakes"
YES = Decision(
    allow=True, deny=(), decision_id="", policy_digest="", input_digest="", engine="none"
)


def _gate(patch: pytest.MonkeyPatch) -> None:
    """One gate is not heard. (That it is not asked, the policy notices already.)"""
    real = verdicts.judge
    patch.setattr(verdicts, "judge", lambda *given: [v for v in real(*given) if v.gate != "books"])


def _rules(patch: pytest.MonkeyPatch) -> None:
    """The policy is no gate any more."""
    patch.setattr(kernel, "GATES", tuple(g for g in kernel.GATES if not g.hears))


def _unattested(patch: pytest.MonkeyPatch) -> None:
    """What is signed names no file, and nobody looks."""
    real = records.provenance
    patch.setattr(records, "provenance", lambda subjects, **more: real({}, **more))
    patch.setattr(verdicts, "attested", lambda *_: ([], "signed"))
    patch.setattr(publish, "check_version_folder", lambda *_: None)


def _unapproved(patch: pytest.MonkeyPatch) -> None:
    """Nobody counts who agreed."""
    patch.setattr(propose, "needed", lambda *_, **__: 0)
    patch.setattr(proposal, "weigh", lambda *_, **__: (0, 0))
    patch.setattr(proposal, "missing", lambda *_: [])


# What is taken out -> (how, what an outsider is told)
CHECKS: dict[str, tuple[Patch, str]] = {
    "a gate": (_gate, "the gate books"),
    "the policy's gate": (_rules, "the policy was asked"),
    "the policy": (
        lambda patch: patch.setattr(wiring._Policy, "decide", lambda *_: YES),
        "the policy was asked",
    ),
    "the second judgement": (
        lambda patch: patch.setattr(name_generation, "judge_candidate", lambda *_: []),
        "the gate integrity",
    ),
    "the attestation": (_unattested, "The attestation does not hold"),
    "the lease": (
        lambda patch: patch.setattr(LeaseView, "check", lambda *_: ()),
        "the lease of the dataset",
    ),
    "the approvals": (_unapproved, "1 approval needed, 0 valid"),
}


@contextmanager
def without(how: Patch) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        how(patch)
        yield


def handed_out(ws: Path) -> bytes:
    """The bundle of what is official, made without the look that `kfm bundle` takes at it."""
    with open_world(open_workspace(ws)) as world:
        return b"".join(bundle(world, resolve(world, QUAKES)))


def told(raw: bytes) -> list[str]:
    """What somebody outside is told."""
    return [f"{p['where']}: {p['what']}" for p in verify_bundle(raw, SystemClock().now()).problems]


def test_a_check_that_was_left_out_is_named_to_an_outsider(
    kfm: Callable[..., Said], ws: Path, sample: SampleUpstream, tmp_path: Path
) -> None:
    """One channel, one generation for each check that is taken out; the first is whole."""
    assert kfm("run", QUAKES).code == 0 and told(handed_out(ws)) == []
    (receipt,) = (json.loads(p.read_bytes()) for p in (ws / "receipts").rglob("*.json"))
    assert set(receipt["promotion"]["gates"]) == set(REQUIRED), (
        "an outsider asks for every gate there is"
    )
    said: dict[str, list[str]] = {}
    for revision, (what, (how, _)) in enumerate(CHECKS.items(), 1):
        sample.control(QUAKES, revision=revision)
        if what == "the approvals":
            with (ws / f"data/registry/{QUAKES}.yml").open("a") as entry:
                entry.write("approvals: 1\n")
        with without(how):
            run = kfm("run", QUAKES)
        assert run.code == 0, (what, run.out, run.err)
        said[what] = told(handed_out(ws))
    for what, (_, word) in CHECKS.items():
        assert any(word in line for line in said[what]), (what, said[what])
        assert len(said[what]) <= 2 or what == "the second judgement", "and nothing else is"
    assert len(said["the second judgement"]) == len(REQUIRED) + 1, "every gate, and the policy"
    assert (
        kfm("bundle", QUAKES, "-o", str(tmp_path / "b.kfm")).code
        and not (tmp_path / "b.kfm").exists()
    )
    assert kfm("verify").code == 6, "the operator's own verify says it too"
