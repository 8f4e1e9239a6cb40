"""The command reference, made from the parsers themselves: `python -m kfm.cli.reference >
docs/commands.md`. It also writes down what `--help` prints.
"""

import argparse
import importlib
import io
import json
import os
from pathlib import Path

from kfm.cli.call import parser_of
from kfm.cli.commands import COMMANDS
from kfm.cli.flags import FILE, written_down

__all__ = ["flags", "reference"]


def flags() -> str:
    """What the help of every command is made of."""
    found = {
        name: written_down(parser_of(name, importlib.import_module(f"kfm.cli.{module}")))
        for name, (module, _) in COMMANDS.items()
    }
    lines = (f"{json.dumps(n)}: {json.dumps(f, ensure_ascii=False)}" for n, f in found.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def reference() -> str:
    """Every command with its description and its flags."""
    os.environ["COLUMNS"] = "100"
    out = io.StringIO()
    out.write(
        "# Commands\n\nMade by `make schemas` from the parsers; a test keeps it true. Hyphen and"
        " underscore spellings of a flag are the same.\n"
    )
    for name, (module_name, _) in COMMANDS.items():
        module = importlib.import_module(f"kfm.cli.{module_name}")
        parser = parser_of(name, module)
        out.write(
            f"\n## kfm {name}\n\n{(module.__doc__ or '').strip()}\n\n| argument | meaning"
            " |\n|---|---|\n"
        )
        for action in parser._actions:
            if isinstance(action, argparse._HelpAction):
                continue
            names = (
                ", ".join(f"`{o}`" for o in action.option_strings)
                or f"`{action.metavar or action.dest}`"
            )
            value = (
                f" `{action.metavar or action.dest.upper()}`"
                if action.option_strings and action.nargs != 0 and not action.const
                else ""
            )
            choices = f" ({', '.join(map(str, action.choices))})" if action.choices else ""
            out.write(
                f"| {names}{value} | {action.help or ''}{choices} |\n".replace(
                    "|DAY|SINCE/UNTIL", "\\|DAY\\|SINCE/UNTIL"
                ).replace("REF|", "REF\\|")
            )
    return out.getvalue()


if __name__ == "__main__":
    Path(FILE).write_text(flags())
    print(reference(), end="")
