"""The child's side: answers one JSON line with another, can do nothing else, and may be killed at
any moment.

parent  {"files": {name: text}?, "data": json?, "input": json?, "queries": [text…], "seconds": n}     `files` replace those before
child   {"values": [json…]} | {"kind": "syntax" | "error" | "panic", "error": text}
"""

import contextlib
import json
import os
import resource
import sys
import time
from typing import Any

import regorus

from kfm.model import Json
from kfm.sandbox import confine

__all__ = ["main"]

MEMORY_BYTES = 2 << 30  # of address space, half of which the engine reserves when it is loaded


def main() -> None:
    """Serve until the parent closes its end."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the engine prints is not an answer
    for what, limit in ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (limit, limit))
    # Rules and questions come through the pipe, so nothing is read, written, started or reached
    # from here on; where the kernel cannot
    # hold it, the engine still has no builtin that could.
    confine.confine((), None)
    engine = regorus.Engine()
    for line in questions:
        question = json.loads(line)
        _limit_time(question["seconds"])
        try:
            if "files" in question:
                engine = _loaded(question["files"])
            answer: Json = {"values": _values(engine, question)}
        except SyntaxError as error:
            answer = {"kind": "syntax", "error": str(error)}
        except Exception as error:
            answer = {"kind": "error", "error": str(error)}
        except BaseException as error:  # a panic of the engine is no Exception
            answer = {"kind": "panic", "error": str(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
    sys.exit(0)


def _limit_time(seconds: float) -> None:
    """Evaluation cannot be interrupted: without this, a child whose parent was killed would go on
    for ever.
    """
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 2, hard))


def _loaded(files: dict[str, str]) -> regorus.Engine:
    engine = regorus.Engine()
    for name, text in files.items():
        try:
            engine.add_policy(name, text)
        except Exception as error:
            raise SyntaxError(str(error)) from None
    return engine


def _values(engine: Any, question: Json) -> list[str]:  # its stubs do not know `clone`
    """Each query's result; a clone per question, so that none sees what another left."""
    one = engine.clone()
    if question.get("data") is not None:
        one.add_data_json(question["data"])
    if question.get("input") is not None:
        one.set_input_json(question["input"])
    return [one.eval_query_as_json(query) for query in question["queries"]]
