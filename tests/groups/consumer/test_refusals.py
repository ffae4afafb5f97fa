"""What a member says when the coordinator refuses it: who, why, and which setting matters."""

import attrs
import pytest

from groups.consumer.refusals import Refused, explain, explain_poll_timeout
from protocol.errors import ErrorCode

REFUSED = Refused(
    group_id="g",
    member_id="m-1",
    generation_id=7,
    group_instance_id="i-1",
    silence_ms=51_000,
    session_timeout_ms=45_000,
    max_poll_interval_ms=300_000,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            ErrorCode.UNKNOWN_MEMBER_ID,
            "m-1 was removed from group g: no heartbeat of it has been accepted for 51000 ms, and "
            "session.timeout.ms is 45000; raise that, or find out what stopped the process",
        ),
        (
            ErrorCode.ILLEGAL_GENERATION,
            "generation 7 of group g is over: it has rebalanced without m-1, which joins again. "
            "Members have max.poll.interval.ms (300000) to join a rebalance",
        ),
        (
            ErrorCode.FENCED_INSTANCE_ID,
            "group g: another consumer has joined with group.instance.id=i-1, and has this one's "
            "place; give each its own",
        ),
        (
            ErrorCode.REBALANCE_IN_PROGRESS,
            "group g rebalances: m-1 joins again, and commits before that what it gives up",
        ),
        # Kafka's name and meaning say it all.
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, ""),
    ],
)
def test_refusal_is_explained(error: ErrorCode, text: str) -> None:
    assert explain(REFUSED, error) == text


def test_member_that_was_heard_until_its_end_was_removed_by_somebody() -> None:
    kicked = attrs.evolve(REFUSED, silence_ms=900)
    assert explain(kicked, ErrorCode.UNKNOWN_MEMBER_ID) == (
        "m-1 was removed from group g though its heartbeats were accepted: `kgroup events g` says "
        "why"
    )


def test_application_that_took_too_long_is_given_both_times() -> None:
    assert explain_poll_timeout("c-1", 412_000, 300_000) == (
        "c-1 has left: its application works on one message for 412000 ms, and "
        "max.poll.interval.ms is 300000; raise that, or hand the work to a task of its own"
    )
