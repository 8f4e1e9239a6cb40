"""Serve the sample datasets on loopback, with revisions and faults on request."""

import json
import os
import threading
from pathlib import Path

from kfm.cli.answer import Call
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.config import find_workspace
from kfm.workspace.upstreams import user_note, workspace_note

__all__ = ["serve"]


def serve(call: Call, port: int) -> None:
    """Until it is stopped; its address is one line of JSON, whoever asks."""
    server = SampleUpstream(port)
    server.start()
    workspace = find_workspace((call.workspace or Path()).absolute())
    notes = [user_note(), *([workspace_note(workspace)] if workspace else [])]
    for note in notes:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)
        note.write_text(json.dumps({"url": server.url, "pid": os.getpid()}))
    print(json.dumps(server.describe()), flush=True)
    try:
        threading.Event().wait()  # until SIGINT or SIGTERM
    except (KeyboardInterrupt, SystemExit):
        pass
    finally:
        server.stop()
        for note in notes:
            note.unlink(missing_ok=True)
