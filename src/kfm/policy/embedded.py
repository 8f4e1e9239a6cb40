"""Rules evaluated in a child process that is kept alive between questions: nothing to install,
nothing to start.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kfm.model import Json
from kfm.policy.base import Trouble, is_test
from kfm.policy.doubts import Careful
from kfm.policy.process import Child, place_of
from kfm.policy.subset import names_of_tests

__all__ = ["Embedded", "Tested", "rego_eval", "run_tests"]

# a cold interpreter on a busy machine; a question has its own, shorter deadline, which is no
# measure of the machine
START_SECONDS = 30.0


class Embedded(Careful):
    """Asks a kept-alive child; one that dies or runs out of time is replaced before the next
    question.
    """

    engine = "embedded"

    def __init__(self, sources: Mapping[str, bytes], *, seconds: float = 10.0) -> None:
        super().__init__(sources)
        self._seconds, self._lock = seconds, threading.RLock()
        self.child: Child | None = None
        self._starting: Child | None = None

    def prepare(self) -> None:
        """See `Preparable`."""
        with self._lock:
            if self.child is None and self._starting is None:
                self._starting = Child()

    def ask(self, package: str, question: bytes) -> object:
        query = f'{{"allow": data.{package}.allow, "deny": data.{package}.deny}}'
        with self._lock:
            answer = self._started().exchange(
                {"input": question.decode(), "queries": [query]}, self._seconds
            )
        rows = json.loads(_values(answer)[0]).get("result")
        if not rows:
            raise Trouble("policy.undefined", f"{package} does not define both allow and deny.")
        return rows[0]["expressions"][0]["value"]

    def _started(self) -> Child:
        if self.child is None or not self.child.alive():
            started, self._starting = self._starting, None
            self.close()
            self.child = _loaded(self.sources, started)
        return self.child

    def close(self) -> None:
        """See `Evaluator`."""
        with self._lock:
            for child in (self.child, self._starting):
                if child is not None:
                    child.close()
            self.child = self._starting = None


class Tested(NamedTuple):
    """How one test of rules ended."""

    name: str
    passed: bool
    message: str


def run_tests(sources: Mapping[str, bytes], *, seconds: float = 10.0) -> list[Tested]:
    """Evaluate every `test_` rule of the `*_test.rego` files. Raises `Trouble` when the files
    cannot be loaded.
    """
    names = [
        test
        for name, source in sources.items()
        if is_test(name)
        for test in names_of_tests(name, source)
    ]
    results = []
    child: Child | None = None
    try:
        for name in names:
            if child is None or not child.alive():
                child = _loaded(sources)
            results.append(_tested(child, name, seconds))
    finally:
        if child is not None:
            child.close()
    return results


def _tested(child: Child, name: str, seconds: float) -> Tested:
    try:
        rows = json.loads(_values(child.exchange({"queries": [f"data.{name}"]}, seconds))[0]).get(
            "result"
        )
    except Trouble as trouble:
        return Tested(name, False, str(trouble))
    return Tested(
        name, bool(rows) and rows[0]["expressions"][0]["value"] is True, "" if rows else "undefined"
    )


def rego_eval(
    modules: Sequence[str], data: object, input: object, query: str, *, child: Child | None = None
) -> list[Json]:
    """The bindings of `query`, with no regard to the subset. Raises `Trouble`."""
    question: Json = {
        "files": {f"m{index}.rego": text for index, text in enumerate(modules)},
        "queries": [query],
    }
    question |= {
        key: json.dumps(value, default=str)
        for key, value in (("data", data), ("input", input))
        if value is not None
    }
    asked = child or Child()
    try:
        rows = json.loads(_values(asked.exchange(question, START_SECONDS))[0]).get("result", [])
    finally:
        if child is None:
            asked.close()
    return [
        row.get("bindings", {})
        for row in rows
        if all(e.get("value") is not False for e in row.get("expressions", []))
    ]


def _loaded(sources: Mapping[str, bytes], child: Child | None = None) -> Child:
    """A child that holds all of `sources`; one that could not take them is not kept to answer for a
    part of them.
    """
    child = child or Child()
    try:
        _values(
            child.exchange(
                {
                    "files": {name: source.decode() for name, source in sources.items()},
                    "queries": [],
                },
                START_SECONDS,
            )
        )
    except BaseException:
        child.close()
        raise
    return child


def _values(answer: Json) -> list[str]:
    if "values" not in answer:
        file, line, words = place_of(str(answer.get("error")))
        raise Trouble(
            "policy.syntax" if answer.get("kind") == "syntax" else "policy.error",
            f"{file}:{line}: {words}" if file else words,
        )
    values: list[str] = answer["values"]
    return values
