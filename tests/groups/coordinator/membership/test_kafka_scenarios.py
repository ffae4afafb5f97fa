"""Scenarios of Kafka's GroupCoordinatorTest that the other modules do not have.

`tests/group_scenarios.md` says where each of Kafka's is tried.
"""

import pytest

from groups.coordinator.membership.events import (
    Leaver,
    SessionExpired,
    WaitEnded,
)
from groups.coordinator.membership.responses import Joined, Synced
from protocol.errors import ErrorCode
from tests.groups.coordinator.membership.desk import (
    DELAY_MS,
    GROUP_ID,
    REBALANCE_MS,
    SESSION_MS,
    Desk,
)

FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
STATIC = {"session_ms": 20 * REBALANCE_MS}
CHANGED = (("roundrobin", b"topic"), ("range", b""))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def static(desk: Desk) -> list[Joined]:
    """A stable group of two static members, the first of which leads."""
    return desk.form({"instance": "l", **STATIC}, {"instance": "f", **STATIC})


# ---- static members


def test_duplicate_of_a_follower_that_syncs_ends_alone_in_the_lead(desk: Desk) -> None:
    # staticMemberFenceDuplicateSyncingFollowerAfterMemberIdChanged
    desk.join(instance="l")
    follower = desk.join(instance="f")
    desk.advance(2 * DELAY_MS)
    sync = desk.sync(follower.joined, instance="f")

    duplicate = desk.join(instance="f", **STATIC)
    assert sync.synced == Synced(FENCED)
    assert (duplicate.is_parked, desk.state) == (True, "PreparingRebalance")

    # The leader neither syncs nor joins again, and its session ends.
    desk.advance(REBALANCE_MS)
    assert duplicate.joined.leader_id == duplicate.joined.member_id
    assert duplicate.joined.generation_id == 2
    assert [member.group_instance_id for member in duplicate.joined.members] == ["f"]


def test_former_follower_that_joins_again_after_its_duplicate_is_fenced(
    desk: Desk, static: list[Joined]
) -> None:
    # staticMemberFenceDuplicateRejoiningFollowerAfterMemberIdChanged
    desk.join(static[0].member_id, instance="l")
    duplicate = desk.join(instance="f", **STATIC)
    assert duplicate.joined.generation_id == 2
    assert desk.join(static[1].member_id, instance="f").error is FENCED


def test_static_follower_that_asks_again_unchanged_gets_its_generation(
    desk: Desk, static: list[Joined]
) -> None:
    # staticMemberRejoinAsFollowerWithKnownMemberIdAndNoProtocolChange
    again = desk.join(static[1].member_id, instance="f", **STATIC)
    assert (again.joined.generation_id, desk.state) == (1, "Stable")


def test_static_leader_that_joins_again_makes_the_group_rebalance(
    desk: Desk, static: list[Joined]
) -> None:
    # staticMemberRejoinWithLeaderIdAndKnownMemberId
    again = desk.join(static[0].member_id, instance="l", **STATIC)
    assert (again.is_parked, desk.state) == (True, "PreparingRebalance")
    desk.advance(REBALANCE_MS)
    assert (again.joined.generation_id, again.joined.leader_id) == (2, static[0].member_id)
    assert len(again.joined.members) == 2, "the follower is away, and keeps its place"


def test_static_follower_with_another_protocol_takes_the_lead_of_one_that_is_away(
    desk: Desk, static: list[Joined]
) -> None:
    # staticMemberRejoinWithFollowerIdAndChangeOfProtocol
    request = desk.join(static[1].member_id, instance="f", protocols=CHANGED, **STATIC)
    assert desk.state == "PreparingRebalance"
    desk.advance(REBALANCE_MS)
    assert (request.joined.leader_id, len(request.joined.members)) == (static[1].member_id, 2)


def test_leader_that_was_replaced_syncs_with_the_id_that_it_was_shown_and_is_unknown(
    desk: Desk, static: list[Joined]
) -> None:
    # staticMemberRejoinWithLeaderIdAndUnknownMemberId
    restarted = desk.join(instance="l", **STATIC).joined
    assert (restarted.leader_id, restarted.generation_id) == (static[0].member_id, 1)
    assert not restarted.members
    assert desk.join(static[0].member_id, instance="l").error is FENCED
    assert desk.sync(static[0], instance="l").error is FENCED
    assert desk.sync(restarted, member_id=restarted.leader_id).error is UNKNOWN


def test_static_member_cannot_join_with_an_id_before_its_instance_is_known(desk: Desk) -> None:
    # staticMemberJoinWithUnknownInstanceIdAndKnownMemberId
    (dynamic,) = desk.form({})
    assert desk.join(dynamic.member_id, instance="unknown").error is UNKNOWN


# ---- joining


def test_refusals_name_no_protocol(desk: Desk) -> None:
    # testJoinGroupProtocolTypeIsNotProvidedWhenAnErrorOccurs
    refused = desk.join("nobody")
    assert refused.joined == Joined(UNKNOWN, "nobody")
    assert (refused.joined.protocol_type, refused.joined.protocol_name) == (None, None)


def test_member_that_was_given_an_id_joins_as_the_third(desk: Desk) -> None:
    # testJoinGroupCompletionWhenPendingMemberJoins
    first, second = desk.form({}, {})
    given = desk.join().joined
    joins = [desk.join(first.member_id), desk.join(second.member_id)]
    assert [join.is_parked for join in joins] == [True, True]

    desk.join(given.member_id)

    assert len(joins[0].joined.members) == 3


def test_session_that_ends_during_a_rebalance_completes_it_with_the_newcomer(desk: Desk) -> None:
    # testSessionTimeoutDuringRebalance
    desk.form({"rebalance_ms": 10 * SESSION_MS})
    newcomer = desk.join(version=3)
    desk.advance(SESSION_MS)
    assert newcomer.joined.leader_id == newcomer.joined.member_id
    assert newcomer.joined.generation_id == 2


# ---- heartbeats and sessions


def test_heartbeat_while_the_leader_assigns_is_as_usual(desk: Desk) -> None:
    # testHeartbeatRebalanceInProgress
    joining = desk.join(version=3)
    desk.advance(DELAY_MS)
    assert desk.state == "CompletingRebalance"
    assert desk.beat(joining.joined) is ErrorCode.NONE


def test_heartbeat_of_another_generation_is_refused(desk: Desk) -> None:
    # testHeartbeatIllegalGeneration
    (joined,) = desk.form({})
    for generation_id in (-1, 0, 2):
        error = desk.beat(joined, generation_id=generation_id)
        assert error is ErrorCode.ILLEGAL_GENERATION


def test_heartbeats_of_groups_that_are_empty_or_unknown_know_no_member(desk: Desk) -> None:
    # testHeartbeatUnknownGroup, testHeartbeatEmptyGroup
    (joined,) = desk.form({})
    assert desk.beat(joined, group_id="unknown") is UNKNOWN
    desk.leave(Leaver(joined.member_id))
    assert desk.state == "Empty"
    assert desk.beat(joined) is UNKNOWN


def test_heartbeats_keep_a_member(desk: Desk) -> None:
    # testHeartbeatMaintainsSession
    (joined,) = desk.form({})
    for _ in range(4):
        desk.advance(SESSION_MS * 3 // 4)
        assert desk.beat(joined) is ErrorCode.NONE


def test_leader_that_dies_before_it_has_synced_sends_its_followers_back(desk: Desk) -> None:
    # testLeaderFailureInSyncGroup
    leader, follower = desk.join(version=3), desk.join(version=3)
    desk.advance(2 * DELAY_MS)
    assert leader.joined.leader_id == leader.joined.member_id
    sync = desk.sync(follower.joined)
    desk.advance(SESSION_MS)
    assert sync.synced == Synced(ErrorCode.REBALANCE_IN_PROGRESS)


def test_timers_of_what_is_gone_change_nothing(desk: Desk) -> None:
    # testCompleteHeartbeatWithGroupDead, testCompleteHeartbeatWithMemberAlreadyRemoved
    desk.form({})
    stale = [
        SessionExpired(GROUP_ID, "removed"),
        SessionExpired("gone", "removed"),
        WaitEnded(GROUP_ID),
        WaitEnded("gone"),
    ]
    timers = dict(desk.timers)
    for event in stale:
        desk.take(event)
    assert (desk.state, desk.timers) == ("Stable", timers)


# ---- commits


def test_commit_while_the_leader_assigns_is_put_off(desk: Desk) -> None:
    # testCommitOffsetInCompletingRebalance
    joining = desk.join(version=3)
    desk.advance(DELAY_MS)
    assert desk.commit(joined=joining.joined).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"member_id": "nobody"}, UNKNOWN),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance": "nobody's"}, UNKNOWN),
    ],
)
def test_commit_of_somebody_else_or_of_another_generation_is_refused(
    desk: Desk, options: dict[str, object], error: ErrorCode
) -> None:
    # testCommitOffsetFromUnknownMemberId, testCommitOffsetFromIllegalGeneration
    (joined,) = desk.form({})
    assert desk.commit(joined=joined, **options).error is error  # type: ignore[arg-type]


def test_last_member_goes_and_offsets_can_be_set_from_outside(desk: Desk) -> None:
    # testCommitOffsetsAfterGroupIsEmpty
    (joined,) = desk.form({})
    desk.leave(Leaver(joined.member_id))
    assert desk.commit().error is ErrorCode.NONE
    assert desk.commit(joined=joined).error is not ErrorCode.NONE


# ---- leaving


def test_client_that_was_given_an_id_leaves_in_a_batch_with_an_unknown_one(desk: Desk) -> None:
    # testPendingMemberBatchLeaveGroup
    desk.form({})
    given = desk.join().joined
    assert desk.leave(Leaver("unknown"), Leaver(given.member_id)) == [UNKNOWN, ErrorCode.NONE]


def test_batch_that_leaves_an_unknown_group_knows_none_of_them(desk: Desk) -> None:
    # testStaticMembersUnknownGroupBatchLeaveGroup
    assert desk.leave(Leaver("", "l"), Leaver("", "f")) == [UNKNOWN, UNKNOWN]


# ---- many at once


def test_group_takes_a_random_sequence_and_then_a_good_one(desk: Desk) -> None:
    # GroupCoordinatorConcurrencyTest.testConcurrentRandomSequence
    members = desk.form({}, {}, {})
    for number in range(300):
        member = members[number % 3]
        deed = number * 7 % 5
        if deed == 0:
            desk.join(member.member_id)
        elif deed == 1:
            desk.sync(member)
        elif deed == 2:
            desk.beat(member)
        elif deed == 3:
            desk.commit(joined=member)
        else:
            desk.leave(Leaver(member.member_id))
            members[number % 3] = desk.join(version=3).response or member
        desk.advance(number % 40)

    desk.advance(20 * REBALANCE_MS)
    assert desk.state in ("Empty", "Dead")
    desk.form({}, {})
    assert desk.state == "Stable"
