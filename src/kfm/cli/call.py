"""Parse, call, print: what all commands share."""

import gc
import importlib
import os
import re
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.help_pages import noun_page
from kfm.cli.old_spellings import present
from kfm.cli.parse import arguments_of
from kfm.cli.spec import Command, find, verbs
from kfm.cli.suggestions import no_command, no_verb, retyped
from kfm.cli.terminal import mask_home, named_workspace, paged, program, say, say_error, sign
from kfm.model import STOPPED, TERMINATED, KfmError, UsageError, masked, stop_on_signals

# commands that open no world start faster without what it is made of
if TYPE_CHECKING:
    from kfm.access.boundary import Reader
    from kfm.workspace.folder import Unregistered
    from kfm.world.world import World

__all__ = [
    "Failure",
    "again",
    "command",
    "emit",
    "fail",
    "guard",
    "heed_clock",
    "login",
    "offer",
    "reader_of",
    "understood",
]


def again(call: Call, rest: str) -> str:
    """A next command that works from where this one was called."""
    return _again(call.workspace, rest)


def _again(where: Path | None, rest: str) -> str:
    import shlex  # a NOOP starts faster without it

    named = f" -w {shlex.quote(str(where))}" if where else ""
    return f"{program()}{named} {rest}"


def reader_of(name: str | None) -> "Reader":
    """Whom it is handed out to; nobody in particular, unless a person is named."""
    from kfm.access.boundary import NOBODY, Reader

    return Reader(name.strip()) if name and name.strip() else NOBODY


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
    from kfm.upkeep.derived import derivation, owed

    for kind in owed(world, dataset_id):
        say(
            f"      {kind} was not run, no worker is there:"
            f" {_again(where, derivation(kind, dataset_id).removeprefix('kfm '))}"
        )


def command(noun: str, words: list[str], everywhere: list[str]) -> int:
    """Run the command that a noun and its words name; every error ends as a three-part message and
    an exit code.
    """
    flags = {*words, *everywhere}
    return guard(lambda: _called(noun, words, everywhere), "--json" in flags, "--verbose" in flags)


def _called(noun: str, words: list[str], everywhere: list[str]) -> int:
    named_workspace(_workspace_in(everywhere + words))  # a slip is answered by what can be pasted
    known = verbs(noun)
    if not known:
        raise no_command(noun, words)
    if not words or words[0] not in known:
        words = present(noun, words)
    chosen, rest = find([noun, *words])
    if chosen is None:
        if not rest or rest[0].startswith("-"):
            print(noun_page(noun), end="", file=sys.stderr)
            return UsageError.exit_code
        raise no_verb(noun, *rest)
    rest = everywhere + rest
    given = arguments_of(chosen, rest)
    call = Call(given.pop("workspace"), given.pop("json"), given.pop("verbose"))
    named_workspace(call.workspace)
    try:
        return _answered(chosen, call, given)
    except UsageError as error:
        from kfm.workspace.folder import Unregistered

        if isinstance(error, Unregistered) and error.meant:
            raise _pasteable(error, chosen, rest) from error
        raise


def _pasteable(error: "Unregistered", command: Command, given: list[str]) -> UsageError:
    """A dataset that is spelt almost like one there is: the whole call with that one."""
    told = retyped(command.name.split(), given, error.named, error.meant)
    was = error.remedy if error.renamed else ""
    return UsageError(error.happened, expected=error.expected, remedy=f"{was} {told}".strip())


def _workspace_in(words: list[str]) -> Path | None:
    """The workspace that is named somewhere among these words."""
    for word, following in zip(words, [*words[1:], ""]):
        if word in ("-w", "--workspace") and following:
            return Path(following)
        for flag in ("-w=", "--workspace="):
            if word.startswith(flag):
                return Path(word.removeprefix(flag))
    return None


# commands that go on until they are stopped, or that say all at once
_ENDLESS = (
    "up",
    "serve",
    "worker",
    "scheduler",
    "webhook",
    "logs",
    "sample-upstream",
    "help",
    "completion",
)


def _attended(noun: str, quiet: bool) -> AbstractContextManager[None]:
    """While a command works, a terminal is told how far it is."""
    if quiet or noun in _ENDLESS or not sys.stderr.isatty():
        return nullcontext()
    from kfm.cli.meter import attended

    return attended(noun)


def _answered(command: Command, call: Call, given: dict[str, object]) -> int:
    """Call a handler with what was given, and print its answer; None: all is said already."""
    module, _, function = command.handler.partition(":")
    with _attended(command.noun, call.json or call.verbose):
        handler: Callable[..., Answer | None] = getattr(_loaded(f"kfm.cli.{module}"), function)
        answer = handler(call, **given)
    if answer is None:
        return 0
    if call.json:
        emit(answer)
    else:
        with paged():
            answer.tell(call)
    return answer.code


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


def guard(work: Callable[[], int], as_json: bool = False, verbose: bool = False) -> int:
    """Turn errors and signals into exit codes; an interrupted run releases its leases and can be
    resumed.
    """
    previous = stop_on_signals(signal.SIGTERM, signal.SIGINT)
    try:
        code = work()
        sys.stdout.flush()
        return code
    except KfmError as error:
        return fail(error, as_json, verbose)
    except KeyboardInterrupt:
        return _interrupted("interrupted", STOPPED, as_json)
    except SystemExit as end:
        return (
            _interrupted("terminated", TERMINATED, as_json)
            if end.code == TERMINATED
            else end.code
            if isinstance(end.code, int)
            else 1
        )
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader went away: nothing more to say
        return 0
    except Exception as error:
        return fail(understood(error), as_json, verbose)
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


class Failure(Answer, frozen=True, kw_only=True):
    """Why a command could not be done: what happened, what was expected, what to do."""

    error: str
    happened: str
    expected: str
    remedy: str
    exit_code: int


def _interrupted(word: str, code: int, as_json: bool) -> int:
    if as_json:
        emit(
            Failure(
                error="Interrupted",
                happened=f"The command was {word}.",
                expected="",
                remedy="Run it again.",
                exit_code=code,
            )
        )
    say(f"{word}; nothing is lost: the same command goes on, a run also by `kfm resume`")
    return code


def fail(error: KfmError, as_json: bool, verbose: bool = False) -> int:
    """What happened, why, what to do."""
    if as_json:
        emit(
            Failure(
                error=type(error).__name__,
                happened=error.happened,
                expected=error.expected,
                remedy=error.remedy,
                exit_code=error.exit_code,
            )
        )
    say_error(mask_home(error.happened), error.expected, mask_home(error.remedy))
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
    import json  # who reads it waits for more than this

    print(masked(json.dumps(value, indent=2, ensure_ascii=False, default=msgspec.to_builtins)))
