"""Canonical bytes equal those of the reference library, and whatever I-JSON cannot carry is refused
with its path.
"""

import enum
import subprocess
import sys
import uuid
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from kfm.model import canonical
from kfm.model.canonical import MAX_DEPTH, MAX_INTEGER, NotIJson

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Astral characters sort before U+E000..U+FFFF in UTF-16 and after them in code points.
MIXED_PLANES = st.text(
    st.sampled_from("a~\u00e9\ud7ff\ue000\ufb33\uffff\U00010000\U0001f600"), max_size=4
)
FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(min_value=-1e23, max_value=1e23),
    st.floats(min_value=-1e-2, max_value=1e-2),
    st.integers(-(10**17), 10**17).map(lambda n: n / 100),
)
INTEGERS = st.integers(-MAX_INTEGER, MAX_INTEGER)


def values(floats: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    scalars = st.one_of(st.none(), st.booleans(), INTEGERS, floats, TEXT)
    keys = st.one_of(TEXT, MIXED_PLANES)
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(keys, inner)),
        max_leaves=25,
    )


def nested(levels: int, wrap: Any = lambda inner: [inner]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


QUICK = settings(max_examples=400)


@QUICK
@given(values(FLOATS))
def test_bytes_equal_those_of_the_reference_library(value: Any) -> None:
    assert canonical.dumps(value) == rfc8785.dumps(value)


@settings(max_examples=2000)
@given(FLOATS)
def test_every_finite_float_is_written_as_ecmascript_writes_it(number: float) -> None:
    assert canonical.dumps(number) == rfc8785.dumps(number)
    assert canonical.dumps([number]) == rfc8785.dumps([number])


@QUICK
@given(st.dictionaries(MIXED_PLANES, FLOATS))
def test_keys_are_ordered_by_utf16_units(value: dict[str, float]) -> None:
    assert canonical.dumps(value) == rfc8785.dumps(value)


@QUICK
@given(values(FLOATS.filter(lambda f: abs(f) <= MAX_INTEGER or abs(f) >= 1e21)))
def test_what_is_written_reads_back_equal(value: Any) -> None:
    raw = canonical.dumps(value)
    assert canonical.loads(raw) == value
    assert canonical.dumps(canonical.loads(raw)) == raw


@QUICK
@given(
    st.one_of(
        st.binary(max_size=40),
        st.text(st.sampled_from('[]{}",:0123456789.eE+-\\ud8truefalsnN aI\ufeff'), max_size=25).map(
            str.encode
        ),
    )
)
def test_any_bytes_are_either_read_or_refused(raw: bytes) -> None:
    try:
        value = canonical.loads(raw)
    except NotIJson:
        return
    canonical.dumps(value)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-1.5e-7, "-1.5e-7"),
        (1e15, "1000000000000000"),
        (1e16, "10000000000000000"),
        (-123456789012345680000.0, "-123456789012345680000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (333333333.33333329, "333333333.3333333"),
    ],
)
def test_floats_at_the_edges_of_each_notation(number: float, text: str) -> None:
    assert canonical.dumps(number) == text.encode()
    assert canonical.dumps({"a": [number]}) == b'{"a":[' + text.encode() + b"]}"


def test_the_value_given_is_never_changed() -> None:
    value = {"b": [1.0, {"\U0001f600": 2.0, "\ufb33": 1e-9}], "a": (1.0, 2)}
    canonical.dumps(value)
    assert repr(value) == repr({"b": [1.0, {"\U0001f600": 2.0, "\ufb33": 1e-9}], "a": (1.0, 2)})


def test_a_tuple_is_an_array_and_a_bool_is_no_number() -> None:
    assert canonical.dumps({"t": (1, 2.0, (True, None))}) == b'{"t":[1,2,[true,null]]}'


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    ONE = 1


class Struct(msgspec.Struct):
    a: int = 1


@pytest.mark.parametrize(
    ("value", "path", "problem"),
    [
        ({"a": [0, 1, 2, {"b": 2**53}]}, "$.a[3].b", "integer beyond"),
        ({"a": [0, -(2**53)]}, "$.a[1]", "integer beyond"),
        ([10**5000], "$[0]", "integer beyond"),
        ({"a": float("nan")}, "$.a", "NaN"),
        ([1.5, float("-inf")], "$[1]", "infinity"),
        ({"x": ["\ud800"]}, "$.x[0]", "lone surrogate"),
        ({"\udfff": 1}, '$["\\udfff"]', "lone surrogate in the key"),
        ({"\udfff": 1, "\U0001f600": 2}, '$["\\udfff"]', "lone surrogate in the key"),
        ({"a b": {1: 2}}, '$["a b"]', "key of type int"),
        ({"a": {None: 2.0, "b": 3}}, "$.a", "key of type NoneType"),
        ({Colour.RED: 1}, "$", "key of type Colour"),
        ([Colour.RED], "$[0]", "type Colour"),
        ([Level.ONE], "$[0]", "type Level"),
        ({"s": Struct()}, "$.s", "type Struct"),
        ([uuid.UUID(int=1)], "$[0]", "type UUID"),
        ([b"bytes"], "$[0]", "type bytes"),
        ([{1, 2}], "$[0]", "type set"),
        ([msgspec.Raw(b"nonsense")], "$[0]", "type"),
        ({"first": [float("inf")], "second": 2**60}, "$.first[0]", "infinity"),
    ],
)
def test_what_ijson_cannot_carry_is_refused_with_its_path(
    value: Any, path: str, problem: str
) -> None:
    with pytest.raises(NotIJson, match=problem) as caught:
        canonical.dumps(value)
    assert caught.value.path == path
    assert path in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"a": v}, lambda v: ({"\U0001f600": v},)]
)
def test_nesting_is_bounded_the_same_way_on_both_sides(wrap: Any) -> None:
    per_wrap = 2 if isinstance(wrap(1), tuple) else 1
    fits = canonical.dumps(nested(MAX_DEPTH // per_wrap, wrap))
    assert canonical.dumps(canonical.loads(fits)) == fits
    with pytest.raises(NotIJson, match="nested too deeply"):
        canonical.dumps(nested(MAX_DEPTH // per_wrap + 1, wrap))
    with pytest.raises(NotIJson, match="nested too deeply"):
        canonical.loads(b"[" + fits + b"]")


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop += [loop, loop]
    with pytest.raises(NotIJson, match="nested too deeply"):
        canonical.dumps(loop)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize("levels", [500, 20_000, 200_000])
def test_deep_input_is_refused_cleanly(opening: bytes, levels: int) -> None:
    closing = {b"[": b"]", b'{"a":': b"}", b'[{"a":': b"}]"}[opening]
    for raw in (opening * levels, opening * levels + b"1" + closing * levels):
        with pytest.raises(NotIJson):
            canonical.loads(raw)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b'{"a":[1,9007199254740992]}', "$.a[1]"),
        (b'{"a":-9007199254740992}', "$.a"),
        (b"[" + b"9" * 6000 + b"]", "$[0]"),
        (b"[0,-" + b"9" * 6000 + b"]", "$[1]"),
        (b'{"a":NaN}', "$.a"),
        (b"[-Infinity]", "$[0]"),
        (b'{"a":{"b":1e999}}', "$.a.b"),
        (b"[-1e400]", "$[0]"),
        (b'["\\ud800"]', "$[0]"),
        (b'{"\\udc00":1}', '$["\\udc00"]'),
        (b'{"x":{"a":1,"b":2,"a":1}}', "$.x.a"),
        (b'[{"a":1,"\\u0061":2}]', "$[0].a"),
        (b'"\xed\xa0\x80"', "$"),
        (b'"\xff"', "$"),
        (b"\xef\xbb\xbf1", "$"),
        ("1".encode("utf-16"), "$"),
        (b"1 2", "$"),
        (b"{} x", "$"),
        (b"", "$"),
        (b"[01]", "$"),
        (b"[1,]", "$"),
        (b"'a'", "$"),
        (b'"\n"', "$"),
    ],
)
def test_what_is_not_ijson_is_refused(raw: bytes, path: str) -> None:
    with pytest.raises(NotIJson) as caught:
        canonical.loads(raw)
    assert caught.value.path == path


def test_ordinary_documents_are_read() -> None:
    raw = b' {"a": [1, -0, 1.5, 1E2, true, null], "\\ud83d\\ude00": "\\u00e9", "n": 9007199254740991} '
    assert canonical.loads(raw) == {
        "a": [1, 0, 1.5, 100.0, True, None],
        "\U0001f600": "é",
        "n": MAX_INTEGER,
    }


def test_a_whole_float_beyond_the_integers_is_written_but_not_read_back() -> None:
    assert canonical.dumps(1e20) == b"100000000000000000000"
    with pytest.raises(NotIJson, match="integer beyond"):
        canonical.loads(b"100000000000000000000")


def test_importing_stays_cheap() -> None:
    probe = "import sys, kfm.canonical; print([m for m in ('rfc8785', 'yaml', 'orjson', 'cryptography') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
