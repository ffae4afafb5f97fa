"""Verdicts: what a group's events mean."""

from typing import Any

import pytest

from clients.watching.rebalance_verdict import judge

NOW_MS = 1_700_000_000_000


def events(*triggers: str, client_id: str | None = "m3", **fields: Any) -> list[dict[str, Any]]:
    """Events a minute apart, of a second each."""
    return [
        {
            "trigger": trigger,
            "client_id": client_id,
            "member_id": None if client_id is None else f"{client_id}-1",
            "members_kept": [],
            "reason": None,
            "started_ms": NOW_MS + at * 60_000,
            "ended_ms": NOW_MS + at * 60_000 + 1000,
            **fields,
        }
        for at, trigger in enumerate(triggers)
    ]


def test_nothing_is_said_of_a_group_without_events() -> None:
    assert judge([]) is None


def test_group_that_did_not_rebalance_is_said_to_have_rested() -> None:
    quiet = events("coordinator_loaded", client_id=None)
    quiet += events("static_member_replaced", "static_member_replaced")
    assert judge(quiet) == (
        "no rebalance: member m3 restarted 2 times within session.timeout.ms and kept its "
        "partitions (group.instance.id); the coordinator changed or restarted 1 time, and the "
        "members went on as they were"
    )


@pytest.mark.fault("users-31")
def test_a_return_is_counted_as_such() -> None:
    some = events("member_joined", "member_kicked", "member_joined", reason="maintenance")
    assert judge(some) == (
        "3 rebalances in 2 min, 1 of them member kicked and 1 return after it by member m3: an "
        "administrator, or a limit of the broker, removed it: maintenance"
    )


def test_member_that_works_too_long_is_named_with_its_times() -> None:
    reason = (
        "consumer poll timeout has expired. It worked on one message for 412000 ms, "
        "max.poll.interval.ms is 300000."
    )
    assert judge(events(*["poll_interval_exceeded"] * 7, reason=reason)) == (
        "7 rebalances in 6 min, all by member m3: it handled one message for 412 s, "
        "max.poll.interval.ms is 300 s"
    )


def test_setting_is_named_where_the_times_are_not_known() -> None:
    verdict = judge(events("poll_interval_exceeded", reason="consumer poll timeout has expired."))
    assert verdict is not None
    assert verdict.startswith("1 rebalance in 1 s, all by member m3: the application took longer")
    assert "max.poll.records" in verdict


def test_return_of_a_member_counts_under_what_it_went_by_and_says_how_long_it_took() -> None:
    came_back = (
        "the application asks for messages again. It worked on one message for 412000 ms, "
        "max.poll.interval.ms is 300000."
    )
    left = came_back.replace("412000", "300100")
    story = [
        *events("poll_interval_exceeded", reason=left),
        *events("member_joined", reason=came_back),
    ]
    assert judge(story) == (
        "2 rebalances in 1 s, all by member m3: it handled one message for 412 s, "
        "max.poll.interval.ms is 300 s"
    )


def test_commonest_trigger_counts() -> None:
    verdict = judge(events("member_joined", "session_expired", "session_expired"))
    assert verdict is not None
    assert verdict.startswith("3 rebalances in 2 min, 2 of them session expired by member m3:")
    assert "session.timeout.ms" in verdict


def test_session_that_ends_is_a_pause_if_the_member_comes_back_and_else_an_end() -> None:
    reason = "no heartbeat for 45000 ms (session.timeout.ms)"
    expired = events("session_expired", reason=reason)
    gone = judge(expired)
    back = "the coordinator does not know the member (UNKNOWN_MEMBER_ID)"
    paused = judge(expired + events("member_joined", reason=back))
    restarted = judge(expired + events("member_joined", reason="the consumer joins"))
    assert gone is not None
    assert paused is not None
    assert restarted is not None
    assert "killed and started again, or paused, or cut off" in restarted
    assert "killed" not in paused
    assert "no heartbeat came for 45 s (session.timeout.ms), and it has not come back" in gone
    assert "raise session.timeout.ms above its longest pause" in paused


def test_member_that_restarts_is_given_an_instance_id() -> None:
    verdict = judge(events("member_left", "member_joined", "member_left", "member_joined"))
    assert verdict == (
        "4 rebalances in 3 min, all by member m3: it left and came back; with a group.instance.id "
        "a restart within session.timeout.ms moves nothing"
    )


def test_members_are_named_the_most_frequent_first() -> None:
    story = [
        *events("member_left", "member_left", "member_left", client_id="a"),
        *events("member_left", "member_left", client_id="b"),
        *events("member_left", client_id="c"),
    ]
    verdict = judge(story)
    assert verdict is not None
    assert ", all by members a, b and c: " in verdict
    crowd = judge(story + events("member_left", client_id="d"))
    assert crowd is not None
    assert ", all by members a, b, c and 1 other: " in crowd


def test_record_that_is_too_large_names_the_setting_of_the_topic() -> None:
    reason = "the assignment could not be written: MESSAGE_TOO_LARGE"
    for trigger in ("rebalance_timed_out", "member_kicked"):
        verdict = judge(events(trigger, reason=reason))
        assert verdict is not None
        assert "max.message.bytes of __consumer_offsets" in verdict


def test_member_that_joins_again_is_no_new_one() -> None:
    reason = "rejoining after we previously errored and backed off"
    verdict = judge(events("member_joined", member_id="m", members_kept=["m"], reason=reason))
    assert verdict is not None
    assert verdict.endswith(f"it was a member and joined again; it said: {reason}")


@pytest.mark.parametrize(
    ("late_ms", "words"),
    [
        (None, "m4 did not join again within max.poll.interval.ms and was removed"),
        (12_000, "m4 joined 12 s late"),
    ],
)
def test_member_that_kept_the_others_waiting_is_named(late_ms: int | None, words: str) -> None:
    late = [{"member_id": "m4-1", "client_id": "m4", "late_ms": late_ms}]
    verdict = judge(events("member_joined") + events("member_joined", late=late))
    assert verdict is not None
    assert verdict.endswith(f"; one rebalance stood for 1 s, because {words}")


def test_short_wait_is_not_worth_a_word() -> None:
    late = [{"member_id": "m4-1", "client_id": "m4", "late_ms": 2000}]
    verdict = judge(events("member_joined", late=late))
    assert verdict is not None
    assert "stood" not in verdict


@pytest.mark.parametrize(
    "trigger",
    [
        *("member_joined", "member_left", "member_kicked", "session_expired"),
        *("poll_interval_exceeded", "rebalance_timed_out", "subscription_changed"),
        *("partitions_added", "topic_deleted", "leader_rejoined"),
    ],
)
def test_every_trigger_has_its_advice(trigger: str) -> None:
    verdict = judge(events(trigger))
    assert verdict is not None
    assert "the trigger was" not in verdict


def test_group_with_members_of_both_kinds_is_the_first_thing_to_mend() -> None:
    both = events("two_memberships", reason="group g has members in ZooKeeper too (g_a)")
    sentence = "group g has members in ZooKeeper too (g_a): stop the members of one kind"
    assert judge([*events("member_left"), *both]) == sentence

    # What came later is not hidden by it.
    verdict = judge([*both, *events("session_expired", "session_expired")])
    assert verdict is not None
    assert verdict.startswith(f"{sentence}; since then 2 rebalances in 1 min, all by member m3")
