"""What the table of commands is written in; plain classes, so that help costs nothing."""

from collections.abc import Sequence

__all__ = ["Argument", "Command", "Noun", "given", "option", "switch"]


class Argument:
    """One argument of a command: a positional one, an option with a value, or a switch."""

    __slots__ = ("choices", "default", "dest", "help", "kind", "many", "metavar", "names", "needed")

    def __init__(
        self,
        names: tuple[str, ...],  # none: it is positional
        dest: str,
        help: str,
        *,
        kind: str = "text",  # a name of `values.KINDS`, which refuses what does not fit
        metavar: str = "",
        many: str = "",  # `?`, `*` or `+` of a positional one; `+` of an option: repeatable
        default: object = None,
        choices: tuple[str, ...] = (),
        needed: bool = False,
    ) -> None:
        self.names, self.dest, self.help, self.kind = names, dest, help, kind
        self.metavar, self.many, self.default = metavar, many, default
        self.choices, self.needed = choices, needed

    @property
    def unset(self) -> object:
        """What a handler gets when it is not given."""
        if self.kind == "switch":
            return False
        return [] if self.many in ("*", "+") else self.default


class Command:
    """One row of the table: `noun verb`, or a command that is its own verb."""

    __slots__ = ("about", "arguments", "example", "handler", "name", "what")

    def __init__(
        self,
        name: str,
        what: str,
        handler: str,  # `module:function` below kfm.cli
        *arguments: Argument,
        example: str,
        about: str = "",
    ) -> None:
        self.name, self.what, self.handler = name, what, handler
        self.arguments, self.example, self.about = arguments, example, about

    @property
    def noun(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def verb(self) -> str:
        return self.name.partition(" ")[2]


class Noun:
    """A word with verbs: what it is about, and which verb is meant when none is said."""

    __slots__ = ("about", "usual", "what")

    def __init__(self, what: str, usual: str = "", about: str = "") -> None:
        self.what, self.usual, self.about = what, usual, about


def given(dest: str, help: str = "", metavar: str = "", many: str = "", **more: object) -> Argument:
    """A positional argument."""
    return Argument((), dest, help, metavar=metavar or dest.upper(), many=many, **more)  # type: ignore[arg-type]


def option(names: str, help: str, metavar: str = "", **more: object) -> Argument:
    """An option with a value: `option("-n, --lines", …)`."""
    spelt = tuple(names.split(", "))
    dest = str(more.pop("dest", "")) or _dest(spelt)
    return Argument(spelt, dest, help, metavar=metavar, **more)  # type: ignore[arg-type]


def switch(names: str, help: str, dest: str = "") -> Argument:
    """An option without a value."""
    spelt = tuple(names.split(", "))
    return Argument(spelt, dest or _dest(spelt), help, kind="switch")


def _dest(names: Sequence[str]) -> str:
    long = next(name for name in names if name.startswith("--"))
    return long[2:].replace("-", "_")
