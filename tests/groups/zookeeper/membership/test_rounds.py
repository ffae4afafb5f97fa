"""Rounds of a member: what is read, released, claimed and delivered, in which order."""

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.membership import MAX_CLAIMS_IN_VAIN
from groups.zookeeper.membership_state import Phase
from protocol.topic_partition import TopicPartition
from tests.groups.zookeeper.membership.script import (
    ALL,
    BACKOFF_MS,
    ME,
    OTHER,
    P0,
    P1,
    P2,
    P3,
    SESSION,
    Script,
    kinds,
    one,
)


def test_a_lone_member_registers_reads_claims_fetches_offsets_and_starts() -> None:
    script = Script()
    assert script.tell(on.SessionEstablished(SESSION)) == [
        do.Abandon(),
        do.ResumeDelivery(),
        do.Register(SESSION),
    ]

    (read_group,) = script.tell(on.Registered(SESSION))
    assert read_group == do.ReadGroup(script.round)
    assert script.read_group(ME) == [do.ReadOwners(script.round, ALL)]
    assert script.read_owners({}) == [
        do.NotifyReleasing(script.round, frozenset()),
        do.ClaimOwners(script.round, dict.fromkeys(ALL, f"{ME}-0"), {}),
    ]
    assert script.tell(on.Claimed(script.round)) == [do.FetchOffsets(script.round, ALL)]
    assert script.tell(on.OffsetsFetched(script.round, {P0: 5, P1: None, P2: 7, P3: 0})) == [
        do.OpenFeeds(
            {
                P0: (f"{ME}-0", 5),
                P1: (f"{ME}-0", None),
                P2: (f"{ME}-0", 7),
                P3: (f"{ME}-0", 0),
            }
        ),
        do.NotifyStarting(script.round, dict.fromkeys(ALL, f"{ME}-0")),
        do.NotifyAssigned(script.round, ALL),
        do.StartFetchers(ALL),
        script.audit(),
        do.Report(),
    ]

    assert script.member.phase is Phase.SETTLED


def test_when_a_peer_joins_only_what_leaves_is_stopped_committed_and_released_in_that_order() -> (
    None
):
    script = Script()
    script.settle_alone()
    script.change(on.GroupChanged())
    script.read_group(ME, OTHER)
    effects = script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    leaving = frozenset({P2, P3})
    assert effects[:6] == [
        do.StopFetchers(leaving),
        do.CommitPositions(script.round, leaving),
        do.NotifyRevoked(script.round, leaving),
        do.NotifyReleasing(script.round, ALL),
        do.ForgetPositions(leaving),
        do.ReleaseOwners(script.round, leaving),
    ]

    assert kinds(effects[6:]) == [do.NotifyStarting, do.SetTimer, do.Report]
    assert script.member.delivering.keys() == {P0, P1}


def test_without_auto_commit_a_rebalance_commits_nothing() -> None:
    script = Script(auto_commit_enable=False)
    script.settle_alone()
    script.change(on.GroupChanged())
    script.read_group(ME, OTHER)
    assert do.CommitPositions not in kinds(script.read_owners(dict.fromkeys(ALL, f"{ME}-0")))


def test_a_round_that_changes_nothing_touches_nothing() -> None:
    script = Script()
    script.settle_alone()
    script.change(on.TopicsChanged())
    script.read_group(ME)
    assert script.read_owners(dict.fromkeys(ALL, f"{ME}-0")) == [script.audit(), do.Report()]


def test_what_another_member_still_holds_is_watched_and_the_rest_is_consumed() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    claim = one(script.read_owners({}, foreign=[P1]), do.ClaimOwners)
    assert claim.create.keys() == {P0, P2, P3}
    script.tell(on.Claimed(script.round))
    effects = script.tell(on.OffsetsFetched(script.round, dict.fromkeys([P0, P2, P3], 0)))
    assert one(effects, do.StartFetchers).partitions == {P0, P2, P3}
    assert effects[-2:] == [
        do.WatchOwners(script.round, frozenset({P1})),
        do.SetTimer(on.Retry(script.round), BACKOFF_MS, BACKOFF_MS // 10),
    ]
    assert script.change(on.OwnerChanged()) == [do.ReadGroup(script.round)]


def test_a_node_of_our_own_earlier_session_is_not_ours() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    earlier = {P0: on.Owner(f"{ME}-0", 0, SESSION - 1)}
    effects = script.tell(on.OwnersRead(script.round, earlier))
    assert one(effects, do.ClaimOwners).create.keys() == {P1, P2, P3}
    assert script.member.blocked == {P0: ME}


def test_after_a_lost_race_the_owners_are_read_again_and_what_is_left_is_claimed() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    assert script.tell(on.ClaimFailed(script.round)) == [do.ReadOwners(script.round, ALL)]
    (again,) = script.read_owners({P0: f"{ME}-0"}, foreign=[P2])
    assert again == do.ClaimOwners(script.round, dict.fromkeys([P1, P3], f"{ME}-0"), {})
    assert script.member.blocked == {P2: OTHER}
    effects = script.tell(on.Claimed(script.round))
    assert one(effects, do.FetchOffsets).partitions == {P0, P1, P3}


def test_a_claim_that_fails_again_and_again_though_nothing_changes_is_given_a_pause() -> None:
    script = Script(rebalance_max_retries=1)
    script.register()
    script.read_group(ME)
    for _ in range(MAX_CLAIMS_IN_VAIN):
        assert do.ClaimOwners in kinds(script.read_owners({}))
        script.tell(on.ClaimFailed(script.round))

    timer, report = script.read_owners({})
    assert timer == do.SetTimer(on.Retry(script.round), BACKOFF_MS, BACKOFF_MS // 10)
    assert isinstance(report, do.Report)
    assert report.error == (
        "can't rebalance after 1 retries: claimed in vain, though free: t-0, t-1, t-2, t-3"
    )

    script.tell(on.Retry(script.round))
    script.read_group(ME)
    assert do.ClaimOwners in kinds(script.read_owners({}))


def test_a_claim_that_fails_because_others_are_faster_is_never_given_a_pause() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    for turn in range(2 * MAX_CLAIMS_IN_VAIN):
        foreign = [P0, P1][: 1 + turn % 2]
        assert do.ClaimOwners in kinds(script.read_owners({}, foreign=foreign))
        script.tell(on.ClaimFailed(script.round))


def test_of_each_member_in_our_way_one_owner_node_is_watched() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    owners = {
        p: on.Owner(thread, 0, 0x99)
        for p, thread in {P0: "g_b-0", P1: "g_b-1", P2: "g_c-0", P3: "g_c-0"}.items()
    }
    effects = script.tell(on.OwnersRead(script.round, owners))
    watched = one(effects, do.WatchOwners).partitions
    assert {script.member.blocked[p] for p in watched} == {"g_b", "g_c"}
    assert len(watched) == 2


def test_a_partition_that_moves_between_our_threads_keeps_its_position() -> None:
    script = Script()
    script.register()
    script.read_group(ME, streams=2)
    script.read_owners({})
    script.tell(on.Claimed(script.round))
    script.tell(on.OffsetsFetched(script.round, dict.fromkeys(ALL, 0)))
    script.change(on.TopicsChanged())
    script.read_group(ME, streams=2, partitions=8)
    ours = {P0: f"{ME}-0", P1: f"{ME}-0", P2: f"{ME}-1", P3: f"{ME}-1"}
    claim = one(script.read_owners(ours), do.ClaimOwners)
    assert claim.move == {P2: (f"{ME}-0", 0), P3: (f"{ME}-0", 0)}
    assert claim.create.keys() == {TopicPartition("t", p) for p in range(4, 8)}

    effects = script.tell(on.Claimed(script.round))
    assert effects[0] == do.MoveFetchers({P2: f"{ME}-0", P3: f"{ME}-0"})
    assert one(effects, do.FetchOffsets).partitions == claim.create.keys()
