"""How something is done over HTTP: a function that acts becomes a POST route. Whoever asks has a role
for it, the form is one of our own pages', and the audit log knows of it before it is done.
"""

import functools
import hmac
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
from litestar import Request, Response, post
from litestar.concurrency import sync_to_thread
from litestar.datastructures import UploadFile
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import ResponseSpec

from kfm.cli.answer import Call
from kfm.cli.call import login
from kfm.cli.terminal import mask_home
from kfm.model import (
    Denied,
    Fenced,
    IntegrityError,
    Json,
    KfmError,
    StoreUnavailable,
    UsageError,
    masked,
    rfc3339,
)
from kfm.reader.door import Asking, BadQuestion, Hidden, Stranger
from kfm.reader.kinds import OPTIONS, Answers
from kfm.reader.log import Audited, AuditLine, log_audit
from kfm.reader.route import (
    PROBLEMS,
    SENT_PROBLEMS,
    Problem,
    count_guess,
    problem,
    refusal,
    why,
)
from kfm.reader.visit import Visit

__all__ = ["DONE", "OPERATES", "Doing", "Done", "Form", "TooMany", "acts"]

OPERATES = "engineer"  # who sees how things are run
_LONGEST = 64 * 1024  # characters of one field
_MOST_FIELDS = 100
_UNWRITTEN = Problem(
    status=503,
    error="log",
    said="That cannot be written down, so nothing was done. Whoever runs this is told why.",
)
_OTHER_PROBLEMS = {
    status: ResponseSpec(Problem, description=said, generate_examples=False)
    for status, said in (
        (403, "The form is not one that was made for you, or that is not yours to do."),
        (409, "It is denied, and says why."),
    )
}
# what a page says after it was done; the address names which
DONE = {
    "in": "You are signed in.",
    "out": "You are signed out.",
    "asked": "The run is asked for: a worker takes it as soon as its pool has room.",
    "retried": "The job waits again.",
    "cancelled": "The job is cancelled, or told to stop where it is at work.",
    "approved": "Your approval is recorded.",
    "enough": "Your approval is recorded. It is the last that was needed: the promotion is put.",
    "rejected": "The proposal is rejected; the official version is unchanged.",
    "decided": "The decision is recorded.",
    "replay": "The replay is asked for: a worker takes it as soon as its pool has room.",
}


class Form(dict[str, str]):
    """What was filled in, by name."""

    unread: Problem | None = None  # why it could not be read; told to who may know of the address
    too_much = False  # there was no room for all of it

    def text(self, name: str, most: int = 2000) -> str:
        """A field without the blanks around it. Raises `BadQuestion`."""
        found = self.get(name, "").strip()
        if len(found) > most:
            raise BadQuestion(f"{name} is longer than {most:,} characters.", name)
        return found


class Doing(NamedTuple):
    """One act: who does it, at which address, with what filled in."""

    visit: Visit
    asking: Asking
    parts: Mapping[str, str]  # of the address
    form: Form

    @property
    def call(self) -> Call:
        """How a command would be called for it."""
        return Call(self.asking.workspace.path, True, False)

    @property
    def by(self) -> str:
        """Who does it, as envelopes of jobs name them."""
        name = self.asking.viewer.reader.name
        return f"user:{name}" if name else login()

    @property
    def name(self) -> str:
        """Who does it, as decisions name them."""
        return self.by.removeprefix("user:")


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, and where it can be seen."""

    done: str  # a word of `DONE`
    at: str
    dataset_id: str = ""
    what: str = ""  # the id of the job, the number of the proposal, …


class TooMany(Exception):
    """Too many wrong tokens came from there."""


class _NotYours(Exception):
    """Whoever asks may not do that."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


class _Unread(Exception):
    """The form could not be read."""

    def __init__(self, why: Problem) -> None:
        super().__init__(why.said)
        self.why = why


def acts(
    path: str, named: str, role: str = OPERATES, fields: Mapping[str, int] = {}
) -> Callable[[Callable[[Doing], Done]], HTTPRouteHandler]:
    """A route that does something. `named`: what it is called in the audit log; without a role
    everybody may, and `/openapi.json` tells of it, with its `fields` and how long each may be.
    """

    def made(act: Callable[[Doing], Done]) -> HTTPRouteHandler:
        async def answer(request: Request[Any, Any, Any]) -> Response[Any]:
            visit = Visit.now()
            form = await _filled(request)
            parts = {name: str(value) for name, value in request.path_params.items()}
            doing = Doing(visit, visit.asking, parts, form)
            return await sync_to_thread(_answered, doing, named, role, act)

        functools.update_wrapper(answer, act)
        vars(answer).pop("__wrapped__")
        answer.__annotations__ = {"request": Request[Any, Any, Any], "return": Response[Done]}
        return post(
            path,
            status_code=200,
            responses=PROBLEMS | SENT_PROBLEMS | _OTHER_PROBLEMS,
            include_in_schema=not role,
            opt={OPTIONS: Answers(form=_form_of(fields), also={303: "It is done: see there."})},
        )(answer)

    return made


def _form_of(fields: Mapping[str, int]) -> Json:
    """What a form holds: texts, each no longer than is told, and the mark of the page it is from."""
    lengths = {**fields, "csrf": 100}
    return {
        "type": "object",
        "properties": {
            name: {"type": "string", "maxLength": most} for name, most in lengths.items()
        },
    }


async def _filled(request: Request[Any, Any, Any]) -> Form:
    """The fields of a form; a file counts as the text that is in it."""
    found = Form()
    try:
        filled = (await request.form()).multi_items()
    except HTTPException as error:
        found.unread = refusal(error.status_code)
        return found
    except (UnicodeError, LookupError):  # bytes that are no text, or of an encoding nobody knows
        found.unread = refusal(400)
        return found
    for name, value in filled:
        if isinstance(value, UploadFile):
            raw = await value.read(_LONGEST + 1)
            if not raw:
                continue  # no file was chosen
            text = raw.decode(errors="replace")
        else:
            text = str(value)
        if name in found or len(found) >= _MOST_FIELDS or len(text) > _LONGEST:
            found.too_much = True  # told where it is answered
        found[str(name)] = text[:_LONGEST]
    return found


def _answered(doing: Doing, named: str, role: str, act: Callable[[Doing], Done]) -> Response[Any]:
    visit, asking = doing.visit, doing.asking
    try:
        with asking.opened():
            _let_in(doing, role)
            _account(doing, named, "allowed")
            done = act(doing)
            with _told_anyway(visit):
                _account(doing, named, "done", done.what, done.dataset_id)
            answer = _told(visit, done)
    except Exception as error:
        answer = _refused(doing, named, error)
    count_guess(visit, answer)
    return answer


@contextmanager
def _told_anyway(visit: Visit) -> Iterator[None]:
    """It is done, and the log knows that it was to be: who would be told to ask again would do it
    twice.
    """
    try:
        yield
    except (KfmError, OSError) as trouble:
        visit.problem = type(trouble).__name__


def _refused(doing: Doing, named: str, error: Exception) -> Response[Any]:
    said = _why(doing.visit, error)
    try:
        _account(doing, named, "failed" if said.status >= 500 else "refused", said.said)
    except (KfmError, OSError) as trouble:
        doing.visit.problem = type(trouble).__name__
        return problem(doing.visit, _UNWRITTEN)
    return problem(doing.visit, said)


# ---- who may -------------------------------------------------------------------------------------
def _let_in(doing: Doing, role: str) -> None:
    """Raises for who may not, and for what is no form of ours."""
    viewer = doing.asking.viewer
    if role and not viewer.may(OPERATES):
        raise Hidden  # they do not even see what could be done
    if doing.form.unread is not None:
        raise _Unread(doing.form.unread)
    _check_ours(doing)
    if role and not viewer.may(role):
        raise _NotYours(f"That is for the role {role}; yours is {viewer.role}.")
    if doing.form.too_much:
        raise BadQuestion("The form holds more than it has room for.")


def _check_ours(doing: Doing) -> None:
    """Only a page of ours may have sent it, in the name of whom the page was made for. Who shows a
    token in a header is no browser that was led there.
    """
    visit, headers = doing.visit, doing.visit.headers
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    other = site is not None and site != "same-origin"
    other |= origin is not None and origin != _origin(doing.asking.address)
    if other:
        raise _NotYours("The form was sent by another site.")
    if doing.asking.claim.authorization is not None:
        return
    if site is None and origin is None:
        raise _NotYours("Nobody says which page sent the form.")
    if not visit.csrf or not hmac.compare_digest(
        visit.csrf.encode(), doing.form.get("csrf", "").encode()
    ):
        raise _NotYours("The form is not one that was made for you, or it is too old.")


def _origin(address: str) -> str:
    """Scheme, host and port of an address, as a browser states them."""
    scheme, _, rest = address.lower().partition("://")
    host = rest.partition("/")[0].removesuffix({"https": ":443", "http": ":80"}.get(scheme, ""))
    return f"{scheme}://{host}"


# ---- what is said of it --------------------------------------------------------------------------
def _why(visit: Visit, error: Exception) -> Problem:
    match error:
        case _NotYours(said=said):
            return Problem(status=403, error="not_yours", said=said)
        case _Unread(why=unread):
            return unread
        case TooMany():
            return Problem(
                status=429, error="too_many", said="Too many wrong tokens came from there."
            )
        case Stranger() | Hidden() | BadQuestion() | Fenced() | StoreUnavailable():
            return why(visit, error)
        case Denied():
            return _three(409, "denied", error)
        case UsageError():
            return _three(400, "question", error)
        case IntegrityError():
            return _three(400, "unfit", error)
    return why(visit, error)


def _three(status: int, word: str, error: KfmError) -> Problem:
    happened, expected, remedy = (
        masked(mask_home(text)) for text in (error.happened, error.expected, error.remedy)
    )
    return Problem(status=status, error=word, said=happened, expected=expected, remedy=remedy)


def _told(visit: Visit, done: Done) -> Response[Any]:
    """To a browser where it can be seen; to a program what was done."""
    headers = {"cache-control": "no-store"}
    if visit.wants_page():
        to = f"{done.at}{'&' if '?' in done.at else '?'}done={done.done}"
        return Response(b"", status_code=303, headers={**headers, "location": to})
    return Response(msgspec.json.encode(done), media_type="application/json", headers=headers)


def _account(
    doing: Doing, named: str, decision: Audited, said: str = "", dataset_id: str = ""
) -> None:
    visit, viewer = doing.visit, doing.asking.viewer
    log_audit(
        visit.logs,
        AuditLine(
            timestamp=rfc3339(visit.clock.now()),
            job_id=visit.request_id,
            act=named,
            address=visit.path[:500],
            decision=decision,
            who=viewer.reader.name,
            role=viewer.role,
            how=viewer.how,
            client=visit.client,
            dataset_id=dataset_id or doing.parts.get("dataset_id", "")[:100],
            said=said[:500],
        ),
    )
