"""The command reference, made from the table: `python -m kfm.cli.reference > docs/commands.md`."""

from kfm.cli.help_pages import signature, usage
from kfm.cli.spec import EVERYWHERE, GROUPS, NOUNS, Argument, Command

__all__ = ["reference"]


def _row(argument: Argument) -> str:
    choices = f" ({', '.join(argument.choices)})" if argument.choices else ""
    cells = f"`{signature(argument)}`", f"{argument.help}{choices}"
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _told(command: Command) -> str:
    what = f"{command.what[:1].upper()}{command.what[1:]}."
    text = f"\n### kfm {command.name}\n\n{what}\n"
    if command.about:
        text += f"\n{command.about}\n"
    text += f"\n```\n{usage(command)}\n```\n"
    if command.arguments:
        rows = "".join(map(_row, command.arguments))
        text += f"\n| argument | meaning |\n|---|---|\n{rows}"
    return f"{text}\nExample: `{command.example}`\n"


def reference() -> str:
    """Every command by group, with what it takes."""
    out = (
        "# Commands\n\nMade by `make schemas` from the table in `cli/spec`; a test keeps it true."
        " Hyphen and underscore spellings of a flag are the same. What `--json` prints of a command has a"
        " schema, `schemas/cli/<noun>-<verb>.json`. Every command takes:\n\n"
        "| argument | meaning |\n|---|---|\n" + "".join(map(_row, EVERYWHERE))
    )
    for name, group in GROUPS.items():
        out += f"\n## {name.capitalize()}\n"
        seen: set[str] = set()
        for command in group.COMMANDS:
            noun = NOUNS.get(command.noun)
            if noun is not None and noun.about and command.noun not in seen:
                out += f"\n{noun.about}\n"
            seen.add(command.noun)
            out += _told(command)
    return out


if __name__ == "__main__":
    print(reference(), end="")
