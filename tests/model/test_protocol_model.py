"""The protocol with staged parts keeps every invariant in every reachable state, and every rule is
there because something breaks without it.
"""

import pytest

from tests.given.verbs import each
from tests.model.checker import SCENARIOS, WITNESS, explore
from tests.model.protocol import FIXES, MUTATIONS, Model


@pytest.mark.parametrize(
    "scenario", each(SCENARIOS, "a bad input", "a-b-a, faults", "erasure", "erasure, rollback")
)
def test_every_invariant_holds_in_every_reachable_state(scenario: str) -> None:
    found = explore(Model(set(FIXES), SCENARIOS[scenario]))
    assert found["bad"] is None, f"{found['bad']}\n" + "\n".join(found["trace"])
    assert found["rest"] > 0, "the scenario never comes to rest"


@pytest.mark.parametrize("fix", FIXES)
def test_without_a_rule_an_invariant_breaks(fix: str) -> None:
    assert explore(Model(set(FIXES) - {fix}, WITNESS[fix]))["bad"] is not None


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_seeded_mistake_breaks_an_invariant(mutation: str) -> None:
    assert explore(Model(set(FIXES) | {mutation}, WITNESS[mutation]))["bad"] is not None
