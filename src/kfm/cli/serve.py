"""Let people read what is published over HTTP, as far as each may; until it is stopped."""

import sys

from kfm.cli.answer import Call
from kfm.cli.terminal import say, sign
from kfm.cli.until_stopped import answer_until_stopped, check_writable
from kfm.reader.serve import reading
from kfm.webhook.serve import Address
from kfm.workspace.folder import open_workspace

__all__ = ["serve"]


def serve(call: Call, host: str, port: int, known_as: str, console: bool) -> None:
    """Answer until it is stopped."""
    workspace = open_workspace(call.workspace)
    check_writable(workspace)
    with reading(workspace, Address(host, port), known_as, console=console) as found:
        first = "" if console else "datasets"
        say(f"{sign('RUNNING', sys.stderr)} {found.address.url}/{first}; Ctrl-C ends it")
        if not found.address.here_only:
            say(
                f"  {sign('LATE', sys.stderr)} Others reach it without TLS: put something in front"
                " that speaks it, and say --known-as."
            )
        answer_until_stopped(found.serve, found.stop, "kfm-reader")
