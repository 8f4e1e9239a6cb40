"""The process that a question in SQL is answered in: it reads the tables of one version, can do
nothing else, and may be killed at any moment.

parent  {"sql": text, "names": [text…], "files": [path…], "rows": n, "seconds": n, "bytes": n}
child   {"columns": [[name, type]…], "rows": [[json…]…], "more": bool} | {"error": text, "kind": text}
"""

import contextlib
import json
import os
import resource
import sys
from typing import Any

from kfm.sandbox import confine

__all__ = ["main"]

_SPARE = 2 << 30  # of address space, for libraries and what threads reserve
_READS = ("SELECT", "EXPLAIN")  # kinds of statement


def main() -> None:
    """Answer one question."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    question = json.loads(sys.stdin.buffer.read())
    for what, limit in (
        (resource.RLIMIT_AS, question["bytes"] + _SPARE),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, 4 * int(question["seconds"]) + 4),  # should the parent be gone
    ):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (limit, limit))
    # Where the kernel cannot hold it, the engine still is told to open and load nothing.
    files = question["files"]
    # DuckDB falls over a limit of its machine that is there and may not be read.
    reads = [*confine.readable(files, None, files[0]), "/sys/fs/cgroup"]
    confine.confine(reads, None)
    try:
        answer = _answer(question)
    except MemoryError:
        answer = {"kind": "memory", "error": "more memory than it may have"}
    except Exception as error:
        names = {"OutOfMemoryException": "memory", "PermissionException": "denied"}
        kind = names.get(type(error).__name__, "sql")
        if isinstance(error, ImportError):
            kind = "missing"
        answer = {"kind": kind, "error": getattr(error, "name", "") or str(error)}
    answers.write(json.dumps(answer).encode())
    answers.flush()


class _Without:
    """Both libraries would load pandas where there is one, and need it for nothing here."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    sys.meta_path.insert(0, _Without())
    import duckdb
    import pyarrow.dataset as datasets

    tables = datasets.dataset(question["files"], format="parquet")
    con = duckdb.connect(
        ":memory:",
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "python_enable_replacements": "false",  # else a variable of ours is a table
            "memory_limit": f"{question['bytes'] >> 20}MiB",
            "temp_directory": "",
            "threads": str(min(4, os.cpu_count() or 1)),
        },
    )
    con.execute("set TimeZone = 'UTC'")
    for name in question["names"]:
        con.register(name, tables)
    con.execute("set enable_external_access = false")
    con.execute("set lock_configuration = true")
    found = con.extract_statements(question["sql"])
    if len(found) != 1 or found[0].type.name not in _READS:
        said = ", ".join(one.type.name for one in found) or "nothing"
        return {"kind": "statement", "error": said}
    relation = con.sql(found[0])
    if relation is None:
        return {"kind": "statement", "error": found[0].type.name}
    columns = list(zip(relation.columns, map(str, relation.types)))
    rows, most = list[Any](), question["rows"]
    for batch in relation.to_arrow_reader(min(most + 1, 10_000)):
        taken = batch.slice(0, most + 1 - len(rows))
        rows += zip(*(_plain(column) for column in taken.columns))
        if len(rows) > most:
            break
    return {"columns": columns, "rows": rows[:most], "more": len(rows) > most}


def _plain(array: Any) -> list[object]:
    """The cells of a column as JSON has them."""
    import pyarrow as pa

    from kfm.diff.cells import values

    if pa.types.is_decimal(array.type) and array.type.scale == 0:  # a sum of whole numbers
        return [None if c is None else int(c) for c in array.to_pylist()]
    return values(array)


if __name__ == "__main__":
    main()
