"""A broker with three directories, and replicas that move between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import attrs

from broker.handlers import alter_replica_log_dirs, describe_log_dirs
from broker.network.purgatory import Wait
from broker.replication.directory_moves import PIECE_BYTES, DirectoryMoves
from broker.replication.replication_quota import ReplicationQuota
from core_log.config import LogConfig
from core_log.log_work import LogWork
from core_log.memory_directory import Disk, MemoryDirectory
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.records.batch import decode_records
from protocol.topic_partition import TopicPartition
from tests.broker.received import received
from tests.broker.replication.replicas import (
    NOW_MS,
    AtOnce,
    Replicas,
    batch,
    context,
)
from tests.broker.spawning import Spawned

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
A, B, C = "/a", "/b", "/c"
LARGE = PIECE_BYTES // 2


class Thread(AtOnce):
    """An executor that does its work at once, after something that a test lets happen first."""

    def __init__(self) -> None:
        self.meanwhile: list[Callable[[], object]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return super().submit(fn, *args, **kwargs)


@attrs.define(eq=False)
class DirectoryStage:
    """Broker 0 with three directories, on the loop's clock."""

    replicas: Replicas
    thread: Thread = attrs.field(factory=Thread)
    spawned: Spawned = attrs.field(factory=Spawned)
    moves: DirectoryMoves = attrs.field(init=False)
    quota: ReplicationQuota = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.quota = ReplicationQuota(0, lambda: int(loop.time() * 1000))
        self.moves = DirectoryMoves(
            self.replicas.manager,
            self.quota,
            LogWork(self.thread),
            self.spawned,
            lambda: NOW_MS,
            asyncio.Lock(),
        )
        self.replicas.manager.leadership.subscribe(self.moves.resume)

    def append(self, *values: bytes, tp: TopicPartition = T0) -> None:
        self.replicas.manager.append(
            tp, batch(*values), all_in_sync=False, zstd_allowed=True, now_ms=NOW_MS
        )

    def fill(self, batches: int = 10, size: int = LARGE, tp: TopicPartition = T0) -> None:
        for number in range(batches):
            self.append(b"%d" % number + b"." * size, tp=tp)

    def move(self, tp: TopicPartition, path: str) -> ErrorCode:
        topic = AlterReplicaLogDirsRequestTopic(name=tp.topic, partitions=[tp.partition])
        request = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDirsRequestDir(path=path, topics=[topic])]
        )
        response = self.answer(request)
        assert not isinstance(response, Wait)
        answer = received(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, response)
        ((code,),) = [[p.error_code for p in topic.partitions] for topic in answer.results]
        return ErrorCode.of(code)

    def answer(self, request: AlterReplicaLogDirsRequest) -> Any:
        """Return the response to a request, or the Wait for it."""
        deferred = self.replicas.deferred
        return alter_replica_log_dirs.handle(self.moves, deferred, 1000, request, context(1))

    def values(self, tp: TopicPartition = T0) -> list[bytes]:
        """Read everything as a consumer; return the values without their filling."""
        values: list[bytes] = []
        offset = self.replicas.manager.log(tp).log_start_offset
        while True:
            fetched = self.replicas.manager.read(tp, offset, 10 * LARGE, min_one=True)
            if fetched.range is None:
                return values
            records = decode_records(fetched.range.read(), offset)
            values += [(record.value or b"").rstrip(b".") for record in records]
            offset = records[-1].offset + 1

    def place(self, tp: TopicPartition = T0) -> str:
        return self.replicas.manager.logs.futures.current_dir(tp).path

    def described(self) -> dict[str, Sequence[tuple[int, int, bool]]]:
        """Describe the directories: (partition, lag, is_future) of each replica in them."""
        answer = describe_log_dirs.handle(
            self.replicas.manager.logs,
            self.replicas.manager,
            DescribeLogDirsRequest(topics=None),
            context(1),
        )
        return {
            result.log_dir: [
                (p.partition_index, p.offset_lag, p.is_future_key)
                for topic in result.topics
                for p in topic.partitions
            ]
            for result in answer.results
        }


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def three_directories(partitions: int = 1, *, led: bool = True, **config: Any) -> DirectoryStage:
    disk = Disk()
    a, b, c = (MemoryDirectory(name, disk) for name in "abc")
    stage = DirectoryStage(Replicas(directory=a, others=(b, c), config=LogConfig(**config)))
    if led:
        stage.replicas.lead("t", partitions)
    return stage
