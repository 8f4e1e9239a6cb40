"""Runs a transform over a few bytes and reads back what it left."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.given.tables import Made, columns

from kfm.connectors.base import InputFile
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read


@pytest.fixture
def job_of(tmp_path: Path) -> Callable[..., Read]:
    """Writes the inputs and makes a job."""

    def make(
        format: str, *contents: bytes | str, schema: dict[str, str] | None = None, **options: Any
    ) -> Read:
        inputs = []
        for i, content in enumerate(contents):
            path = tmp_path / f"input-{i}"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            inputs.append(InputFile(source_id=f"s{i}", path=str(path), digest="sha256:0"))
        options = {"max_quarantined": 1.0} | options
        return Read(
            dataset_id="ks_test",
            format=format,
            inputs=tuple(inputs),
            schema=columns(**schema or {}),
            artifact="ks_test.parquet",
            **options,
        )

    return make


@pytest.fixture
def made(tmp_path: Path, job_of: Callable[..., Read]) -> Callable[..., Made]:
    """Runs a transform inline, each time in a new scratch folder."""
    count = [0]

    def run(format: str, *contents: bytes | str, **options: Any) -> Made:
        count[0] += 1
        scratch = tmp_path / f"scratch-{count[0]}"
        scratch.mkdir()
        made = Made(run_inline(job_of(format, *contents, **options), scratch), scratch)
        assert made.result.books.balanced
        assert len(made.rows) == made.result.books.written
        assert len(made.rejects) == made.result.books.quarantined
        assert sorted(p.name for p in scratch.iterdir()) == sorted(
            n for n in ("ks_test.parquet", made.result.quarantine) if n
        )
        return made

    return run


@pytest.fixture
def refused(made: Callable[..., Made]) -> Callable[..., Any]:
    """Runs a transform that must be refused; the error."""
    from kfm.connectors.base import CaptureRefused

    def run(format: str, *contents: bytes | str, **options: Any) -> CaptureRefused:
        with pytest.raises(CaptureRefused) as caught:
            made(format, *contents, **options)
        assert caught.value.happened
        assert caught.value.expected
        assert caught.value.remedy
        return caught.value

    return run
