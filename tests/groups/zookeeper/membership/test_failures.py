"""What a member decides when effects fail, or succeed unseen."""

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.membership import LEAST_BACKOFF_MS
from groups.zookeeper.membership_state import Membership, MembershipSettings, Phase
from tests.groups.zookeeper.membership.script import (
    ALL,
    ME,
    OTHER,
    P0,
    P1,
    P2,
    P3,
    Script,
    kinds,
    one,
)


def test_a_claim_that_succeeded_unseen_is_found_in_the_tree_and_delivered() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    script.tell(on.RoundFailed(script.round, "ConnectionLoss"))
    script.tell(on.Retry(script.round))
    script.read_group(ME)
    effects = script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    assert kinds(effects) == [do.NotifyReleasing, do.FetchOffsets]
    assert script.member.held == ALL


def test_a_claim_that_succeeded_unseen_and_is_no_longer_wanted_is_released() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    script.tell(on.RoundFailed(script.round, "ConnectionLoss"))
    script.tell(on.Retry(script.round))
    (read,) = script.read_group(ME, OTHER)
    assert read == do.ReadOwners(script.round, ALL)
    effects = script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    assert one(effects, do.ReleaseOwners).partitions == {P2, P3}


def test_a_release_that_failed_is_found_out_and_made_up_for() -> None:
    script = Script()
    script.settle_alone()
    script.change(on.GroupChanged())
    script.read_group(ME, OTHER)
    script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    assert script.member.phase is Phase.SETTLED
    effects = script.tell(on.RoundFailed(script.round, "ReleaseOwners: ConnectionLoss"))
    assert one(effects, do.SetTimer).event == on.Retry(script.round)
    script.tell(on.Retry(script.round))
    (read,) = script.read_group(ME, OTHER)
    assert read == do.ReadOwners(script.round, ALL)
    effects = script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    assert one(effects, do.ReleaseOwners).partitions == {P2, P3}


def test_a_partition_whose_node_was_deleted_by_hand_is_stopped_uncommitted_and_claimed_again() -> (
    None
):
    script = Script()
    script.settle_alone()
    script.change(on.GroupChanged())
    script.read_group(ME)
    effects = script.read_owners(dict.fromkeys([P0, P1, P2], f"{ME}-0"))
    assert effects[:2] == [
        do.StopFetchers(frozenset({P3})),
        do.ForgetPositions(frozenset({P3})),
    ]
    assert do.CommitPositions not in kinds(effects)
    assert one(effects, do.ClaimOwners).create == {P3: f"{ME}-0"}


def test_an_offset_that_cannot_be_read_holds_up_its_partition_alone() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    script.tell(on.Claimed(script.round))
    effects = script.tell(
        on.OffsetsFetched(script.round, dict.fromkeys([P0, P1, P2], 1), {P3: "not a number"})
    )
    assert one(effects, do.StartFetchers).partitions == {P0, P1, P2}
    script.tell(on.Retry(script.round))
    script.read_group(ME)
    effects = script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    assert one(effects, do.FetchOffsets).partitions == {P3}


def test_a_member_that_cannot_settle_tries_for_ever_and_says_so_after_each_max_retries() -> None:
    script = Script(rebalance_max_retries=2)
    script.register()
    reports: list[do.Report] = []
    for _ in range(4):
        script.read_group(ME)
        effects = script.read_owners(
            dict.fromkeys(script.member.delivering, f"{ME}-0"), foreign=ALL
        )
        reports += [effect for effect in effects if isinstance(effect, do.Report)]
        assert one(effects, do.SetTimer).event == on.Retry(script.round)
        assert script.tell(on.Retry(script.round)) == [do.ReadGroup(script.round)]
    assert [report.failure for report in reports] == [do.FailureKind.RETRIES] * 2
    assert "can't rebalance after 4 retries" in (reports[1].error or "")
    assert "owned by g_b: t-0, t-1, t-2, t-3" in (reports[1].error or "")


def test_who_tries_for_ever_pauses_between_two_tries_whatever_the_settings_say() -> None:
    script = Script()
    script.member = Membership(ME, MembershipSettings(rebalance_backoff_ms=0))
    script.register()
    script.read_group(ME)
    timer = one(script.read_owners({}, foreign=ALL), do.SetTimer)
    assert timer.at_ms >= LEAST_BACKOFF_MS


def test_rounds_that_a_watch_begins_are_no_tries() -> None:
    script = Script(rebalance_max_retries=2)
    script.register()
    for _ in range(9):
        script.read_group(ME)
        effects = script.read_owners({}, foreign=ALL)
        assert do.Report not in kinds(effects)
        script.change(on.OwnerChanged())
