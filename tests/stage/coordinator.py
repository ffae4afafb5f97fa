"""A coordinator for tests of what stands on it: one partition, loaded, its log in memory."""

from __future__ import annotations

import asyncio

from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.events import CommitOffsets
from groups.coordinator.responses import Done
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.config import OffsetsConfig
from offsets.records import CommittedOffset, OffsetKey
from tests.stage.clock import VirtualTimeLoop

NOW_MS = 1_700_000_000_000


def coordinator_over(
    log: MemoryPartitionLog, config: OffsetsConfig | None = None
) -> GroupCoordinator:
    """One that has loaded what `log` holds."""
    loop = VirtualTimeLoop()
    config = config or OffsetsConfig()
    made = GroupCoordinator(log, config, lambda: 1, lambda: NOW_MS, loop.create_task)
    made.on_leadership({0}, set())
    loop.run_until_complete(asyncio.sleep(1))
    loop.close()
    return made


def coordinator_still_loading() -> GroupCoordinator:
    """One that leads the partition and has loaded nothing of it."""
    config = OffsetsConfig()
    made = GroupCoordinator(
        MemoryPartitionLog(), config, lambda: 1, lambda: NOW_MS, lambda load: load.close()
    )
    made.on_leadership({0}, set())
    return made


def coordinator_of_nothing() -> GroupCoordinator:
    """One whose broker leads no partition of the offsets topic."""
    config = OffsetsConfig()
    return GroupCoordinator(
        MemoryPartitionLog(), config, lambda: 1, lambda: NOW_MS, lambda load: load.close()
    )


def commit(
    coordinator: GroupCoordinator, group: str, offsets: dict[tuple[str, int], CommittedOffset]
) -> None:
    """Commit for a group without members."""
    records = [(OffsetKey(group, topic, p), value) for (topic, p), value in offsets.items()]
    event = CommitOffsets(coordinator.next_request_id(), group, -1, "", None, records)
    assert coordinator.submit(event).response == Done()
