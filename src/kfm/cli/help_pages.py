"""What help says, made from the table of commands without loading anything else."""

import os
import sys
import textwrap
from collections.abc import Iterable, Iterator

from kfm.cli.spec import EVERYWHERE, FRONT, GROUPS, NOUNS, Argument, Command, find, verbs

__all__ = [
    "command_page",
    "man_page",
    "noun_page",
    "overview",
    "page_of",
    "print_help",
    "signature",
    "usage",
]

_PROMISE = "kfm keeps public-interest datasets fresh and can prove every byte it publishes."
_EXITS = (
    "Exit codes: 0 done or unchanged, 1 failed, 2 usage, 3 denied, 4 upstream unavailable, 5 fenced,"
    " 6 integrity, 7 waits for a person, 130/143 interrupted (resumable)."
)
_EVERY = (
    "Every command takes --help and --json. -w names a workspace, before or after the command; else"
    " the folder you are in, or KFM_WORKSPACE."
)


def _width() -> int:
    try:
        columns = int(os.environ.get("COLUMNS", "")) or 0
    except ValueError:
        columns = 0
    if not columns:
        columns = os.get_terminal_size().columns if sys.stdout.isatty() else 100
    return max(40, min(100, columns))


def _filled(text: str, width: int, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _rows(pairs: Iterable[tuple[str, str]], width: int, most: int = 26) -> Iterator[str]:
    """Two columns; what is too long for the first one has a line of its own."""
    pairs = list(pairs)
    left = min(most, max((len(name) for name, _ in pairs), default=0))
    for name, what in pairs:
        if len(name) > left:
            yield f"  {name}"
            name = ""
        yield _filled(what, width, f"  {name:<{left}}  ", " " * (left + 4)).rstrip()


def _heads(group: str) -> dict[str, str]:
    """The words a group is called by: its nouns, and the commands that are their own verb."""
    found: dict[str, str] = {}
    for each in GROUPS[group].COMMANDS:
        noun = each.noun
        found[noun] = NOUNS[noun].what if noun in NOUNS else each.what
    return found


def overview(whole: bool = False) -> str:
    """The first screen: what is used every day, by group; or all of it."""
    width = _width()
    named = {group: _heads(group) for group in GROUPS}
    shown = {
        group: {n: what for n, what in heads.items() if whole or n in FRONT}
        for group, heads in named.items()
    }
    left = max(len(n) for heads in shown.values() for n in heads)
    lines = [_filled(_PROMISE, width), "", "usage: kfm [-w WORKSPACE] COMMAND [options]"]
    for group, heads in shown.items():
        lines += ["", group]
        lines += [
            _filled(what, width, f"  {n:<{left}}  ", " " * (left + 4)) for n, what in heads.items()
        ]
    more = sum(map(len, named.values())) - len(FRONT)
    tail = "`kfm help COMMAND` tells more of one."
    if not whole:
        tail = f"`kfm help --all` shows {more} more commands, {tail}"
    lines += ["", _filled(tail, width), _filled(_EVERY, width), _filled(_EXITS, width)]
    return "\n".join(lines) + "\n"


def _value(argument: Argument) -> str:
    """The value of an argument, as usage spells it."""
    if argument.kind == "switch":
        return ""
    if argument.choices and not argument.metavar:
        return "|".join(argument.choices)
    return argument.metavar or argument.dest.upper().replace("_", "-")


def signature(argument: Argument) -> str:
    """An argument, as lists spell it: `-n, --lines N`."""
    return " ".join(filter(None, (", ".join(argument.names), _value(argument))))


def usage(command: Command) -> str:
    """One line that shows how a command is called."""
    parts = ["kfm", command.name]
    for each in command.arguments:
        if each.names:
            name = next((n for n in each.names if n.startswith("--")), each.names[0])
            text = " ".join(filter(None, (name, _value(each))))
            parts.append(text if each.needed else f"[{text}]")
        else:
            text = _value(each)
            dots = "…" if each.many in ("*", "+") else ""
            parts.append(f"[{text}{dots}]" if each.many in ("?", "*") else text + dots)
    return " ".join(parts)


def _helped(argument: Argument) -> str:
    shown = argument.choices and argument.metavar
    return argument.help + (f" ({', '.join(argument.choices)})" if shown else "")


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """Paragraphs filled to the width; a paragraph that is indented is a table and stays."""
    for paragraph in text.split("\n\n"):
        table = paragraph.startswith(" ")
        yield paragraph if table else _filled(" ".join(paragraph.split()), width)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def command_page(command: Command) -> str:
    """The help of one command."""
    width = _width()
    lines = [_filled(f"usage: {usage(command)}", width, "", "       "), ""]
    lines.append(_filled(_sentence(command.what), width))
    if command.about:
        lines += ["", "\n\n".join(_paragraphs(command.about, width))]
    own = [(signature(a), _helped(a)) for a in command.arguments]
    shared = [(signature(a), a.help) for a in EVERYWHERE]
    if own:
        lines += ["", *_rows(own, width)]
    lines += ["", *_rows(shared, width)]
    others = [verb for verb in verbs(command.noun) if verb and verb != command.verb]
    if not command.verb and others:
        lines += [
            "",
            *_rows(((f"{command.noun} {v}", verbs(command.noun)[v].what) for v in others), width),
        ]
    return "\n".join([*lines, "", "example", f"  {command.example}", ""])


def noun_page(noun: str) -> str:
    """The help of a noun: its verbs."""
    width, found = _width(), verbs(noun)
    told = NOUNS[noun]
    lines = [f"usage: kfm {noun} VERB [options]", "", _filled(_sentence(told.what), width), ""]
    lines += _rows(((v, c.what) for v, c in found.items()), width)
    if told.about:
        lines += ["", "\n\n".join(_paragraphs(told.about, width))]
    if told.usual:
        lines += ["", f"`kfm {noun}` alone is `kfm {noun} {told.usual}`."]
    return "\n".join([*lines, "", f"`kfm {noun} VERB --help` tells more of one.", ""])


def page_of(words: list[str], whole: bool = False) -> str | None:
    """The help of what these words name; None when there is no such command."""
    if not words:
        return overview(whole)
    command, _ = find([*words, "--help"])
    if command is not None:
        return command_page(command)
    return noun_page(words[0]) if words[0] in NOUNS and len(words) == 1 else None


def print_help(words: list[str], whole: bool = False) -> bool:
    """Print the help of what these words name; no when there is no such command."""
    page = page_of(words, whole)
    print(page or "", end="")
    return page is not None


def man_page(version: str) -> str:
    """All of it as a manual page."""

    def plain(text: str) -> str:
        text = text.replace("\\", "\\e").replace("-", "\\-")
        return "\n".join(f"\\&{t}" if t.startswith((".", "'")) else t for t in text.split("\n"))

    out = [f'.TH KFM 1 "" "kfm {version}"', ".SH NAME", plain("kfm - governed data updates")]
    out += [".SH SYNOPSIS", ".B kfm", "[\\-w WORKSPACE] COMMAND [options]"]
    out += [".SH DESCRIPTION", plain(_PROMISE), ".PP", plain(_EVERY)]
    for group in GROUPS:
        out.append(f".SH {group.upper()}")
        for each in GROUPS[group].COMMANDS:
            out += [".SS " + plain(usage(each)), plain(_sentence(each.what))]
            out += [plain(line) for line in each.about.split("\n") if line]
            for a in each.arguments:
                out += [".TP", ".B " + plain(signature(a)), plain(_helped(a) or a.dest)]
            out += [".PP", "Example:", ".EX", plain(each.example), ".EE"]
    out += [".SH EXIT STATUS", plain(_EXITS)]
    return "\n".join(out) + "\n"
