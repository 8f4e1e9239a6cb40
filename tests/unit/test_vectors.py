"""The identities equal the golden vectors, which other languages read too, and no identity is
without vectors.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.model import canonical, ids
from kfm.model.errors import UsageError

FILE = Path(__file__).resolve().parents[2] / "vectors" / "identities.json"
VECTORS: dict[str, list[dict[str, Any]]] = canonical.loads(FILE.read_bytes())


def cases() -> Iterator[Any]:
    for name, rows in VECTORS.items():
        for number, row in enumerate(rows):
            yield pytest.param(name, row, id=f"{name}-{number}")


def call(name: str, row: dict[str, Any]) -> Any:
    args = (
        row["args"]
        if "args" in row
        else {key: canonical.loads(text.encode()) for key, text in row["args_json"].items()}
    )
    if name == "digest":
        args = {"data": args["data"].encode()}
    return getattr(ids, name)(**args)


@pytest.mark.parametrize(("name", "row"), list(cases()))
def test_the_identity_equals_its_vector(name: str, row: dict[str, Any]) -> None:
    if row.get("refused"):
        with pytest.raises(UsageError):
            call(name, row)
    elif "matches" in row:
        assert re.fullmatch(row["matches"], call(name, row))
    else:
        assert call(name, row) == row["expect"]


def test_every_public_function_has_vectors() -> None:
    members = inspect.getmembers(ids, inspect.isfunction)
    public = {
        name
        for name, function in members
        if function.__module__ == ids.__name__ and not name.startswith("_")
    }
    assert public == set(VECTORS)


@pytest.mark.parametrize("name", VECTORS)
def test_every_case_says_what_it_expects(name: str) -> None:
    for row in VECTORS[name]:
        assert len({"args", "args_json"} & row.keys()) == 1
        assert len({"expect", "refused", "matches"} & row.keys()) == 1
        assert row.keys() <= {"args", "args_json", "expect", "refused", "matches", "note"}


def test_the_wal_id_vectors_keep_the_order_of_the_signature() -> None:
    """The definition is an array in that order, and another language can only learn the order from
    here.
    """
    assert list(VECTORS["wal_id"][0]["args"]) == list(inspect.signature(ids.wal_id).parameters)


def test_different_runs_have_different_keys() -> None:
    distinct = {
        (row["args"]["source_url"], row["args"]["etag"] or "", row["args"]["window"] or "")
        for row in VECTORS["run_key"]
    }
    assert len({row["expect"] for row in VECTORS["run_key"]}) == len(distinct)


def test_the_file_is_plain_ascii() -> None:
    assert FILE.read_bytes().isascii()
