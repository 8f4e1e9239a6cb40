"""What `--help` of a command prints, kept in `flags.json` so that nothing is loaded to say it:
`python -m kfm.cli.reference` writes it down from the parsers.
"""

import argparse
import json
import os

__all__ = ["FILE", "help_parser", "written_down"]

FILE = os.path.join(os.path.dirname(__file__), "flags.json")
_KEPT = ("nargs", "choices", "required", "help", "metavar")


def written_down(parser: argparse.ArgumentParser) -> dict[str, object]:
    """What the help of a parser is made of."""
    flags = [_flag(a) for a in parser._actions if not isinstance(a, argparse._HelpAction)]
    return {"description": parser.description, "flags": flags}


def _flag(action: argparse.Action) -> dict[str, object]:
    told = {key: _plain(getattr(action, key)) for key in _KEPT}
    if "%(default)" in (action.help or ""):
        told["default"] = _plain(action.default)
    needed = {"option_strings": list(action.option_strings), "dest": action.dest}
    return needed | {key: v for key, v in told.items() if v is not None and v is not False}


def _plain(value: object) -> object:
    """A value as help spells it."""
    if isinstance(value, list | tuple | set | frozenset | dict):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def help_parser(name: str) -> argparse.ArgumentParser:
    """A parser that prints the help of a command and can do nothing else."""
    with open(FILE, encoding="utf-8") as file:
        found = json.load(file)[name]
    parser = argparse.ArgumentParser(
        prog=f"kfm {name}",
        description=found["description"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for flag in found["flags"]:
        parser._add_action(argparse.Action(**flag))
    return parser
