"""Verdicts: what a group's events mean."""

from typing import Any

import pytest

from clients.rebalance_verdict import judge

NOW_MS = 1_700_000_000_000


def events(*triggers: str, client_id: str | None = "m3", **fields: Any) -> list[dict[str, Any]]:
    """Events a minute apart, of a second each."""
    return [
        {
            "trigger": trigger,
            "client_id": client_id,
            "reason": None,
            "started_ms": NOW_MS + at * 60_000,
            "ended_ms": NOW_MS + at * 60_000 + 1000,
            **fields,
        }
        for at, trigger in enumerate(triggers)
    ]


def test_nothing_is_said_of_a_group_that_rests() -> None:
    assert judge([]) is None
    assert judge(events("coordinator_loaded", "static_member_replaced")) is None


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


def test_commonest_trigger_counts() -> None:
    verdict = judge(events("member_joined", "session_expired", "session_expired"))
    assert verdict is not None
    assert verdict.startswith("3 rebalances in 2 min, 2 of them session expired by member m3:")
    assert "session.timeout.ms" in verdict


def test_no_member_is_named_where_several_are_behind_it() -> None:
    mixed = events("member_joined") + events("member_joined", client_id="m4")
    verdict = judge(mixed)
    assert verdict is not None
    assert "by member" not in verdict


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
    assert judge([*events("member_left"), *both, *events("member_joined")]) == (
        "group g has members in ZooKeeper too (g_a): stop the members of one kind"
    )
