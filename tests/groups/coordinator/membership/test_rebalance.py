"""Rebalances: how long they wait, for whom, and what becomes of members that are late."""

import attrs
import pytest

from groups.coordinator.membership.events import Disconnected, Leaver, WaitEnded
from groups.coordinator.membership.join import NEW_MEMBER_TIMEOUT_MS
from groups.coordinator.membership.responses import Joined
from protocol.errors import ErrorCode
from tests.groups.coordinator.membership.desk import (
    CONFIG,
    DELAY_MS,
    GROUP_ID,
    REBALANCE_MS,
    SESSION_MS,
    Desk,
    subscribed_to,
)

CHANGED = subscribed_to("changed")


@pytest.fixture
def desk() -> Desk:
    return Desk()


# ---- the initial delay


def test_empty_group_waits_for_the_initial_delay(desk: Desk) -> None:
    request = desk.join(version=3)
    desk.advance(DELAY_MS - 1)
    assert request.is_parked
    desk.advance(1)
    assert request.joined.generation_id == 1


def test_member_that_comes_during_the_delay_prolongs_it_once(desk: Desk) -> None:
    first = desk.join(version=3)
    desk.advance(DELAY_MS - 1)
    second = desk.join(version=3)
    desk.advance(1)
    assert first.is_parked
    desk.advance(DELAY_MS)
    assert [first.joined.generation_id, second.joined.generation_id] == [1, 1]


def test_delay_is_never_longer_than_the_rebalance_timeout(desk: Desk) -> None:
    slow = Desk(attrs.evolve(CONFIG, initial_rebalance_delay_ms=3000, max_size=100))
    requests = [slow.join(version=3, session_ms=10_000, rebalance_ms=5000)]
    for _ in range(4):
        slow.advance(1000)
        requests.append(slow.join(version=3, session_ms=10_000, rebalance_ms=5000))
    slow.advance(999)
    assert all(request.is_parked for request in requests)
    slow.advance(1)
    assert {request.joined.generation_id for request in requests} == {1}


def test_group_that_was_left_waits_for_one_delay_and_no_more(desk: Desk) -> None:
    desk.form({})
    desk.advance(SESSION_MS)
    first = desk.join(version=3)
    desk.advance(DELAY_MS - 1)
    desk.join(version=3)
    desk.advance(1)
    assert first.joined.generation_id == 3


def test_no_delay_ends_with_the_next_turn_of_the_timers() -> None:
    desk = Desk(attrs.evolve(CONFIG, initial_rebalance_delay_ms=0))
    requests = [desk.join(version=3) for _ in range(3)]
    desk.advance(0)
    assert {request.joined.generation_id for request in requests} == {1}


def test_group_whose_first_members_are_gone_before_the_delay_ends_is_empty(desk: Desk) -> None:
    request = desk.join(version=3)
    (member_id,) = desk.group.members
    assert desk.leave(Leaver(member_id)) == [ErrorCode.NONE]
    assert request.joined == Joined(ErrorCode.UNKNOWN_MEMBER_ID)
    desk.advance(DELAY_MS)
    assert (desk.state, desk.shard.live) == ("Empty", {})


# ---- the rebalance timeout


def test_member_that_does_not_join_again_is_removed_at_the_timeout(desk: Desk) -> None:
    leader, follower = desk.form({"session_ms": 10_000}, {"session_ms": 10_000})
    request = desk.join(leader.member_id, session_ms=10_000)
    desk.advance(REBALANCE_MS - 1)
    assert request.is_parked
    assert desk.beat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    desk.advance(1)
    assert [member.member_id for member in request.joined.members] == [leader.member_id]
    assert desk.beat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_longest_timeout_of_all_members_counts(desk: Desk) -> None:
    options = {"session_ms": 10_000}
    leader, _ = desk.form(options, {"rebalance_ms": 2000, **options})
    request = desk.join(leader.member_id, session_ms=10_000)
    desk.advance(1999)
    assert request.is_parked
    desk.advance(1)
    assert request.joined.generation_id == 2


def test_leader_that_is_late_leaves_the_lead_to_another(desk: Desk) -> None:
    _, follower = desk.form({"session_ms": 10_000}, {"session_ms": 10_000})
    request = desk.join(follower.member_id, protocols=CHANGED, session_ms=10_000)
    desk.advance(REBALANCE_MS)
    assert request.joined.leader_id == follower.member_id


def test_new_member_is_parked_for_five_minutes_at_most(desk: Desk) -> None:
    long = NEW_MEMBER_TIMEOUT_MS * 2
    options = {"session_ms": 600_000, "rebalance_ms": long}
    (member,) = desk.form(options)
    new = desk.join(version=3, **options)
    assert desk.beat(member) is ErrorCode.REBALANCE_IN_PROGRESS
    desk.advance(NEW_MEMBER_TIMEOUT_MS)
    assert new.joined == Joined(ErrorCode.UNKNOWN_MEMBER_ID)
    assert list(desk.group.members) == [member.member_id]
    assert desk.beat(member) is ErrorCode.REBALANCE_IN_PROGRESS


def test_new_member_that_falls_silent_behind_its_response_has_a_usual_session(desk: Desk) -> None:
    (member,) = desk.form({"rebalance_ms": 60_000})
    new = desk.join(version=3, rebalance_ms=60_000)
    again = desk.join(member.member_id, rebalance_ms=60_000)
    assert (new.joined.generation_id, again.joined.generation_id) == (2, 2)
    for _ in range(3):
        desk.beat(again.joined)
        desk.advance(SESSION_MS // 2)
    assert list(desk.group.members) == [member.member_id]


# ---- the sync timeout


def test_members_that_never_sync_are_removed_though_they_are_alive(desk: Desk) -> None:
    requests = [desk.join(version=3) for _ in range(2)]
    desk.advance(2 * DELAY_MS)
    members = [request.joined for request in requests]
    for _ in range(2):
        desk.advance(REBALANCE_MS // 2 - 1)
        assert {desk.beat(member) for member in members} == {ErrorCode.NONE}
    desk.advance(2)
    assert {desk.beat(member) for member in members} == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert desk.state == "Empty"


def test_follower_that_never_syncs_makes_a_stable_group_rebalance(desk: Desk) -> None:
    leader, follower = (desk.join(version=3, session_ms=10_000) for _ in range(2))
    desk.advance(2 * DELAY_MS)
    desk.sync(leader.joined)
    assert desk.state == "Stable"
    desk.advance(REBALANCE_MS)
    assert desk.beat(leader.joined) is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.beat(follower.joined) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_never_syncs_is_removed_and_the_others_join_again(desk: Desk) -> None:
    leader, follower = (desk.join(version=3, session_ms=10_000) for _ in range(2))
    desk.advance(2 * DELAY_MS)
    sync = desk.sync(follower.joined)
    desk.advance(REBALANCE_MS)
    assert sync.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.beat(leader.joined) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.join(follower.joined.member_id).joined.leader_id == follower.joined.member_id


def test_nothing_happens_at_the_sync_timeout_if_all_have_synced(desk: Desk) -> None:
    members = desk.form({"session_ms": 10_000}, {"session_ms": 10_000})
    desk.advance(REBALANCE_MS * 2)
    assert {desk.beat(member) for member in members} == {ErrorCode.NONE}
    assert desk.state == "Stable"


# ---- sessions


def test_member_that_falls_silent_is_removed_and_the_others_rebalance(desk: Desk) -> None:
    leader, follower = desk.form({}, {})
    desk.advance(SESSION_MS - 1)
    assert desk.beat(leader) is ErrorCode.NONE
    desk.advance(1)
    assert desk.beat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.beat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_shows_that_a_member_is_alive(desk: Desk) -> None:
    (member,) = desk.form({})
    for _ in range(4):
        desk.advance(SESSION_MS - 1)
        assert desk.commit(joined=member).error is ErrorCode.NONE
    assert desk.state == "Stable"


def test_member_whose_join_is_parked_is_not_silent(desk: Desk) -> None:
    leader, follower = desk.form(
        {"rebalance_ms": 5000}, {"rebalance_ms": 5000, "session_ms": 10_000}
    )
    request = desk.join(leader.member_id, rebalance_ms=5000)
    desk.advance(SESSION_MS * 3)
    assert request.is_parked
    desk.join(follower.member_id, rebalance_ms=5000)
    assert len(request.joined.members) == 2


def test_member_whose_sync_is_parked_is_not_silent_and_has_a_whole_session_behind_it(
    desk: Desk,
) -> None:
    options = {"rebalance_ms": 5000}
    leader, follower = (desk.join(version=3, **options) for _ in range(2))
    desk.advance(2 * DELAY_MS)
    sync = desk.sync(follower.joined)
    for _ in range(4):
        desk.advance(SESSION_MS // 2)
        desk.beat(leader.joined)
    desk.sync(leader.joined)
    assert sync.error is ErrorCode.NONE
    desk.advance(SESSION_MS - 1)
    assert desk.beat(follower.joined) is ErrorCode.NONE


def test_member_whose_connection_goes_while_its_join_is_parked_is_silent_from_then_on(
    desk: Desk,
) -> None:
    options = {"rebalance_ms": 5000}
    leader, follower = desk.form(options, options | {"session_ms": 10_000})
    newcomer = desk.join(version=3, **options)
    parked = desk.join(leader.member_id, **options)
    desk.disconnect(leader.member_id, parked)
    desk.advance(SESSION_MS)

    # The generation has neither the dead leader nor its whole session ahead.
    others = desk.join(follower.member_id, **options)
    assert others.joined.leader_id == others.joined.member_id
    assert [member.member_id for member in others.joined.members] == [
        others.joined.member_id,
        newcomer.joined.member_id,
    ]


def test_member_that_has_another_connection_joins_again(desk: Desk) -> None:
    leader, follower = desk.form({"rebalance_ms": 5000}, {"rebalance_ms": 5000})
    former = desk.join(leader.member_id, rebalance_ms=5000)
    desk.disconnect(leader.member_id, former)
    again = desk.join(leader.member_id, rebalance_ms=5000)
    assert again.is_parked
    desk.join(follower.member_id, rebalance_ms=5000)
    assert len(again.joined.members) == 2


def test_connection_of_an_earlier_request_may_go(desk: Desk) -> None:
    leader, _ = desk.form({"rebalance_ms": 5000}, {"rebalance_ms": 5000, "session_ms": 10_000})
    former = desk.join(leader.member_id, rebalance_ms=5000)
    parked = desk.join(leader.member_id, rebalance_ms=5000)
    desk.take(Disconnected(former.request_id, GROUP_ID, leader.member_id))
    desk.take(Disconnected(former.request_id, GROUP_ID, "unknown"))
    desk.take(Disconnected(former.request_id, "unknown", leader.member_id))
    desk.advance(SESSION_MS * 2)
    assert parked.is_parked


def test_new_member_whose_connection_goes_is_not_waited_for(desk: Desk) -> None:
    member_id = desk.join().joined.member_id
    gone = desk.join(member_id)
    member = desk.join_twice()
    desk.disconnect(member_id, gone)
    desk.advance(2 * DELAY_MS)
    assert [m.member_id for m in member.joined.members] == [member.joined.member_id]


def test_member_whose_connection_goes_while_its_sync_is_parked_is_silent_from_then_on(
    desk: Desk,
) -> None:
    options = {"rebalance_ms": 5000}
    leader, follower = (desk.join(version=3, **options) for _ in range(2))
    desk.advance(2 * DELAY_MS)
    sync = desk.sync(follower.joined)
    desk.disconnect(follower.joined.member_id, sync)
    desk.advance(SESSION_MS - 1)
    assert desk.beat(leader.joined) is ErrorCode.NONE
    desk.advance(1)
    assert desk.beat(leader.joined) is ErrorCode.REBALANCE_IN_PROGRESS


# ---- the timer of a group

DAYS = {"rebalance_ms": 2**31 - 1, "session_ms": 10_000}


def waits(desk: Desk) -> list[WaitEnded]:
    return [event for event in desk.timers if isinstance(event, WaitEnded)]


def test_group_waits_for_one_thing_at_a_time(desk: Desk) -> None:
    (member,) = desk.form(DAYS)
    for _ in range(100):
        (member,) = desk.assign([desk.join(member.member_id, **DAYS).joined])
    assert member.generation_id == 101
    assert waits(desk) == [WaitEnded(GROUP_ID)]


@pytest.mark.parametrize("is_reset", [False, True])
def test_group_that_has_lost_its_members_waits_for_nothing(desk: Desk, is_reset: bool) -> None:
    first, second = desk.form(DAYS, DAYS)
    desk.leave(Leaver(first.member_id))
    desk.leave(Leaver(second.member_id, reason="kgroup reset 17" if is_reset else None))
    assert desk.state == "Empty"
    desk.advance(0)
    assert waits(desk) == []


def test_reset_during_the_initial_delay_leaves_no_part_of_it(desk: Desk) -> None:
    desk.join(version=3, rebalance_ms=2 * REBALANCE_MS)
    desk.advance(DELAY_MS - 10)
    (member_id,) = desk.group.members
    desk.leave(Leaver(member_id, reason="kgroup reset 17"), connection=7)
    desk.commit(5, connection=7)
    again = desk.join(version=3)
    desk.advance(DELAY_MS - 1)
    assert again.is_parked
    desk.advance(1)
    assert again.joined.generation_id == 2


def test_earlier_rebalance_does_not_shorten_the_initial_delay() -> None:
    desk = Desk(attrs.evolve(CONFIG, initial_rebalance_delay_ms=3000))
    options = {"session_ms": 100_000, "rebalance_ms": 10_000}
    (member,) = desk.form(options)
    desk.move()
    changed = desk.join(member.member_id, protocols=CHANGED, **options)
    desk.assign([changed.joined])
    desk.advance(8000)
    desk.leave(Leaver(member.member_id))
    first = desk.join(version=3, **options)
    desk.advance(2999)
    assert first.is_parked
    desk.advance(1)
    assert first.joined.generation_id == 4
