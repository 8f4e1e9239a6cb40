"""What the API promises of a dataset, as its people write it down in `tests/api/<id>.yml`, and
whether the reader keeps it.
"""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from kfm.model import Json, KfmError
from kfm.reader.app import ReaderApp, make_app
from kfm.workspace.config import parse
from kfm.workspace.folder import Workspace

__all__ = ["Contract", "Promise", "contract_file", "keeps"]


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One question about a dataset, and what its answer must be like."""

    get: str  # an address of rows: /datasets/<id>/rows?…
    columns: tuple[str, ...] = ()  # that are there
    without: tuple[str, ...] = ()  # that are not: what is withheld
    least: int = 1  # rows


class Contract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`tests/api/<id>.yml`."""

    questions: tuple[Question, ...]


class Promise(NamedTuple):
    """Whether a contract is kept, and what shows it."""

    kept: bool
    said: str


def contract_file(dataset_id: str) -> str:
    """Where the contract of a dataset is, below the workspace."""
    return f"tests/api/{dataset_id}.yml"


def keeps(workspace: Workspace, dataset_id: str) -> Promise:
    """Ask every question of the reader, as anybody would. What is missing or asks nothing is not
    kept.
    """
    name = contract_file(dataset_id)
    try:
        said = msgspec.convert(_read(workspace.path / name), Contract)
    except FileNotFoundError:
        return Promise(False, f"write {name}, what the API promises of it: docs/reader.md")
    except (KfmError, msgspec.ValidationError, OSError) as error:
        return Promise(False, f"{name} cannot be read: {error}")
    if not said.questions:
        return Promise(False, f"{name} asks nothing")
    app = make_app(workspace)
    try:
        wrong = [w for w in (_wrong(app, dataset_id, q) for q in said.questions) if w]
    finally:
        app.close()
    return Promise(False, f"{name}: {wrong[0]}") if wrong else Promise(True, _told(name, said))


def _told(name: str, said: Contract) -> str:
    many = len(said.questions)
    return f"{name}: {many} {'question' if many == 1 else 'questions'} answered with evidence"


def _read(path: Path) -> object:
    return parse(path.read_bytes(), path.name)


def _wrong(app: ReaderApp, dataset_id: str, question: Question) -> str:
    """What is not as it was promised; empty: nothing."""
    at = urlsplit(question.get)
    if not at.path.startswith(f"/datasets/{dataset_id}/") or not at.path.endswith("/rows"):
        return f"{question.get} is no address of rows of {dataset_id}"
    status, page = _asked(app, question.get)
    if status != 200:
        return f"{question.get} answers {status}: {page.get('said', '')}"
    there = set(page["columns"])
    if page["returned"] < question.least:
        return f"{question.get} gives {page['returned']} rows, not {question.least}"
    if lacking := set(question.columns) - there:
        return f"{question.get} lacks {', '.join(sorted(lacking))}"
    if shown := set(question.without) & there:
        return f"{question.get} shows {', '.join(sorted(shown))}"
    return _unproved(app, page)


def _unproved(app: ReaderApp, page: Json) -> str:
    """What is missing of the evidence behind an answer."""
    status, told = _asked(app, urlsplit(page["evidence"]).path)
    if status != 200 or told["version_id"] != page["version_id"]:
        return "its evidence does not resolve"
    lacking = {"receipt", "generation", "prov"} - {proof["name"] for proof in told["proofs"]}
    if lacking:
        return f"its evidence lacks {', '.join(sorted(lacking))}"
    catalog = _asked(app, urlsplit(told["catalog"]).path)[0]
    return "" if catalog == 200 else "its catalog record does not resolve"


def _asked(app: ReaderApp, address: str) -> tuple[int, Json]:
    """Ask the reader in this process, as nobody in particular."""
    at = urlsplit(address)
    scope = {
        "type": "http", "method": "GET", "path": at.path, "raw_path": at.path.encode(),
        "query_string": at.query.encode(), "scheme": "http", "server": ("localhost", 80),
        "http_version": "1.1", "headers": [(b"host", b"localhost")],
    }  # fmt: skip
    status, body = 0, b""

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    asyncio.run(app(scope, receive, send))
    return status, msgspec.json.decode(body)
