"""Make the rows that are shown of groups from a `GroupWatch`'s state. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clients.groups.group_facts import LogOffsets
from clients.groups.group_view import total_lag
from clients.groups.lag import age_of, lag_of, next_offset, time_lag_of
from clients.groups.recorded_groups import RecordedGroup
from clients.watching.commit_history import Commit, Owners
from protocol.topic_partition import TopicPartition

Item = dict[str, Any]


def partition_items(
    group_id: str,
    group: RecordedGroup,
    owners: Owners,
    logs: Mapping[TopicPartition, LogOffsets],
    unread_since_ms: Mapping[tuple[TopicPartition, int], int],
    now_ms: int,
    subscribed: frozenset[str] | None = None,
) -> list[Item]:
    """Return one item for each partition that is committed or owned, under `describe`'s keys.

    `subscribed` are the topics that members subscribe to, if it is known.
    """
    items = []
    for partition in sorted(group.offsets.keys() | owners.keys()):
        committed = group.offsets.get(partition)
        offset = committed.offset if committed else None
        log = logs.get(partition, LogOffsets())
        lag = lag_of(offset, log)
        at_ms = committed.committed_at_ms if committed else -1
        owner = owners.get(partition)
        start = next_offset(offset, log)
        next_record_ms = None if start is None else unread_since_ms.get((partition, start))
        items.append(
            {
                "group": group_id,
                "topic": partition.topic,
                "partition": partition.partition,
                "current_offset": offset,
                "log_end_offset": log.end,
                "log_start_offset": log.start,
                "lag": lag.lag,
                "consumer_id": owner.member_id if owner else None,
                "host": owner.host if owner else None,
                "client_id": owner.client_id if owner else None,
                "unsubscribed": subscribed is not None and partition.topic not in subscribed,
                "position": lag.position.flag,
                "committed_at_ms": at_ms if at_ms >= 0 else None,
                "age_ms": age_of(at_ms, now_ms) if at_ms >= 0 else None,
                "time_lag_ms": time_lag_of(lag, next_record_ms, now_ms),
                "metadata": (committed.metadata or None) if committed else None,
            }
        )
    return items


def group_item(
    group_id: str, group: RecordedGroup, partitions: Sequence[Item], trend: Sequence[int]
) -> Item:
    """Return the item of a whole group; lag is summed, and time lag is the largest."""
    metadata = group.metadata
    members = metadata.members if metadata else ()
    consumed = [item for item in partitions if not item["unsubscribed"]]
    # What has no lag says nothing of what has some (fault strangers-50, was: consumed).
    lagging = [item for item in consumed if item["lag"]] or consumed
    times = [item["time_lag_ms"] for item in lagging if item["time_lag_ms"] is not None]
    return {
        "group": group_id,
        "coordination": "coordinator" if metadata and metadata.protocol_type else "none",
        "state": "Stable" if members else "Empty",
        "protocol": metadata.protocol if metadata else None,
        "members": len(members),
        "partitions": len(partitions),
        "lag": total_lag(partitions),
        "time_lag_ms": max(times, default=None),
        "committed_at_ms": max((item["committed_at_ms"] or 0 for item in partitions), default=0)
        or None,
        "age_ms": min((i["age_ms"] for i in partitions if i["age_ms"] is not None), default=None),
        "trend": list(trend),
    }


def lag_over_time(
    commits: Mapping[TopicPartition, Sequence[Commit]],
    ends: Mapping[TopicPartition, Sequence[tuple[int, int]]],
    times_ms: Sequence[int],
) -> list[int | None]:
    """Return the group's lag at each time; None where no end was known yet.

    `commits` are in their order, `ends` by their times.
    """
    lags: list[int | None] = []
    for at_ms in times_ms:
        known = []
        for partition, own in commits.items():
            offset = _last([(commit.at_ms, commit.offset) for commit in own], at_ms)
            end = _last(ends.get(partition, ()), at_ms)
            if offset is not None and end is not None:
                known.append(max(end - offset, 0))
        lags.append(sum(known) if known else None)
    return lags


def _last(values: Sequence[tuple[int, int | None]], at_ms: int) -> int | None:
    value = None
    for time_ms, later in values:
        if time_ms <= at_ms:
            value = later
    return value
