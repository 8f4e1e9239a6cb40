"""What a receipt must say of a promotion, and that each part of it is missed."""

import re
from pathlib import Path
from typing import Any

import pytest

from kfm.model.channel import GenerationPredicate, RootAt
from kfm.model.verdict import REQUIRED
from kfm.upkeep.proofs import missing_proofs

ROOT = RootAt(fingerprint="sha256:1", version=1, digest="sha256:1")
ASKED = {"decision_id": "d", "policy_digest": "sha256:" + "0" * 64, "engine": "embedded"}


def made(number: int, token: str, root: RootAt | None = ROOT) -> GenerationPredicate:
    return GenerationPredicate(
        dataset_id="trees", generation=number, kind="promote", version_id="v", version_digest="d", receipts_digest="r", run_id="",
        token=token, prev=None, reason="", root=root,
    )  # fmt: skip


def receipt(**changes: Any) -> dict[str, Any]:
    whole = {
        "generation": 2,
        "lease": "1.5",
        "gates": dict.fromkeys(REQUIRED, "pass"),
        "policy": ASKED,
    }
    return {"promotion": {**whole, **changes}}


def test_a_whole_receipt_lacks_nothing_and_an_older_generation_is_asked_for_nothing() -> None:
    assert missing_proofs(receipt(), made(2, "1.5"), made(1, "1.4")) == []
    assert missing_proofs(receipt(), made(2, "2.1"), None) == [], (
        "a resumed promote took the lease again, after a rebuild"
    )
    assert (
        missing_proofs(
            receipt(gates={**dict.fromkeys(REQUIRED, "pass"), "quality": "review"}),
            made(2, "1.5"),
            None,
        )
        == []
    )
    assert missing_proofs({}, made(2, "1.5", root=None), None) == []


@pytest.mark.parametrize("gate", REQUIRED)
def test_each_gate_is_missed_by_name(gate: str) -> None:
    (said,) = missing_proofs(
        receipt(gates={g: "pass" for g in REQUIRED if g != gate}), made(2, "1.5"), None
    )
    assert gate in said.split()
    (said,) = missing_proofs(
        receipt(gates={**dict.fromkeys(REQUIRED, "pass"), gate: "deny"}), made(2, "1.5"), None
    )
    assert gate in said.split() and "no" in said.split()


@pytest.mark.parametrize(
    ("change", "token", "before", "word"),
    [
        ({"policy": None}, "1.5", None, "policy"),
        ({"policy": {**ASKED, "decision_id": ""}}, "1.5", None, "policy"),
        ({"policy": {**ASKED, "policy_digest": ""}}, "1.5", None, "policy"),
        ({"generation": 1}, "1.5", None, "generation 1"),
        ({"lease": ""}, "1.5", None, "lease"),
        ({"lease": "0.0"}, "0.0", None, "lease"),
        ({"lease": "1.0"}, "1.0", None, "lease"),
        ({"lease": "1.6"}, "1.5", None, "lease"),  # of somebody who came later
        ({"lease": "1.5"}, "1.5", "1.5", "lease"),  # held already by the promotion before
        ({"lease": "1.5"}, "1.5", "2.1", "lease"),  # of a store that was rebuilt since
        ({"lease": "x"}, "1.5", None, "lease"),
        ({"gates": ["all"]}, "1.5", None, "looked at"),
    ],
)
def test_what_nobody_looked_at_is_named(
    change: dict[str, Any], token: str, before: str | None, word: str
) -> None:
    said = missing_proofs(
        receipt(**change), made(2, token), made(1, before) if before is not None else None
    )
    assert len(said) == 1 and word in said[0]


def test_a_receipt_that_says_nothing_is_missed_as_a_whole() -> None:
    for told in ({}, {"promotion": None}, {"promotion": {}}):
        assert len(missing_proofs(told, made(2, "1.5"), None)) == 1


def test_every_attack_in_the_table_is_tried_by_a_test_that_exists() -> None:
    home = Path(__file__).parents[2]
    table = (
        (home / "docs/governance.md")
        .read_text()
        .partition("### What an attacker may try")[2]
        .partition("\n## ")[0]
    )
    named = re.findall(r"`(tests/[a-z_/]+\.py)::(test_[a-z_]+)`", table)
    assert len(named) > 12 and all(
        row.count("::")
        for row in table.splitlines()
        if row.startswith("| ") and not row.startswith("| attack")
    )
    assert [
        (file, name) for file, name in named if f"def {name}(" not in (home / file).read_text()
    ] == []
