"""DescribeLogDirs: size and directory of the logs of this broker (KIP-113)."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby

from broker.network.request_context import RequestContext
from broker.replication.replica_manager import ReplicaManager
from core_log.log import Log
from core_log.log_manager import LogManager
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResponsePartition,
    DescribeLogDirsResponseResult,
    DescribeLogDirsResponseTopic,
)
from protocol.topic_partition import TopicPartition

UNKNOWN_LAG = -1


def handle(
    logs: LogManager,
    replicas: ReplicaManager,
    request: DescribeLogDirsRequest,
    context: RequestContext,
) -> DescribeLogDirsResponse:
    """Return all directories, each with the logs of the named partitions (null: all) in it."""
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, partition_id)
            for topic in request.topics
            for partition_id in topic.partitions
        }

    # Directories in use, with their current and future logs.
    futures = logs.futures.by_directory()
    full = {log_dir.path for log_dir in logs.full_dirs()}
    used = [
        DescribeLogDirsResponseResult(
            error_code=ErrorCode.NONE,
            log_dir=path,
            topics=_topics(replicas, [*current, *futures[path]], wanted),
            is_full=path in full,
        )
        for path, current in logs.by_directory().items()
    ]

    # Only the path of a failed directory is known.
    offline = [
        DescribeLogDirsResponseResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=()
        )
        for path in logs.offline_dirs
    ]
    return DescribeLogDirsResponse(results=[*used, *offline])


def _topics(
    replicas: ReplicaManager, logs: Collection[Log], wanted: Collection[TopicPartition] | None
) -> list[DescribeLogDirsResponseTopic]:
    named = [log for log in logs if wanted is None or log.topic_partition in wanted]
    named.sort(key=lambda log: log.topic_partition)
    return [
        DescribeLogDirsResponseTopic(
            name=topic, partitions=[_partition(replicas, log) for log in same_topic]
        )
        for topic, same_topic in groupby(named, key=lambda log: log.topic_partition.topic)
    ]


def _partition(replicas: ReplicaManager, log: Log) -> DescribeLogDirsResponsePartition:
    partition = replicas.partitions.get(log.topic_partition)
    is_future = replicas.logs.futures.get(log.topic_partition) is log
    # A log that is not served has no high watermark to be compared with.
    lag = UNKNOWN_LAG
    if partition is not None:
        # A future log lags behind the current one, which lags behind the high watermark.
        target = partition.log.log_end_offset if is_future else partition.high_watermark
        lag = max(target - log.log_end_offset, 0)

    return DescribeLogDirsResponsePartition(
        partition_index=log.topic_partition.partition,
        partition_size=log.size,
        offset_lag=lag,
        is_future_key=is_future,
    )
