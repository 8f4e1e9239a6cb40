"""The rooms of the source tree, and what its modules import."""

import ast
import functools
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "kfm"


def name_of(path: Path) -> str:
    return ".".join(("kfm", *path.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__")


NAMES = {name_of(p) for p in SRC.rglob("*.py")}


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Every kfm module that `path` imports, also inside functions and for types."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        assert getattr(node, "level", 0) == 0, f"{path.name}: an import names the whole way"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "kfm":
            found |= {
                full if (full := f"{node.module}.{a.name}") in NAMES else node.module
                for a in node.names
            }
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "kfm"}
    return frozenset(found - {"kfm"})


def rooms() -> set[str]:
    return {p.relative_to(SRC).parts[0] for p in SRC.rglob("*.py") if p.parent != SRC} - {
        "template"
    }
