"""One POST to a server that the operator named: a collector, a graph, somebody's alarm.

Such a server is no upstream: it may stand on a private address, answers with any 2xx, and nothing
it says is kept. What it is sent was made here, so it is followed nowhere: a redirect is refused.
"""

import http.client
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from kfm.model import StepFailed, UpstreamUnavailable

__all__ = ["Answer", "post", "posted"]

_MOST = 1 << 20  # bytes of an answer that are read
_TOLD = 200  # characters of an answer that are told


class Answer(NamedTuple):
    """What a 2xx answer says."""

    headers: http.client.HTTPMessage
    body: bytes


def post(
    url: str, body: bytes, *, headers: Mapping[str, str], seconds: float = 5.0
) -> http.client.HTTPMessage:
    """The heads of a 2xx answer; raises as `posted` does."""
    return posted(url, body, headers=headers, seconds=seconds).headers


def posted(url: str, body: bytes, *, headers: Mapping[str, str], seconds: float = 5.0) -> Answer:
    """A 2xx answer.

    Raises `UpstreamUnavailable` where a repetition may help (no answer, 408, 425, 429, 5xx), and
    `StepFailed` where it cannot.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    link: http.client.HTTPConnection
    if parts.scheme == "https":
        link = http.client.HTTPSConnection(
            host, parts.port, timeout=seconds, context=ssl.create_default_context()
        )
    else:
        link = http.client.HTTPConnection(host, parts.port, timeout=seconds)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        link.request("POST", path, body=body, headers=dict(headers))
        answer = link.getresponse()
        content = answer.read(_MOST)
    except (OSError, http.client.HTTPException) as error:
        raise UpstreamUnavailable(
            f"{host} did not answer: {error or type(error).__name__}.",
            expected=f"an answer within {seconds:g} s",
            remedy="It is asked again later.",
        ) from error
    finally:
        link.close()
    if 200 <= answer.status < 300:
        return Answer(answer.headers, content)
    said = content.decode("utf-8", "replace").strip()[:_TOLD]
    may_help = answer.status in (408, 425, 429) or answer.status >= 500
    raise (UpstreamUnavailable if may_help else StepFailed)(
        f"{host} answered {answer.status}{f': {said}' if said else ''}.",
        expected="2xx",
        remedy="It is asked again later." if may_help else "Check its address and what it takes.",
    )
