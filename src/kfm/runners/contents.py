"""What has no place among workers: secrets, data, pages, a way around the boundary, and code that
no test tries.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from kfm.workspace.secrets import scan_file

__all__ = ["HOME", "excluded"]

HOME = "apps/workers"
_MOST = 256 * 1024  # bytes of a file; code is smaller
_DATA = {
    ".csv", ".db", ".geojson", ".gpkg", ".gz", ".jsonl", ".nc", ".parquet", ".pmtiles", ".shp",
    ".sqlite", ".tif", ".tiff", ".xlsx", ".zip",
}  # fmt: skip
_PAGES = {".css", ".html", ".js", ".jsx", ".mjs", ".png", ".svg", ".ts", ".tsx", ".woff2"}
# who imports one of these goes past the boundary, the job table and the receipts
_STORES = {
    "asyncpg", "duckdb", "kfm.extras", "kfm.store", "kfm.zones", "neo4j", "psycopg", "psycopg2",
    "redis", "sqlalchemy", "sqlite3",
}  # fmt: skip
_ROUTES = {"aiohttp", "django", "fastapi", "flask", "http.server", "litestar", "starlette"}


def excluded(root: Path) -> Iterator[str]:
    """What lies among the workers of a workspace and does not belong there, a sentence each."""
    home = root / HOME
    files = [p for p in sorted(home.rglob("*")) if p.is_file() and "__pycache__" not in p.parts]
    tests = "\n".join(p.read_text() for p in files if _is_test(home, p))
    for path in files:
        name = path.relative_to(root)
        yield from (f"{name}: {what}" for what in _out_of_place(path))
        if path.suffix == ".py" and not _is_test(home, path) and path.stem not in tests:
            yield f"{name}: no test names it; write one below {HOME}/tests"


def _is_test(home: Path, path: Path) -> bool:
    return path.suffix == ".py" and "tests" in path.relative_to(home).parts


def _out_of_place(path: Path) -> Iterator[str]:
    if path.suffix.lower() in _DATA or path.stat().st_size > _MOST:
        yield f"{path.stat().st_size:,} bytes of data; data lies below data/, and kfm writes it"
    if path.suffix.lower() in _PAGES:
        yield "part of a page; workers have none"
    for found in scan_file(path):
        yield f"line {found.line} looks like a credential ({found.rule}); name where it is kept"
    if path.suffix == ".py":
        yield from _imports(path)


def _imports(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        yield f"cannot be read: {error}"
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        if found := _among(node, _STORES):
            yield f"line {node.lineno} imports {found}, past the boundary; put a job instead"
        if found := _among(node, _ROUTES):
            yield f"line {node.lineno} imports {found}; workers answer no requests"


def _among(node: ast.Import | ast.ImportFrom, known: set[str]) -> str:
    """The module that an import names or lies in, if it is a known one."""
    above = f"{node.module}." if isinstance(node, ast.ImportFrom) and not node.level else ""
    named = [f"{above}{each.name}." for each in node.names]
    return next(
        (each for each in sorted(known) if any(n.startswith(f"{each}.") for n in named)), ""
    )
