"""Parse, call, print: what all commands share."""

import argparse
import gc
import importlib
import json
import os
import re
import shlex
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from kfm.cli.commands import COMMANDS
from kfm.cli.terminal import mask_home, program, say, say_error, sign
from kfm.model import STOPPED, TERMINATED, KfmError, UsageError, masked, stop_on_signals

# commands that open no world start faster without what it is made of
if TYPE_CHECKING:
    from kfm.judge.boundary import Reader
    from kfm.world.world import World

__all__ = [
    "Parser",
    "again",
    "clock_flag",
    "command",
    "emit",
    "fail",
    "guard",
    "heed_clock",
    "login",
    "offer",
    "parser_of",
    "reader_flag",
    "reader_of",
    "understood",
    "upstream_flag",
]


class Parser(argparse.ArgumentParser):
    """Hyphen and underscore spellings of every flag; usage errors exit 2."""

    as_json = False  # whether the command line asks for JSON, known before it is parsed

    def __init__(
        self,
        prog: str,
        description: str = "",
        formatter_class: type[argparse.HelpFormatter] = argparse.HelpFormatter,
    ) -> None:
        super().__init__(
            prog=prog,
            description=description,
            formatter_class=formatter_class,
            allow_abbrev=False,
        )
        # so that `--area -98.6,38,-98,38.6` is no option
        self._negative_number_matcher = re.compile(r"-\.?\d[-+.,\deE]*$")

    def parse(self, given: Sequence[str]) -> Namespace:
        """Options may stand anywhere, also between positional arguments, where argparse can do
        that.
        """
        whole = any(
            a.nargs in (argparse.PARSER, argparse.REMAINDER) for a in self._get_positional_actions()
        )
        if whole or {"-h", "--help"} & set(given):  # help is printed of the parser as it is
            return self.parse_args(given)
        return self.parse_intermixed_args(given)

    def error(self, message: str) -> NoReturn:
        fail(
            UsageError(
                f"{message[:1].upper()}{message[1:]}.",
                expected="other arguments",
                remedy=f"`{self.prog} --help` lists them.",
            ),
            self.as_json,
        )
        raise SystemExit(2)

    def add_argument(self, *names: str, **more: Any) -> argparse.Action:
        both = [
            n
            for name in names
            for n in (
                (name, name[:2] + name[2:].replace("-", "_")) if name.startswith("--") else (name,)
            )
        ]
        unique = list(dict.fromkeys(both))
        action = super().add_argument(*unique, **more)
        if action.option_strings:
            # help shows the documented spelling
            action.option_strings = [n for n in unique if n in names]
        return action


def again(args: Namespace, rest: str) -> str:
    """A next command that works from where this one was called."""
    return _again(getattr(args, "workspace", None), rest)


def _again(where: Path | None, rest: str) -> str:
    named = f" -w {shlex.quote(str(where))}" if where else ""
    return f"{program()}{named} {rest}"


def clock_flag(parser: Parser) -> None:
    """For commands that append a generation."""
    parser.add_argument(
        "--clock-ok",
        action="store_true",
        help="the clock is right, although it is behind what is official",
    )


def reader_flag(parser: Parser) -> None:
    """For commands that hand something out."""
    parser.add_argument(
        "--for",
        dest="reader",
        metavar="NAME",
        help="who it is for: what needs a grant goes to who has one",
    )


def reader_of(args: Namespace) -> "Reader":
    """Whom it is handed out to; nobody in particular, unless a person is named."""
    from kfm.judge.boundary import NOBODY, Reader

    name = (getattr(args, "reader", None) or "").strip()  # a job that is done again names nobody
    return Reader(name) if name else NOBODY


def heed_clock(world: "World", clock_ok: bool, *dataset_ids: str) -> None:
    """Say when the clock is behind what is official; beyond a day the engine refuses, unless a
    person vouched for the clock.
    """
    from kfm.evidence.append_times import clock_warning

    world.clock_ok = clock_ok
    for warning in filter(None, (clock_warning(world, name) for name in dataset_ids)):
        say(f"{sign('LATE', sys.stderr)} {warning}")


def offer(where: Path | None, world: "World", dataset_id: str) -> None:
    """What could be made of the official version and is not made yet, with the command that makes
    it now; a worker would do it by itself.
    """
    from kfm.evidence.run_end import derivation, owed

    for kind in owed(world, dataset_id):
        say(
            f"      {kind} was not run, no worker is there:"
            f" {_again(where, derivation(kind, dataset_id).removeprefix('kfm '))}"
        )


def command(name: str, args: Sequence[str]) -> int:
    """Run one command; every error ends as a three-part message and an exit code."""
    if name not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"Did you mean `kfm {near[0]}`?" if near else "`kfm --help` lists the commands."
        return fail(
            UsageError(f"There is no command {name!r}.", expected="a kfm command", remedy=hint),
            "--json" in args,
        )
    module = _loaded(f"kfm.cli.{COMMANDS[name][0]}")
    parser = parser_of(name, module)
    parser.as_json = "--json" in args
    parsed = parser.parse(args)
    return guard(lambda: int(module.main(parsed)), parsed)


def _loaded(name: str) -> ModuleType:
    """A module; nothing that is loaded becomes garbage, so it is not looked through for any, now or
    when the process ends.
    """
    if name in sys.modules:  # within a longer process: what is there now may be garbage
        return sys.modules[name]
    collecting = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


def parser_of(name: str, module: ModuleType) -> Parser:
    """The parser of one command: what all share, then its own."""
    parser = Parser(
        prog=f"kfm {name}",
        description=(module.__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-w",
        "--workspace",
        type=Path,
        default=None,
        metavar="DIR",
        help="the workspace; default: the folder you are in",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--verbose", action="store_true", help="print readable log lines on stderr")
    module.configure(parser)
    return parser


def upstream_flag(parser: Parser, what: str = "where bytes come from") -> None:
    """`--upstream`, as every command that asks has it."""
    help_text = f"{what}; default: live, or sample in a workspace made by `kfm init --sample`"
    parser.add_argument(
        "--upstream", choices=("live", "replay", "sample"), default=None, help=help_text
    )


def guard(work: Callable[[], int], parsed: Namespace) -> int:
    """Turn errors and signals into exit codes; an interrupted run releases its leases and can be
    resumed.
    """
    previous = stop_on_signals(signal.SIGTERM, signal.SIGINT)
    try:
        code = work()
        sys.stdout.flush()
        return code
    except KfmError as error:
        return fail(error, parsed.json, getattr(parsed, "verbose", False))
    except KeyboardInterrupt:
        return _interrupted("interrupted", STOPPED, parsed.json)
    except SystemExit as end:
        return (
            _interrupted("terminated", TERMINATED, parsed.json)
            if end.code == TERMINATED
            else end.code
            if isinstance(end.code, int)
            else 1
        )
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader went away: nothing more to say
        return 0
    except Exception as error:
        return fail(understood(error), parsed.json, getattr(parsed, "verbose", False))
    finally:
        for number, before in previous:
            signal.signal(number, before)


def understood(error: Exception) -> KfmError:
    """An error of ours as it is, any other in words."""
    if isinstance(error, KfmError):
        return error
    failure = _refused(error) if isinstance(error, OSError) else _unforeseen(error)
    failure.__cause__ = error
    return failure


def _refused(error: OSError) -> KfmError:
    name = (
        f" ({Path(os.fsdecode(error.filename)).name})"
        if isinstance(error.filename, str | bytes) and error.filename
        else ""
    )
    return KfmError(
        "The system refused an operation:"
        f" {error.strerror or _without_folders(str(error)) or type(error).__name__}{name}.",
        expected="a readable and writable workspace with space left",
        remedy="Mend that, then run again: nothing is lost.",
    )


def _unforeseen(error: Exception) -> KfmError:
    said = " ".join(_without_folders(str(error)).split()).removesuffix(".")
    return KfmError(
        "Something went wrong that should not:"
        f" {type(error).__name__}{f': {said}' if said else ''}.",
        expected="a command that ends, or says why it cannot",
        remedy=(
            "`kfm doctor` looks for damage; --verbose shows where it happened, which is worth"
            " reporting."
        ),
    )


def _without_folders(text: str) -> str:
    """Paths by their last name: where a workspace lies is nobody's business."""
    return re.sub(r"(?<![\w/])(?:/[^/\s'\"]+)*/([^/\s'\"]+)", r"\1", text)


def _interrupted(word: str, code: int, as_json: bool) -> int:
    if as_json:
        emit(
            {
                "error": "Interrupted",
                "happened": f"The command was {word}.",
                "expected": "",
                "remedy": "Run it again.",
                "exit_code": code,
            }
        )
    print(f"{word}; nothing is lost: the same command, or `kfm resume`, goes on", file=sys.stderr)
    return code


def fail(error: KfmError, as_json: bool, verbose: bool = False) -> int:
    """What happened, why, what to do."""
    if as_json:
        emit(
            {
                "error": type(error).__name__,
                "happened": error.happened,
                "expected": error.expected,
                "remedy": error.remedy,
                "exit_code": error.exit_code,
            }
        )
    say_error(mask_home(error.happened), error.expected, mask_home(error.remedy), error.exit_code)
    if verbose:
        import traceback

        print(masked("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    return error.exit_code


def login() -> str:
    """Who calls, as envelopes and the ledger name them."""
    found = os.environ.get("LOGNAME") or os.environ.get("USER")
    if not found:
        import pwd

        try:
            found = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            found = str(os.getuid())
    return f"user:{found}"


def emit(value: object) -> None:
    """The `--json` result, records and all: one document on stdout."""
    print(masked(json.dumps(value, indent=2, ensure_ascii=False, default=msgspec.to_builtins)))
