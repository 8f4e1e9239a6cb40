"""The module of a kind of source, found by its name: how to ask for the bytes, and how to read
them.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from kfm.connectors.kind import Ask
from kfm.connectors.operations import Read
from kfm.connectors.read.rows import Reader
from kfm.connectors.table.sanity import Sane
from kfm.model import PLAIN, Column, UsageError, kind_of

__all__ = ["Loaded", "load", "module_of"]


class Loaded(NamedTuple):
    """The module of a kind: what it promises."""

    # the canonical ones, used when the registry names none; empty: inferred
    columns: Callable[[Read], tuple[Column, ...]]
    key: Callable[[Read], tuple[str, ...]]  # the business key that goes with them
    readers: Callable[[Read], list[Reader]]
    acquire: Callable[[Ask], None] | None
    change_token: Callable[[Ask], str | None] | None
    sanity: Callable[[Read], tuple[Sane, ...]]  # what can be true of those columns
    companions: Callable[[Read, Path], tuple[str, ...]] | None
    stamp: Callable[[str], str | None] | None  # when a release was made, by its change token


def module_of(name: str) -> ModuleType | None:
    """The code of a kind; None for a plain one, which has none."""
    if name in PLAIN:
        return None
    if (kind := kind_of(name)) is None:
        raise UsageError(
            f"The kind of source {name} is not installed here.",
            expected="the package that offers it, beside kfm itself",
            remedy="Install it with pip where kfm is: a child looks nowhere else.",
        )
    return importlib.import_module(kind.module)


def load(name: str) -> Loaded | None:
    """The module of a kind, None for a plain one; heavy, for the child."""
    if (module := module_of(name)) is None:
        return None
    return Loaded(
        columns=getattr(module, "columns", None) or (lambda _: getattr(module, "COLUMNS", ())),
        key=getattr(module, "key", None) or (lambda _: getattr(module, "KEY", ())),
        readers=module.readers,
        acquire=getattr(module, "acquire", None),
        change_token=getattr(module, "change_token", None),
        sanity=getattr(module, "sanity", None) or (lambda _: getattr(module, "SANITY", ())),
        companions=getattr(module, "companions", None),
        stamp=getattr(module, "stamp", None),
    )
