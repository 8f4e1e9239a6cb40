"""How an address is answered: a function that asks becomes a route, in a thread of its own, and what
it found is told as JSON, or as the page that another room has for it.
"""

import functools
import inspect
from collections.abc import Callable, Collection
from math import ceil
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from litestar import Response, get, post
from litestar.concurrency import sync_to_thread
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import ResponseSpec
from litestar.params import QueryParameter
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from kfm.access.memory import NotAtHand, at_hand
from kfm.model import Fenced, KfmError, StoreUnavailable, UpstreamUnavailable, rfc3339
from kfm.model.did_you_mean import told as near
from kfm.reader.door import BadQuestion, Hidden, NoLonger, Stranger, is_dataset
from kfm.reader.html_pages import Shown
from kfm.reader.kinds import JSON, OPTIONS, PLAIN, Answers, part
from kfm.reader.log import DecisionLine, NotWritten, log_decision
from kfm.reader.visit import Visit

__all__ = [
    "NOTHING",
    "PROBLEMS",
    "SENT_PROBLEMS",
    "Problem",
    "later",
    "count_guess",
    "not_asked",
    "nothing",
    "problem",
    "reads",
    "refusal",
    "told",
    "why",
]

_MOST_IDS = 16  # decisions in a header; the log has all of them


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why there is no answer."""

    status: int
    error: str
    said: str
    field: str = ""
    expected: str = ""
    remedy: str = ""


NOTHING = Problem(
    status=404,
    error="not_found",
    said="There is nothing here, or nothing that may be shown to you.",
)
_SAID = {
    400: "The question cannot be understood.",
    408: "The question did not come in time.",
    413: "The question is too large.",
}
PROBLEMS = {
    status: ResponseSpec(Problem, description=said, generate_examples=False)
    for status, said in (
        (400, "The question is wrong."),
        (401, "The token stands for nobody."),
        (404, "There is nothing, or nothing that may be shown."),
        (429, "Too much was asked."),
        (451, "It was public, and may not be shown now."),
        (503, "It cannot be answered now."),
    )
}
# of what is sent with a question
SENT_PROBLEMS = {
    status: ResponseSpec(Problem, description=_SAID[status], generate_examples=False)
    for status in (408, 413)
}
_UNWRITTEN = Problem(
    status=503,
    error="log",
    said="What is handed out cannot be written down, so nothing is. Whoever runs this is told why.",
)
_BUSY = Problem(status=503, error="later", said="It cannot be answered now. Ask again.")


def reads(
    path: str | list[str],
    page: str = "",
    method: Literal["get", "post"] = "get",
    media: str = JSON,
    quick: bool = False,
    answers: Answers = PLAIN,
    strict: bool = False,
) -> Callable[..., HTTPRouteHandler]:
    """A route that is answered by asking. What the function returns is the JSON twin, its type the
    schema of that; a `Response` is left as it is, and `media` says what it is, or `answers`, which
    says what else it may be. `quick`: what is at hand is told at once, without a thread, which would
    cost as much again. `strict`: a word of the question that is not known, or stands there twice, is
    refused; where it is passed over, who mistyped a filter gets everything.
    """

    def made(ask: Callable[..., object]) -> HTTPRouteHandler:
        no_words = {"asking", "return"} | {n for n in get_type_hints(ask) if f"{{{n}:" in str(path)}
        words = {name.replace("_", "-") for name in get_type_hints(ask).keys() - no_words}

        async def answer(**given: object) -> object:
            visit, asked = Visit.now(), functools.partial(ask, **given)
            if strict and (wrong := _not_asked(visit.query, words)):
                return problem(visit, wrong)
            if quick and not visit.asking.claim.digest:
                try:
                    with at_hand():
                        return _answered(visit, page, media, asked)
                except NotAtHand:
                    visit.begin()
            return await sync_to_thread(_answered, visit, page, media, asked)

        functools.update_wrapper(answer, ask)
        vars(answer).pop("__wrapped__")
        _described(answer, ask, str(path))
        told = {"responses": PROBLEMS, "media_type": media}
        kind = get_origin(found := get_type_hints(ask)["return"]) or found
        alone = bool(answers.kinds) and kind is Response
        told["opt"] = {OPTIONS: answers._replace(page=page, alone=alone)}
        if method == "post":
            told["responses"] = PROBLEMS | SENT_PROBLEMS
            return post(path, status_code=200, **told)(answer)  # type: ignore[arg-type]
        return get(path, **told)(answer)  # type: ignore[arg-type]

    return made


def _not_asked(query: bytes, known: Collection[str]) -> Problem | None:
    """What is wrong with the words of a question; None: nothing."""
    words = [word for word, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    field = next((word for word in words if word not in known or words.count(word) > 1), None)
    if field is None:
        return None
    said = f"{field} stands there twice." if field in known else not_asked(field, known)
    return Problem(status=400, error="question", said=said, field=field[:60])


def not_asked(word: str, known: Collection[str]) -> str:
    """What is said of a word that no question here has."""
    what = near("What can be:", word[:60], sorted(known))
    return f"{word[:60]!r} is nothing that can be asked here.{what}"


def _described(answer: Callable[..., object], ask: Callable[..., object], path: str) -> None:
    """Tell Litestar where each argument comes from: the address, else the question behind it; who
    asks it need not know.
    """
    hints = get_type_hints(ask, include_extras=True)
    del hints["asking"]
    for name, hint in hints.items():
        if name not in ("return", "data", "body"):
            plain, *told = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            if f"{{{name}:" in path and not (told and told[0].schema_extra):
                told = [part(name)]
            hints[name] = Annotated[plain, told[0] if told else QueryParameter()]
    signature = inspect.signature(ask)
    kept = [
        each.replace(annotation=hints[name], kind=each.KEYWORD_ONLY)
        for name, each in signature.parameters.items()
        if name in hints
    ]
    answer.__annotations__ = hints
    vars(answer)["__signature__"] = signature.replace(parameters=kept)


def _answered(
    visit: Visit, page: str, media: str, ask: "functools.partial[object]"
) -> Response[Any]:
    """Ask, put it into words, and write down by which decision, before anything leaves."""
    asking = visit.asking
    try:
        with asking.opened():
            if not is_dataset(str(ask.keywords.get("dataset_id") or "any")):
                raise Hidden
            found = ask(asking=asking)
            answer = found if isinstance(found, Response) else told(visit, page, found, media)
    except Exception as error:
        answer = problem(visit, why(visit, error))
    count_guess(visit, answer)
    status = answer.status_code or 200
    if status < 400 and asking.allowed_ids:
        answer.headers["kfm-decision"] = ", ".join(asking.allowed_ids[:_MOST_IDS])
    try:
        _account(visit, status)
    except (KfmError, OSError) as error:
        visit.problem = type(error).__name__
        return problem(visit, _UNWRITTEN)
    return answer


def nothing(visit: Visit, status: int = 404) -> Response[Any]:
    """What is said where there is nothing, to whom it may be: a token that stands for nobody is
    one here, too. `status`: what is wrong with the question, for who may know that something is
    there.
    """
    said, asking = NOTHING, visit.asking
    if asking.claim.digest or (asking.claim.here and status == 400):
        try:
            with asking.opened():
                role = visit.html.hidden_but_for
                if status == 400 and role and asking.viewer.may(role):
                    said = refusal(status)
        except Exception as error:
            said = why(visit, error)
    answer = problem(visit, said)
    count_guess(visit, answer)
    return answer


def refusal(status: int, said: str = "") -> Problem:
    """Why a question is not even asked."""
    said = said or _SAID.get(status, "That is not answered here.")
    return Problem(status=status, error="request", said=said)


def count_guess(visit: Visit, answer: Response[Any]) -> None:
    """Count who guesses; forget a session that is none any more."""
    asking, limits = visit.asking, visit.at.limits
    if not (shown := asking.claim.digest):
        return
    if asking.is_lost:
        visit.let_out()
    if asking.is_lost or answer.status_code == 401:
        limits.failed(visit.client, shown)
    elif asking.viewer.is_named:
        limits.passed(shown)


def later(visit: Visit) -> Problem | None:
    """What is said to who asks or guesses too often; None: it may go on."""
    limits, claim = visit.at.limits, visit.asking.claim
    shown = claim.digest
    wait = limits.too_many_guesses(visit.client, shown) if shown else 0.0
    visit.wait_s = wait or limits.too_many(shown or visit.client)
    if not visit.wait_s:
        return None
    said = "Too many wrong tokens came from there." if wait else "That is more than may be asked."
    return Problem(status=429, error="too_many", said=said)


def told(visit: Visit, page: str, found: object, media: str = JSON) -> Response[Any]:
    make = visit.html.pages.get(page) if visit.wants_page() else None
    if make is not None:
        shown = Shown(found, visit.asking, visit.path)
        return _Told(make(shown).encode(), media_type="text/html")
    return _Told(msgspec.json.encode(found), media_type=media)


class _Told(Response[bytes]):
    """A whole document. What Litestar could still put to one, which takes as long as to find it, no
    route of ours has.
    """

    def to_asgi_response(self, *given: Any, **more: Any) -> ASGIResponse:
        return _Whole(self, more.get("status_code"))


class _Whole(ASGIResponse):
    def __init__(self, told: _Told, status: int | None) -> None:
        self.told, self.status = told, told.status_code or status or 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, media = self.told.content, str(self.told.media_type)
        kind = f"{media}; charset=utf-8" if media.startswith("text/") else media
        told = {"content-type": kind, "content-length": str(len(body)), **self.told.headers}
        headers = [(name.lower().encode(), text.encode("latin-1")) for name, text in told.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


def problem(visit: Visit, why: Problem) -> Response[Any]:
    """The answer that says so."""
    headers = {"www-authenticate": "Bearer"} if why.status == 401 else {}
    headers |= {"retry-after": "2"} if why.status == 503 else {}
    headers |= {"retry-after": str(ceil(visit.wait_s) or 1)} if why.status == 429 else {}
    answer = told(visit, "problem", why)
    answer.status_code, answer.headers = why.status, headers | {"cache-control": "no-store"}
    return answer


def why(visit: Visit, error: Exception) -> Problem:
    match error:
        case Hidden():
            return NOTHING
        case NoLonger(code=code):
            said = "This was public, and may not be shown now."
            return Problem(status=451, error=code, said=said)
        case Stranger():
            return Problem(status=401, error="token", said="This token stands for nobody.")
        case RecursionError():  # brackets in brackets, more than anybody means
            return refusal(400)
        case BadQuestion(said=said, field=field):
            return Problem(status=400, error="question", said=said, field=field)
        case NotWritten():
            return _UNWRITTEN
        case Fenced() | StoreUnavailable() | UpstreamUnavailable():
            visit.problem = type(error).__name__
            return _BUSY
    visit.problem = f"{type(error).__name__}: {error}"
    if isinstance(error, KfmError):
        return Problem(status=503, error="damaged", said="Something here has to be mended first.")
    return Problem(status=500, error="fault", said="That is a fault of ours.")


def _account(visit: Visit, status: int) -> None:
    asking = visit.asking
    if not asking.decision_ids and not asking.refused:
        return
    log_decision(
        visit.logs,
        DecisionLine(
            timestamp=rfc3339(visit.clock.now()),
            job_id=visit.request_id,
            address=visit.path[:500],
            reader=asking.viewer.reader.name,
            answer=status,
            dataset_ids=tuple(asking.dataset_ids),
            decision_ids=tuple(asking.decision_ids),
            policy_digest=asking.policy_digest,
            refused=tuple(dict.fromkeys(asking.refused)),
        ),
    )
