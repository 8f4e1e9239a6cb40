"""The words of GitHub's API: a repository, an answer, and what a refusal means."""

import re
from typing import ClassVar, NoReturn, TypeVar

import msgspec

from kfm.fetch.url import parse_url
from kfm.model import Denied, Json, StepFailed, UpstreamUnavailable, UsageError

__all__ = ["Lost", "Place", "Refused", "Said", "Unsure", "refuse", "repository_of"]

T = TypeVar("T")
_REPOSITORY = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]{0,38})/([A-Za-z0-9._-]{1,100})")
SCHEME = "github://"


class Place(msgspec.Struct, frozen=True):
    """A repository, and the API it is reached by."""

    owner: str
    name: str
    api: str = "https://api.github.com"

    @property
    def full(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Who may be sent the token: the API, and where it takes files."""
        host = parse_url(self.api).host
        return host, f"uploads.{host.removeprefix('api.')}"


def repository_of(text: str, api: str) -> Place:
    """`owner/name`, also as `github://owner/name`."""
    found = _REPOSITORY.fullmatch(text.removeprefix(SCHEME).rstrip("/"))
    if found is None or found[2] in (".", ".."):
        raise UsageError(
            f"{text!r} is no repository on GitHub.",
            expected="owner/name, or github://owner/name among receivers",
            remedy="Write `github.repository` (or the address among `receivers`) of kfm.yml so.",
        )
    return Place(found[1], found[2], api.rstrip("/"))


class Said(msgspec.Struct, frozen=True):
    """What was answered."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Json:
        """The object that was answered."""
        return self._decoded(Json)

    @property
    def list(self) -> list[Json]:
        return self._decoded(list[Json])

    def _decoded(self, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(self.body, type=kind)
        except msgspec.DecodeError as error:
            raise UpstreamUnavailable(
                "GitHub's answer is not the JSON that its API describes.",
                expected="JSON",
                remedy="Try again later.",
            ) from error

    @property
    def message(self) -> str:
        """Why it was refused, in GitHub's words; each of them once."""
        try:
            told = msgspec.json.decode(self.body, type=Json)
        except msgspec.DecodeError:
            return ""
        errors = told.get("errors")
        more = [
            str(e.get("message") or f"{e.get('field', '')} {e.get('code', '')}").strip()
            for e in (errors if isinstance(errors, list) else [])
            if isinstance(e, dict)
        ]
        said = dict.fromkeys([str(told.get("message") or told.get("msg") or ""), *more])
        return ": ".join(filter(None, said))[:400]


class Lost(UpstreamUnavailable):
    """No answer came. `sent`: the request was on its way, so it may have taken effect."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(
            f"GitHub could not be asked: {why}.",
            expected="an answer",
            remedy="Try again later: nothing is done twice.",
        )
        self.sent = sent


class Unsure(UpstreamUnavailable):
    """Whether it was done is not known; who asked looks for it before asking again."""


class Refused(StepFailed):
    """GitHub understood and does not take it (409, 422)."""

    code: ClassVar[str] = "github.refused"

    def __init__(self, what: str, said: Said) -> None:
        super().__init__(
            f"GitHub does not take it ({said.status}, {what}): {said.message or 'no reason given'}",
            expected="a request that the repository takes",
            remedy="Look at the repository; `--verbose` shows where it happened.",
        )
        self.said = said


def refuse(what: str, said: Said) -> NoReturn:
    """The error for an answer that is final."""
    if said.status == 401:
        raise Denied(
            "GitHub does not accept the token: it is wrong, expired or revoked.",
            expected="a valid token where `github.token` of kfm.yml says",
            remedy="Renew it, then do the same again: nothing is done twice.",
        )
    if said.status == 403:
        needs = said.headers.get("x-accepted-github-permissions", "")
        raise Denied(
            f"The token may not do that ({what}): {said.message or 'forbidden'}",
            expected=f"a token with {needs}" if needs else "a token that may",
            remedy="Give it that permission, in Actions under `permissions:` of the job.",
        )
    if said.status in (404, 410):
        raise Denied(
            f"GitHub shows nothing there ({what}).",
            expected="a repository that exists and that the token may see",
            remedy="Check `github.repository` in kfm.yml and what the token may see.",
        )
    if said.status in (301, 302, 307, 308):
        raise UsageError(
            "The repository has moved or was renamed.",
            expected="its present name",
            remedy="Correct `github.repository` in kfm.yml.",
        )
    raise Refused(what, said)
