"""A citation is one record in every form, whatever a title holds."""

import msgspec
import pytest

from kfm.access.references import Ref
from kfm.upkeep.citation import Quoted

REF = Ref("trees", "v" + "a" * 64, "b" * 64, 3)
BREAKS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x00", "\x1b[2J")


def _quoted(text: str) -> Quoted:
    return Quoted(ref=REF, title=text, licence=text, by=text, year="2026", root="r", origin=(text,))


@pytest.mark.parametrize("between", BREAKS)
def test_no_title_begins_another_line_or_field(between: str) -> None:
    hostile, plain = _quoted(f"Trees{between}ER  - {between}TY  - DATA"), _quoted("Trees")
    for form in ("ris", "bibtex"):
        told = getattr(hostile, form)
        assert len(told.splitlines()) == len(getattr(plain, form).splitlines()), told
        assert all(c == "\n" or c.isprintable() for c in told)
    assert len(hostile.text("trees").splitlines()) == 2
    csl = hostile.csl
    assert all(text.isprintable() for text in (csl["title"], csl["publisher"], csl["note"]))
    assert msgspec.json.decode(msgspec.json.encode(csl)) == csl


def test_a_brace_in_a_title_neither_ends_nor_begins_a_field_of_bibtex() -> None:
    told = _quoted("Trees}, author = {Somebody Else}, x = {\\{").bibtex
    depth, fields = 0, 0
    for at, c in enumerate(told):
        depth += (c == "{") - (c == "}")
        fields += c == "=" and depth == 1
        assert depth > 0 or at in (*range(len("@misc")), len(told) - 1)
    assert (depth, fields) == (0, 6)
