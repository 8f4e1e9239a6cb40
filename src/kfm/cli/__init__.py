"""The command line: one file per command, loaded only when it is called."""

import gc
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def _load() -> None:
    """What every command needs. Nothing that is loaded becomes garbage, so it is not looked through
    for any.
    """
    if "kfm.cli.call" in sys.modules:  # within a longer process: what is there now may be garbage
        return
    collecting = gc.isenabled()
    gc.disable()
    try:
        # the words first: they say how msgspec is loaded
        import kfm.model  # noqa: I001
        import kfm.cli.call  # noqa: F401
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


def _end(code: int) -> int:
    """End the process now, as Python would, but without taking apart what it has loaded; where
    something else goes on or cannot be written, that is for Python to see to.
    """
    import atexit
    import threading

    if any(not t.daemon for t in threading.enumerate() if t is not threading.main_thread()):
        return code
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return code
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Find the command, load its module, run it."""
    args = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal without our signs shows another one, never a traceback
            stream.reconfigure(errors="replace")
    everywhere, args = _everywhere(args)
    if args[:1] in (["-h"], ["--help"], ["help"]) and {*args[1:]} & {"--man", "--help"} == set():
        from kfm.cli.help_pages import print_help

        if print_help([word for word in args[1:] if word != "--all"], "--all" in args):
            return 0
        args[0] = "help"
    if args[:1] == ["--version"]:
        from kfm import __version__

        print(f"kfm {__version__}")
        return 0
    if not args:
        from kfm.cli.help_pages import overview

        print(overview(), end="", file=sys.stderr)
        return 2
    between, words = _everywhere(args[1:])
    if {"-h", "--help"} & set(words):
        from kfm.cli.help_pages import print_help

        if print_help([args[0], *(word for word in words[:1] if not word.startswith("-"))]):
            return 0
    _load()
    from kfm.cli import call

    code = call.command(args[0], words, everywhere + between)
    return _end(code) if argv is None else code


def _everywhere(words: list[str]) -> tuple[list[str], list[str]]:
    """Flags that every command takes and that stand before its words, and the rest."""
    taken = 0
    while taken < len(words):
        word = words[taken]
        if word in ("-w", "--workspace") and taken + 1 < len(words):
            taken += 2
        elif word in ("--json", "--verbose") or word.startswith(("-w=", "--workspace=")):
            taken += 1
        else:
            break
    return words[:taken], words[taken:]
