"""Value tests of a member's decisions: the state and the effects that follow from each event."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.assignment import CLUSTERED
from groups.zookeeper.membership import (
    AUDIT_MS,
    DEBOUNCE_MS,
    LEAST_BACKOFF_MS,
    MAX_CLAIMS_IN_VAIN,
    decide,
)
from groups.zookeeper.membership_state import (
    NEXT_PHASES,
    Membership,
    MembershipSettings,
    Phase,
)
from groups.zookeeper.registration import StaticSubscription
from protocol.topic_partition import TopicPartition

ME, OTHER = "g_a", "g_b"
SESSION = 0x77
BACKOFF_MS = 200
ALL = frozenset(TopicPartition("t", p) for p in range(4))
P0, P1, P2, P3 = sorted(ALL)


class Script:
    """A member driven by hand. `tell` returns the effects of one event."""

    def __init__(self, **settings: Any) -> None:
        self.now_ms = 0
        self.member = Membership(
            ME, MembershipSettings(rebalance_backoff_ms=BACKOFF_MS, **settings)
        )

    def tell(self, event: on.Event) -> list[do.Effect]:
        self.member, effects = decide(self.member, event, self.now_ms)
        self.member.check()
        return effects

    @property
    def round(self) -> int:
        return self.member.round

    def change(self, event: on.Event) -> list[do.Effect]:
        """Let a watch fire between rounds, and the burst of changes end."""
        (timer,) = self.tell(event)
        assert timer == self.debounce()
        return self.tell(on.ReadDue(self.round))

    def debounce(self) -> do.SetTimer:
        return do.SetTimer(on.ReadDue(self.round), self.now_ms + DEBOUNCE_MS, DEBOUNCE_MS)

    def audit(self) -> do.SetTimer:
        return do.SetTimer(on.Retry(self.round), self.now_ms + AUDIT_MS, AUDIT_MS // 10)

    def register(self) -> list[do.Effect]:
        assert self.tell(on.SessionEstablished(SESSION))[-1] == do.Register(SESSION)
        return self.tell(on.Registered(SESSION))

    def read_group(
        self, *members: str, streams: int = 1, partitions: int = 4, clustered: Sequence[str] = ()
    ) -> list[do.Effect]:
        """Give the member a reading of the group; each of `members` has `streams` of topic t."""
        snapshot = on.GroupSnapshot(
            {member: StaticSubscription({"t": streams}) for member in members},
            (),
            {"t": tuple(range(partitions))},
            strategies=dict.fromkeys(clustered, CLUSTERED),
        )
        return self.tell(on.GroupRead(self.round, snapshot))

    def read_owners(
        self, ours: Mapping[TopicPartition, str], foreign: Iterable[TopicPartition] = ()
    ) -> list[do.Effect]:
        owners = {p: on.Owner(thread, 0, SESSION) for p, thread in ours.items()}
        owners |= {p: on.Owner(f"{OTHER}-{p.partition}", 0, 0x99) for p in foreign}
        return self.tell(on.OwnersRead(self.round, owners))

    def settle_alone(self) -> None:
        """Let the member own all of t, alone in the group."""
        self.register()
        self.read_group(ME)
        self.read_owners({})
        self.tell(on.Claimed(self.round))
        self.tell(on.OffsetsFetched(self.round, dict.fromkeys(ALL, 5)))
        assert self.member.phase is Phase.SETTLED
        assert self.member.delivering.keys() == ALL


def kinds(effects: Iterable[do.Effect]) -> list[type[do.Effect]]:
    return [type(effect) for effect in effects]


def one(effects: Iterable[do.Effect], kind: type[Any]) -> Any:
    (only,) = [effect for effect in effects if isinstance(effect, kind)]
    return only


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
        do.NotifyStarting(script.round, dict.fromkeys(ALL, f"{ME}-0")),
        do.StartFetchers(
            {
                P0: (f"{ME}-0", 5),
                P1: (f"{ME}-0", None),
                P2: (f"{ME}-0", 7),
                P3: (f"{ME}-0", 0),
            }
        ),
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
    assert effects[:5] == [
        do.StopFetchers(leaving),
        do.CommitPositions(script.round, leaving),
        do.NotifyReleasing(script.round, ALL),
        do.ForgetPositions(leaving),
        do.ReleaseOwners(script.round, leaving),
    ]

    assert kinds(effects[5:]) == [do.NotifyStarting, do.SetTimer, do.Report]
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
    assert one(effects, do.StartFetchers).starts.keys() == {P0, P2, P3}
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


def test_a_closed_session_ends_the_member_and_its_streams() -> None:
    script = Script()
    script.settle_alone()
    abandon, fail, report = script.tell(on.SessionClosed())
    assert abandon == do.Abandon()
    assert isinstance(fail, do.FailDelivery)
    assert report == do.Report(fail.reason, do.FailureKind.SESSION_CLOSED)
    assert (script.member.phase, script.member.delivering) == (Phase.CLOSED, {})
    assert script.tell(on.SessionEstablished(SESSION + 1)) == []


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
    assert one(effects, do.StartFetchers).starts.keys() == {P0, P1, P2}
    script.tell(on.Retry(script.round))
    script.read_group(ME)
    effects = script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    assert one(effects, do.FetchOffsets).partitions == {P3}


def test_a_change_during_the_reading_begins_a_new_round() -> None:
    script = Script()
    script.register()
    script.tell(on.GroupChanged())
    old_round = script.round
    assert script.read_group(ME) == [script.debounce()]
    assert script.tell(on.ReadDue(script.round)) == [do.ReadGroup(old_round + 1)]


def test_a_change_during_the_claim_begins_a_round_when_this_one_has_ended() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    assert script.tell(on.GroupChanged()) == []
    script.tell(on.Claimed(script.round))
    effects = script.tell(on.OffsetsFetched(script.round, dict.fromkeys(ALL, 0)))
    assert effects[-1] == script.debounce()
    assert do.Report not in kinds(effects)


def test_results_of_an_older_round_are_ignored() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    before = script.member
    assert script.tell(on.Claimed(script.round - 1)) == []
    assert script.tell(on.ClaimFailed(script.round - 1)) == []
    assert script.tell(on.OffsetsFetched(script.round - 1, {P0: 7})) == []
    assert script.tell(on.ReadDue(script.round - 1)) == []
    assert script.tell(on.OwnersRead(script.round, {})) == []
    assert script.tell(on.RoundFailed(script.round - 1, "late")) == []
    assert script.tell(on.Retry(script.round - 1)) == []
    assert script.member == before


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


def test_a_malformed_neighbour_stops_the_rebalance_and_is_reported_once() -> None:
    script = Script()
    script.settle_alone()
    script.change(on.GroupChanged())
    problem = on.GroupProblem("remove /consumers/g/ids/g_x")
    timer, report = script.tell(on.GroupUnreadable(script.round, problem))
    assert report == do.Report(problem.text, do.FailureKind.UNREADABLE)
    assert timer.event == on.Retry(script.round)
    assert script.member.delivering.keys() == ALL
    script.tell(on.Retry(script.round))
    (timer,) = script.tell(on.GroupUnreadable(script.round, problem))
    assert timer.event == on.Retry(script.round)
    assert script.change(on.GroupChanged()) == [do.ReadGroup(script.round)]


def test_when_the_malformed_neighbour_is_gone_the_group_settles_and_a_new_one_is_reported() -> None:
    script = Script()
    script.register()
    problem = on.GroupProblem("remove /consumers/g/ids/g_x")
    script.tell(on.GroupUnreadable(script.round, problem))
    script.change(on.GroupChanged())
    script.read_group(ME)
    script.read_owners({})
    script.tell(on.Claimed(script.round))
    effects = script.tell(on.OffsetsFetched(script.round, dict.fromkeys(ALL, 5)))
    assert effects[-1] == do.Report()
    script.change(on.GroupChanged())
    effects = script.tell(on.GroupUnreadable(script.round, problem))
    assert do.Report(problem.text, do.FailureKind.UNREADABLE) in effects


def test_a_member_whose_strategy_is_not_the_groups_leaves_at_once() -> None:
    script = Script()
    script.register()
    leave, report = script.read_group(ME, OTHER, clustered=[OTHER])
    assert leave == do.LeaveGroup(frozenset())
    assert report.failure is do.FailureKind.STRATEGY
    assert "the member g_b: " in report.error
    assert "strategy=clustered, we have range" in report.error
    assert script.member.phase is Phase.CLOSED


def test_a_clustered_member_leaves_a_group_with_a_member_that_could_be_on_the_jvm() -> None:
    script = Script(partition_assignment_strategy=CLUSTERED)
    script.register()
    leave, report = script.read_group(ME, OTHER, clustered=[ME])
    assert leave == do.LeaveGroup(frozenset())
    assert report.failure is do.FailureKind.STRATEGY
    assert "the member g_b: " in report.error
    assert "JVM" in report.error


def test_a_member_with_another_strategy_that_comes_later_stops_our_claims_alone() -> None:
    script = Script()
    script.settle_alone()
    script.change(on.GroupChanged())
    effects = script.read_group(ME, OTHER, clustered=[OTHER])
    assert kinds(effects) == [do.SetTimer, do.Report]
    assert script.member.phase is Phase.BACKING_OFF
    script.tell(on.Retry(script.round))
    assert script.read_group(ME) == [do.ReadOwners(script.round, ALL)]


def test_a_burst_of_changes_is_read_once() -> None:
    script = Script()
    script.settle_alone()
    assert script.tell(on.GroupChanged()) == [script.debounce()]
    for event in (on.GroupChanged(), on.TopicsChanged(), on.BrokersChanged()):
        assert script.tell(event) == []
    assert script.tell(on.ReadDue(script.round)) == [do.ReadGroup(script.round)]
    script.read_group(ME)
    script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    assert script.member.phase is Phase.SETTLED


def test_a_settled_member_looks_now_and_then_whether_its_nodes_still_stand() -> None:
    script = Script()
    script.settle_alone()
    assert script.tell(on.Retry(script.round)) == [do.ReadGroup(script.round)]
    script.read_group(ME)
    effects = script.read_owners(dict.fromkeys([P0, P1, P2], f"{ME}-0"))
    assert one(effects, do.ClaimOwners).create.keys() == {P3}


def test_brokers_that_come_and_go_make_a_member_look_and_release_nothing() -> None:
    script = Script()
    script.settle_alone()
    done: list[do.Effect] = []
    for _ in range(5):
        done += script.change(on.BrokersChanged())
        done += script.read_group(ME)
        done += script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    counts = {kind: kinds(done).count(kind) for kind in kinds(done)}
    assert counts == {do.ReadGroup: 5, do.ReadOwners: 5, do.SetTimer: 5, do.Report: 5}


def test_expiry_drops_everything_at_once_and_commits_nothing() -> None:
    script = Script()
    script.settle_alone()
    assert script.tell(on.SessionLost()) == [do.Abandon()]
    assert script.member.delivering == {}
    assert script.tell(on.GroupChanged()) == []
    effects = script.tell(on.SessionEstablished(SESSION + 1))
    assert effects[-1] == do.Register(SESSION + 1)
    assert script.tell(on.Registered(SESSION)) == []
    assert script.tell(on.Registered(SESSION + 1)) == [do.ReadGroup(script.round)]


def test_change_during_a_round_ends_with_the_session() -> None:
    script = Script()
    script.register()
    script.tell(on.GroupChanged())
    assert script.member.has_changed
    script.tell(on.SessionLost())
    assert script.register() == [do.ReadGroup(script.round)]


def test_timers_of_a_session_that_has_ended_do_nothing_in_the_next() -> None:
    script = Script()
    script.settle_alone()
    audit = on.Retry(script.round)
    script.tell(on.SessionEstablished(SESSION + 1))
    assert script.tell(audit) == []


def test_a_claim_of_a_session_that_has_ended_counts_for_nothing() -> None:
    script = Script()
    script.register()
    script.read_group(ME)
    script.read_owners({})
    claiming_round = script.round
    script.tell(on.SessionLost())
    assert script.tell(on.Claimed(claiming_round)) == []
    assert script.member.held == frozenset()


def test_a_new_session_without_word_of_expiry_means_expiry() -> None:
    script = Script()
    script.settle_alone()
    effects = script.tell(on.SessionEstablished(SESSION + 1))
    assert effects == [do.Abandon(), do.ResumeDelivery(), do.Register(SESSION + 1)]


def test_delivery_pauses_two_thirds_into_a_silence_and_resumes_with_the_session() -> None:
    script = Script()
    script.settle_alone()
    silence = on.Suspended(since_ms=1000, session_timeout_ms=6000)
    assert script.tell(silence) == [do.SetTimer(on.LeaseEnded(1000), 5000)]
    assert script.tell(on.LeaseEnded(1000)) == [do.PauseDelivery()]
    effects = script.tell(on.SessionEstablished(SESSION))
    assert effects == [do.ResumeDelivery(), script.debounce()]


def test_a_short_silence_pauses_nothing() -> None:
    script = Script()
    script.settle_alone()
    script.tell(on.Suspended(since_ms=1000, session_timeout_ms=6000))
    script.tell(on.SessionEstablished(SESSION))
    assert script.tell(on.LeaseEnded(1000)) == []


def test_a_consumer_id_in_use_ends_a_member_that_has_not_joined() -> None:
    script = Script()
    script.tell(on.SessionEstablished(SESSION))
    effects = script.tell(on.RegistrationFailed(SESSION, "in use by 0x1", in_use=True))
    assert effects == [do.Report("in use by 0x1", do.FailureKind.ID_IN_USE)]
    assert script.tell(on.SessionEstablished(SESSION + 1)) == []


def test_a_member_that_had_joined_tries_to_register_again() -> None:
    script = Script()
    script.settle_alone()
    script.tell(on.SessionEstablished(SESSION + 1))
    effects = script.tell(on.RegistrationFailed(SESSION + 1, "in use", in_use=True))
    assert one(effects, do.SetTimer).event == on.Retry(script.round)
    assert script.tell(on.Retry(script.round)) == [do.Register(SESSION + 1)]


def test_a_member_whose_registration_was_deleted_registers_again_and_goes_on_delivering() -> None:
    script = Script()
    script.settle_alone()
    script.change(on.GroupChanged())
    assert script.read_group(OTHER) == [do.Register(SESSION)]
    assert script.member.delivering.keys() == ALL


def test_shutdown_stops_commits_and_leaves() -> None:
    script = Script()
    script.settle_alone()
    assert script.tell(on.Shutdown()) == [
        do.Interrupt(),
        do.StopFetchers(ALL),
        do.CommitPositions(script.round, ALL),
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
    assert do.CommitPositions not in kinds(script.tell(on.Shutdown()))


def test_a_deleted_topic_is_released() -> None:
    script = Script()
    script.settle_alone()
    script.change(on.TopicsChanged())
    script.read_group(ME, partitions=0)
    effects = script.read_owners(dict.fromkeys(ALL, f"{ME}-0"))
    assert one(effects, do.ReleaseOwners).partitions == ALL
    assert script.member.phase is Phase.SETTLED
    assert do.CommitPositions not in kinds(effects)  # it would outlive the topic


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
