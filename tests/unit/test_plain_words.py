"""Plain words are understood as argparse understands them, or left to it."""

import pytest

from kfm.cli.flags import parser_of
from kfm.cli.parse import _plainly
from kfm.cli.spec import COMMANDS
from kfm.model import UsageError

PLAIN = (
    ["a", "-w", "there"],
    ["--workspace", "there", "a", "-w", "here"],
    ["a"],
    ["a", "b", "--json"],
    ["--verbose", "5"],
    [],
)


def test_what_is_understood_without_argparse_is_what_argparse_understands() -> None:
    understood = 0
    for command in COMMANDS.values():
        switches = [name for a in command.arguments if a.kind == "switch" for name in a.names]
        valued = [
            [name, text, "a"]
            for a in command.arguments
            if a.kind != "switch"
            for name in a.names
            for text in ("5", "7d", "x")
        ]
        spelt = [s.replace("-", "_") for s in switches]
        for given in (*PLAIN, ["a", *switches], spelt, *valued):
            found = _plainly(command, given)
            if found is None:
                continue
            understood += 1
            wanted = vars(parser_of(command).parse(given))
            assert found == wanted, (command.name, given)
            assert [*map(type, found.values())] == [type(wanted[k]) for k in found]
    assert understood > 400


@pytest.mark.parametrize(
    "given",
    [
        ["--no-such"],
        ["--window"],
        ["--window", "-7d"],
        ["--window=7d"],
        ["--upstream", "live"],
        ["-5"],
        ["--"],
        [""],
    ],
)
def test_what_is_less_plain_is_left_to_argparse(given: list[str]) -> None:
    assert _plainly(COMMANDS["run"], given) is None


def test_too_many_words_are_refused_as_ever() -> None:
    one = next(c for c in COMMANDS.values() if [a.many for a in c.arguments if not a.names] == [""])
    for given in ([], ["a", "b"]):
        assert _plainly(one, given) is None
        with pytest.raises(UsageError):
            parser_of(one).parse(given)
