"""What is rendered as YAML is read by everybody as what was meant."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kfm.runners.yaml_text import Noted, Value, yaml_text

words = st.text(
    st.characters(codec="ascii", exclude_characters="\x7f", min_codepoint=32)
) | st.text(st.sampled_from("ab :#-\n'\"{}[],&*!|>%@`$()\\~ynNO01."))
scalars = st.none() | st.booleans() | st.integers() | words
keys = words.filter(lambda key: not key.startswith("#"))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)
)


@given(st.lists(st.dictionaries(keys, values, min_size=1, max_size=5), min_size=1, max_size=3))
def test_every_document_is_read_back_as_it_was(documents: list[dict[str, Value]]) -> None:
    assert list(yaml.safe_load_all(yaml_text(*documents))) == documents


def test_a_note_stands_above_or_behind_and_changes_nothing() -> None:
    text = yaml_text({"# why": None, "uses": Noted("actions/checkout@0a", "v6"), "on": ["push"]})
    assert text == '# why\nuses: actions/checkout@0a # v6\n"on": [push]\n'
    assert yaml.safe_load(text) == {"uses": "actions/checkout@0a", "on": ["push"]}


def test_lines_of_a_script_stand_as_they_are() -> None:
    assert yaml_text({"run": "one\n  two\n\nthree\n"}) == "run: |\n  one\n    two\n\n  three\n"


def test_lines_that_end_in_an_empty_one_keep_it() -> None:
    document = {"run": "one\n\n"}
    assert yaml.safe_load(yaml_text(document)) == document
