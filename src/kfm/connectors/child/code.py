"""Which hooks connector code has, read from its text: nothing of it is run here, and nowhere else
is it asked.
"""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from kfm import connect
from kfm.model import UsageError

if TYPE_CHECKING:
    import ast

__all__ = ["HOOKS", "Code", "Connector", "hooks_in", "hooks_of", "read_code", "run_code"]

# functions of a module that are called by their name
HOOKS = ("discover", "change_token", "acquire", "transform", "validate")
# and those that a source names: `parse` was an ordinary word before there was one
NAMED = ("discover", "change_token", "acquire", "parse", "transform", "validate")
_NEAR = 2  # letters


class _Name(NamedTuple):
    """A name that a module gives to something, outside of functions and classes."""

    name: str
    line: int
    is_function: bool
    decorated: bool = False
    refused: str = ""  # why it cannot be a hook
    imported: bool = False


class Code(NamedTuple):
    """What the text of a connector says of it."""

    hooks: frozenset[str]
    source: connect.Source | None = None  # what `source(…)` was given; it has no functions here


def hooks_of(code: bytes, path: str) -> frozenset[str]:
    """The hooks that `code` defines, as `read_code` finds them."""
    return read_code(code, path).hooks


@lru_cache(64)
def read_code(code: bytes, path: str) -> Code:
    """What `code` defines and states. Raises `UsageError` when it is no Python, has a function that
    looks like a misspelt hook, or a source that cannot be read without running it.

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
            remedy="Mend that line; nothing of the file was run.",
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
    plain = frozenset(found.name for found in names) & frozenset(HOOKS)
    return _with_source(tree, path, plain) if b"kfm" in code else Code(plain)


def hooks_in(path: Path) -> frozenset[str]:
    """The hooks of a connector file; none when there is no file."""
    return hooks_of(path.read_bytes(), path.name) if path.is_file() else frozenset()


class Connector:
    """Connector code that was run: its hooks."""

    def __init__(self, hooks: dict[str, Any]) -> None:
        self._hooks = hooks

    def hook(self, name: str) -> Any:
        """The function for `name`, None where it has none."""
        assert name in NAMED
        return self._hooks.get(name)


def run_code(module: ModuleType, code: Code) -> Connector:
    """The hooks of a module that was run. They must be the very ones its text shows: what comes and
    goes as it runs was seen by nobody.
    """
    made = [v for v in vars(module).values() if isinstance(v, connect.Source)]
    stated = code.source.stated if code.source is not None else None
    if (made[0].stated if made else None) != stated or len({id(v) for v in made}) > 1:
        raise TypeError("source() is given something else when it runs than its text shows")
    there = {name: getattr(module, name) for name in HOOKS if hasattr(module, name)}
    there |= made[0].hooks if made else {}
    odd = next(iter(sorted(there.keys() ^ code.hooks)), None)
    if odd is not None:
        what = (
            "is there when it runs and cannot be seen in its text"
            if odd in there
            else "stands in its text and is not there when it runs"
        )
        raise TypeError(
            f"{odd}() of the connector {what}; define it with `def {odd}` outside of any condition"
        )
    odd = next((name for name in sorted(there) if not callable(there[name])), None)
    if odd is not None:
        raise TypeError(f"{odd} of the connector is no function but {type(there[odd]).__name__}")
    return Connector(there)


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


# ---- what a source states ------------------------------------------------------------------------
def _with_source(tree: "ast.Module", path: str, plain: frozenset[str]) -> Code:
    """The hooks of a module with those that its source names, and what that source was given."""
    import ast

    known = _Known(tree)
    made = [
        (target.id, node.value)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
        and isinstance(node.value, ast.Call)
        and known.function(node.value.func) == "source"
    ]
    if not made:
        return Code(plain)
    if len(made) > 1:
        raise _unreadable(path, made[1][1], "a second source()", "one source() for a dataset")
    name, call = made[0]
    try:
        stated = known.value(call)
    except _Unclear as unclear:
        raise _unreadable(
            path,
            unclear.node,
            unclear.why,
            "source() and column() with their values written out: they are read from the text,"
            " before anything of it is run",
        ) from None
    assert isinstance(stated, connect.Source)
    hooks: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Attribute) and getattr(mark.value, "id", None) == name:
                    _name_hook(hooks, mark.attr, node, path, plain, name)
    return Code(plain | hooks.keys(), stated)


def _name_hook(
    hooks: dict[str, int],
    hook: str,
    node: "ast.FunctionDef | ast.AsyncFunctionDef",
    path: str,
    plain: frozenset[str],
    name: str,
) -> None:
    import ast
    import difflib

    if hook not in NAMED:
        close = next(iter(difflib.get_close_matches(hook, NAMED, 1, 0.5)), None)
        raise UsageError(
            f"{path}, line {node.lineno}: @{name}.{hook} is no hook.",
            expected=f"one of {', '.join(f'@{name}.{h}' for h in NAMED)}",
            remedy=f"Did you mean `@{name}.{close}`?" if close else "Name one of them.",
        )
    if isinstance(node, ast.AsyncFunctionDef):
        raise _unreadable(path, node, f"{node.name} is asynchronous", f"`def {node.name}(…)`")
    if hook in hooks or (hook in plain and node.name != hook):
        raise _unreadable(path, node, f"{hook} has two functions", f"one function for {hook}")
    hooks[hook] = node.lineno


def _unreadable(path: str, node: "ast.AST", why: str, expected: str) -> UsageError:
    return UsageError(
        f"{path}, line {getattr(node, 'lineno', 0)}: {why}.",
        expected=expected,
        remedy="Write it so; nothing of it was run.",
    )


class _Unclear(Exception):
    def __init__(self, node: "ast.AST", why: str) -> None:
        super().__init__(why)
        self.node, self.why = node, why


class _Known:
    """What the names of a module stand for, as far as its text says so."""

    def __init__(self, tree: "ast.Module") -> None:
        import ast

        # name here -> name in kfm.connect; "": the module itself
        self._connect: dict[str, str] = {}
        self._values: dict[str, ast.expr | None] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "kfm.connect":
                self._connect |= {a.asname or a.name: a.name for a in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module == "kfm":
                self._connect |= {a.asname or a.name: "" for a in node.names if a.name == "connect"}
            elif isinstance(node, ast.Import):
                self._connect |= {
                    a.asname or a.name: "" for a in node.names if a.name == "kfm.connect"
                }
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._values[node.id] = None  # several times, or not as a whole
        stored = [
            n.id
            for n in ast.walk(tree)
            if isinstance(n, ast.Name) and n.id in self._values and isinstance(n.ctx, ast.Store)
        ]
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name) and stored.count(target.id) == 1:
                        self._values[target.id] = node.value

    def function(self, node: "ast.expr") -> str | None:
        """The name in kfm.connect that an expression stands for."""
        import ast

        if isinstance(node, ast.Name):
            return self._connect.get(node.id) or None
        if isinstance(node, ast.Attribute) and self._connect.get(ast.unparse(node.value)) == "":
            return node.attr
        return None

    def value(self, node: "ast.expr") -> Any:
        """The value of an expression that is written out. Raises `_Unclear`."""
        import ast

        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple():
                return tuple(self.value(e) for e in node.elts)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Name(id=name) if self._values.get(name) is not None:
                return self.value(self._values[name])  # type: ignore[arg-type]
            case ast.Name(id="str" | "int" | "float" | "bool" | "dict" | "list" as name):
                return {"str": str, "int": int, "float": float, "bool": bool}.get(name, dict)
            case ast.Name(id="date" | "datetime" | "Decimal" as name):
                return type(name, (), {})
            case ast.Attribute(attr="date" | "datetime" | "Decimal" as name):
                return type(name, (), {})
            case ast.Call(func=func):
                return self._call(node, self.function(func))
        raise _Unclear(node, f"`{ast.unparse(node)[:80]}` is not written out")

    def _call(self, node: "ast.Call", name: str | None) -> Any:
        import ast

        if name not in ("source", "column", "bearer", "basic", "header", "query"):
            raise _Unclear(node, f"`{ast.unparse(node)[:80]}` is not written out")
        given = [self.value(a) for a in node.args]
        named = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        if any(k.arg is None for k in node.keywords):
            raise _Unclear(node, f"`{ast.unparse(node)[:80]}` is not written out")
        try:
            return getattr(connect, name)(*given, **named)
        except (TypeError, ValueError, AttributeError) as error:
            raise _Unclear(node, str(error)) from error
