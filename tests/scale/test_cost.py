"""Costs that grow faster than what is worked on are told from others."""

import pytest

from tests.scale.cost import FREE, Cost, complaints

LARGE = 10 * FREE["calls"]


def test_cost_that_grows_with_the_size_is_no_complaint() -> None:
    assert complaints({100: Cost(calls=LARGE), 1_000: Cost(calls=12 * LARGE)}) == []


def test_cost_that_grows_with_the_square_is_named_with_its_figures() -> None:
    (complaint,) = complaints({100: Cost(requests=100), 1_000: Cost(requests=10_000)})

    assert complaint == "requests: 100 for 100, 10000 for 1000: 100.0 times as much"


@pytest.mark.parametrize("figure", FREE)
def test_cost_below_what_a_cluster_does_by_itself_is_no_complaint(figure: str) -> None:
    small, large = Cost(**{figure: 1}), Cost(**{figure: FREE[figure]})

    assert complaints({100: small, 1_000: large}) == []


def test_turn_above_its_bound_is_a_complaint_though_it_does_not_grow() -> None:
    costs = {100: Cost(turn=60_000), 1_000: Cost(turn=60_000)}

    assert complaints(costs, turn_bound=50_000) == [
        "turn: 60000 calls for 100, at most 50000 are allowed",
        "turn: 60000 calls for 1000, at most 50000 are allowed",
    ]
