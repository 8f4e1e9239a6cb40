"""The updater, called in this process, on a sample upstream."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.given.verbs import Said

from kfm.cli.updater import main
from kfm.samples.upstream import SampleUpstream


@pytest.fixture
def updater(
    ws: Path,
    sample: SampleUpstream,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Said]:
    monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
    monkeypatch.setenv("KFM_FETCH_ATTEMPTS", "2")

    def call(file: Path, *args: str) -> Said:
        capsys.readouterr()
        code = main(["run", "--config", str(file), "--json", *args])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call
