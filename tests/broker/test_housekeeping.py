"""What a broker does now and then: which logs get their retention from whom."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.config import load_broker_config
from broker.housekeeping import Housekeeping
from core_log.config import LogConfig
from protocol.topic_partition import TopicPartition
from tests.broker.replicas import NOW_MS, Replicas, batch
from tests.broker.spawning import Spawned

T0 = TopicPartition("t", 0)
NOBODY: Any = SimpleNamespace(notify=None)
"""Who has nothing to do before the first second is over."""


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("policy", "cleaner_enable", "left"),
    [
        ("delete", "true", 1),
        ("compact", "true", 3),
        ("compact,delete", "true", 3),
        ("compact", "false", 3),
        ("compact,delete", "false", 1),
    ],
)
async def test_what_is_compacted_is_left_to_the_cleaner_with_its_retention(
    policy: str, cleaner_enable: str, left: int
) -> None:
    config = LogConfig(cleanup_policy=tuple(policy.split(",")), segment_bytes=72, retention_ms=1000)
    replicas = Replicas(config=config).lead("t")
    for timestamp in (1, 1, NOW_MS):
        sent = batch(b"abc", key=b"k", timestamp_ms=timestamp)
        replicas.manager.append(T0, sent, all_in_sync=False, zstd_allowed=True, now_ms=NOW_MS)
    settings, _ = load_broker_config(
        {
            "zookeeper.connect": "zk",
            "log.cleaner.enable": cleaner_enable,
            "log.retention.check.interval.ms": "500",
        }
    )
    spawned = Spawned()
    Housekeeping(
        config=settings,
        logs=replicas.manager.logs,
        replicas=replicas.manager,
        flusher=NOBODY,
        isr_writer=NOBODY,
        log_failures=NOBODY,
        listener=NOBODY,
        executor=NOBODY,
        spawn=spawned,
        now_ms=lambda: NOW_MS,
        fail=NOBODY,
        on_disk=asyncio.Lock(),
    ).start()

    await asyncio.sleep(0.6)

    assert len(replicas.manager.log(T0).segments) == left
    for task in spawned.tasks:
        task.cancel()
