"""Plain words are understood as argparse understands them, or left to it."""

import pytest

from kfm.cli.parse import _plainly, parser_of
from kfm.cli.spec import COMMANDS
from kfm.model import UsageError

PLAIN = (["a"], ["a", "b", "--json"], ["--verbose", "5"], [])


def test_what_is_understood_without_argparse_is_what_argparse_understands() -> None:
    understood = 0
    for command in COMMANDS.values():
        switches = [name for a in command.arguments if a.kind == "switch" for name in a.names]
        for given in (*PLAIN, ["a", *switches], [s.replace("-", "_") for s in switches]):
            found = _plainly(command, given)
            if found is None:
                continue
            understood += 1
            wanted = vars(parser_of(command).parse(given))
            assert vars(found) == wanted, (command.name, given)
            assert [*map(type, vars(found).values())] == [type(wanted[k]) for k in vars(found)]
    assert understood > 150


@pytest.mark.parametrize("given", [["--no-such"], ["a", "--window", "7d"], ["-5"], ["--"], [""]])
def test_what_is_less_plain_is_left_to_argparse(given: list[str]) -> None:
    assert _plainly(COMMANDS["run"], given) is None


def test_too_many_words_are_refused_as_ever() -> None:
    one = next(c for c in COMMANDS.values() if [a.many for a in c.arguments if not a.names] == [""])
    for given in ([], ["a", "b"]):
        assert _plainly(one, given) is None
        with pytest.raises(UsageError):
            parser_of(one).parse(given)
