"""The rules asked elsewhere: of the governed API, over HTTP, by a worker that does not decide
itself.

Whatever is no clear answer to the very question that was asked is none: it lets nothing pass and
denies nothing for good, and whoever asked comes again.
"""

import http.client
import re
import threading
import time
import uuid
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from kfm.model import UsageError, canonical, ids
from kfm.policy.base import BoundaryUnavailable, Decision, Ruled, is_loopback

__all__ = ["Elsewhere"]

_MOST = 1 << 20  # bytes of an answer
_TOLD = 300  # characters of a refusal that are told
_PATIENCE_S = 60.0  # in all, while it says that too much is asked
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DENIAL = {"code", "message", "remedy"}
_ENGINES = ("embedded", "opa", "server")


class _Said(msgspec.Struct, frozen=True):
    """Why there is no answer, as the reader says it."""

    said: str = ""


class Elsewhere:
    """Asks the boundary of a governed API, by a token of a role that may."""

    def __init__(self, url: str, token: str, *, seconds: float = 10.0) -> None:
        parts = urlsplit(url)
        host, safe = parts.hostname or "", parts.scheme == "https"
        safe |= parts.scheme == "http" and is_loopback(host)
        if not safe or not host or parts.username or parts.query or parts.fragment:
            raise UsageError(
                "That is no address of a governed API that may be asked.",
                expected="https://…, or http:// on this machine",
                remedy="`kfm serve --console --known-as https://…` answers there.",
            )
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError(
                "There is no token to ask the boundary with.",
                expected="one in KFM_BOUNDARY_TOKEN",
                remedy="`kfm grant token --role engineer` makes one where the API runs.",
            )
        self._path, self._seconds = parts.path.rstrip("/") + "/boundary", seconds
        self._heads = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._lock, self._host = threading.Lock(), host
        self._wire: http.client.HTTPConnection
        if parts.scheme == "https":
            self._wire = http.client.HTTPSConnection(host, parts.port, timeout=seconds)
        else:
            self._wire = http.client.HTTPConnection(host, parts.port, timeout=seconds)

    def decide(self, package: str, document: Mapping[str, object]) -> Decision:
        """What the boundary decides. Raises `BoundaryUnavailable`."""
        question = canonical.dumps(dict(document))
        body = b'{"package":%s,"document":%s}' % (msgspec.json.encode(package), question)
        status, content = self._asked(body)
        if status != 200:
            raise self._none(f"answered {status}{_why(content)}")
        try:
            ruled = msgspec.json.decode(content, type=Ruled)
        except msgspec.DecodeError as error:
            raise self._none(f"answered what is no decision ({error})") from error
        if odd := _odd(ruled, package, ids.digest(question)):
            raise self._none(f"answered a decision {odd}")
        return ruled.decision

    def close(self) -> None:
        """See `Evaluator`."""
        self._wire.close()

    def _asked(self, body: bytes) -> tuple[int, bytes]:
        until = time.monotonic() + _PATIENCE_S
        with self._lock:
            while True:
                status, wait_s, content = self._once(body)
                if status != 429 or time.monotonic() + wait_s > until:
                    return status, content
                time.sleep(wait_s)  # a version of many files asks often

    def _once(self, body: bytes) -> tuple[int, float, bytes]:
        kept = self._wire.sock is not None
        try:
            self._wire.request("POST", self._path, body, self._heads)
            answer = self._wire.getresponse()
            content = answer.read(_MOST + 1)
        except (OSError, http.client.HTTPException) as error:
            self._wire.close()
            if kept:  # a connection that has rested may have been let go meanwhile
                return self._once(body)
            raise self._none(f"did not answer ({error or type(error).__name__})") from error
        if len(content) > _MOST:
            self._wire.close()
            raise self._none("answered without end")
        told = answer.headers.get("retry-after", "")
        return answer.status, float(told) if re.fullmatch(r"\d{1,3}", told) else 1.0, content

    def _none(self, happened: str) -> BoundaryUnavailable:
        return BoundaryUnavailable(
            f"The boundary at {self._host} {happened}.",
            expected="its decision on what was asked",
            remedy="Nothing was decided, and nothing official is changed. It is asked again later.",
        )


def _odd(ruled: Ruled, package: str, digest: str) -> str:
    """What is wrong with an answer; nothing: it is a clear one, to this question."""
    found = ruled.decision
    if (ruled.package, found.input_digest) != (package, digest):
        return "on another question"
    if found.allow == bool(found.deny):
        return "that allows and denies at once" if found.allow else "that denies without a reason"
    if any(set(denial) != _DENIAL for denial in found.deny):
        return "with reasons of another shape"
    if not _DIGEST.fullmatch(found.policy_digest) or found.engine not in _ENGINES:
        return "that does not say by which rules"
    try:
        named = str(uuid.UUID(found.decision_id)) == found.decision_id
    except ValueError:
        named = False
    return "" if named else "without its id"


def _why(content: bytes) -> str:
    try:
        said = msgspec.json.decode(content, type=_Said).said
    except msgspec.DecodeError:
        return ""
    return f": {said[:_TOLD].rstrip('.')}" if said else ""
