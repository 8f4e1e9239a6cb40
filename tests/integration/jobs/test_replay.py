"""quarantine.replay: what people decided about what was set aside is brought in by a worker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kfm.testing import Upstream
from tests.given.verbs import Said, receipt, tree, worked

Kfm = Callable[..., Said]
REPLAY, TREES = "quarantine.replay", "trees"
ROWS = b"tree_id,height\n" + b"".join(
    b"T%d,%s\n" % (n, b"tall" if n == 3 else b"%d.5" % n) for n in range(1, 11)
)


@pytest.fixture
def up(ws: Path) -> Iterator[Upstream]:
    with Upstream() as found:
        found.files["/trees.csv"] = ROWS
        (ws / "data" / "registry" / f"{TREES}.yml").write_text(
            f"dataset_id: {TREES}\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\n"
            f"policy_label: public\nsource: {{url: '{found.url}/trees.csv', format: csv}}\n"
            "business_key: [tree_id]\nmax_quarantined: 0.5\n"
            "schema: [{name: tree_id, type: string}, {name: height, type: number}]\n"
        )
        yield found


def _made(path: Path) -> int:
    return path.stat().st_mtime_ns


@pytest.fixture
def aside(kfm: Kfm, ws: Path, up: Upstream) -> str:
    """The run that set a row aside, which somebody has corrected since."""
    found: str = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    done = kfm("quarantine", "fix", found, "--row", "1", "--set", "height=3.5", "--reason", "seen")
    assert done.code == 0
    return found


@pytest.mark.job(REPLAY)
def test_happy_what_was_corrected_is_official_and_upstream_is_not_asked(
    kfm: Kfm, ws: Path, up: Upstream, aside: str
) -> None:
    up.files.clear()
    result = worked(ws, REPLAY, TREES, run_id=aside)
    assert (result.status, result.exit_code) == ("succeeded", 0), result
    assert receipt(ws, result)["dataset_id"] == TREES
    official = max((ws / "data" / "processed" / TREES).glob("v*/*.parquet"), key=_made)
    assert pq.read_table(official).num_rows == 10


@pytest.mark.job(REPLAY)
def test_retry_finds_it_official_and_writes_no_other_version(
    ws: Path, up: Upstream, aside: str
) -> None:
    worked(ws, REPLAY, TREES, run_id=aside)
    before = tree(ws / "data" / "processed")
    again = worked(ws, REPLAY, TREES, run_id=aside)
    assert (again.status, again.reason) == ("skipped", "what was decided is official already")
    assert tree(ws / "data" / "processed") == before


@pytest.mark.job(REPLAY)
def test_deny_a_licence_that_was_taken_away_keeps_it_out(
    ws: Path, up: Upstream, aside: str
) -> None:
    entry = ws / "data" / "registry" / f"{TREES}.yml"
    entry.write_text(entry.read_text().replace("CC0-1.0", "NOASSERTION"))
    result = worked(ws, REPLAY, TREES, run_id=aside)
    assert (result.status, result.exit_code, result.retry) == ("failed", 3, False)


def test_nothing_that_is_undecided_or_of_another_dataset_is_worked(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    run: str = kfm("run", TREES, "--json").json["runs"][0]["run_id"]
    result = worked(ws, REPLAY, TREES, run_id=run)
    assert result.status == "failed" and "decided" in result.error
    other = worked(ws, REPLAY, "ks_earthquakes", run_id=run)
    assert other.status == "failed" and "has no run" in other.error
