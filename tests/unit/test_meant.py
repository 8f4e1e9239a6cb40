"""A wrong key or value in a registry entry is refused with what may stand there."""

from typing import Any

import pytest

from kfm.connectors.base import Refused
from kfm.connectors.kind import options_of
from kfm.extras.agencies.nwis import Options
from kfm.jobs.backfill_plan import plan_from
from kfm.jobs.base import parameters_of
from kfm.jobs.ingest import JOB
from kfm.model.errors import UsageError
from kfm.workspace.config import new_entry

ENTRY: dict[str, Any] = {
    "dataset_id": "trees",
    "title": "Trees",
    "source": {"url": "https://example.org/trees.csv", "format": "csv"},
}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"source": {"url": "https://example.org/t", "format": "cvs"}}, "It may be csv, geojson, json. Did you mean `csv`?"),
        ({"source": {"url": "https://example.org/t", "kind": "delimted"}}, "usgs_quakes, xml. Did you mean `delimited`?"),
        ({"sensitivity": "Publc"}, "It may be aggregate-only, public, restricted, sensitive-location. Did you mean `public`?"),
        ({"merge": "xyz"}, "It may be partition, replace, upsert."),
        ({"schema": [{"name": "a", "type": "strng"}]}, "It may be boolean, date, geometry, integer, json, number, string, timestamp. Did you mean `string`?"),
        ({"schema": [{"name": "a", "typ": "string"}]}, "Did you mean `type`?"),
        ({"derive": ["tile"]}, "It may be search, tiles. Did you mean `tiles`?"),
        ({"conflicts": "newst"}, "It may be newest, quarantine, refuse. Did you mean `newest`?"),
        ({"source": {"url": "https://example.org/t", "fromat": "csv"}}, "Did you mean `format`?"),
        ({"licens": "CC0-1.0"}, "unknown keys are not ignored. Did you mean `licence`?"),
        ({"key": ["a"]}, "Did you mean `business_key`?"),
    ],
)  # fmt: skip
def test_a_wrong_value_or_key_is_refused_with_those_that_are_known(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        new_entry(ENTRY | wrong)
    assert said in refused.value.remedy


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"key": ["a"]}, "trees.yml: there is no key `key`."),
        ({"source": {"url": "x", "fromat": "csv"}}, "trees.yml: there is no key `fromat` in `source`."),
        ({"schema": {"a": "string"}}, "trees.yml: `schema` is a mapping, not a list."),
        ({"schema": [{"type": "string"}]}, "trees.yml: the key `name` is missing in `schema[0]`."),
        ({"title": 3}, "trees.yml: `title` is a whole number, not a text."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_words_of_who_wrote_it(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        new_entry(ENTRY | wrong)
    assert refused.value.happened == said


def test_what_is_no_question_of_spelling_gets_no_list() -> None:
    with pytest.raises(UsageError) as refused:
        new_entry(ENTRY | {"title": 3})
    assert refused.value.remedy == "Correct that key; unknown keys are not ignored."


def test_options_plans_and_parameters_say_it_too() -> None:
    with pytest.raises(Refused) as options:
        options_of({"servce": "iv"}, Options)
    assert "Did you mean `service`?" in options.value.refusal.remedy
    with pytest.raises(UsageError) as plan:
        plan_from({"dataset": "trees", "acceptnce": {}}, "trees.yml")
    assert "Did you mean `acceptance`?" in plan.value.remedy
    with pytest.raises(UsageError) as parameters:
        parameters_of(JOB, {"partitoin": "1"})
    assert "Did you mean `partition`?" in parameters.value.remedy
