"""What whole runs share: an upstream that serves what it is given, workers, and sites that must not
be found.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfm.extras.search import embed
from kfm.testing import Upstream
from tests.given.processes import end_what_was_started
from tests.given.sites import SITES, body, register, sites
from tests.given.verbs import Kfm
from tests.given.workers import Workers


@pytest.fixture(autouse=True)
def _nothing_is_left_running() -> Iterator[None]:
    yield
    end_what_was_started()


@pytest.fixture
def up() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture
def workers(tmp_path: Path, ws: Path) -> Iterator[Workers]:
    found = Workers(tmp_path, ws)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def released(kfm: Kfm, ws: Path, up: Upstream) -> bytes:
    """500 sites, official by cell; returns the capture's plain bytes."""
    raw = body(sites())
    up.files[f"/{SITES}.geojson"] = raw
    up.headers[f"/{SITES}.geojson"] = {"ETag": f'"{hashlib.md5(raw).hexdigest()}"'}
    register(ws, up)
    assert kfm("run", SITES).code == 0
    return raw


@pytest.fixture
def without_vectors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    embed.embedder.cache_clear()
    monkeypatch.setattr(embed, "_WEIGHTS", "weights/not-there")
    yield
    embed.embedder.cache_clear()
