"""What licences allow, and what records say of themselves."""

import pytest

from kfm.diff.access_columns import _says, speaks_of_access
from kfm.gates.mandatory import labels, licence
from kfm.model.dataset import DatasetEntry, Source
from kfm.model.licences import restrictions, terms_of
from kfm.model.transform import GONE
from kfm.model.verdict import Evidence


@pytest.mark.parametrize(
    ("spdx", "terms"),
    [
        ("CC0-1.0", "open"), ("CC-PDM-1.0", "open"), ("PDDL-1.0", "open"), ("CC-BY-4.0", "attribution"), ("CC-BY-3.0-IGO", "attribution"),
        ("OGL-UK-3.0", "attribution"), ("MIT", "attribution"), ("CC-BY-SA-4.0", "share-alike"), ("ODbL-1.0", "share-alike"), ("GPL-3.0+", "share-alike"),
        ("CC-BY-NC-4.0", "non-commercial"), ("CC-BY-NC-SA-3.0-IGO", "non-commercial"), ("cc-by-nc-2.0", "non-commercial"),
        ("NCGL-UK-2.0", "non-commercial"), ("PolyForm-Noncommercial-1.0.0", "non-commercial"), ("CC-BY-ND-4.0", "no-derivatives"),
        ("CC-BY-NC-ND-4.0", "no-derivatives"), ("C-UDA-1.0", "research-only"), ("JSON", "unknown"), ("BSD-3-Clause-No-Military-License", "unknown"),
    ],
)  # fmt: skip
def test_a_licence_is_known_by_what_it_allows(spdx: str, terms: str) -> None:
    assert terms_of(spdx) == terms


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("MIT OR CC-BY-NC-4.0", ()), ("MIT AND CC-BY-NC-4.0", ("non-commercial",)), ("(MIT AND (CC-BY-ND-4.0 OR CC0-1.0))", ()),
        ("GPL-2.0-only WITH Classpath-exception-2.0", ()), ("CC-BY-NC-4.0 OR CC-BY-ND-4.0", ("non-commercial",)), ("MIT AND (", ("unknown",)),
        ("CC-BY-NC-4.0 AND CC-BY-ND-4.0", ("non-commercial", "no-derivatives")),
    ],
)  # fmt: skip
def test_of_alternatives_the_freest_counts_and_of_several_all(
    expression: str, found: tuple[str, ...]
) -> None:
    assert restrictions(expression) == found


def evidence(stated: str, sensitivity: str = "public", **more: object) -> Evidence:
    entry = DatasetEntry(
        dataset_id="sites", title="Sites", licence=stated, sensitivity=sensitivity, policy_label=sensitivity,  # type: ignore[arg-type]
        source=Source(url="https://example.org/sites.csv"),
    )  # fmt: skip
    return Evidence(
        entry=entry,
        expected={},
        found={},
        schema=(),
        books=GONE,
        **{"licences": {"sites": stated}, **more},
    )  # type: ignore[arg-type]


def test_public_asks_a_person_about_a_licence_that_is_not_free_until_one_has_signed() -> None:
    (asked,) = licence(evidence("CC-BY-NC-4.0")).review
    assert (
        asked.code == "licence.restricted"
        and "non-commercial" in asked.message
        and "kfm licence allow sites" in asked.remedy
    )
    assert (
        not licence(evidence("CC-BY-SA-4.0")).review
        and not licence(evidence("CC-BY-NC-4.0", "restricted")).review
    )
    assert not licence(evidence("CC-BY-NC-4.0", permits=("licence\nCC-BY-NC-4.0",))).review
    assert licence(
        evidence("CC-BY-NC-4.0", permits=("licence\nCC-BY-NC-3.0", "licence\nCC-BY-ND-4.0"))
    ).review, "another licence was meant"
    (asked,) = licence(
        evidence("CC0-1.0", licences={"sites": "CC0-1.0", "surveys": "CC-BY-ND-4.0"})
    ).review
    assert "of surveys, which it is made from" in asked.message
    assert not licence(evidence("NOASSERTION")).review, "that is a no, not a question"


def test_records_that_say_they_are_restricted_are_counted_and_asked_about_by_column_and_value() -> (
    None
):
    found = evidence(
        "CC0-1.0",
        restricted={"access": {"restricted": 12, "it's private": 1}},
        permits=("records\naccess\nrestricted",),
    )
    (asked,) = labels(found).review
    assert (
        asked.message.startswith('1 record says access: "it\'s private"')
        and "--records 'access=it'\"'\"'s private'" in asked.remedy
    )
    assert not labels(
        evidence("CC0-1.0", "restricted", restricted={"access": {"restricted": 12}})
    ).review


@pytest.mark.parametrize("value", ["restricted", "CONFIDENTIAL", "Private", "Non-Commercial", "noncommercial use", "not public", "CC BY-NC 4.0",
                                   "cc-by-nc-sa-4.0", "embargoed until 2027", "internal use only", "All rights reserved", "Research use only"])  # fmt: skip
def test_values_that_restrict_are_heard(value: str) -> None:
    assert _says("access", value)


@pytest.mark.parametrize("value", ["open", "public", "Unrestricted", "not restricted", "no restrictions", "non-confidential", "CC BY 4.0", "none", "",
                                   "publicly available", "not private", "CC0-1.0"])  # fmt: skip
def test_values_that_do_not_restrict_are_not(value: str) -> None:
    assert not _says("access", value)


def test_only_columns_that_speak_of_access_are_listened_to() -> None:
    names = [
        "access",
        "Access Rights",
        "licence",
        "restriction",
        "is_private",
        "sensitivity",
        "accessibility",
        "status",
        "access_road",
        "name",
    ]
    assert speaks_of_access(names) == names[:6]
    assert (
        _says("restricted", "true")
        and not _says("restricted", "false")
        and not _says("access", "true")
    )
