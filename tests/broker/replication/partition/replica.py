"""One replica, the states that the controller gives it, and its followers."""

from __future__ import annotations

from typing import Any

from broker.replication.partition import Partition
from core_log.appending.validator import ValidBatch
from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from protocol.messages.leader_and_isr import LeaderAndIsrRequestPartitionState
from protocol.records.batch import read_header
from protocol.topic_partition import TopicPartition
from tests.broker.replication.checked_partition import CheckedPartition
from tests.broker.replication.replicas import NOW_MS, batch

T0 = TopicPartition("t", 0)


def replica(config: LogConfig | None = None, **values: Any) -> Partition:
    """Make the replica of broker 0, of brokers 0 and 1, and give it its first state."""
    logs = LogManager([MemoryDirectory("logs")], LogConfig(), lambda: NOW_MS)
    logs.load()
    partition = CheckedPartition(T0, 0, logs.get_or_create(T0, config or LogConfig()))
    partition.take_state(state(**values), NOW_MS)
    return partition


def state(
    leader: int = 0,
    epoch: int = 3,
    isr: tuple[int, ...] = (0, 1),
    replicas: tuple[int, ...] = (0, 1),
    zk_version: int = 8,
) -> LeaderAndIsrRequestPartitionState:
    return LeaderAndIsrRequestPartitionState(
        partition_index=0,
        controller_epoch=2,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        partition_epoch=zk_version,
        replicas=replicas,
    )


def append(partition: Partition, *values: bytes, all_in_sync: bool = False) -> int:
    data = batch(*values)
    header = read_header(data)
    valid = ValidBatch(data, header, header.max_timestamp)
    return partition.append(valid, all_in_sync=all_in_sync, now_ms=NOW_MS).last_offset


LAG_MS = 10_000


def led(config: LogConfig | None = None, records: int = 0, **values: Any) -> Partition:
    """Make a replica that leads in epoch 3, with records that no follower has."""
    partition = replica(config, **values)
    for _ in range(records):
        append(partition, b"x")
    return partition


def fetch(partition: Partition, offset: int, after_ms: int = 0, replica: int = 1) -> bool:
    """Fetch as a follower; return whether the high watermark moved."""
    partition.note_follower_fetch(replica, offset, 0, NOW_MS + after_ms)
    return partition.advance_high_watermark(NOW_MS + after_ms)


def follower(records: int = 0, watermark: int = 0) -> Partition:
    """Make a replica that follows broker 1 in epoch 4, with records of its own."""
    partition = led(records=records, isr=(0,))
    partition.take_state(state(leader=1, epoch=4), NOW_MS)
    partition.high_watermark = watermark
    return partition
