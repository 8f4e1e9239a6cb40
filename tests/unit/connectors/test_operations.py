"""What can be asked of the child: each operation is one of the union, told by its kind, with its
own members alone.
"""

from typing import get_args

import msgspec
import pytest

from kfm.connectors.operations import (
    Acquire,
    Chain,
    Govern,
    Merge,
    Operation,
    Read,
    TransformJob,
    Twin,
    code_of,
)

COMMON = {"dataset_id": "d", "artifact": "d.parquet"}


def test_every_operation_can_be_asked_for_and_is_known_by_its_kind() -> None:
    operations = {*Operation.__subclasses__(), *Read.__subclasses__()}
    assert operations == set(get_args(TransformJob))
    assert len({o.__struct_config__.tag for o in operations}) == len(operations)


def test_an_operation_arrives_as_it_was_sent() -> None:
    steps = (Twin(**COMMON, format="csv", seed=3), Read(**COMMON, format="csv"), Govern(**COMMON))  # type: ignore[arg-type]
    for sent in (
        *steps,
        Chain(**COMMON, steps=steps),
        Acquire(**COMMON, format="json", connector="connector.py"),
    ):  # type: ignore[arg-type]
        assert msgspec.json.decode(msgspec.json.encode(sent), type=TransformJob) == sent


def test_a_member_of_another_operation_is_refused() -> None:
    told = msgspec.to_builtins(Merge(**COMMON))  # type: ignore[arg-type]
    assert told["kind"] == Merge(**COMMON).kind == "merge"  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError, match="seed"):
        msgspec.convert({**told, "seed": 3}, TransformJob)


def test_only_what_runs_connector_code_names_it() -> None:
    assert code_of(Read(**COMMON, format="csv", connector="c.py")) == "c.py"  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Merge(**COMMON, connector="c.py")  # type: ignore[arg-type,call-arg]
