"""A connection sends files whole or visibly not, and lets go of who is slow on purpose."""

import http.client
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from tests.given.verbs import until

from kfm.reader import app, connection
from kfm.reader.sendable import SENDS_FILES, Sendable

SIZE = 24 << 20  # more than sockets hold between them


class Served(NamedTuple):
    port: int
    sent: list[int]  # how many bytes of a file went out, for each answer that has ended
    body: bytes
    is_same: list[Callable[[], bool]]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server whose only answer is a file."""
    body = os.urandom(1 << 20) * (SIZE >> 20)
    (tmp_path / "file").write_bytes(body)
    sent: list[int] = []
    same: list[Callable[[], bool]] = [lambda: True]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        first = int(scope["query_string"] or b"0")
        headers = [(b"content-length", str(SIZE - first).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with (tmp_path / "file").open("rb") as file:
            part = Sendable(file.fileno(), first, SIZE, lambda: same[0]())
            sent.append(await scope["extensions"][SENDS_FILES]["send"](part))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    config = uvicorn.Config(
        app, http=connection.Connection, loop="uvloop", lifespan="off", ws="none", log_config=None
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as at:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [at]}, daemon=True)
        thread.start()
        try:
            yield Served(at.getsockname()[1], sent, body, same)
        finally:
            server.should_exit = True
            thread.join(60)


def asked(port: int, first: bytes) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), 60)
    found.sendall(first)
    return found


def test_a_file_is_sent_byte_for_byte_and_the_connection_goes_on(served: Served) -> None:
    client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    for first in (0, SIZE - 5, 7):
        client.request("GET", f"/?{first}")
        assert client.getresponse().read() == served.body[first:]
    client.close()
    assert served.sent == [SIZE, 5, SIZE - 7]


def test_questions_that_come_at_once_are_answered_in_turn(served: Served) -> None:
    one = b"GET /?%d HTTP/1.1\r\nHost: x\r\n%s\r\n"
    with asked(
        served.port, one % (SIZE - 3, b"") + one % (SIZE - 4, b"Connection: close\r\n")
    ) as c:
        whole = b""
        while piece := c.recv(65536):
            whole += piece
    first, second = whole.split(b"HTTP/1.1 ")[1:]
    assert first.endswith(served.body[-3:]) and second.endswith(served.body[-4:])


def test_a_file_that_changes_on_the_way_is_not_sent_to_its_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_LOOK", 1 << 20)
    left = [3]

    def is_same() -> bool:
        left[0] -= 1
        return left[0] > 0

    served.is_same[0] = is_same
    client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    client.request("GET", "/")
    short = pytest.raises((http.client.IncompleteRead, ConnectionError))
    with closing(client), client.getresponse() as answer, short:
        answer.read()
    assert until(lambda: served.sent)[0] < SIZE


def test_who_goes_away_in_the_middle_is_not_waited_for(served: Served) -> None:
    with asked(served.port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as client:
        assert client.recv(4096)
    assert until(lambda: served.sent)[0] < SIZE
    again = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    again.request("GET", f"/?{SIZE - 1}")
    assert again.getresponse().read() == served.body[-1:]
    again.close()


def test_who_takes_nothing_is_let_go(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_STANDSTILL", 0.1)
    with asked(served.port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
        assert until(lambda: served.sent)[0] < SIZE


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc",
    ],
)
def test_a_question_that_never_ends_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """However often another byte of it comes."""
    monkeypatch.setattr(connection, "PATIENCE", 0.2)
    with asked(served.port, begun) as client:

        def is_over() -> bool:
            try:
                client.sendall(b"a" if begun else b"")
                client.settimeout(0.05)
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        until(is_over)
    assert served.sent == []


def test_who_sends_a_form_too_slowly_is_told_so_before_the_connection_ends() -> None:
    """The application answers 408; the connection, which cannot, ends what is left."""
    assert app.MOST_SECONDS < connection.PATIENCE
