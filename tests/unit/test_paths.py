"""Paths are made in one file, and each lies in a place that an erasure knows."""

import ast
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.model import paths

SRC = Path(__file__).parents[2] / "src" / "kfm"
FOLDERS = (
    "raw/",
    "work/",
    "processed/",
    "catalog/",
    "published/",
    "registry/",
    "receipts/",
    "releases/",
    "ledger/",
)
SPELT = tuple(
    f"{above}{folder}"
    for above in ("", "data/")
    for folder in FOLDERS
    if (above, folder) != ("data/", "registry/")
)
MAKERS = {
    n: f
    for n, f in vars(paths).items()
    if inspect.isfunction(f) and n in paths.__all__ and n != "place_of"
}


def made(maker: Callable[..., str]) -> str:
    """What a function makes of plain words."""
    words = {
        "generation": 7,
        "dataset_id": "some_wells",
        "digest": "sha256:" + "0a" * 32,
        "tag": "some_wells/00000007",
    }
    return maker(
        **{name: words.get(name, f"a_{name}") for name in inspect.signature(maker).parameters}
    )


def spelt(tree: ast.AST) -> list[int]:
    """The lines that put a path of a zone together: an f-string, a sum or a `format` that begins
    with a folder.
    """
    found = []
    for node in ast.walk(tree):
        first: ast.AST | None = None
        if isinstance(node, ast.JoinedStr) and node.values:
            first = node.values[0]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
            first = node.left
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "format"
        ):
            first = node.func.value
        if (
            isinstance(first, ast.Constant)
            and isinstance(first.value, str)
            and first.value.startswith(SPELT)
        ):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_what_a_function_makes_lies_in_a_known_place(name: str) -> None:
    path = made(MAKERS[name])
    inside = path if name.endswith("_path") else f"{path}/file"
    assert paths.place_of("data", inside, "some_wells") or paths.place_of(
        "root", inside, "some_wells"
    ), path


def test_every_place_of_a_dataset_is_made_by_a_function() -> None:
    made_here = [
        made(maker) + ("" if name.endswith("_path") else "/") for name, maker in MAKERS.items()
    ]
    unnamed = [
        p.path
        for p in paths.PLACES
        if not any(m.startswith(p.path.format(id="some_wells")) for m in made_here)
    ]
    assert unnamed == ["inbox/"], "people bring those files; nothing of ours lies there"


def test_no_other_module_spells_a_path_of_a_zone() -> None:
    modules = [
        p
        for p in SRC.rglob("*.py")
        if "template" not in p.parts and p != SRC / "model" / "paths.py"
    ]
    found = [
        f"{p.relative_to(SRC)}:{line}" for p in modules for line in spelt(ast.parse(p.read_text()))
    ]
    assert found == [], "take it from kfm.model.paths, or make a function there"


def test_a_path_that_is_put_together_is_seen_however_it_is_done() -> None:
    for code in (
        'f"work/{a}/x"',
        '"raw/" + a',
        '"ledger/%s" % a',
        '"processed/{id}".format(id=a)',
        'f"data/work/{a}"',
    ):
        assert spelt(ast.parse(code)) == [1], code
    for code in (
        'f"see data/work/{a}"',
        '"work/" in a',
        'f"{a}/work/{b}"',
        'f"data/registry/{a}.yml"',
    ):
        assert spelt(ast.parse(code)) == [], code
