"""A reader that listens: uvicorn around the application."""

import asyncio
import contextlib
import importlib.util
import logging
import re
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from kfm.model import MissingExtra, UsageError
from kfm.reader.served_now import Noted, noted
from kfm.webhook.serve import Address
from kfm.workspace.folder import Workspace

if TYPE_CHECKING:
    import uvicorn

__all__ = ["PORT", "Reading", "reading"]

_MOST_CONNECTIONS = 1000

PORT = 8788  # unless another is named

_SITE = re.compile(r"https?://[^\s\"'<>?#]+")
_SAFE = re.compile(r"https://|http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?(/|$)")


class Reading(NamedTuple):
    """A reader at work."""

    address: Address
    serve: Callable[[], None]  # until it is told to stop
    stop: Callable[[], None]


@contextlib.contextmanager
def reading(
    workspace: Workspace,
    address: Address,
    known_as: str = "",
    *,
    console: bool = False,
    nearby: int = 0,
) -> Iterator[Reading]:
    """A reader whose socket is open. `known_as`: how others address it, behind something else.
    `console`: it also shows how things are run, to who asks on this machine, or over a network to
    whose token has a role for it. `nearby`: how many ports are tried after one that is taken.
    """
    if known_as and not _SITE.fullmatch(known_as):
        raise UsageError(
            f"{known_as!r} is no address of a site.",
            expected="https://… or http://…, without a question or a fragment",
            remedy="Correct --known-as, or leave it out.",
        )
    here = address.here_only and not known_as
    if console and not here and not _SAFE.match(known_as):
        raise UsageError(
            "The console is reached over a network, and tokens would pass it in clear.",
            expected="--known-as https://…, and something in front that speaks TLS",
            remedy="Say --known-as, or leave --host out: then it is for who works at this machine.",
        )
    try:
        import uvicorn  # noqa: F401  # an extra, as what comes next needs one

        from kfm.pages.routes import html_pages
        from kfm.reader.app import make_app
    except ImportError as error:
        raise MissingExtra(
            f"The reader is made with Litestar and uvicorn; {error.name} is not installed.",
            expected="the extra `api`",
            remedy="pip install 'kfm[api]'",
        ) from error
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(_nearby(address, nearby))
        html = html_pages(console=console)
        app = make_app(
            workspace,
            html,
            address=known_as,
            here=console and here,
            limited=not here,
        )
        stack.callback(app.close)
        server = _quiet_server(app)

        def stop() -> None:
            server.should_exit = True
            html.leave()

        at = address._replace(port=opened.getsockname()[1])
        stack.enter_context(noted(workspace.path, Noted(url=at.url, console=console)))
        yield Reading(at, lambda: server.run(sockets=[opened]), stop)


def _quiet_server(app: Callable[..., Awaitable[None]]) -> "uvicorn.Server":
    """A server that leaves signals and logs to who starts it."""
    import uvicorn

    # what strangers send wrongly is answered, and is no news
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)

    class Quiet(uvicorn.Server):
        """Signals are the command's own."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
        http=_connection(),
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=10,
        limit_concurrency=_most_connections(),
    )
    return Quiet(config)


def _connection() -> "type[asyncio.Protocol] | Literal['h11']":
    if not importlib.util.find_spec("httptools"):
        return "h11"
    from kfm.reader.connection import Connection

    return Connection


def _most_connections() -> int:
    """At once; who comes then is told to come again. Files and the store need descriptors, too."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_CONNECTIONS if files < 0 else min(_MOST_CONNECTIONS, max(16, files // 2))


def _nearby(address: Address, more: int) -> socket.socket:
    """A socket at this address, or at one of the next ports."""
    for port in range(address.port, min(address.port + more, 65_535)):
        with contextlib.suppress(UsageError):
            return _socket(address._replace(port=port))
    return _socket(address._replace(port=min(address.port + more, 65_535)))


def _socket(address: Address) -> socket.socket:
    try:
        return socket.create_server(
            (address.host, address.port),
            family=socket.AF_INET6 if ":" in address.host else socket.AF_INET,
            backlog=1024,
        )
    except OSError as error:
        raise UsageError(
            f"Nobody can listen at {address.url}: {error.strerror or error}.",
            expected="an address that is free",
            remedy="Name another one with --host and --port.",
        ) from error
