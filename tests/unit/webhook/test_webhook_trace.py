"""W3C Trace Context: what a request says is believed when it is well formed, else a trace begins."""

import pytest

from kfm.webhook.trace import correlation_of, new_trace, parse, trace_of

GIVEN = "00-12345678901234567890123456789012-1234567890123456-01"


def test_a_trace_that_is_well_formed_goes_on() -> None:
    found = trace_of([GIVEN.encode()])
    assert found.text == GIVEN and found.trace_id == "12345678901234567890123456789012"


@pytest.mark.parametrize(
    "value",
    [
        "",
        GIVEN.upper().replace("1", "A"),
        GIVEN + "-more",
        GIVEN + "\n",
        GIVEN.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-1234567890123456-01",
        f"00-{'1' * 32}-{'0' * 16}-01",
        GIVEN.replace("1", "\u0661"),
    ],
)
def test_one_that_is_not_is_passed_over(value: str) -> None:
    assert parse(value) is None
    begun = trace_of([value.encode()])
    assert parse(begun.text) == begun


def test_two_contradict_each_other_and_none_is_a_beginning() -> None:
    for given in ([GIVEN.encode()] * 2, []):
        assert trace_of(given).trace_id != parse(GIVEN).trace_id  # type: ignore[union-attr]
    assert new_trace() != new_trace()


def test_a_later_version_may_say_more() -> None:
    assert parse(GIVEN.replace("00-", "cc-", 1) + "-what") is not None


def test_a_correlation_id_is_the_senders_when_it_is_plain() -> None:
    trace = new_trace()
    assert correlation_of(b"order-7:a", trace) == "order-7:a"
    for odd in (None, b"", b"two words", b"a\nb", b"\xff", b"x" * 129):
        assert correlation_of(odd, trace) == trace.trace_id
