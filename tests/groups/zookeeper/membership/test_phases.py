"""The phases of a member, and what a round costs in which nothing is new."""

from typing import Any

import pytest

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.membership_state import NEXT_PHASES, Membership, Phase
from groups.zookeeper.registration import StaticSubscription
from tests.groups.zookeeper.membership.script import ALL, ME, Script


def test_every_phase_has_its_legal_moves_and_only_closed_has_none() -> None:
    assert NEXT_PHASES.keys() == set(Phase)
    for phase, following in NEXT_PHASES.items():
        ends = {Phase.OFFLINE, Phase.CLOSED}
        assert following & ends == (set() if phase is Phase.CLOSED else ends)
    assert set().union(*NEXT_PHASES.values()) == set(Phase)


def test_a_move_that_is_not_legal_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match="OFFLINE to SETTLED"):
        Membership(ME).enter(Phase.SETTLED)


class Counted(StaticSubscription):
    """A subscription that counts how often its topics are computed."""

    looks = 0

    def streams_of(self, all_topics: tuple[str, ...], exclude_internal_topics: bool) -> Any:
        Counted.looks += 1
        return super().streams_of(all_topics, exclude_internal_topics)


@pytest.mark.parametrize("members", [50, 200, 1000])
def test_a_round_in_which_nothing_is_new_works_nothing_out_again(members: int) -> None:
    script = Script()
    script.register()
    subscriptions = {ME: Counted({"t": 1})} | {
        f"g_other{i}": Counted({f"u{i}": 1}) for i in range(members - 1)
    }
    snapshot = on.GroupSnapshot(subscriptions, (), {"t": (0, 1, 2, 3)})
    script.tell(on.GroupRead(script.round, snapshot))
    script.read_owners({})
    script.tell(on.Claimed(script.round))
    script.tell(on.OffsetsFetched(script.round, dict.fromkeys(ALL, 5)))
    Counted.looks = 0
    assignment = script.member.assignment
    for _ in range(10):
        script.tell(on.Retry(script.round))
        script.tell(on.GroupRead(script.round, snapshot))
        assert script.read_owners(dict.fromkeys(ALL, f"{ME}-0")) == [script.audit(), do.Report()]

    assert Counted.looks == 0
    assert script.member.assignment is assignment
