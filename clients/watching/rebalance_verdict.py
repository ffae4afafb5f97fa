"""Advise on a group's rebalances, in one sentence made of its events. Pure.

A member that was removed and comes back makes two events. Both are counted under the cause of the
first one, because nothing would have joined without it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groups.group_event import TWO_MEMBERSHIPS
from protocol.frozen import frozen

Event = Mapping[str, Any]
"""An event of `__group_events`."""

LOADED = "coordinator_loaded"
REPLACED = "static_member_replaced"
QUIET = frozenset({LOADED, REPLACED})
"""Triggers of events during which nobody stopped."""

DEPARTURES = frozenset(
    {
        "member_left",
        "member_kicked",
        "session_expired",
        "poll_interval_exceeded",
        "rebalance_timed_out",
    }
)
"""Triggers of events after which a member may come back."""

MAX_NAMES = 3
"""Members that are named; of the others the number is."""
LONG_WAIT_MS = 10_000
"""A rebalance that took so long because of a late member is worth a word."""

_SECOND_MS = 1000
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_POLL_TIMES = re.compile(r"one message for (\d+) ms, max\.poll\.interval\.ms is (\d+)")
_DURATION = re.compile(r"for (\d+) ms")
_WRITE_FAILED = "the assignment could not be written"


@frozen
class _Stop:
    """An event during which members stopped, and the trigger under which it counts."""

    trigger: str
    event: Event

    @property
    def is_return(self) -> bool:
        """Return whether a member came back."""
        return self.trigger in DEPARTURES and self.event["trigger"] == "member_joined"


def judge(events: Sequence[Event]) -> str | None:
    """Return a sentence about the events, the oldest first; None if there are none."""
    # That partitions are consumed twice is worse than any rebalance before.
    for index, event in reversed([*enumerate(events)]):
        if event["trigger"] == TWO_MEMBERSHIPS:
            sentence = f"{event['reason']}: stop the members of one kind"
            since = judge(events[index + 1 :])
            return f"{sentence}; since then {since}" if since else sentence

    stops = _attribute([event for event in events if event["trigger"] not in QUIET])
    if not stops:
        quiet = _describe_quiet(events)
        return f"no rebalance: {quiet}" if quiet else None

    # The commonest trigger that asks for something to be done, and who is behind it.
    times_of = Counter(stop.trigger for stop in stops)
    ordinary = _find_ordinary(stops)
    trigger = max(times_of, key=lambda trigger: (trigger not in ordinary, times_of[trigger]))
    times = times_of[trigger]
    same = [stop for stop in stops if stop.trigger == trigger]
    head = f"{_count(len(stops), 'rebalance')} in {_span(stops)}"
    if times < len(stops):
        returns = sum(stop.is_return for stop in same)
        head += f", {times - returns} of them {trigger.replace('_', ' ')}"
        # The table has another trigger for a return (fault users-31, was: head).
        head = f"{head} and {_count(returns, 'return')} after it" if returns else head
    names = _name(same)
    if names:
        head += f", all by {names}" if times == len(stops) else f" by {names}"

    advise = ADVICE.get(trigger)
    advice = f"the trigger was {trigger}" if advise is None else advise(same)
    sentence = f"{head}: {advice}{_describe_wait(stops)}"
    quiet = _describe_quiet(events) if trigger in ordinary else ""
    return f"{sentence}; {quiet}" if quiet else sentence


def _attribute(events: Sequence[Event]) -> list[_Stop]:
    """Count the return of a member under the trigger by which it went."""
    gone: dict[str, str] = {}
    stops = []
    for event in events:
        trigger = event["trigger"]
        client = _client(event)
        if trigger in DEPARTURES:
            gone[client] = trigger
        elif trigger == "member_joined":
            trigger = gone.pop(client, trigger)
        stops.append(_Stop(trigger, event))
    return stops


def _find_ordinary(stops: Sequence[_Stop]) -> set[str]:
    """Return the triggers that ask for nothing to be done."""
    ordinary = {"member_joined", "partitions_added"}
    if not any(stop.is_return and stop.trigger == "member_left" for stop in stops):
        ordinary.add("member_left")
    return ordinary


def _describe_quiet(events: Sequence[Event]) -> str:
    """Say what happened without a rebalance; "" if nothing did."""
    said = []
    replaced = [_Stop(REPLACED, event) for event in events if event["trigger"] == REPLACED]
    if replaced:
        said.append(
            f"{_name(replaced)} restarted {_count(len(replaced), 'time')} within "
            "session.timeout.ms and kept its partitions (group.instance.id)"
        )
    loads = sum(1 for event in events if event["trigger"] == LOADED)
    if loads:
        said.append(
            f"the coordinator changed or restarted {_count(loads, 'time')}, and the members went "
            "on as they were"
        )
    return "; ".join(said)


# ---- what to do, by trigger


def _advise_after_poll_interval(stops: Sequence[_Stop]) -> str:
    # Our own members say how long it took, at last when they come back.
    found = [_POLL_TIMES.search(_reason(stop)) for stop in stops]
    times = [(int(match[1]), int(match[2])) for match in found if match is not None]
    if times:
        worked_ms, limit_ms = max(times)
        return (
            f"it handled one message for {_duration(worked_ms)}, "
            f"max.poll.interval.ms is {_duration(limit_ms)}"
        )
    return (
        "the application took longer than max.poll.interval.ms to ask for messages again; raise "
        "that, or have it take fewer at a time (max.poll.records)"
    )


def _advise_after_session(stops: Sequence[_Stop]) -> str:
    timeouts = [int(match[1]) for stop in stops if (match := _DURATION.search(_reason(stop)))]
    limit = f"{_duration(max(timeouts))} (session.timeout.ms)" if timeouts else "session.timeout.ms"
    returns = [_reason(stop) for stop in stops if stop.is_return]
    # A process that lives still has its id, and says that it is unknown.
    if any("UNKNOWN_MEMBER_ID" in reason for reason in returns):
        return (
            f"no heartbeat came for {limit}, and then it came back: its process was paused or cut "
            "off; raise session.timeout.ms above its longest pause"
        )
    if returns:
        return (
            f"no heartbeat came for {limit}, and then it came back: its process was killed and "
            "started again, or paused, or cut off; if it was paused, raise session.timeout.ms "
            "above its longest pause"
        )
    return (
        f"no heartbeat came for {limit}, and it has not come back: its process was killed, or is "
        "cut off"
    )


def _advise_after_time_out(stops: Sequence[_Stop]) -> str:
    failed = [_reason(stop) for stop in stops if _reason(stop).startswith(_WRITE_FAILED)]
    if failed:
        return _advise_after_write(failed[-1])
    timeouts = [int(match[1]) for stop in stops if (match := _DURATION.search(_reason(stop)))]
    limit = f"{_duration(max(timeouts))} (max.poll.interval.ms)" if timeouts else "the time-out"
    return (
        f"it joined, did not ask for its partitions within {limit}, and all others waited; see in "
        "its log what kept it, and lower its max.poll.interval.ms if they must not wait so long"
    )


def _advise_after_write(reason: str) -> str:
    return (
        f"{reason}; if it is too large, raise max.message.bytes of __consumer_offsets, or have "
        "fewer members or topics in the group"
    )


def _advise_after_kick(stops: Sequence[_Stop]) -> str:
    reasons = sorted({_reason(stop) for stop in stops if not stop.is_return})
    failed = [reason for reason in reasons if reason.startswith(_WRITE_FAILED)]
    if failed:
        return _advise_after_write(failed[-1])
    said = ", ".join(filter(None, reasons)) or "no reason was given"
    return f"an administrator, or a limit of the broker, removed it: {said}"


def _advise_after_leave(stops: Sequence[_Stop]) -> str:
    if any(stop.is_return for stop in stops):
        return (
            "it left and came back; with a group.instance.id a restart within "
            "session.timeout.ms moves nothing"
        )
    return "it was closed, and the others took its partitions; nothing to do"


def _advise_after_join(stops: Sequence[_Stop]) -> str:
    again = [stop for stop in stops if stop.event["member_id"] in _kept(stop.event)]
    if again and len(again) == len(stops):
        return f"it was a member and joined again; it said: {_reason(again[-1]) or 'nothing'}"
    return "new members came, and got partitions of the others; nothing to do once all are there"


def _advise_after_subscription(stops: Sequence[_Stop]) -> str:
    return (
        "it subscribes to other topics than before; change them in one deployment, as each change "
        "stops the whole group"
    )


def _advise_after_partitions(stops: Sequence[_Stop]) -> str:
    return "its topics have more partitions, which are now consumed; nothing to do"


def _advise_after_deletion(stops: Sequence[_Stop]) -> str:
    return (
        "a topic that the group consumed was deleted; take it out of the subscription, or create "
        "it again"
    )


def _advise_after_leader(stops: Sequence[_Stop]) -> str:
    reason = _reason(stops[-1])
    said = f"said: {reason}" if reason else "gave no reason"
    return (
        f"it leads the group, joined again with the same topics and partitions, and {said}; see "
        "whether its application enforces rebalances, or its brokers disagree on the topics"
    )


ADVICE: Mapping[str, Callable[[Sequence[_Stop]], str]] = {
    "member_joined": _advise_after_join,
    "member_left": _advise_after_leave,
    "member_kicked": _advise_after_kick,
    "session_expired": _advise_after_session,
    "poll_interval_exceeded": _advise_after_poll_interval,
    "rebalance_timed_out": _advise_after_time_out,
    "subscription_changed": _advise_after_subscription,
    "partitions_added": _advise_after_partitions,
    "topic_deleted": _advise_after_deletion,
    "leader_rejoined": _advise_after_leader,
}


def _describe_wait(stops: Sequence[_Stop]) -> str:
    """Say who kept the others waiting in the longest rebalance that had such a member."""
    waits = [
        (_stood_ms(stop.event), late)
        for stop in stops
        if stop.event["trigger"] != "rebalance_timed_out"
        for late in (stop.event.get("late") or ())[:1]
        if late["late_ms"] is None or late["late_ms"] >= LONG_WAIT_MS
    ]
    if not waits:
        return ""

    stood_ms, late = max(waits, key=lambda wait: wait[0])
    name = late["client_id"] or late["member_id"]
    if late["late_ms"] is None:
        did = "did not join again within max.poll.interval.ms and was removed"
    else:
        did = f"joined {_duration(late['late_ms'])} late"
    return f"; one rebalance stood for {_duration(stood_ms)}, because {name} {did}"


# ---- words


def _name(stops: Sequence[_Stop]) -> str:
    """Name the members, the most frequent first; "" if none is known."""
    clients = Counter(filter(None, (_client(stop.event) for stop in stops))).most_common()
    names = [name for name, _ in clients[:MAX_NAMES]]
    if len(names) < 2:
        return f"member {names[0]}" if names else ""
    if len(clients) > MAX_NAMES:
        return f"members {', '.join(names)} and {_count(len(clients) - MAX_NAMES, 'other')}"
    return f"members {', '.join(names[:-1])} and {names[-1]}"


def _client(event: Event) -> str:
    return str(event.get("client_id") or event.get("member_id") or "")


def _reason(stop: _Stop) -> str:
    return str(stop.event.get("reason") or "").rstrip(".")


def _kept(event: Event) -> Sequence[str]:
    kept = event.get("members_kept")
    return kept if isinstance(kept, list) else ()


def _stood_ms(event: Event) -> int:
    return int(event["ended_ms"] - event["started_ms"])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _duration(duration_ms: int) -> str:
    """Return whole seconds, and tenths of a few."""
    if duration_ms % _SECOND_MS and duration_ms < 10 * _SECOND_MS:
        return f"{duration_ms / _SECOND_MS:.1f} s"
    return f"{duration_ms // _SECOND_MS} s"


def _span(stops: Sequence[_Stop]) -> str:
    """Return the time from the first to the last, in the largest unit that fits."""
    span_ms = stops[-1].event["ended_ms"] - stops[0].event["started_ms"]
    if span_ms >= 2 * _HOUR_MS:
        return f"{round(span_ms / _HOUR_MS)} h"
    if span_ms >= _MINUTE_MS:
        return f"{round(span_ms / _MINUTE_MS)} min"
    return f"{max(round(span_ms / _SECOND_MS), 1)} s"
