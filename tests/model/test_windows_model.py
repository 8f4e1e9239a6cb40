"""Windows of a partition that are leased side by side, explored whole."""

import pytest

from tests.model.windows import MUTATIONS, explore


def test_every_state_of_leases_of_windows_holds() -> None:
    states, broken = explore()
    assert broken == []
    assert states > 100_000, "it went everywhere"


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_rule_of_it_is_needed(mutation: str) -> None:
    assert "invariant" in explore(mutation)[1][-1]
