"""The parser of one command, made from its row of the table, where words are not plain."""

import argparse
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from kfm.cli.help_pages import usage
from kfm.cli.spec import EVERYWHERE, Argument, Command
from kfm.cli.suggestions import meant, other_command, retyped_call
from kfm.cli.values import KINDS, Unfit, with_underscores
from kfm.model import UsageError

__all__ = ["Parser", "parser_of"]


class Parser(argparse.ArgumentParser):
    """Hyphen and underscore spellings of every flag; what does not fit is a usage error."""

    def __init__(
        self,
        prog: str,
        description: str = "",
        command: Command | None = None,
        given: Sequence[str] = (),
    ) -> None:
        # the help of a command is made from its row; other programs have that of argparse
        super().__init__(
            prog=prog,
            # else it is put together before every parse, for errors that show that of the row
            usage=None if command is None else "",
            description=description,
            add_help=command is None,
            allow_abbrev=False,
        )
        self._command, self._given = command, given
        # so that `--area -98.6,38,-98,38.6` is no option
        self._negative_number_matcher = re.compile(r"-\.?\d[-+.,\deE]*$")

    def parse(self, given: Sequence[str]) -> Namespace:
        """Options may stand anywhere, also between positional arguments."""
        return self.parse_intermixed_args(given)

    def error(self, message: str) -> NoReturn:
        raise _refused(message, self.prog, self._command, self._given)

    def add_argument(self, *names: str, **more: Any) -> argparse.Action:
        both = (n for name in names for n in (name, with_underscores(name)))
        return super().add_argument(*dict.fromkeys(both), **more)


def parser_of(command: Command, given: Sequence[str] = ()) -> Parser:
    """The parser of one command: its own arguments, and what all share. What was given is repeated
    where a slip is answered.
    """
    parser = Parser(f"kfm {command.name}", command=command, given=given)
    for argument in (*command.arguments, *EVERYWHERE):
        _add(parser, argument)
    return parser


def _add(parser: Parser, argument: Argument) -> None:
    more: dict[str, Any] = {"default": argument.unset}
    if argument.kind == "switch":
        more["action"] = "store_true"
    else:
        more["type"] = _made(KINDS[argument.kind])
        more["metavar"] = argument.metavar or None
        more["choices"] = argument.choices or None
    if argument.names:
        if argument.many:
            more["action"] = "append"
        parser.add_argument(*argument.names, dest=argument.dest, required=argument.needed, **more)
    else:
        parser.add_argument(argument.dest, nargs=argument.many or None, **more)


def _made(kind: Callable[[str], object]) -> Callable[[str], object]:
    """A kind of value whose refusals are shown as they are."""

    def made(text: str) -> object:
        try:
            return kind(text)
        except Unfit as unfit:
            raise argparse.ArgumentTypeError(str(unfit)) from unfit

    return made


def _refused(
    message: str, prog: str, command: Command | None, given: Sequence[str] = ()
) -> UsageError:
    """What argparse says, in words of ours, with what was meant."""
    said, expected = message, usage(command) if command else "other arguments"
    hint = other_command(command, given) if command else ""
    kind, _, what = message.partition(": ")
    if kind == "unrecognized arguments":
        extra = what.split()
        flag = next((w.partition("=")[0] for w in extra if w.startswith("-")), "")
        name = prog.removeprefix("kfm ")
        said = f"`{name}` has no {flag}" if flag else f"`{name}` does not take {extra[0]!r}"
        hint = hint or (meant(command, flag, given) if command and flag else "")
    elif kind == "the following arguments are required":
        said = f"{what} is missing"
    elif kind.startswith("argument "):
        name = kind.removeprefix("argument ").split("/")[-1]
        said = f"{name}: {what}"
        if command and (wrong := _CHOICE.match(what)) is not None:
            known = [each.strip("'") for each in wrong[2].split(", ")]
            said, expected = f"{name} cannot be {wrong[1]!r}", ", ".join(known)
            hint = hint or retyped_call(command, wrong[1], known, given)
    return UsageError(
        f"{said[:1].upper()}{said[1:]}.",
        expected=expected,
        remedy=f"{hint} `{prog} --help` shows what it takes.".lstrip(),
    )


_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$")
