"""SyncGroup: assignments are written before anybody gets them."""

import pytest

from groups.coordinator.membership.history import Cause
from groups.coordinator.membership.responses import Joined, Synced
from groups.coordinator.membership.sync import MAX_OVERSIZED
from protocol.errors import ErrorCode
from tests.groups.coordinator.membership.desk import DELAY_MS, GROUP_ID, RANGE, Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def two(desk: Desk) -> list[Joined]:
    """A leader and a follower that have joined generation 1."""
    requests = [desk.join(version=3) for _ in range(2)]
    desk.advance(2 * DELAY_MS)
    return [request.joined for request in requests]


def assignments(members: list[Joined]) -> dict[str, bytes]:
    return {member.member_id: b"for %d" % at for at, member in enumerate(members)}


def test_everyone_gets_what_the_leader_has_assigned(desk: Desk, two: list[Joined]) -> None:
    leader, follower = two
    early = desk.sync(follower)
    assert early.is_parked
    assert desk.sync(leader, assignments(two)).synced == Synced(
        ErrorCode.NONE, "consumer", "range", b"for 0"
    )
    assert early.synced.assignment == b"for 1"
    assert desk.state == "Stable"


def test_follower_that_comes_late_gets_the_same(desk: Desk, two: list[Joined]) -> None:
    leader, follower = two
    desk.sync(leader, assignments(two))
    assert desk.sync(follower).synced.assignment == b"for 1"


def test_record_is_written_before_the_responses(desk: Desk, two: list[Joined]) -> None:
    desk.holds = True
    leader = desk.sync(two[0], assignments(two))
    assert (leader.is_parked, desk.state) == (True, "CompletingRebalance")
    (append,) = desk.in_flight
    ((key, record),) = append.records
    assert key.group == GROUP_ID
    assert [member.assignment for member in record.members] == [b"for 0", b"for 1"]
    desk.replicate()
    assert leader.error is ErrorCode.NONE


def test_member_that_the_leader_leaves_out_gets_no_bytes(desk: Desk, two: list[Joined]) -> None:
    early = desk.sync(two[1])
    desk.sync(two[0], {two[0].member_id: b"all", "nobody": b"lost"})
    assert early.synced == Synced(ErrorCode.NONE, "consumer", "range", b"")


@pytest.mark.parametrize(
    ("error", "response"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_all_join_again_when_the_record_is_not_written(
    desk: Desk, two: list[Joined], error: ErrorCode, response: ErrorCode
) -> None:
    desk.holds = True
    syncs = [desk.sync(two[1]), desk.sync(two[0], assignments(two))]
    desk.fail(error)
    assert [sync.synced for sync in syncs] == [Synced(response)] * 2
    assert desk.state == "PreparingRebalance"


def test_assignment_of_a_generation_that_has_ended_reaches_nobody(
    desk: Desk, two: list[Joined]
) -> None:
    desk.holds = True
    leader = desk.sync(two[0], assignments(two))
    desk.join(two[1].member_id, protocols=(("range", b"changed"),))
    assert leader.error is ErrorCode.REBALANCE_IN_PROGRESS
    again = desk.join(two[0].member_id)
    desk.replicate()
    assert (desk.state, again.joined.generation_id) == ("CompletingRebalance", 2)
    sync = desk.sync(again.joined, {})
    desk.replicate()
    assert sync.synced.assignment == b""


def test_leader_that_syncs_again_ends_its_former_request(desk: Desk, two: list[Joined]) -> None:
    desk.holds = True
    former = desk.sync(two[0], assignments(two))
    again = desk.sync(two[0], {two[0].member_id: b"other"})
    assert former.error is ErrorCode.REBALANCE_IN_PROGRESS
    desk.replicate()
    assert again.synced.assignment == b"for 0"
    assert desk.record.members[0].assignment == b"other"


# ---- refusals


def test_sync_of_an_unknown_group_or_member_is_refused(desk: Desk) -> None:
    stranger = Joined(member_id="m", generation_id=1)
    assert desk.sync(stranger).error is ErrorCode.UNKNOWN_MEMBER_ID
    desk.form({})
    assert desk.sync(stranger).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_of_another_generation_is_refused(desk: Desk, two: list[Joined]) -> None:
    assert desk.sync(two[0], generation_id=2).error is ErrorCode.ILLEGAL_GENERATION


def test_sync_while_members_join_again_is_refused(desk: Desk, two: list[Joined]) -> None:
    desk.assign(two)
    desk.join(two[0].member_id)
    assert desk.sync(two[1]).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "error"),
    [
        ("consumer", "range", ErrorCode.NONE),
        (None, None, ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_protocol_that_the_client_names_must_be_the_groups(
    desk: Desk,
    two: list[Joined],
    protocol_type: str | None,
    protocol_name: str | None,
    error: ErrorCode,
) -> None:
    sync = desk.sync(two[0], protocol_type=protocol_type, protocol_name=protocol_name)
    assert sync.error is error


# ---- records that are too large


def test_leader_whose_records_are_too_large_is_removed_after_some(
    desk: Desk, two: list[Joined]
) -> None:
    desk.holds = True
    leader, follower = two
    for attempt in range(MAX_OVERSIZED):
        sync = desk.sync(leader, assignments([leader]))
        desk.fail(ErrorCode.MESSAGE_TOO_LARGE)
        assert sync.error is ErrorCode.UNKNOWN_SERVER_ERROR
        if attempt < MAX_OVERSIZED - 1:
            again = [desk.join(member.member_id, protocols=RANGE) for member in (leader, follower)]
            leader, follower = (request.joined for request in again)
            assert leader.generation_id == attempt + 2

    assert desk.beat(leader) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.beat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    trigger = desk.group.history.trigger
    assert trigger is not None
    assert (trigger.cause, trigger.member_id) == (Cause.MEMBER_KICKED, leader.member_id)
    assert "max.message.bytes of __consumer_offsets" in (trigger.reason or "")


def test_record_that_fits_again_begins_the_count_anew(desk: Desk, two: list[Joined]) -> None:
    desk.holds = True
    desk.sync(two[0])
    desk.fail(ErrorCode.MESSAGE_TOO_LARGE)
    assert desk.group.oversized == 1
    again = [desk.join(member.member_id) for member in two]
    desk.sync(again[0].joined)
    desk.replicate()
    assert desk.group.oversized == 0
