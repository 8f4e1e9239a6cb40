"""The kfm subset of Rego: rules that can only compute, so that the same question has the same
answer everywhere and always.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from kfm.policy.base import Trouble, is_test
from kfm.policy.process import Child, place_of

__all__ = ["ALLOWED", "PACKAGE", "Finding", "check", "names_of_tests", "scan"]

MAX_BYTES = 256 << 10
MAX_DEPTH = 32  # of brackets: a parser that calls itself has a stack to overflow
PACKAGE = re.compile(r"kfm(\.[a-z][a-z0-9_]*)+")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Upper and lower case, counting and parsing of text are left out: evaluators do not agree on them
# for all of Unicode.
ALLOWED = _names(
    "abs array.concat array.reverse array.slice ceil concat contains count endswith floor"
    " intersection is_array is_boolean is_null is_number is_object is_set is_string max min"
    " numbers.range object.filter object.get object.keys object.remove object.union product"
    " regex.match replace round set sort split sprintf startswith substring sum trim trim_left"
    " trim_prefix trim_right trim_space trim_suffix type_name union"
)
_FAMILIES = _names(
    "array base64 base64url bits crypto glob graph graphql hex http internal io json net numbers"
    " object opa providers rand regex rego semver strings time units uri urlquery uuid yaml"
)
_OTHERS = _names(  # builtins outside the subset that stand alone
    "all and any assign cast_array cast_boolean cast_null cast_object cast_set cast_string div eq"
    " equal format_int gt gte indexof indexof_n lower lt lte minus mul neq or plus print re_match"
    " rem set_diff to_number trace upper walk"
)
_KEYWORDS = _names(
    "as contains default else every false if import in not null package some true with"
)
_TOKEN = re.compile(
    r"(?P<skip>(?:["
    r' \t\n]|\r\n|#[^\n\r\x00]*)+)|(?P<text>"(?:[^"\\\x00-\x1f]|\\.)*"|`[^`\r\x00]*`)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)'
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<sign>:=|==|!=|<=|>=|[.,:;=<>|&+\-*/%(){}\[\]])"
)


class Finding(msgspec.Struct, frozen=True, order=True):
    """One place where a file leaves the subset."""

    file: str
    line: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class _Token(NamedTuple):
    kind: str
    text: str
    line: int
    depth: int
    first: bool  # on its line


_NONE = _Token("", "", 0, 0, False)


class _Ref(NamedTuple):
    path: tuple[str, ...]
    token: _Token
    before: _Token
    after: _Token


class _Stop(Exception):
    """The rest of the file cannot be read."""

    def __init__(self, line: int, code: str, message: str) -> None:
        super().__init__(message)
        self.line, self.code = line, code


def check(sources: Mapping[str, bytes]) -> list[Finding]:
    """Everything wrong with a set of rules: what leaves the subset, then what is no Rego at all."""
    found = scan(sources)
    if found:
        return found  # what the scan refuses is not handed to a parser
    child = Child()
    try:
        texts = {name: source.decode() for name, source in sources.items()}
        # alone, then together
        for files in [*({name: text} for name, text in texts.items()), texts]:
            problem = child.exchange(
                {"files": files, "queries": [] if len(files) == 1 < len(texts) else ["data"]}, 10
            ).get("error")
            if problem:
                file, line, words = place_of(problem)
                found.append(
                    Finding(
                        file or next(iter(files)),
                        line,
                        "subset.syntax",
                        f"This is not Rego: {words}.",
                    )
                )
    except Trouble as trouble:
        found.append(Finding(next(iter(files)), 0, "subset.syntax", str(trouble)))
    finally:
        child.close()
    return sorted(set(found))


def scan(sources: Mapping[str, bytes]) -> list[Finding]:
    """What leaves the subset, found by looking at words alone; strings and comments do not
    count.
    """
    return list(_scanned(tuple(sorted(sources.items()))))


@lru_cache(8)
def _scanned(sources: tuple[tuple[str, bytes], ...]) -> tuple[Finding, ...]:
    """The same rules judge one dataset after the other: their words are looked at once."""
    found: list[Finding] = []
    files: list[_File] = []
    for name, source in sources:
        file = _File(name)
        try:
            file.read(source)
            files.append(file)
        except _Stop as stop:
            found.append(Finding(name, stop.line, stop.code, str(stop)))
    functions = {name for file in files for name in file.functions}
    for file in files:
        file.judge(functions)
        found += file.found
    return tuple(sorted(set(found + _without_default(files))))


def names_of_tests(name: str, source: bytes) -> list[str]:
    """The full names of the tests a file holds."""
    file = _File(name)
    file.read(source)
    heads = [
        r.path[0]
        for r in file.refs
        if r.token.first and r.token.depth == 0 and r.path[0].startswith("test_")
    ]
    return [f"{file.package}.{head}" for head in dict.fromkeys(heads)]


def _without_default(files: list["_File"]) -> list[Finding]:
    closed = {file.package for file in files if file.closed}
    open_ = [
        (file, file.allows)
        for file in files
        if file.allows and not is_test(file.name) and file.package not in closed
    ]
    return [
        Finding(f.name, line, "subset.default", f"{f.package} has no `default allow := false`.")
        for f, line in open_
    ]


class _File:
    """What one file declares and refers to."""

    def __init__(self, name: str) -> None:
        self.name, self.package = name, ""
        self.functions: set[str] = set()  # with their package
        self.refs: list[_Ref] = []
        self.found: list[Finding] = []
        self.allows = 0  # the line where `allow` is defined first
        self.closed = False  # by `default allow := false`

    def read(self, source: bytes) -> None:
        """Take the file apart. Raises `_Stop` when it cannot be."""
        tokens = list(_tokens(source))
        if not tokens or tokens[0].text != "package":
            raise _Stop(1, "subset.package", "A file begins with its package.")
        path, at = _path(tokens, 1)
        self.package = ".".join(path)
        if not (PACKAGE.fullmatch(self.package) or self.package == "main"):
            raise _Stop(
                tokens[0].line,
                "subset.package",
                f"The package is {self.package or 'missing'}, not main or one below kfm.",
            )
        while at < len(tokens):
            at = self._read_one(tokens, at)

    def _read_one(self, tokens: list[_Token], at: int) -> int:
        token, before = tokens[at], tokens[at - 1]
        if (
            token.kind == "sign"
            and token.text == "("
            and before.text in (")", "]", "}")
            and not token.first
        ):
            self._find(token, "subset.builtin", "A function is called by its name only.")
        if token.kind != "name" or before.text == ".":
            return at + 1
        if token.text == "import":
            return self._read_import(tokens, at)
        if token.text in _KEYWORDS:
            self._read_keyword(tokens, at)
            return at + 1
        path, after = _path(tokens, at)
        ref = _Ref(path, token, before, tokens[after] if after < len(tokens) else _NONE)
        self.refs.append(ref)
        self._define(ref)
        return at + 1  # not behind it: brackets may hold references of their own

    def _read_import(self, tokens: list[_Token], at: int) -> int:
        path, after = _path(tokens, at + 1)
        if path != ("rego", "v1") and (not path or path[0] not in ("data", "input")):
            self._find(
                tokens[at],
                "subset.import",
                f"{'.'.join(path) or 'Nothing'} is imported; only rego.v1, data and input may be.",
            )
        return after

    def _read_keyword(self, tokens: list[_Token], at: int) -> None:
        word, rest = tokens[at], [token.text for token in tokens[at + 1 : at + 4]]
        if word.text == "with" and not is_test(self.name):
            self._find(word, "subset.with", "`with` is for tests only.")
        if word.text == "package":
            self._find(word, "subset.package", "A file has one package.")
        if word.text == "default" and rest[:1] == ["allow"]:
            self.closed = self.closed or rest == ["allow", ":=", "false"]
            if rest != ["allow", ":=", "false"]:
                self._find(word, "subset.default", "The default of `allow` is `:= false`.")

    def _define(self, ref: _Ref) -> None:
        if ref.token.depth or (
            ref.before.kind == "sign" and ref.before.text not in (")", "]", "}")
        ):
            return
        if ref.path == ("allow",) and ref.before.text != "default":
            self.allows = self.allows or ref.token.line
        if (
            ref.token.first
            and ref.after.text == "("
            and len(ref.path) == 1
            and ref.before.text not in _KEYWORDS - {"true", "false", "null"}
        ):
            self.functions.add(f"{self.package}.{ref.path[0]}")
            if ref.path[0] in ALLOWED | _OTHERS:
                self._find(
                    ref.token,
                    "subset.reserved",
                    f"{ref.path[0]} is a builtin and cannot be defined anew.",
                )

    def judge(self, functions: set[str]) -> None:
        """Every call is one of a function defined here or of an allowed builtin."""
        for ref in self.refs:
            name, called = ".".join(ref.path), ref.after.text == "("
            if called and name in ALLOWED:
                continue
            if ref.path[0] in _FAMILIES:
                self._find(
                    ref.token,
                    "subset.builtin",
                    f"{name} is not in the subset: {ref.path[0]} names a family of builtins.",
                )
            elif (
                called
                and (
                    name.removeprefix("data.")
                    if ref.path[0] == "data"
                    else f"{self.package}.{name}"
                )
                not in functions
            ):
                self._find(
                    ref.token,
                    "subset.builtin",
                    f"{name} is no builtin of the subset; functions of other packages are called"
                    " data.….",
                )

    def _find(self, token: _Token, code: str, message: str) -> None:
        self.found.append(Finding(self.name, token.line, code, message))


def _tokens(source: bytes) -> Iterator[_Token]:
    if len(source) > MAX_BYTES:
        raise _Stop(1, "subset.size", f"The file is larger than {MAX_BYTES >> 10} KiB.")
    try:
        text = source.decode()
    except UnicodeDecodeError:
        raise _Stop(1, "subset.character", "The file is not UTF-8.") from None
    at, line, depth, first = 0, 1, 0, True
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _Stop(line, "subset.character", f"{text[at]!r} does not belong here.")
        at, word = match.end(), match[0]
        if match.lastgroup != "skip":
            depth -= word in (")", "]", "}")
            yield _Token(str(match.lastgroup), word, line, depth, first)
            depth += word in ("(", "[", "{")
            if depth > MAX_DEPTH:
                raise _Stop(
                    line, "subset.depth", f"Brackets are nested more than {MAX_DEPTH} deep."
                )
            first = False
        line += word.count("\n")
        first = first or (match.lastgroup == "skip" and "\n" in word)


def _path(tokens: list[_Token], at: int) -> tuple[tuple[str, ...], int]:
    """The reference that begins at `at`, `a.b` and `a["b"]` alike, and where it ends."""
    if at >= len(tokens) or tokens[at].kind != "name":
        return (), at
    path = [tokens[at].text]
    at += 1
    while at + 1 < len(tokens):
        sign, part = tokens[at], tokens[at + 1]
        if sign.text == "." and part.kind == "name":
            path.append(part.text)
            at += 2
        elif (
            sign.text == "["
            and part.kind == "text"
            and at + 2 < len(tokens)
            and tokens[at + 2].text == "]"
        ):
            path.append(_plain(part))
            at += 3
        else:
            break
    return tuple(path), at


def _plain(token: _Token) -> str:
    if token.text[0] == "`":
        return token.text[1:-1]
    try:
        return str(json.loads(token.text))
    except ValueError:
        raise _Stop(
            token.line, "subset.character", "A string has an escape that is not JSON's."
        ) from None
