"""From words to arguments, by the row of a command in the table."""

from collections.abc import Sequence
from typing import Any

from kfm.cli.spec import EVERYWHERE, Command
from kfm.cli.values import KINDS, Unfit, with_underscores

__all__ = ["arguments_of"]


def arguments_of(command: Command, given: Sequence[str]) -> dict[str, Any]:
    """What is asked of a command, by name."""
    found = _plainly(command, given)
    if found is None:
        from kfm.cli.flags import parser_of  # it takes longer to load than most words to understand

        return vars(parser_of(command, given).parse(given))
    return found


def _plainly(command: Command, given: Sequence[str]) -> dict[str, object] | None:
    """The arguments where nothing but switches, flags with one value and what is meant by its place
    is given, as in most calls: argparse takes 5 ms to be told what else there is. None: it is for
    argparse to say.
    """
    known = (*command.arguments, *EVERYWHERE)
    flags = {n: a for a in known for name in a.names for n in (name, with_underscores(name))}
    placed = [each for each in known if not each.names]
    if len(placed) > 1 or any(each.needed for each in known):
        return None
    found: dict[str, object] = {}
    try:
        for each in known:
            unset = each.unset
            if isinstance(unset, str) and each.kind != "switch":
                unset = KINDS[each.kind](unset)
            found.setdefault(each.dest, unset)
        words, rest = list[str](), list(given)
        while rest:
            word = rest.pop(0)
            flag = flags.get(word)
            if flag is None:
                words.append(word)
            elif flag.kind == "switch":
                found[flag.dest] = True
            elif flag.many or flag.choices or not rest or rest[0][:1] in ("", "-"):
                return None
            else:
                found[flag.dest] = KINDS[flag.kind](rest.pop(0))
        if any(word[:1] in ("", "-") for word in words) or any(each.choices for each in placed):
            return None
        values = [KINDS[each.kind](word) for each in placed for word in words]
    except (Unfit, TypeError, ValueError):
        return None
    many = placed[0].many if placed else None
    fits = {None: not words, "": len(words) == 1, "?": len(words) < 2, "*": True, "+": bool(words)}
    if not fits[many]:
        return None
    if placed and words:
        found[placed[0].dest] = values if many in ("*", "+") else values[0]
    return found
