"""Runs a notebook without a notebook server: its code cells in order, in one plain Python.

`python -m tests.given.notebook FILE` prints what each cell is worth; a cell that fails is named.
"""

import ast
import json
import sys
from pathlib import Path

__all__ = ["code_cells", "run"]


def code_cells(notebook: Path) -> list[str]:
    """The code of a notebook, cell by cell."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def run(notebook: Path) -> None:
    """Run every cell; the last expression of each is shown as a notebook would show it."""
    names: dict[str, object] = {"__name__": "__main__"}
    for number, text in enumerate(code_cells(notebook), 1):
        name = f"{notebook.name}, code cell {number}"
        body = ast.parse(text, name).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), name, "exec"), names)
        if isinstance(last, ast.Expr):
            found = eval(compile(ast.Expression(last.value), name, "eval"), names)
            shown = found._repr_html_() if hasattr(found, "_repr_html_") else repr(found)
            print(f"[{number}] {shown}")


if __name__ == "__main__":
    run(Path(sys.argv[1]))
