"""What is like a pattern is found as fast as it is read."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm.reader import cql2
from kfm.reader.cql2 import like


@given(st.text("ab_%.", max_size=7), st.text("ab.\n", max_size=8))
def test_a_pattern_means_what_it_always_meant(pattern: str, text: str) -> None:
    plain = re.escape(pattern).replace("%", ".*").replace("_", ".")
    assert like(pattern)(text) == (re.fullmatch(plain, text, re.DOTALL) is not None)


@pytest.mark.parametrize("pattern", ["%_" * 400 + "!", "%a" * 400 + "b", "%" * 2000 + "b"])
def test_no_pattern_tries_again_what_it_tried(pattern: str) -> None:
    """Each part is tried from every letter once; with a second try this never ends."""
    assert not like(pattern)("a" * 900)
    tree = cql2.parsed(f"id LIKE '{pattern}'")
    assert isinstance(tree, cql2.Compared)
