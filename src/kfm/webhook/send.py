"""Tell a receiver something, signed as one of its sources would: to try a way, or from a script."""

import datetime as dt
import http.client
import secrets
import socket
from urllib.parse import quote

import msgspec

from kfm.fetch.url import parse_url
from kfm.model import Denied, Json, UpstreamUnavailable, UsageError, rfc3339
from kfm.webhook.sources import Source
from kfm.webhook.verify import sign

__all__ = ["Answered", "deliver", "made_body", "signed_headers"]

_PATIENCE_S = 30.0
_MOST = 64 * 1024


class Answered(msgspec.Struct, frozen=True):
    """What a receiver said."""

    status: int
    told: Json


def made_body(source_id: str, trigger: str, event_type: str, metadata: Json) -> bytes:
    """A body of kfm's own form, sent now."""
    return msgspec.json.encode(
        {
            "source_id": source_id,
            "trigger": trigger,
            "event_type": event_type,
            "sent_at": rfc3339(dt.datetime.now(dt.UTC)),
            "metadata": metadata,
            "integrity": {"version": "v1"},
        }
    )


def signed_headers(source: Source, body: bytes) -> dict[str, str]:
    """The headers that sign `body` with the first key of a source."""
    if not source.keys:
        raise Denied(
            f"The source {source.source_id} has no key here.",
            expected="one of its references to hold a value",
            remedy=f"`kfm webhook keys {source.source_id}` says what is missing.",
        )
    now = int(dt.datetime.now(dt.UTC).timestamp())
    name = f"msg_{secrets.token_hex(12)}"
    return sign(source.scheme, source.keys[0].secret, body, name=name, now=now)


def deliver(address: str, source_id: str, body: bytes, headers: dict[str, str]) -> Answered:
    """POST to the receiver at `address`: http(s)://HOST[:PORT], or unix:PATH."""
    connection = _connection(address)
    told = {"Content-Type": "application/json", **headers}
    try:
        connection.request("POST", f"/hooks/{quote(source_id, safe='')}", body, told)
        answer = connection.getresponse()
        return Answered(answer.status, _object(answer.read(_MOST)))
    except (OSError, http.client.HTTPException) as error:
        raise UpstreamUnavailable(
            f"No receiver answers at {address}: {error or type(error).__name__}.",
            expected="`kfm webhook serve` or `kfm up` to run there",
            remedy="Start one, or name another address with --to.",
        ) from error
    finally:
        connection.close()


def _object(raw: bytes) -> Json:
    try:
        return msgspec.json.decode(raw, type=dict[str, object])
    except msgspec.DecodeError:
        return {}


def _connection(address: str) -> http.client.HTTPConnection:
    if address.startswith("unix:"):
        return _OnFile(address.removeprefix("unix:"))
    target = parse_url(address)
    if target.path not in ("", "/"):
        raise UsageError(
            f"{address} names a page.",
            expected="the address of a receiver, such as http://127.0.0.1:8787",
            remedy="Leave out what comes after the host.",
        )
    kind = http.client.HTTPSConnection if target.scheme == "https" else http.client.HTTPConnection
    return kind(target.host, target.port, timeout=_PATIENCE_S)


class _OnFile(http.client.HTTPConnection):
    """HTTP over a socket in a file."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_PATIENCE_S)
        self.sock.connect(self._path)
