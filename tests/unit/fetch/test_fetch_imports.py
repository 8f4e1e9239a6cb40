"""An unchanged plain-HTTP source costs next to nothing to ask."""

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import kfm.fetch

HEAVY = {
    "ssl",
    "http.client",
    "email",
    "email.parser",
    "asyncio",
    "httpx",
    "requests",
    "urllib3",
    "urllib.request",
    "cryptography",
    "tempfile",
    "concurrent.futures",
    "logging",
}
MODULES = [f"kfm.fetch.{module.name}" for module in pkgutil.iter_modules(kfm.fetch.__path__)]


def test_a_304_over_plain_http_imports_nothing_heavy(upstream, say, into):
    upstream.answers(say.raw("HTTP/1.1 304 x"))
    program = (
        "import sys; from pathlib import Path; from kfm.fetch.http import HttpFetcher; from kfm.fetch.base import FetchRequest;"
        f"q = FetchRequest(url={upstream.url()!r}, hosts=('127.0.0.1',), etag='\"v1\"');"
        f"r = HttpFetcher(allow_loopback=True).fetch(q, Path({str(into)!r}));"
        "print(r.status, *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    status, *modules = done.stdout.split()
    assert status == "304"
    assert "kfm.fetch.wire" in modules
    assert not HEAVY & set(modules)


@pytest.mark.parametrize("name", ["kfm.fetch", *MODULES])
def test_every_module_says_what_it_is_for_and_what_it_offers(name):
    module = __import__(name, fromlist=["*"])
    assert module.__doc__
    assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_only_words_and_the_standard_library_are_imported(name):
    path = Path(__import__(name, fromlist=["*"]).__file__)
    found = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
    }
    ours = {module for module in found if module and module.startswith("kfm")}
    assert all(
        module.startswith(("kfm.fetch.", "kfm.model"))
        or module
        in {"kfm.model.errors", "kfm.model.clock", "kfm.model.canonical", "kfm.model.masking"}
        for module in ours
    )
