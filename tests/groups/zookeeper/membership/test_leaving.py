"""A member that leaves its group, for good or until it can read offsets."""

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.membership_state import Phase
from tests.groups.zookeeper.membership.script import (
    ALL,
    ME,
    OTHER,
    P0,
    P1,
    SESSION,
    Script,
    kinds,
    one,
)


def test_shutdown_stops_commits_and_leaves() -> None:
    script = Script()
    script.settle_alone()
    assert script.tell(on.Shutdown()) == [
        do.Interrupt(),
        do.StopFetchers(ALL),
        do.CommitPositions(script.round, ALL),
        do.NotifyRevoked(script.round, ALL),
        do.ForgetPositions(ALL),
        do.LeaveGroup(ALL),
    ]
    assert script.tell(on.GroupChanged()) == []


def test_shutdown_during_a_claim_leaves_what_the_claim_may_have_got() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    assert script.tell(on.Shutdown())[-1] == do.LeaveGroup(ALL)


def test_shutdown_without_zookeeper_commits_nothing_that_may_be_anothers() -> None:
    script = Script()
    script.settle_alone()
    script.tell(on.Suspended(0, 6000))
    script.tell(on.LeaseEnded(0))
    effects = script.tell(on.Shutdown())
    assert do.CommitPositions not in kinds(effects)
    assert do.NotifyRevoked not in kinds(effects)
    assert do.NotifyLost(ALL) in effects


def test_a_deleted_topic_is_released() -> None:
    script = Script()
    script.settle_alone()
    script.change(on.TopicsChanged())
    script.read_group(ME, partitions=0)
    effects = script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    assert one(effects, do.ReleaseOwners).partitions == ALL
    assert script.member.phase is Phase.SETTLED
    assert do.CommitPositions not in kinds(effects)  # it would outlive the topic


def no_offset(script: Script) -> list[do.Effect]:
    """Play a round in which no offset can be read."""
    script.tell(on.Claimed(script.round))
    failed = dict.fromkeys(script.member.target, "no coordinator")
    return script.tell(on.OffsetsFetched(script.round, {}, failed))


def test_a_member_that_reads_no_offset_while_others_are_there_leaves_until_it_reads_one() -> None:
    script = Script(rebalance_max_retries=3)
    script.register()
    for _ in range(2):
        script.read_group(ME, OTHER)
        script.read_owners({})
        assert kinds(no_offset(script))[-1] is do.SetTimer
        script.tell(on.Retry(script.round))
    script.read_group(ME, OTHER)
    script.read_owners({})
    leave, timer, report = no_offset(script)[-3:]
    assert leave == do.LeaveGroup(frozenset({P0, P1}))
    assert report.error.startswith("out of the group until an offset can be read: offset of t-0: ")

    assert script.tell(on.GroupChanged()) == []
    for trouble in (
        on.OffsetsFetched(script.round, {}, {P0: "no coordinator"}),
        on.RoundFailed(script.round, "it was not to be"),
    ):
        assert script.tell(timer.event) == [do.FetchOffsets(script.round, frozenset({P0, P1}))]
        assert script.tell(trouble) == [timer]
    script.tell(timer.event)
    assert script.tell(on.OffsetsFetched(script.round, {P0: 7})) == [do.Register(SESSION)]
    assert script.tell(on.Registered(SESSION)) == [do.ReadGroup(script.round)]


def test_a_member_that_reads_no_offset_stays_where_nobody_else_could_consume() -> None:
    script = Script(rebalance_max_retries=1)
    script.register()
    for _ in range(5):
        script.read_group(ME)
        script.read_owners({})
        assert do.LeaveGroup not in kinds(no_offset(script))
        script.tell(on.Retry(script.round))


def test_a_member_that_consumes_something_stays_though_other_offsets_cannot_be_read() -> None:
    script = Script(rebalance_max_retries=1)
    script.register()
    script.read_group(ME, OTHER)
    script.read_owners({})
    script.tell(on.Claimed(script.round))
    effects = script.tell(on.OffsetsFetched(script.round, {P0: 5}, {P1: "no coordinator"}))
    assert do.LeaveGroup not in kinds(effects)
    assert script.member.delivering.keys() == {P0}
