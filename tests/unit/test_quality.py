"""The quality gate says which columns are new."""

import pytest

from kfm.cli.run import tell
from kfm.judge.gates.quality import quality
from kfm.model.dataset import Column, DatasetEntry, Source
from kfm.model.transform import GONE
from kfm.model.verdict import Before, Evidence
from kfm.world.outcome import Outcome


def note(now: str, before: str | None) -> str:
    def columns(names: str) -> tuple[Column, ...]:
        return tuple(Column(name=n, type="string") for n in names.split())

    facts = None if before is None else Before(rows=2, schema=columns(before))
    entry = DatasetEntry(
        dataset_id="trees",
        title="Trees",
        source=Source(url="https://example.org/trees.csv", format="csv"),
    )
    return quality(
        Evidence(
            entry=entry,
            expected={},
            found={},
            schema=columns(now),
            books=GONE,
            rows=2,
            before=facts,
        )
    ).note


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        ("id kind", None, "2 rows"),
        ("id kind", "id kind", "2 rows, +0.0% against the last version"),
        ("id", "id kind", "2 rows, +0.0% against the last version"),
        (
            "id height kind age",
            "kind id",
            "2 rows, +0.0% against the last version; new columns: height, age",
        ),
        ("id kind", "", "2 rows, +0.0% against the last version"),
        (
            "id " + " ".join(f"c{n}" for n in range(14)),
            "id",
            f"2 rows, +0.0% against the last version; new columns: {', '.join(f'c{n}' for n in range(12))} and 2 more",
        ),
    ],
)
def test_columns_the_last_version_did_not_have_are_named_in_the_note(
    now: str, before: str | None, said: str
) -> None:
    assert note(now, before) == said


def test_a_run_that_published_new_columns_says_so_in_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = Outcome(
        dataset_id="trees", run_id="r", state="COMMITTED", version_id="v" * 64, generation=2, rows=2
    )
    tell(made, 0.5)
    assert "new columns" not in capsys.readouterr().out
    tell(
        Outcome(
            **{f: getattr(made, f) for f in made.__struct_fields__}
            | {"names": "new columns: height"}
        ),
        0.5,
    )
    assert "generation 2  2 rows, new columns: height  0.50 s" in capsys.readouterr().out
