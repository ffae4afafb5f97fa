"""What clients send that they should not: the group stays as it is, and memory comes back."""

import pytest

from groups.coordinator.listing import describe
from groups.coordinator.membership.events import Leaver
from groups.coordinator.membership.responses import Joined
from groups.coordinator.subscriptions import CONSUMER, topics_of
from protocol.errors import ErrorCode
from tests.groups.coordinator.membership.desk import (
    DELAY_MS,
    GROUP_ID,
    SESSION_MS,
    Desk,
    subscribed_to,
)

LONGEST_GROUP_ID = "g" * 32_767
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
NO_SUBSCRIPTION = (("range", b"\xff"),)


@pytest.fixture
def desk() -> Desk:
    return Desk()


# ---- clients that vanish


def test_clients_that_ask_for_an_id_and_vanish_leave_nothing_behind(desk: Desk) -> None:
    for _ in range(10_000):
        assert desk.join().error is ErrorCode.MEMBER_ID_REQUIRED
        # Some ids are outstanding at any time.
        desk.advance(SESSION_MS // 20)

    desk.advance(SESSION_MS)

    assert (desk.shard.live, desk.timers) == ({}, {})


def test_members_that_join_and_vanish_leave_nothing_behind(desk: Desk) -> None:
    for _ in range(10_000):
        request = desk.join(version=3)
        desk.advance(DELAY_MS)
        assert request.error is ErrorCode.NONE
        desk.advance(SESSION_MS)

    desk.advance(SESSION_MS)

    assert (desk.shard.live, desk.timers) == ({}, {})


def test_members_that_vanish_from_a_group_that_goes_on_leave_nothing_behind(desk: Desk) -> None:
    (leader,) = desk.form({"session_ms": 600_000})
    for _ in range(300):
        joining = desk.join(version=3)
        leader = desk.join(leader.member_id, session_ms=600_000).joined
        desk.assign([leader, joining.joined])
        desk.advance(SESSION_MS)
        leader = desk.join(leader.member_id, session_ms=600_000).joined
        desk.assign([leader])

    desk.advance(SESSION_MS)

    assert desk.group.members.keys() == {leader.member_id}
    assert len(desk.timers) == 1, "the session of the one that is left"
    assert desk.group.metadata_bytes == len(leader.members[0].metadata)


# ---- ids


def test_id_of_another_group_is_unknown_in_every_request(desk: Desk) -> None:
    other = _form_another(desk)
    desk.form({})

    assert desk.join(other.member_id).error is UNKNOWN
    assert desk.sync(other).error is UNKNOWN
    assert desk.beat(other) is UNKNOWN
    assert desk.commit(joined=other).error is UNKNOWN
    assert desk.leave(Leaver(other.member_id)) == [UNKNOWN]
    assert desk.beat(other, group_id="payments") is ErrorCode.NONE


def test_instance_of_another_group_is_unknown_here(desk: Desk) -> None:
    other = _form_another(desk, instance="i")
    desk.form({})

    assert desk.beat(other, instance="i") is UNKNOWN
    assert desk.leave(Leaver("", "i")) == [UNKNOWN]


def _form_another(desk: Desk, *, instance: str | None = None) -> Joined:
    """Form another group, of one member."""
    joining = desk.join(version=3, group_id="payments", instance=instance)
    desk.advance(DELAY_MS)
    joined = joining.joined
    assert desk.sync(joined, group_id="payments", instance=instance).error is ErrorCode.NONE
    return joined


def test_longest_group_id_there_is_lives_and_moves(desk: Desk) -> None:
    joining = desk.join(version=3, group_id=LONGEST_GROUP_ID)
    desk.advance(DELAY_MS)
    joined = joining.joined
    synced = desk.sync(joined, {joined.member_id: b"all"}, group_id=LONGEST_GROUP_ID)
    assert synced.synced.assignment == b"all"

    desk.move()

    assert desk.beat(joined, group_id=LONGEST_GROUP_ID) is ErrorCode.NONE


# ---- bytes


def test_assignments_for_members_that_are_none_are_not_kept(desk: Desk) -> None:
    joining = desk.join(version=3)
    desk.advance(DELAY_MS)
    joined = joining.joined

    desk.sync(joined, {joined.member_id: b"mine", "nobody": b"theirs"})

    (member,) = desk.record.members
    assert (member.member_id, member.assignment) == (joined.member_id, b"mine")


def test_metadata_that_is_no_subscription_is_passed_on_and_shown_as_it_is(desk: Desk) -> None:
    (joined,) = desk.form({"protocols": NO_SUBSCRIPTION}, assignments=[b"\x00"])

    assert joined.members[0].metadata == b"\xff"
    (member,) = describe(desk.shard, GROUP_ID).members
    assert (member.metadata, member.assignment) == (b"\xff", b"\x00")
    assert topics_of(CONSUMER, desk.group.subscriptions) is None


def test_metadata_that_is_no_subscription_joins_those_that_are(desk: Desk) -> None:
    desk.form({"protocols": subscribed_to("t")}, {"protocols": NO_SUBSCRIPTION})
    desk.move()

    assert desk.state == "Stable"
    assert topics_of(CONSUMER, desk.group.subscriptions) is None


def test_sync_of_somebody_who_only_was_given_an_id_is_refused(desk: Desk) -> None:
    desk.form({})
    given = desk.join().joined
    assert desk.sync(Joined(member_id=given.member_id, generation_id=1)).error is UNKNOWN
    assert desk.beat(Joined(member_id=given.member_id, generation_id=1)) is UNKNOWN
