"""Serve the sample datasets on loopback, with revisions and faults on request.

Prints its address as one line of JSON. `POST /_control {"dataset", "mode", "revision"}` switches what it answers;
started inside a workspace, `kfm run --upstream sample` there finds it by itself.
"""

import json
import os
import threading
from pathlib import Path
from typing import Any

from kfm.cli.call import Parser
from kfm.config import find_workspace

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument("--port", type=int, default=0, help="0 = any free one")


def main(args: Any) -> int:
    from kfm.sample_upstream import SampleUpstream

    server = SampleUpstream(args.port)
    server.start()
    workspace = find_workspace((args.workspace or Path()).absolute())
    note = workspace / "ledger" / "sample-upstream.json" if workspace else None
    if note is not None:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({"url": server.url, "pid": os.getpid()}))
    print(json.dumps(server.describe()), flush=True)
    try:
        threading.Event().wait()  # until SIGINT or SIGTERM
    except (KeyboardInterrupt, SystemExit):
        pass
    finally:
        server.stop()
        if note is not None:
            note.unlink(missing_ok=True)
    return 0
