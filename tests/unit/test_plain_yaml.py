"""The plainest YAML is read as the library reads it, or left to the library."""

import random
from pathlib import Path

import pytest

from kfm.model import UsageError
from kfm.workspace.config import _yaml
from kfm.workspace.plain_yaml import plain_yaml

HERE = Path(__file__).parents[2]
FILES = [*HERE.glob("src/kfm/template/**/*.yml"), *HERE.glob("kansas/**/*.yml")]
SIGNS = [*"abyn019 -:#[]{},'\"\\|>&*!%@`?~=<\n._/+eExo", "\n  ", "\n- ", "  - ", ": ", "- ", " #"]
WORDS = ["true", "No", "null", "0x1", "010", "1:30", "1e3", "1.", "'a'", '"b"', "---", "...", "<<"]
WORDS += ["k: ", "j: ", "[a, b]", "{a: 1, b: 2}", "[[1, 2], [3]]", "2026-01-01", "1.0.0", "5m"]


def by_the_library(text: str) -> str:
    try:
        return repr(_yaml(text.encode(), "x.yml"))
    except UsageError as error:
        return error.happened


def test_what_is_read_at_all_is_read_as_the_library_reads_it() -> None:
    choose = random.Random(14)
    whole = [file.read_text() for file in FILES]
    found = list(whole)
    for _ in range(2500):
        lines = choose.choice(whole).split("\n")
        first = choose.randrange(len(lines))
        text = "\n".join(lines[first : first + choose.randint(1, 6)])
        if choose.random() < 0.3:
            text = "k: " + "".join(choose.choices([*SIGNS, *WORDS], k=choose.randint(1, 6)))
        for _ in range(choose.randint(0, 2)):
            at = choose.randrange(len(text) + 1)
            text = text[:at] + choose.choice(SIGNS + WORDS) + text[at + choose.randint(0, 2) :]
        found.append(text)
    read = [(text, value) for text in found if (value := plain_yaml(text.encode())) is not None]
    assert len(read) > 600
    for text, value in read:
        assert repr(value) == by_the_library(text), text


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "[a]", "a:\n", "a: ~\n", "a: yes\n", "a: True\n", "on: 1\n", "a: 2026-01-01\n", "a: 1:30\n", "a: 010\n",
        "a: 1\na: 2\n", "a: {b: 1, b: 2}\n", "a: &x 1\nb: *x\n", "a: !!str 1\n", "a: |\n  b\n", "a: b\n  c\n", "a: b: c\n",
        "a: 'b' c'\n", 'a: "\\n"\n', "a: 'it''s'\n", "a: é\n", "a:\tb\n", "a: b\r\n", "--- \na: 1\n", " a: 1\n", "a: [1\n",
        "a:\n    b: 1\n  c: 2\n", "a: 1\n- b\n", "<<: b\n", "a: [b: c]\n", "a: {b}\n", "a: [b] c\n",
    ],
)  # fmt: skip
def test_what_is_less_plain_is_left_to_the_library(text: str) -> None:
    assert plain_yaml(text.encode()) is None


def test_the_registry_of_kansas_and_what_kfm_writes_is_plain_enough() -> None:
    registry = [p for p in FILES if "registry" in p.parts or "demo-registry" in p.parts]
    plain = [p for p in registry if plain_yaml(p.read_bytes()) is not None]
    assert len(plain) >= len(registry) - 1
    assert plain_yaml((HERE / "src/kfm/template/kfm.yml").read_bytes()) is not None


def test_nesting_without_end_is_left_to_the_library() -> None:
    assert plain_yaml(b"a: " + b"[" * 5000) is None
    assert plain_yaml(b"\n".join(b" " * n + b"a:" for n in range(3000))) is None
