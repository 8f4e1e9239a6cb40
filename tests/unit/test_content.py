"""What a content is known by: the written form is what stores and channels hold, and reading it
gives the same back.
"""

import pytest

from kfm.channel.generations import (
    EMPTY,
    kept_out,
    version_kept_out,
    whole_withdrawn,
    withdrawn_inside,
)
from kfm.model.content import (
    InputKey,
    KeptOut,
    MadeKey,
    Mark,
    NameKey,
    Place,
    RuleKey,
    VersionKey,
    key_of,
    rules_in,
)
from kfm.model.ledger import Generation

A, T, S = "a" * 64, "b" * 64, "c" * 64
WINDOW = "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"
RULE = "hmac-sha256:" + "d" * 64


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("v3f9a21c0", VersionKey("v3f9a21c0")),
        (f"\n{A}", InputKey(Place(""), A)),
        (f"ks|{WINDOW}\n{A}", InputKey(Place("ks", WINDOW), A)),
        (f"ks\n{A}:{T}", MadeKey(Place("ks"), A, T)),
        ("ks\nerased", InputKey(Place("ks"), "erased")),
        ("whole\n*", NameKey("*")),
        ("whole\n", NameKey("")),
        ("whole\nks", NameKey("ks")),
        (f"whole\n{A}", InputKey(Place("whole"), A)),
        (f"whole\n{A}:{T}", MadeKey(Place("whole"), A, T)),
        (f"rule\n{RULE}", RuleKey(RULE)),
        (f"rule\n{A}", InputKey(Place("rule"), A)),
        (f"rule\n{A}:{T}", MadeKey(Place("rule"), A, T)),
    ],
)
def test_a_key_is_read_as_what_it_was_written_for(text: str, key: object) -> None:
    assert key_of(text) == key and str(key) == text


@pytest.mark.parametrize("text", [f"{A}:{T}:{S}", "erased", ""])
def test_a_mark_is_written_as_it_was_read(text: str) -> None:
    assert str(Mark.parse(text)) == text


@pytest.mark.parametrize("text", ["", "ks", f"|{WINDOW}", f"ks|{WINDOW}"])
def test_a_place_is_written_as_it_was_read(text: str) -> None:
    assert str(Place.parse(text)) == text


def generation(**said: dict[str, str]) -> Generation:
    import msgspec

    return msgspec.structs.replace(EMPTY("trees"), **said)


def test_a_withdrawal_is_about_the_input_and_a_rollback_about_what_was_made_of_it() -> None:
    head = generation(
        held={f"ks\n{A}:{T}": "4", "v1": "4"},
        suppressed={f"mo\n{A}": "5", "whole\nne": "6", "v2": "5"},
    )
    made, otherwise = Mark(A, T, S), Mark(A, S, S)
    assert [kept_out(head, Place("ks"), m) for m in (made, otherwise)] == [
        KeptOut("held", "4"),
        None,
    ]
    assert [kept_out(head, Place("mo"), m) for m in (made, otherwise)] == [
        KeptOut("suppressed", "5")
    ] * 2
    assert kept_out(head, Place("ne", WINDOW), Mark(S, S, S)) == KeptOut("suppressed", "6")
    assert kept_out(head, Place("mo", WINDOW), made) is None
    assert [version_kept_out(head, v) for v in ("v1", "v2", "v3")] == [
        KeptOut("held", "4"),
        KeptOut("suppressed", "5"),
        None,
    ]
    assert (
        whole_withdrawn(head, "ks"),
        whole_withdrawn(generation(suppressed={"whole\n*": "7"}), "ks"),
    ) == (None, "7")
    assert withdrawn_inside(head, generation(contents={"ks": str(made), "mo": str(made)})) == "5"


def test_a_withdrawn_partition_called_rule_is_no_rule_about_records() -> None:
    assert list(rules_in({f"rule\n{A}": "3", f"rule\n{RULE}": "4", "v1": "3"})) == [
        (RuleKey(RULE), "4")
    ]
