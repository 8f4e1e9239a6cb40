"""Serve the sample datasets on loopback, with revisions and faults on request.

Prints its address as one line of JSON. `POST /_control {"dataset", "mode", "revision"}` switches
what it answers; while it runs, `kfm run --upstream sample` of the same user finds it by itself.
"""

import json
import os
import threading
from argparse import Namespace
from pathlib import Path

from kfm.cli.call import Parser
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.config import find_workspace
from kfm.workspace.upstreams import user_note, workspace_note

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("--port", type=int, default=0, help="0 = any free one")


def main(args: Namespace) -> int:
    server = SampleUpstream(args.port)
    server.start()
    workspace = find_workspace((args.workspace or Path()).absolute())
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
    return 0
