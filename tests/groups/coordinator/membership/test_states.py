"""The table of states: which may follow which."""

import itertools

import pytest

from groups.coordinator.membership.group import Group
from groups.coordinator.membership.state import NEXT_STATES, GroupState

EMPTY, PREPARING, COMPLETING, STABLE = GroupState
LEGAL = {
    (EMPTY, PREPARING),
    (PREPARING, COMPLETING),
    (PREPARING, EMPTY),
    (COMPLETING, STABLE),
    (COMPLETING, PREPARING),
    (STABLE, PREPARING),
}
"""As Kafka has them; Dead is no state here, because a group that is deleted is gone."""
PAIRS = sorted(itertools.product(GroupState, GroupState), key=str)


def test_every_state_has_a_row() -> None:
    assert NEXT_STATES.keys() == set(GroupState)


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair in LEGAL])
def test_state_that_follows_is_dated(before: GroupState, after: GroupState) -> None:
    group = Group("orders", before)
    group.move_to(after, 42)
    assert (group.state, group.state_since_ms) == (after, 42)


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair not in LEGAL])
def test_state_that_does_not_follow_is_refused(before: GroupState, after: GroupState) -> None:
    with pytest.raises(AssertionError, match="is not followed by"):
        Group("orders", before).move_to(after, 42)
