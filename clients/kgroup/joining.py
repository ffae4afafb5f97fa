"""Join a group in a command whose time is limited, which may not wait without end for that."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from clients.command_line.command_group import CommandFailed
from clients.high_level.connector import ConsumerConnector
from protocol.errors import ErrorCode

T = TypeVar("T")

JOIN_S = 60.0
"""Time to become a member, beyond consumer.timeout.ms: a rebalance waits for other members."""


async def join_in_time(connector: ConsumerConnector, joining: Awaitable[T]) -> T:
    """Return the streams of `joining`; without consumer.timeout.ms that may take for ever.

    Raises CommandFailed, which says what it waited for.
    """
    config = connector.config
    has_limit = config.consumer_timeout_ms >= 0
    limit_s = config.consumer_timeout_ms / 1000 + JOIN_S if has_limit else None
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await joining
    except TimeoutError:
        if not limit.expired():
            raise
        problem = connector.metrics.rebalance_error or "the group has not finished a rebalance"
        if ErrorCode.COORDINATOR_NOT_AVAILABLE.name in problem:
            problem += " Has the cluster as many brokers as offsets.topic.replication.factor says?"
        raise CommandFailed(
            f"group {config.group_id}: still no member of it after {limit_s:g} s: {problem}"
        ) from None
