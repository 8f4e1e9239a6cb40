"""The command line: one file per command, loaded only when it is called."""

import sys
from collections.abc import Sequence

from kfm.cli.commands import COMMANDS

__all__ = ["COMMANDS", "main"]

_HEAD = """kfm keeps public-interest datasets fresh and can prove every byte it publishes.

usage: kfm [-w WORKSPACE] COMMAND [options]
"""
_TAIL = """
Every command takes --help and --json. -w names a workspace, before or after the command; else the
folder you are in, or KFM_WORKSPACE. Exit codes: 0 done or unchanged, 1 failed, 2 usage, 3 denied,
4 upstream unavailable, 5 fenced, 6 integrity, 7 waits for a person, 130/143 interrupted (resumable).
"""


def _overview() -> str:
    width = max(map(len, COMMANDS))
    return (
        _HEAD
        + "\n"
        + "".join(f"  {name:<{width}}  {what}\n" for name, (_, what) in COMMANDS.items())
        + _TAIL
    )


def _load_msgspec() -> None:
    """It takes from typing_extensions what `typing` has too, and does without: every start is
    quicker for it.
    """
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def main(argv: Sequence[str] | None = None) -> int:
    """Find the command, load its module, run it."""
    args = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal without our signs shows another one, never a traceback
            stream.reconfigure(errors="replace")
    before: list[str] = []
    while args and args[0].startswith("-"):
        if args[0] in ("-h", "--help"):
            print(_overview(), end="")
            return 0
        if args[0] == "--version":
            from kfm import __version__

            print(f"kfm {__version__}")
            return 0
        if args[0] in ("-w", "--workspace") and len(args) > 1:
            before += [args.pop(0), args.pop(0)]
        elif args[0].startswith(("-w=", "--workspace=")):
            before.append(args.pop(0))
        else:
            break
    if not args:
        print(_overview(), end="", file=sys.stderr)
        return 2
    if args[0] in COMMANDS and args[1:] in (["-h"], ["--help"]):
        from kfm.cli.flags import help_parser

        help_parser(args[0]).parse_args(args[1:])
    _load_msgspec()
    from kfm.cli import call

    return call.command(args[0], before + args[1:])
