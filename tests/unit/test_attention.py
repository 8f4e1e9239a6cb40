"""What needs a person is told as people say it."""

import pytest

from kfm.upkeep.attention import _pool
from kfm.upkeep.pools import Pool


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(61, "1 min"), (127, "2 min"), (7_200, "2 h"), (90_000, "25 h"), (260_000, "3 days")],
)
def test_how_long_a_job_waits_is_told_in_the_unit_that_people_use(seconds: int, told: str) -> None:
    pool = Pool(name="p", slots=1, running=0, queued=1, later=0, wait_ms=1000 * seconds, paused="")
    assert _pool(pool, alive=True).why.startswith(f"1 job waits for {told};")
