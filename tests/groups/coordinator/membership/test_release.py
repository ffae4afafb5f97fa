"""Groups that are over: nothing is kept of them but their records."""

import pytest

from groups.coordinator.events import RetentionCheck
from groups.coordinator.listing import DEAD, describe, overviews
from groups.coordinator.membership.events import Leaver
from protocol.errors import ErrorCode
from tests.groups.coordinator.membership.desk import DELAY_MS, GROUP_ID, SESSION_MS, Desk

EXPIRE = RetentionCheck([GROUP_ID], retention_ms=0)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def leave_for_good(desk: Desk) -> None:
    """Form a group, and let its member leave; the record that says so is in flight."""
    (member,) = desk.form({})
    desk.holds = True
    desk.leave(Leaver(member.member_id))


def is_gone(desk: Desk) -> bool:
    is_dead = describe(desk.shard, GROUP_ID).state == DEAD
    return is_dead and not list(overviews(desk.shard)) and not desk.shard.live


def test_group_that_is_deleted_while_its_last_record_is_in_flight_is_gone(desk: Desk) -> None:
    leave_for_good(desk)
    request = desk.delete()
    desk.replicate()
    assert request.error is ErrorCode.NONE
    assert is_gone(desk)
    assert desk.delete().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_group_whose_last_record_is_written_in_spite_of_an_error_is_released(desk: Desk) -> None:
    leave_for_good(desk)
    desk.replicate(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert (desk.shard.live, desk.state) == ({}, "Empty")


def test_group_whose_last_record_is_not_written_is_kept_empty_until_it_is_deleted(
    desk: Desk,
) -> None:
    leave_for_good(desk)
    desk.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    desk.holds = False
    assert desk.shard.groups.has_members(GROUP_ID)
    assert (list(desk.shard.live), desk.state) == ([GROUP_ID], "Empty")
    assert desk.delete().error is ErrorCode.NONE
    assert is_gone(desk)


def test_group_that_expires_is_gone_though_its_last_record_was_not_written(desk: Desk) -> None:
    leave_for_good(desk)
    desk.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    desk.holds = False
    desk.take(EXPIRE)
    assert is_gone(desk)


def test_group_that_never_had_a_record_is_gone_when_its_first_is_not_written(desk: Desk) -> None:
    request = desk.join(version=3)
    desk.advance(DELAY_MS)
    desk.holds = True
    desk.leave(Leaver(request.joined.member_id))
    desk.fail(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert is_gone(desk)


def test_group_that_is_deleted_while_its_first_record_is_in_flight_is_gone(desk: Desk) -> None:
    request = desk.join(version=3)
    desk.advance(DELAY_MS)
    desk.holds = True
    desk.leave(Leaver(request.joined.member_id))
    deleted = desk.delete()
    desk.replicate()
    assert deleted.error is ErrorCode.NONE
    assert is_gone(desk)


@pytest.mark.parametrize("has_record", [False, True])
def test_group_that_only_handed_out_ids_can_be_deleted(desk: Desk, has_record: bool) -> None:
    if has_record:
        (member,) = desk.form({})
        desk.leave(Leaver(member.member_id))
    member_id = desk.join().joined.member_id
    assert desk.delete().error is ErrorCode.NONE
    assert is_gone(desk)
    assert desk.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    desk.advance(SESSION_MS)
    assert desk.timers == {}
