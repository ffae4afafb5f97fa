"""The settings of all topics at once, as a broker needs them that opens its logs."""

from __future__ import annotations

import asyncio

from broker.entity_configs import TOPICS, stored
from broker.topic_configs import understood
from broker.zk_retry import retry_until_connected
from core_log.config import LogConfig
from zk.admin_znodes import EntityConfig
from zk.api import ZkSession

READ_AT_ONCE = 100
"""Topics whose settings are asked for together."""


async def stored_configs(zk: ZkSession, defaults: LogConfig) -> dict[str, LogConfig]:
    """By topic, as they are now.

    Recovery has to know which of them are compacted: such logs may lack any offset.
    """
    topics, _ = await retry_until_connected(zk, lambda: zk.children(EntityConfig.directory(TOPICS)))
    found: dict[str, LogConfig] = {}
    for first in range(0, len(topics), READ_AT_ONCE):
        some = topics[first : first + READ_AT_ONCE]
        read = await asyncio.gather(*(stored(zk, TOPICS, topic) for topic in some))
        for topic, overrides in zip(some, read, strict=True):
            found[topic] = understood(topic, overrides, defaults)
    return found
