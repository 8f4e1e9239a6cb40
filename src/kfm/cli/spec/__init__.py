"""Every command as data: group, noun, verb, arguments, one sentence, an example, who does it.

Parser, help, `docs/commands.md`, completion and the manual page are made from this table. Nothing of
kfm is loaded to read it.
"""

from kfm.cli.spec import data, decide, look, operate, prove, repair, start
from kfm.cli.spec.shared import EVERYWHERE
from kfm.cli.spec.words import Argument, Command, Noun

__all__ = [
    "COMMANDS",
    "EVERYWHERE",
    "FRONT",
    "GROUPS",
    "HEADS",
    "NOUNS",
    "Argument",
    "Command",
    "Noun",
    "find",
    "verbs",
]

GROUPS = {
    "start": start,
    "data": data,
    "look": look,
    "decide": decide,
    "prove": prove,
    "operate": operate,
    "repair": repair,
}
COMMANDS: dict[str, Command] = {
    each.name: each for group in GROUPS.values() for each in group.COMMANDS
}
HEADS: dict[str, str] = {  # the first word of every command -> the module that does it
    each.noun: each.handler.partition(":")[0] for each in COMMANDS.values()
}
NOUNS: dict[str, Noun] = {
    name: noun for group in GROUPS.values() for name, noun in group.NOUNS.items()
}
FRONT = (  # what the first screen shows
    "demo", "init", "connector",
    "run", "get",
    "status", "show", "history", "diff",
    "review", "rollback",
    "verify",
    "up", "backup",
    "doctor",
)  # fmt: skip


def verbs(noun: str) -> dict[str, Command]:
    """The commands of a noun by their verb; `""` is the noun alone."""
    return {each.verb: each for each in COMMANDS.values() if each.noun == noun}


def find(words: list[str]) -> tuple[Command | None, list[str]]:
    """The command that these words begin with, and what is left of them.

    A noun without a verb means its usual one, if it has one.
    """
    noun = words[0]
    found = verbs(noun)
    if len(words) > 1 and words[1] in found and words[1]:
        return found[words[1]], words[2:]
    if "" in found:
        return found[""], words[1:]
    usual = NOUNS[noun].usual if noun in NOUNS else ""
    alone = not words[1:] or words[1].startswith("-")
    if usual and alone and not {"-h", "--help"} & set(words):
        return found[usual], words[1:]
    return None, words[1:]
