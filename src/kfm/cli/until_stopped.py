"""Answer over the network until somebody stops it."""

import os
import threading
from collections.abc import Callable

from kfm.model import StepFailed
from kfm.workspace.folder import Workspace

__all__ = ["answer_until_stopped", "check_writable"]


def check_writable(workspace: Workspace) -> None:
    """Raise `StepFailed` where nothing could be written down: then nothing runs, and nothing is
    handed out.
    """
    for name in ("ledger", "data"):
        at = workspace.path / name
        if not os.access(at if at.exists() else workspace.path, os.W_OK):
            raise StepFailed(
                f"Nothing can be written in {name} of this workspace.",
                expected="a workspace that keeps what is done and handed out",
                remedy="Mount it writable, or mend its rights; `kfm doctor` looks again.",
            )


def answer_until_stopped(serve: Callable[[], None], stop: Callable[[], None], name: str) -> None:
    """Serve in a thread of its own, so that signals reach this one; what is being answered when it
    is stopped is answered.
    """
    thread = threading.Thread(target=serve, name=name, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.5)
    finally:
        stop()
        thread.join(15)
