"""What nobody looked at denies: evidence has no member whose absence reads as fine."""

import pytest

from kfm.gates.mandatory import GATES
from kfm.judge.candidate import policy_question
from kfm.model.candidate import Candidate
from kfm.model.dataset import DatasetEntry, Source
from kfm.model.transform import Books
from kfm.model.verdict import Evidence, judge_all

ENTRY = DatasetEntry(
    dataset_id="trees",
    title="Trees",
    licence="CC0-1.0",
    sensitivity="public",
    policy_label="public",
    source=Source(url="http://x/"),
)
LOOKED = {
    "suppressed": None, "obligations": (), "catalog": (), "lineage": (), "attestation": (), "licences": {"trees": "CC0-1.0"}, "policy": (),
}  # fmt: skip


def evidence(**looked: object) -> Evidence:
    return Evidence(
        entry=ENTRY,
        expected={"a": "1"},
        found={"a": "1"},
        schema=(),
        books=Books(),
        rows=1,
        **looked,
    )  # type: ignore[arg-type]


def test_evidence_that_was_all_looked_at_passes() -> None:
    assert [v.gate for v in judge_all(GATES, evidence(**LOOKED)) if v.reasons] == []


@pytest.mark.parametrize(
    ("unseen", "gate"),
    [
        ("suppressed", "withdrawal"), ("obligations", "labels"), ("catalog", "schema"), ("lineage", "graph"),
        ("attestation", "attestation"), ("licences", "licence"), ("policy", "policy"),
    ],
)  # fmt: skip
def test_what_nobody_looked_at_denies(unseen: str, gate: str) -> None:
    found = judge_all(GATES, evidence(**{k: v for k, v in LOOKED.items() if k != unseen}))
    assert [v.gate for v in found if v.reasons] == [gate]


def test_the_policy_is_told_verified_only_of_what_was() -> None:
    candidate = Candidate(
        dataset_id="trees", bbox=None, version_id="v1", version_digest="", artifacts={}, schema=(), profile={}, interval=None, steps=(),
        content_id="", transform_hash="", updater_version="1", h3_resolution=None,
    )  # fmt: skip
    told = policy_question(candidate, evidence(**LOOKED), judge_all(GATES, evidence(**LOOKED)))
    unseen = policy_question(candidate, evidence(), judge_all(GATES, evidence()))
    assert (told["attestation"], told["candidate"]["records"]) == (
        {"verified": True},
        ["dcat", "prov"],
    )
    assert (unseen["attestation"], unseen["candidate"]["records"]) == ({"verified": False}, [])
