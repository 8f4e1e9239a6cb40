"""A loopback server that behaves like GitHub's API for the calls kfm makes, and takes no more than
GitHub does.

`with GithubServer() as hub:` then `hub.url` is the API. It asks for a token and for what the token may
do, counts and limits requests, pages with `Link`, answers 304 to an ETag, and looks at every request and
answer with GitHub's own description (`tests/fixtures/github/api.json`). `hub.fault(n, …)` lets the n-th
call from now fail, be cut off before or after it took effect, or kill who made it.
"""

import contextlib
import hashlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import jsonschema_rs

from tests.given.github_git import Unprocessable

API = json.loads((Path(__file__).parents[1] / "fixtures" / "github" / "api.json").read_text())
How = Literal["fail", "close", "kill", "secondary", "primary"]


@dataclass(frozen=True)
class Call:
    """One request as it arrived and how it was answered; 0: it was not."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    status: int = 0

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def changes(self) -> bool:
        return self.method not in ("GET", "HEAD")


@dataclass
class Answer:
    status: int
    json: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None

    @property
    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        return b"" if self.json is None else json.dumps(self.json).encode()


class Refusal(Exception):
    """An answer other than the one that was asked for."""

    def __init__(
        self, status: int, message: str, errors: list[Any] | None = None, **headers: str
    ) -> None:
        super().__init__(message)
        said: dict[str, Any] = {"message": message, "documentation_url": "https://docs.github.com"}
        said |= {"errors": errors} if errors is not None else {}
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = Answer(status, said | {"status": str(status)}, told)


def invalid(resource: str, name: str, code: str, **more: str) -> Refusal:
    return Refusal(
        422, "Validation Failed", [{"resource": resource, "field": name, "code": code, **more}]
    )


@dataclass
class Token:
    """Who asks, and what they may do: permission -> read or write."""

    login: str = "kfm-bot"
    app: bool = True  # of a GitHub App, as the one of Actions is
    expired: bool = False
    may: dict[str, str] = field(
        default_factory=lambda: (
            dict.fromkeys(("contents", "pull_requests", "issues", "checks", "statuses"), "write")
            | {"actions": "read", "metadata": "read"}
        )
    )


Operation = Callable[..., Answer]
ROUTES: list[tuple[str, re.Pattern[str], str, str, Operation]] = []


def route(call: str, needs: str) -> Callable[[Operation], Operation]:
    """`POST /pulls` below a repository, for a token that may `pull_requests:write`."""
    method, path = call.split(" ")
    whole = "/repos/{owner}/{repo}" + path
    many = {"ref", "tag"}  # may hold slashes
    pattern = re.sub(
        r"\{(\w+)\}",
        lambda m: f"(?P<{m[1]}>{'.+' if m[1] in many else '[^/]+'})",
        whole,
    )

    def keep(operation: Operation) -> Operation:
        ROUTES.append((method, re.compile(pattern), needs, f"{method} {whole}", operation))
        return operation

    return keep


@cache
def _judge(call: str, of: str) -> Any:
    told = API["calls"][call]
    schema = told["body"] if of == "body" else told["answers"].get(of)
    return schema and jsonschema_rs.validator_for({**schema, "$defs": API["$defs"]})


def check_answer(call: str, answer: Answer) -> None:
    """Nothing is told that GitHub would not tell."""
    schema = _judge(call, str(answer.status))
    if schema is not None:
        schema.validate(answer.json)
        told = API["calls"][call]["answers"][str(answer.status)]
        for each in answer.json if isinstance(answer.json, list) else [answer.json]:
            _known(told.get("items", told), each, call)


def _known(schema: Any, value: Any, where: str) -> None:
    """Members that the description does not have are an invention of ours."""
    while "$ref" in schema:
        schema = API["$defs"][schema["$ref"].rpartition("/")[2]]
    members = schema.get("properties")
    if not isinstance(value, dict) or members is None:
        return
    assert value.keys() <= members.keys(), f"{where}: {value.keys() - members.keys()}"
    for name, inner in value.items():
        _known(members[name], inner, f"{where}.{name}")


class GithubServer:
    """The server; what it keeps is `hub.repo`, what it was asked is `hub.calls`."""

    def __init__(self, repo: Any) -> None:
        self.repo = repo
        self.tokens: dict[str, Token] = {"t0ken-of-the-tests": Token()}
        self.calls: list[Call] = []
        self.left, self.reset = 5000, int(time.time()) + 3600
        self.victim: int | None = None
        self.services: list[Callable[[Call], Answer | None]] = []  # beside the API
        self._faults: dict[int, tuple[How, bool, dict[str, Any]]] = {}
        self._lock = threading.RLock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def changes(self) -> list[str]:
        """Calls that changed something, or tried to."""
        return [f"{c.method} {c.path}" for c in self.calls if c.changes]

    def fault(self, number: int, how: How, *, after: bool = False, **more: Any) -> None:
        """The `number`-th call from now (1: the next) fails; `after`: its effect has happened."""
        self._faults[len(self.calls) + number] = how, after, more

    def mend(self) -> None:
        self._faults.clear()

    def __enter__(self) -> "GithubServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # ---- one request ---------------------------------------------------------------------------
    def answer(self, call: Call) -> Answer | None:
        """None: the connection is closed without a word."""
        with self._lock:
            self.calls.append(call)
            place = len(self.calls) - 1
            how, after, more = self._faults.pop(len(self.calls), ("", False, {}))
            if how and not after:
                return self._fail(how, more)
            answer = self._answered(call)
            self.calls[place] = Call(**{**vars(call), "status": answer.status})
            return self._fail(how, more) if how else answer

    def _fail(self, how: str, more: dict[str, Any]) -> Answer | None:
        if how == "kill" and self.victim is not None:
            os.kill(self.victim, signal.SIGKILL)
        if how == "fail":
            return Answer(more.get("status", 502), {"message": "Server Error"}, self._counted())
        if how == "secondary":
            said = "You have exceeded a secondary rate limit. Please wait a few minutes."
            asked = {"retry-after": str(more["wait"])} if "wait" in more else {}
            return Answer(more.get("status", 403), {"message": said}, self._counted() | asked)
        if how == "primary":
            said = "API rate limit exceeded for installation."
            reset = str(int(time.time()) + more.get("wait", 0))
            told = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
            return Answer(more.get("status", 403), {"message": said}, self._counted() | told)
        return None

    def _counted(self) -> dict[str, str]:
        return {
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": str(self.left),
            "x-ratelimit-reset": str(self.reset),
            "x-ratelimit-resource": "core",
            "x-github-request-id": f"{len(self.calls):04X}:KFM",
        }

    def _answered(self, call: Call) -> Answer:
        try:
            others = (found for each in self.services if (found := each(call)) is not None)
            answer = next(others, None) or self._operation(call)
        except Refusal as refusal:
            answer = refusal.answer
        except Unprocessable as error:
            answer = Refusal(422, str(error)).answer
        if answer.status != 304:
            self.left -= 1
        answer.headers = self._counted() | answer.headers
        return answer

    def _operation(self, call: Call) -> Answer:
        if not call.headers.get("user-agent"):
            raise Refusal(403, "Request forbidden by administrative rules.")
        if call.headers.get("x-github-api-version", "2022-11-28") != "2022-11-28":
            raise Refusal(400, "The provided API version is not supported.")
        token = self._who(call)
        if self.left <= 0:
            raise Refusal(
                403,
                "API rate limit exceeded.",
                x_ratelimit_remaining="0",
                x_ratelimit_reset=str(self.reset),
            )
        for method, pattern, needs, name, operation in ROUTES:
            found = pattern.fullmatch(call.path) if method == call.method else None
            if found is None:
                continue
            self._permitted(token, needs, found["owner"], found["repo"])
            given = {k: unquote(v) for k, v in found.groupdict().items() if k not in "ownerrepo"}
            upload = call.headers.get("content-type") != "application/json" and "assets" in name
            body = call.body if upload else self._body(call, name)
            answer = operation(
                self.repo, token, call=call, **given, **({"body": body} if call.changes else {})
            )
            check_answer(name, answer)
            return self._conditional(call, answer) if call.method == "GET" else answer
        raise Refusal(404, "Not Found")

    def _who(self, call: Call) -> Token:
        scheme, _, value = call.headers.get("authorization", "").partition(" ")
        if scheme not in ("Bearer", "token"):
            raise Refusal(401, "Requires authentication")
        token = self.tokens.get(value)
        if token is None or token.expired:
            raise Refusal(401, "Bad credentials")
        return token

    def _permitted(self, token: Token, needs: str, owner: str, name: str) -> None:
        if f"{owner}/{name}" != self.repo.name:
            raise Refusal(404, "Not Found")
        what, _, level = needs.partition(":")
        if token.may.get(what) not in ("write", level):
            raise Refusal(
                403,
                "Resource not accessible by integration",
                x_accepted_github_permissions=f"{what}={level}",
            )

    def _body(self, call: Call, name: str) -> Any:
        if not call.changes or call.method == "DELETE":
            return None
        try:
            body = json.loads(call.body)
        except ValueError:
            raise Refusal(400, "Problems parsing JSON") from None
        if not isinstance(body, dict):
            raise Refusal(400, "Body should be a JSON object")
        schema = API["calls"][name]["body"]
        if strange := body.keys() - schema["properties"].keys():
            raise Refusal(422, f"Invalid request. No such member: {', '.join(sorted(strange))}.")
        judge = _judge(name, "body")
        if not judge.is_valid(body):
            why = next(iter(judge.iter_errors(body))).message
            raise Refusal(422, f"Invalid request.\n\n{why}.")
        return body

    @staticmethod
    def _conditional(call: Call, answer: Answer) -> Answer:
        tag = f'W/"{hashlib.sha256(answer.body).hexdigest()}"'
        if call.headers.get("if-none-match") == tag:
            return Answer(304, headers={"ETag": tag, **answer.headers})
        answer.headers["ETag"] = tag
        return answer

    def page(self, call: Call, listed: list[Any], member: str = "") -> Answer:
        """One page of a list, with where the others are."""
        size = min(100, max(1, int(call.query.get("per_page", 30))))
        number = max(1, int(call.query.get("page", 1)))
        last = max(1, -(-len(listed) // size))
        rels = {"prev": number - 1, "next": number + 1, "last": last, "first": 1}
        if number == 1:
            rels = {name: at for name, at in rels.items() if name in ("next", "last")}
        if number >= last:
            rels = {name: at for name, at in rels.items() if name in ("prev", "first")}
        links = []
        for rel, at in rels.items():
            query = "&".join(
                f"{k}={v}" for k, v in {**call.query, "page": at, "per_page": size}.items()
            )
            links.append(f'<{self.url}{call.path}?{query}>; rel="{rel}"')
        part = listed[(number - 1) * size : number * size]
        whole = {"total_count": len(listed), member: part} if member else part
        return Answer(200, whole, {"Link": ", ".join(links)} if links and last > 1 else {})


def _handler(server: GithubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            with contextlib.suppress(OSError):
                body = self.rfile.read(length)
                split = urlsplit(self.path)
                headers = {name.lower(): value for name, value in self.headers.items()}
                query = dict(parse_qsl(split.query, keep_blank_values=True))
                call = Call(self.command, split.path, query, headers, body)
                # what was cut off leaves a piece of an asset, and nothing else
                answer = (
                    None
                    if len(body) < length and "assets" not in call.path
                    else server.answer(call)
                )
                self.close_connection = True
                if answer is None:
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status not in (204, 304):
                    self.send_header("Content-Type", "application/json; charset=utf-8")
                    self.send_header("Content-Length", str(len(answer.body)))
                self.send_header("Connection", "close")
                self.end_headers()
                if answer.status not in (204, 304) and self.command != "HEAD":
                    self.wfile.write(answer.body)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do_HEAD = _serve

        def log_message(self, *_: Any) -> None: ...

    return Handler
