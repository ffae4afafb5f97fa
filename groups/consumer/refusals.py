"""Explain the coordinator's refusal of a member in the user's words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ErrorCode
from protocol.frozen import frozen


@frozen
class Refused:
    """A member as it was when it was refused.

    `silence_ms` is the time since the coordinator last accepted a heartbeat of it. The other times
    are its settings.
    """

    group_id: str
    member_id: str
    generation_id: int
    group_instance_id: str | None
    silence_ms: int
    session_timeout_ms: int
    max_poll_interval_ms: int


def explain(refused: Refused, error: ErrorCode) -> str:
    """Return which member is out of which group, why, and which setting matters; "" otherwise."""
    match error:
        case ErrorCode.UNKNOWN_MEMBER_ID:
            return _explain_removal(refused)
        case ErrorCode.ILLEGAL_GENERATION:
            return (
                f"generation {refused.generation_id} of group {refused.group_id} is over: it has "
                f"rebalanced without {refused.member_id}, which joins again. Members have "
                f"max.poll.interval.ms ({refused.max_poll_interval_ms}) to join a rebalance"
            )
        case ErrorCode.FENCED_INSTANCE_ID:
            return explain_fencing(refused.group_id, refused.group_instance_id)
        case ErrorCode.REBALANCE_IN_PROGRESS:
            return (
                f"group {refused.group_id} rebalances: {refused.member_id} joins again, and "
                "commits before that what it gives up"
            )
        case _:
            return ""


def _explain_removal(refused: Refused) -> str:
    removed = f"{refused.member_id} was removed from group {refused.group_id}"
    if refused.silence_ms >= refused.session_timeout_ms:
        return (
            f"{removed}: no heartbeat of it has been accepted for {refused.silence_ms} ms, and "
            f"session.timeout.ms is {refused.session_timeout_ms}; raise that, or find out what "
            "stopped the process"
        )
    return (
        f"{removed} though its heartbeats were accepted: `kgroup events {refused.group_id}` says "
        "why"
    )


def explain_fencing(group_id: str, group_instance_id: str | None) -> str:
    """Return what became of a static member whose name another one uses."""
    return (
        f"group {group_id}: another consumer has joined with group.instance.id="
        f"{group_instance_id}, and has this one's place; give each its own"
    )


def explain_strategies(group_id: str, strategies: Sequence[str]) -> str:
    """Return why a member that has no strategy in common with the others cannot join."""
    return (
        f"group {group_id}: its members support no partition.assignment.strategy of "
        f"{', '.join(strategies)}, or are no consumers; give this one a strategy that they have "
        "(aiokafka: roundrobin)"
    )


def explain_poll_timeout(consumer_id: str, worked_ms: int, max_poll_interval_ms: int) -> str:
    """Return why a member has left whose application did not ask for its next message."""
    return (
        f"{consumer_id} has left: its application works on one message for {worked_ms} ms, and "
        f"max.poll.interval.ms is {max_poll_interval_ms}; raise that, or hand the work to a task "
        "of its own"
    )
