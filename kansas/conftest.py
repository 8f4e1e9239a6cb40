"""Tests of the Kansas connectors share one process that children are forked from."""

from collections.abc import Iterator

import pytest

from kfm.connectors.child.process import kept_warm


@pytest.fixture(scope="session", autouse=True)
def forked_children() -> Iterator[None]:
    with kept_warm():
        yield
