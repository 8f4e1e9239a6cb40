"""Tables have heads, and times are told as people say them; in a pipe they are exact."""

import datetime as dt
import sys

import pytest

from kfm.cli.terminal import ago, table, when

NOW = dt.datetime(2026, 11, 16, 12, 0, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        ("2026-11-16T11:59:58Z", "just now"),
        ("2026-11-16T12:00:02Z", "just now"),
        ("2026-11-16T11:59:20Z", "40 s ago"),
        ("2026-11-16T11:57:00.000001Z", "2 min ago"),
        ("2026-11-16T11:57:00", "3 min ago"),  # without a zone it is UTC
        ("2026-11-16T06:59:00+00:00", "5 h ago"),
        ("2026-11-15T06:00:00Z", "30 h ago"),
        ("2026-11-14T11:00:00Z", "2 days ago"),
        ("2026-09-17T13:00:00Z", "59 days ago"),
        ("2024-02-03T12:00:00Z", "2024-02-03"),
        ("2026-11-16T12:10:00Z", "in 10 min"),
    ],
)
def test_a_moment_is_told_as_people_say_it(moment: str, said: str) -> None:
    assert ago(moment, NOW) == said


def test_a_terminal_is_told_how_long_ago_and_a_pipe_exactly_when(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moment = dt.datetime.now(dt.UTC) - dt.timedelta(hours=3, minutes=1)
    text = moment.isoformat().replace("+00:00", "Z")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert when(text) == "3 h ago"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert when(text) == f"{text[:19]}Z"
    assert when(None) == when("") == ""


def test_a_table_has_heads_and_colour_takes_no_room() -> None:
    rows = [("\x1b[32m+\x1b[0m", "wells", "7"), ("x", "ks_earthquakes", "1,204")]
    assert table(("", "dataset", "rows"), rows, right=("rows",)) == [
        "    dataset          rows",
        "  \x1b[32m+\x1b[0m wells               7",
        "  x ks_earthquakes  1,204",
    ]
    assert table(("a",), []) == ["  a"]


def test_a_table_of_strangers_words_steers_no_terminal() -> None:
    words = "a\x1b[2Jb\x00c\nd\u202ee"
    assert table(("title",), [(words,), ("\x1b[31mred\x1b[0m",)])[1:] == [
        "  a·[2Jb·c·d·e",
        "  \x1b[31mred\x1b[0m",
    ]
