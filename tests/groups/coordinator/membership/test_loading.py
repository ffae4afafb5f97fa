"""Groups whose coordinator changes: members, generation and assignments stay."""

import pytest

from groups.coordinator.membership.history import Cause
from groups.coordinator.membership.responses import Joined, Synced
from protocol.errors import ErrorCode
from tests.groups.coordinator.membership.desk import DELAY_MS, SESSION_MS, Desk

MOVED = ErrorCode.NOT_COORDINATOR


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def two(desk: Desk) -> list[Joined]:
    return desk.form({}, {}, assignments=[b"for 0", b"for 1"])


def test_members_go_on_in_their_generation(desk: Desk, two: list[Joined]) -> None:
    desk.move()
    assert desk.state == "Stable"
    assert [desk.beat(member) for member in two] == [ErrorCode.NONE] * 2
    assert [desk.sync(member).synced.assignment for member in two] == [b"for 0", b"for 1"]
    assert desk.commit(joined=two[0]).error is ErrorCode.NONE


def test_members_have_a_whole_session_to_find_the_new_coordinator(
    desk: Desk, two: list[Joined]
) -> None:
    desk.advance(SESSION_MS - 1)
    desk.move()
    desk.advance(SESSION_MS - 1)
    assert desk.beat(two[0]) is ErrorCode.NONE
    desk.advance(1)
    assert desk.beat(two[1]) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.beat(two[0]) is ErrorCode.REBALANCE_IN_PROGRESS


def test_parked_joins_end_with_the_coordinator(desk: Desk, two: list[Joined]) -> None:
    again, new = desk.join(two[0].member_id), desk.join_twice()
    desk.move()
    assert again.joined == Joined(MOVED, two[0].member_id)
    assert new.joined == Joined(MOVED, new.joined.member_id)
    assert (desk.state, desk.group.generation_id) == ("Stable", 1)


def test_parked_syncs_end_with_the_coordinator(desk: Desk) -> None:
    requests = [desk.join(version=3) for _ in range(2)]
    desk.advance(2 * DELAY_MS)
    sync = desk.sync(requests[1].joined)
    desk.move()
    assert sync.synced == Synced(MOVED)


def test_generation_that_was_not_assigned_is_lost_with_the_coordinator(
    desk: Desk, two: list[Joined]
) -> None:
    desk.holds = True
    again = [desk.join(member.member_id) for member in two]
    sync = desk.sync(again[0].joined, {})
    desk.move()
    assert sync.synced == Synced(MOVED)
    assert desk.beat(again[0].joined) is ErrorCode.ILLEGAL_GENERATION
    assert desk.beat(two[0]) is ErrorCode.NONE


def test_id_that_was_handed_out_is_unknown_to_the_next_coordinator(
    desk: Desk, two: list[Joined]
) -> None:
    member_id = desk.join().joined.member_id
    desk.move()
    assert desk.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_restart_that_was_not_written_is_lost_with_the_coordinator(desk: Desk) -> None:
    _, follower = desk.form({"instance": "l"}, {"instance": "f"})
    desk.holds = True
    request = desk.join(instance="f")
    desk.move()
    assert request.joined == Joined(MOVED, request.joined.member_id)
    assert desk.beat(follower, instance="f") is ErrorCode.NONE


def test_member_that_joins_again_with_more_assignors_counts_as_changed(
    desk: Desk, two: list[Joined]
) -> None:
    desk.move()
    request = desk.join(two[1].member_id, protocols=(("range", b""), ("sticky", b"")))
    assert (request.is_parked, desk.state) == (True, "PreparingRebalance")


def test_loaded_groups_are_noted(desk: Desk, two: list[Joined]) -> None:
    desk.published.clear()
    desk.move()
    (noted,) = desk.published
    assert noted.trigger.cause is Cause.COORDINATOR_LOADED
    assert (noted.generation_before, noted.generation_after) == (1, 1)
    assert [member.assignment for member in noted.after] == [b"for 0", b"for 1"]


def test_empty_groups_are_not_live(desk: Desk, two: list[Joined]) -> None:
    desk.advance(SESSION_MS)
    desk.move()
    assert desk.shard.live == {}
    assert desk.state == "Empty"


# ---- what a coordinator that is none any more tells of its groups


@pytest.mark.fault("groups-9")
@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, MOVED]
)
def test_sessions_that_end_at_a_coordinator_that_was_replaced_are_no_event(
    desk: Desk, two: list[Joined], error: ErrorCode
) -> None:
    """It stood still: its members are at the next coordinator, and it does not know yet."""
    desk.published.clear()
    desk.holds = True
    desk.advance(10 * SESSION_MS)
    assert desk.in_flight
    assert desk.published == []
    desk.fail(error)
    assert desk.published == []


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_sessions_that_end_are_an_event_of_the_coordinator_that_could_write(
    desk: Desk, two: list[Joined], error: ErrorCode
) -> None:
    desk.published.clear()
    desk.holds = True
    desk.advance(10 * SESSION_MS)
    desk.replicate(error)
    (event,) = desk.published
    assert (event.trigger.cause, len(event.before), event.after) == (Cause.SESSION_EXPIRED, 2, ())
