"""Let people read what is published over HTTP, as far as each may; until it is stopped."""

import sys
import threading

from kfm.cli.answer import Call
from kfm.cli.terminal import say, sign
from kfm.reader.serve import reading
from kfm.webhook.serve import Address
from kfm.workspace.folder import open_workspace

__all__ = ["serve"]


def serve(call: Call, host: str, port: int, known_as: str, console: bool) -> None:
    """Answer until it is stopped."""
    workspace = open_workspace(call.workspace)
    with reading(workspace, Address(host, port), known_as, console=console) as found:
        first = "" if console else "datasets"
        say(f"{sign('RUNNING', sys.stderr)} {found.address.url}/{first}; Ctrl-C ends it")
        if not found.address.here_only:
            say(
                f"  {sign('LATE', sys.stderr)} Others reach it without TLS: put something in front"
                " that speaks it, and say --known-as."
            )
        thread = threading.Thread(target=found.serve, name="kfm-reader", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(0.5)
        finally:
            found.stop()
            thread.join(15)
