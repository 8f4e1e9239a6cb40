"""What was meant by a call that cannot be understood."""

import re
from collections.abc import Sequence

from kfm.cli.spec import EVERYWHERE, HEADS, Command, verbs
from kfm.model import UsageError

__all__ = ["meant", "no_command", "no_verb", "other_command", "retyped", "retyped_call"]


def other_command(command: Command, given: Sequence[str]) -> str:
    """Another command was put behind the noun of one that takes no verb: `review approve 2`."""
    words = _without_workspace(given)
    if command.verb or not words or words[0] not in HEADS or words[0] == command.noun:
        return ""
    return _question(words)


def meant(command: Command, flag: str, given: Sequence[str]) -> str:
    """Another command of the noun has this flag, or one of its own is spelt almost like it."""
    name = flag.replace("_", "-")
    for other in verbs(command.noun).values():
        if other is not command and any(name in a.names for a in other.arguments):
            return f"{name} belongs to `kfm {other.name}`."
    own = [n for a in (*command.arguments, *EVERYWHERE) for n in a.names]
    return retyped_call(command, flag, own, given)


def retyped_call(
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
