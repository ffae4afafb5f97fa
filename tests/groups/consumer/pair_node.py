"""A consumer of the pair."""

from __future__ import annotations

from collections import deque

import attrs

from groups.consumer import effects as do
from groups.consumer.state import Consumer
from protocol.topic_partition import TopicPartition


@attrs.define(eq=False)
class Node:
    """One consumer and what it does. `epoch` counts its abandonments: calls before are stale."""

    name: str
    consumer: Consumer
    queue: deque[do.Ordered] = attrs.field(factory=deque)
    is_busy: bool = False
    is_alive: bool = True
    call: int = 0
    heartbeats: tuple[str, int] | None = None
    positions: dict[TopicPartition, int] = attrs.field(factory=dict)
    delivering: set[TopicPartition] = attrs.field(factory=set)
    told: set[TopicPartition] = attrs.field(factory=set)
    """What the application was told that it has."""
    problem: str | None = "not joined yet"
    is_cut: bool = False
    """Nothing that it sends arrives, and nothing arrives at it."""
    accepted_ms: int = 0
    """When its last accepted heartbeat was sent."""
    is_paused: bool = False
