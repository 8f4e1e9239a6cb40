"""Which hooks connector code has, read from its text: nothing of it is run here, and nowhere else
is it asked.
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from kfm.model import UsageError

if TYPE_CHECKING:
    import ast

__all__ = ["HOOKS", "check_module", "hook_of", "hooks_in", "hooks_of"]

HOOKS = ("discover", "change_token", "acquire", "transform", "validate")
_NEAR = 2  # letters


class _Name(NamedTuple):
    """A name that a module gives to something, outside of functions and classes."""

    name: str
    line: int
    is_function: bool
    decorated: bool = False
    refused: str = ""  # why it cannot be a hook
    imported: bool = False


@lru_cache(64)
def hooks_of(code: bytes, path: str) -> frozenset[str]:
    """The hooks that `code` defines. Raises `UsageError` when it is no Python, or has a function
    that looks like a misspelt hook.

    `path` is only told.
    """
    import ast  # some milliseconds that a dataset without code never needs

    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # ValueError: a zero byte
        line = f", line {error.lineno}," if isinstance(error, SyntaxError) and error.lineno else ""
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(
            f"{path}{line} cannot be read: {said}.",
            expected="Python",
            remedy="Correct it; nothing of it was run.",
        ) from error
    names = list(_names(tree.body))
    for found in names:
        if found.name in HOOKS and found.refused:
            raise UsageError(
                f"{path}, line {found.line}: {found.name} {found.refused}.",
                expected=f"`def {found.name}(…)`",
                remedy="Write it as a plain function.",
            )
    used = _used(tree)
    for found in names:
        near = _near(found.name)
        public = not found.name.startswith("_") and found.name not in HOOKS and not found.imported
        idle = found.name not in used
        # a value of such a name is a misspelt hook only where it could be called and nobody reads
        # it
        misspelt = near is not None and (
            found.is_function or (idle and not found.refused and not found.name[0].isupper())
        )
        if public and (misspelt or (idle and found.is_function and not found.decorated)):
            _refuse(found, path, near)
    return frozenset(found.name for found in names) & frozenset(HOOKS)


def hooks_in(path: Path) -> frozenset[str]:
    """The hooks of a connector file; none when there is no file."""
    return hooks_of(path.read_bytes(), path.name) if path.is_file() else frozenset()


def check_module(module: ModuleType, hooks: frozenset[str]) -> None:
    """That running the code gave the very hooks its text shows: one that comes and goes as it runs
    was seen by nobody.
    """
    there = {name for name in HOOKS if hasattr(module, name)}
    odd = next(iter(sorted(there ^ hooks)), None)
    if odd is not None:
        what = (
            "is there when it runs and cannot be seen in its text"
            if odd in there
            else "stands in its text and is not there when it runs"
        )
        raise TypeError(
            f"{odd}() of the connector {what}; define it with `def {odd}` outside of any condition"
        )
    odd = next((name for name in sorted(there) if not callable(getattr(module, name))), None)
    if odd is not None:
        raise TypeError(
            f"{odd} of the connector is no function but {type(getattr(module, odd)).__name__}"
        )


def hook_of(module: ModuleType | None, name: str) -> Any:
    """A hook of a connector that was loaded, None where it has none."""
    assert name in HOOKS
    return getattr(module, name, None)


def _refuse(found: _Name, path: str, near: str | None) -> None:
    import difflib

    close = near or next(iter(difflib.get_close_matches(found.name.lower(), HOOKS, 1, 0.5)), None)
    meant = (
        f"Did you mean `{close}`? Else rename" if close else "Call it, name it as a hook, or rename"
    )
    happened = (
        "is no hook, and its name is close to one"
        if near
        else "is no hook, and nothing here calls it"
    )
    raise UsageError(
        f"{path}, line {found.line}: {found.name}() {happened}.",
        expected=f"hooks ({', '.join(HOOKS)}) and what they call",
        remedy=f"{meant} it with a leading `_`: a misspelt hook would be left out without a word.",
    )


def _names(body: "list[ast.stmt]") -> Iterator[_Name]:
    """What a module names, also below conditions and loops."""
    import ast

    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield _Name(
                node.name, node.lineno, is_function=True, decorated=bool(node.decorator_list)
            )
        elif isinstance(node, ast.AsyncFunctionDef):
            yield _Name(
                node.name,
                node.lineno,
                is_function=True,
                decorated=bool(node.decorator_list),
                refused="is asynchronous",
            )
        elif isinstance(node, ast.ClassDef):
            yield _Name(node.name, node.lineno, is_function=False, refused="is a class")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield _Name(
                    (alias.asname or alias.name).partition(".")[0],
                    node.lineno,
                    is_function=False,
                    imported=True,
                )
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            yield from _assigned(
                node.targets if isinstance(node, ast.Assign) else [node.target], node.value
            )
        for inner in ("body", "orelse", "finalbody"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _names(getattr(node, inner, []))
        for other in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _names(other.body)


def _assigned(targets: "list[ast.expr]", value: "ast.expr") -> Iterator[_Name]:
    import ast

    may_be_called = isinstance(value, ast.Lambda | ast.Name | ast.Attribute | ast.Call | ast.IfExp)
    refused = "" if may_be_called else "is given a value that is no function"
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                plain = node is target
                yield _Name(
                    node.id,
                    node.lineno,
                    is_function=plain and isinstance(value, ast.Lambda),
                    refused=refused if plain else "is assigned together with others",
                )


def _used(tree: "ast.Module") -> set[str]:
    """Names that are read somewhere, a function's own body aside: calling only itself, it is called
    by nobody.
    """
    import ast

    found: set[str] = set()
    for node in tree.body:
        own = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None
        read = {
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        }
        found |= read - {own}
    return found


def _near(name: str) -> str | None:
    """The hook whose name differs in one or two letters, however it is written; None when there is
    none.
    """
    plain = name.lower().strip("_")
    return next((hook for hook in HOOKS if 0 <= _distance(plain, hook) <= _NEAR), None)


def _distance(a: str, b: str) -> int:
    """Letters to add, take out, change or swap with the next."""
    if abs(len(a) - len(b)) > _NEAR:
        return _NEAR + 1
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            least = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (x != y))
            swapped = i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y
            row.append(min(least, rows[-2][j - 2] + 1) if swapped else least)
        rows.append(row)
    return rows[-1][-1]
