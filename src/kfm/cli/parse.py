"""From words to arguments: the parser of one command, made from its row of the table."""

import argparse
import re
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NoReturn

from kfm.cli.help_pages import usage
from kfm.cli.spec import EVERYWHERE, HEADS, Argument, Command, verbs
from kfm.cli.values import KINDS
from kfm.model import UsageError

__all__ = ["Parser", "arguments_of", "no_command", "no_verb", "parser_of", "retyped"]


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
        both = (n for name in names for n in (name, _with_underscores(name)))
        return super().add_argument(*dict.fromkeys(both), **more)


def _with_underscores(name: str) -> str:
    return f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name


def arguments_of(command: Command, given: Sequence[str]) -> Namespace:
    """What is asked of a command."""
    found = _plainly(command, given)
    return parser_of(command, given).parse(given) if found is None else found


def _plainly(command: Command, given: Sequence[str]) -> Namespace | None:
    """The arguments where nothing but switches and what is meant by its place is given, as in most
    calls: argparse takes 5 ms to be told what else there is. None: it is for argparse to say.
    """
    known = (*command.arguments, *EVERYWHERE)
    switches = {
        name: each.dest
        for each in known
        if each.kind == "switch"
        for written in each.names
        for name in (written, _with_underscores(written))
    }
    words = [word for word in given if word not in switches]
    placed = [each for each in known if not each.names]
    asked = any(each.needed for each in known) or any(each.choices for each in placed)
    if asked or len(placed) > 1 or any(word[:1] in ("", "-") for word in words):
        return None
    found: dict[str, object] = {}
    try:
        for each in known:
            unset = each.unset
            if isinstance(unset, str) and each.kind != "switch":
                unset = KINDS[each.kind](unset)
            found.setdefault(each.dest, unset)
        values = [KINDS[each.kind](word) for each in placed for word in words]
    except (argparse.ArgumentTypeError, TypeError, ValueError):
        return None
    many = placed[0].many if placed else None
    fits = {None: not words, "": len(words) == 1, "?": len(words) < 2, "*": True, "+": bool(words)}
    if not fits[many]:
        return None
    if placed and words:
        found[placed[0].dest] = values if many in ("*", "+") else values[0]
    return Namespace(**found | {switches[word]: True for word in given if word in switches})


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
        more["type"] = KINDS[argument.kind]
        more["metavar"] = argument.metavar or None
        more["choices"] = argument.choices or None
    if argument.names:
        if argument.many:
            more["action"] = "append"
        parser.add_argument(*argument.names, dest=argument.dest, required=argument.needed, **more)
    else:
        parser.add_argument(argument.dest, nargs=argument.many or None, **more)


def _refused(
    message: str, prog: str, command: Command | None, given: Sequence[str] = ()
) -> UsageError:
    """What argparse says, in words of ours, with what was meant."""
    said, expected = message, usage(command) if command else "other arguments"
    hint = _other_command(command, given) if command else ""
    kind, _, what = message.partition(": ")
    if kind == "unrecognized arguments":
        extra = what.split()
        flag = next((w.partition("=")[0] for w in extra if w.startswith("-")), "")
        name = prog.removeprefix("kfm ")
        said = f"`{name}` has no {flag}" if flag else f"`{name}` does not take {extra[0]!r}"
        hint = hint or (_meant(command, flag, given) if command and flag else "")
    elif kind == "the following arguments are required":
        said = f"{what} is missing"
    elif kind.startswith("argument "):
        name = kind.removeprefix("argument ").split("/")[-1]
        said = f"{name}: {what}"
        if command and (wrong := _CHOICE.match(what)) is not None:
            known = [each.strip("'") for each in wrong[2].split(", ")]
            said, expected = f"{name} cannot be {wrong[1]!r}", ", ".join(known)
            hint = hint or _retyped(command, wrong[1], known, given)
    return UsageError(
        f"{said[:1].upper()}{said[1:]}.",
        expected=expected,
        remedy=f"{hint} `{prog} --help` shows what it takes.".lstrip(),
    )


_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$")


def _other_command(command: Command, given: Sequence[str]) -> str:
    """Another command was put behind the noun of one that takes no verb: `review approve 2`."""
    words = _without_workspace(given)
    if command.verb or not words or words[0] not in HEADS or words[0] == command.noun:
        return ""
    return _question(words)


def _meant(command: Command, flag: str, given: Sequence[str]) -> str:
    """Another command of the noun has this flag, or one of its own is spelt almost like it."""
    name = flag.replace("_", "-")
    for other in verbs(command.noun).values():
        if other is not command and any(name in a.names for a in other.arguments):
            return f"{name} belongs to `kfm {other.name}`."
    own = [n for a in (*command.arguments, *EVERYWHERE) for n in a.names]
    return _retyped(command, flag, own, given)


def _retyped(
    command: Command | None, wrong: str, known: Sequence[str], given: Sequence[str]
) -> str:
    """The whole call once more, with the one word that was probably meant."""
    if command is None or not (near := _nearest(wrong, known)):
        return ""
    return retyped(command.name.split(), given, wrong, near)


def retyped(name: Sequence[str], given: Sequence[str], wrong: str, right: str) -> str:
    """A call with one word put right, as a question; also before `@3`, and at `--flag=…`."""
    words = [re.sub(rf"(?:^|(?<==)){re.escape(wrong)}(?=$|[=@])", right, w) for w in given]
    return _question([*name, *_without_workspace(words)])


def no_command(name: str, rest: Sequence[str] = ()) -> UsageError:
    """There is no such command; which one may have been meant."""
    near = _nearest(name, list(HEADS))
    return UsageError(
        f"There is no command {name!r}.",
        expected="a kfm command",
        remedy=_question([near, *_without_workspace(rest)])
        if near
        else "`kfm help --all` lists the commands.",
    )


def no_verb(noun: str, verb: str, *rest: str) -> UsageError:
    """The noun has no such verb."""
    known = [v for v in verbs(noun) if v]
    near = _nearest(verb, known)
    meant = [noun, near] if near else [verb] if verb in HEADS else []
    return UsageError(
        f"`{noun}` has no {verb!r}.",
        expected=", ".join(known),
        remedy=_question([*meant, *_without_workspace(rest)])
        if meant
        else f"`kfm {noun} --help` lists them.",
    )


def _question(words: Sequence[str]) -> str:
    import shlex

    return f"Did you mean `kfm {' '.join(map(shlex.quote, words))}`?"


def _without_workspace(words: Sequence[str]) -> list[str]:
    """What was typed, without the workspace, which every hint names."""
    kept, words = list[str](), list(words)
    while words:
        word = words.pop(0)
        if word in ("-w", "--workspace"):
            del words[:1]
        elif not word.startswith(("-w=", "--workspace=")):
            kept.append(word)
    return kept


def _nearest(word: str, known: Sequence[str]) -> str:
    """What is spelt almost like a word; "" where nothing is."""
    import difflib

    bare = {each.lstrip("-"): each for each in known}
    # at 0.6, which is usual, `--reason` would be `--json`
    near = difflib.get_close_matches(word.replace("_", "-").lstrip("-"), bare, 1, 0.65)
    return bare[near[0]] if near else ""
