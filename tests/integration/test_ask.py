"""The fixed questions, answered from evidence: each answer with its files and its receipt, and a
plain word where evidence does not tell.
"""

import hashlib
import socket
from pathlib import Path
from typing import Any

import pytest

from kfm.story.questions import QUESTIONS, meant
from kfm.testing import Upstream
from tests.given.sites import SITES
from tests.given.verbs import Kfm

WELLS = "wells"
HEADER = b"well_id,county,depth\n"


@pytest.fixture
def wells(kfm: Kfm, ws: Path, up: Upstream) -> Kfm:
    """Three generations: a cell changes, a row goes, a row is set aside; upstream is gone after."""
    (ws / "data" / "registry" / f"{WELLS}.yml").write_text(
        f"dataset_id: {WELLS}\ntitle: Wells\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
        "owners: ['County Office <office@example.org>']\nmax_quarantined: 0.9\n"
        f"source: {{url: '{up.url}/wells.csv', format: csv}}\nbusiness_key: [well_id]\n"
        "schema: [{name: well_id, type: string}, {name: county, type: string}, {name: depth, type: integer}]\n"
    )
    for text in (
        b"w1,Ness,1\nw2,Ness,5\n",
        b"w1,Ness,2\nw2,Ness,5\n",
        b"w1,Ness,2\nw9,Ness,deep\n",
    ):
        up.files["/wells.csv"] = HEADER + text
        assert kfm("run", WELLS).code == 0
    del up.files["/wells.csv"]
    return kfm


def asked(kfm: Kfm, question: str, ref: str = WELLS) -> Any:
    said = kfm("ask", ref, question, "--json")
    assert said.code == 0, said.err
    return said.json


def words(found: Any) -> str:
    return " ".join(one["text"] for one in found["answer"])


CASES = (
    ("where does it come from", True, "/wells.csv"),
    ("who touched it?", True, "A person asked for it by hand"),
    ("which rule let it out", True, "Policy: the written rules of this workspace allow it"),
    ("which version had w2", True, "Generation 2 had it, generation 3 has it no more."),
    ("which version had w1", True, "wells@3 has it"),
    ("which version had it", False, "Which row is meant is not said"),
    (
        "why is w2 missing",
        True,
        "Generation 3 was made from an answer of upstream that did not bring it",
    ),
    ("why is w9 missing", True, "set aside, line 3 of the source: a value is not of the kind"),
    ("why is w7 missing", False, "Whether upstream ever had it cannot be known here."),
    ("why is w1 missing", True, "It is not missing"),
    ("when did it change", True, "It last changed on"),
    ("when did the depth of w1 change", True, "depth is 2 since generation 2"),
    ("how fresh is it", True, "it is fresh"),
    ("may I use it", True, "It may be used under the licence CC0-1.0."),
)


def test_each_question_is_answered_from_evidence_or_said_to_be_unknown(
    wells: Kfm, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an answer asks nobody")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for question, known, wanted in CASES:
        found = asked(wells, question)
        assert wanted in words(found) and found["known"] is known, (question, found)
        assert all(one["evidence"] for one in found["answer"]) and found["evidence"]
        for proof in found["evidence"]:
            raw = (ws / proof["path"]).read_bytes()
            assert proof["digest"] == f"sha256:{hashlib.sha256(raw).hexdigest()}"
        receipt = (ws / found["receipt"]).read_bytes()
        assert found["receipt_digest"] == f"sha256:{hashlib.sha256(receipt).hexdigest()}"
        assert "example.org" not in words(found)
    assert {q.id for q in QUESTIONS} == {meant(c[0]).question.id for c in CASES}  # type: ignore[union-attr]


def test_what_is_no_question_of_ours_is_refused_and_the_questions_are_listed(wells: Kfm) -> None:
    said = wells("ask", WELLS, "tell me a joke about wells")
    assert said.code == 2 and "May I use it?" in said.err
    listed = wells("ask", WELLS, "--json").json["questions"]
    assert [q["question"] for q in listed] == [q.text for q in QUESTIONS]
    for question in listed:
        assert wells("ask", WELLS, question["example"]).code == 0, question
    put = [q["example"] for q in listed if "VALUE" in q["example"]]
    assert put == [
        "which version had well_id=VALUE",
        "why is VALUE missing",
        "when did the county of VALUE change",
    ]
    shown = wells("ask", WELLS, "who touched it")
    assert "Receipt  receipts/" in shown.out and "sha256:" in shown.out


def test_of_private_records_an_answer_says_what_stays_inside(
    kfm: Kfm, ws: Path, released: bytes
) -> None:
    for question in ("how fresh is it", "why is 14XX0001 missing", "which version had 14XX0001"):
        found = asked(kfm, question, SITES)
        told = words(found)
        assert hashlib.sha256(released).hexdigest() not in told and "Hidden Mound" not in told
        assert "set aside" not in told or "is not told" in told
    assert not asked(kfm, "how fresh is it", SITES)["known"]
