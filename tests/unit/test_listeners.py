"""Nothing serves data but the governed reader: who listens at all is named here, and no connector
does.
"""

import ast
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "kfm"
LISTENING = {
    "create_server",
    "start_server",
    "start_unix_server",
    "serve_forever",
}
SERVERS = {"http.server", "socketserver", "uvicorn", "litestar", "wsgiref", "xmlrpc.server"}
MAY = {  # who listens -> what for
    "reader": "what is published, through the boundary",
    "pages": "the same as HTML: its addresses are added to those of the reader",
    "console": "what may be done there: its addresses are added to those of the reader, too",
    "webhook": "hears what others tell, and hands nothing out",
    "samples": "an invented upstream",
    "testing.py": "an upstream for tests of connectors",
}


def listens(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import) and any(
            a.name in SERVERS or a.name.split(".")[0] in SERVERS for a in node.names
        ):
            return True
        named = node.module if isinstance(node, ast.ImportFrom) else None
        if named is not None and {named, named.split(".")[0]} & SERVERS:
            return True
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in LISTENING:
            return True
    return False


def test_only_the_reader_serves_and_no_connector_listens() -> None:
    found = {
        path.relative_to(SRC).parts[0]
        for path in SRC.rglob("*.py")
        if path.name != "__main__.py" and listens(path)
    }
    assert found - MAY.keys() == set(), "who hands something out is an address of the reader"
    assert "reader" in found
