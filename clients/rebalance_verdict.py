"""What to do about a group's rebalances: one sentence from its events. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from groups.group_event import TWO_MEMBERSHIPS

Event = Mapping[str, Any]
"""An event of `__group_events`."""

QUIET = frozenset({"coordinator_loaded", "static_member_replaced"})
"""Triggers of events during which nobody stopped."""

_SECOND_MS = 1000
_MINUTE_MS = 60_000
_POLL_TIMES = re.compile(r"one message for (\d+) ms, max\.poll\.interval\.ms is (\d+)")

_ADVICE: Mapping[str, str] = {
    "poll_interval_exceeded": (
        "the application took longer than max.poll.interval.ms; raise that, or take fewer messages "
        "at a time"
    ),
    "session_expired": (
        "no heartbeat came within session.timeout.ms: the process was paused, killed or cut off; "
        "if pauses of that length are normal, raise session.timeout.ms"
    ),
    "rebalance_timed_out": (
        "members did not join or sync within max.poll.interval.ms; look at those named as late"
    ),
    "member_joined": (
        "if members restart often, give each a group.instance.id: a restart within "
        "session.timeout.ms then moves nothing"
    ),
    "member_left": (
        "if members restart often, give each a group.instance.id: a restart within "
        "session.timeout.ms then moves nothing"
    ),
    "member_kicked": "an administrator, or a limit of the broker, has removed members",
    "subscription_changed": "members subscribe to other topics than before",
    "partitions_added": "topics got more partitions; this happens once for each",
    "topic_deleted": "a topic that the group consumes was deleted",
    "leader_rejoined": "the leader has joined again without a change that can be seen",
}


def judge(events: Sequence[Event]) -> str | None:
    """Return a sentence about the events, the oldest first; None if there is nothing to say."""
    # That partitions are consumed twice is worse than any rebalance.
    for event in reversed(events):
        if event["trigger"] == TWO_MEMBERSHIPS:
            return f"{event['reason']}: stop the members of one kind"

    stops = [event for event in events if event["trigger"] not in QUIET]
    if not stops:
        return None

    # The commonest trigger, and who is behind it.
    trigger, times = Counter(event["trigger"] for event in stops).most_common(1)[0]
    same = [event for event in stops if event["trigger"] == trigger]
    head = f"{_count(len(stops), 'rebalance')} in {_span(stops)}"
    if times < len(stops):
        head += f", {times} of them {trigger.replace('_', ' ')}"

    clients = {event["client_id"] for event in same if event.get("client_id")}
    if len(clients) == 1:
        (client_id,) = clients
        head += f", all by member {client_id}" if times == len(stops) else f" by member {client_id}"
    return f"{head}: {_advice(trigger, same)}"


def _advice(trigger: str, events: Sequence[Event]) -> str:
    # Our own members say how long it took.
    if trigger == "poll_interval_exceeded":
        for event in reversed(events):
            times = _POLL_TIMES.search(event.get("reason") or "")
            if times is not None:
                worked_s = int(times[1]) // _SECOND_MS
                limit_s = int(times[2]) // _SECOND_MS
                return (
                    f"it handled one message for {worked_s} s, max.poll.interval.ms is {limit_s} s"
                )
    return _ADVICE.get(trigger, f"the trigger was {trigger}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _span(events: Sequence[Event]) -> str:
    """Return the time from the first to the last, in the largest unit that fits."""
    span_ms = events[-1]["ended_ms"] - events[0]["started_ms"]
    if span_ms >= _MINUTE_MS:
        return f"{round(span_ms / _MINUTE_MS)} min"
    return f"{max(round(span_ms / _SECOND_MS), 1)} s"
