"""A coordinator on a loop of its own in virtual time, over an offsets log in memory."""

import asyncio
from typing import ClassVar

from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.events import CommitOffsets
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.runtime.runtime import Pending
from offsets.config import OffsetsConfig
from offsets.records import (
    LAST_VERSIONS,
    CommittedOffset,
    OffsetKey,
    Record,
    ValueVersions,
    encode_key,
    encode_value,
)
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import encode_batch, read_header
from tests.stage.clock import VirtualTimeLoop

NUM_PARTITIONS = 2
OWN, OTHER = "groupId", "otherGroup"  # partitions 0 and 1
NOW_MS = 1_700_000_000_000


class Bench:
    """A coordinator on a loop of its own that leads partition 0, unless told otherwise."""

    benches: ClassVar[list["Bench"]] = []

    def __init__(
        self,
        log: MemoryPartitionLog,
        config: OffsetsConfig | None = None,
        value_versions: ValueVersions = LAST_VERSIONS,
    ) -> None:
        self.benches.append(self)
        self.log = log
        self.loop = VirtualTimeLoop()
        self.coordinator = GroupCoordinator(
            log,
            config or OffsetsConfig(),
            num_partitions=lambda: NUM_PARTITIONS,
            now_ms=lambda: NOW_MS + int(self.loop.time() * 1000),
            spawn=self.loop.create_task,
            value_versions=value_versions,
        )

    @classmethod
    def end_all(cls) -> None:
        """Cancel all tasks: asyncio would complain of them in a later test."""
        while cls.benches:
            loop = cls.benches.pop().loop
            loop.run_until_complete(_end_others())
            loop.close()

    def lead(self, *partitions: int) -> "Bench":
        self.coordinator.on_leadership(set(partitions), set())
        return self

    def run(self, seconds: float = 0.0) -> "Bench":
        """Let time pass; without seconds, let everything happen that can happen now."""
        turns = asyncio.sleep(seconds) if seconds else self._turns()
        self.loop.run_until_complete(turns)
        return self

    async def _turns(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    def commit(self, offset: int, group: str = OWN, partition: int = 0) -> Pending:
        event = CommitOffsets(
            self.coordinator.next_request_id(), group, -1, "", None, [record(offset, group)]
        )
        return self.coordinator.submit(event)

    def committed(self, group: str = OWN) -> int | None:
        kept = self.coordinator.shard(group).offsets.fetch(group, "t", 0)
        return kept and kept.offset

    def refusal(self, group: str = OWN) -> ErrorCode:
        try:
            self.coordinator.shard(group)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def batches(self, partition: int = 0) -> list[int]:
        """Return the number of records in each batch of the log."""
        return [read_header(data).count for _, data in self.log.partition(partition).batches]


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def error_of(pending: Pending) -> ErrorCode | None:
    """The error of the response; None while there is none."""
    return None if pending.response is None else pending.response.error


def record(offset: int, group: str = OWN) -> Record:
    return OffsetKey(group, "t", 0), CommittedOffset(offset, -1, "", NOW_MS)


def batch_of(*records: Record, base_offset: int = 0) -> bytes:
    rows = [(NOW_MS, encode_key(key), encode_value(value), ()) for key, value in records]
    return encode_batch(rows, base_offset=base_offset)
