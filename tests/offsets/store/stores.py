"""Stores to test: ZooKeeper in memory, and a coordinator that answers from a script."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from offsets.store import CoordinatorStore, Offsets
from offsets.zookeeper_store import ZooKeeperStore
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.memory import MemorySession, MemoryZooKeeper

P0, P1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
GROUP = "g"


def at(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    names = {"p0": P0, "p1": P1, "u0": U0}
    return {names[name]: OffsetAndMetadata(offset) for name, offset in offsets.items()}


class Coordinator:
    """A broker's responses; `codes` are errors by partition, `top` that of a whole fetch."""

    def __init__(self, committed: Offsets | None = None) -> None:
        self.committed = dict(committed or {})
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.top = ErrorCode.NONE
        self.requests: list[Any] = []
        self.forgotten = 0
        self.store = CoordinatorStore(self.call, self.forget)

    def forget(self) -> None:
        self.forgotten += 1

    async def call(self, request: Any) -> Any:
        self.requests.append(request)
        if isinstance(request, OffsetCommitRequest):
            return self._commit(request)
        assert isinstance(request, OffsetFetchRequest)
        return self._fetch(request)

    def _commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        topics = []

        for topic in request.topics:
            answers = []
            for p in topic.partitions:
                partition = TopicPartition(topic.name, p.partition_index)
                code = self.codes.get(partition, ErrorCode.NONE)
                if code is ErrorCode.NONE:
                    self.committed[partition] = OffsetAndMetadata(
                        p.committed_offset, p.committed_metadata or ""
                    )
                answers.append(
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index, error_code=code
                    )
                )
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))

        return OffsetCommitResponse(topics=topics)

    def _fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if self.top is not ErrorCode.NONE:
            return OffsetFetchResponse(topics=[], error_code=self.top)
        nothing = OffsetAndMetadata(-1)
        return OffsetFetchResponse(
            error_code=0,
            topics=[
                OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=index,
                            committed_offset=self.committed.get(partition, nothing).offset,
                            metadata=self.committed.get(partition, nothing).metadata,
                            error_code=self.codes.get(partition, ErrorCode.NONE),
                        )
                        for index in topic.partition_indexes
                        for partition in [TopicPartition(topic.name, index)]
                    ],
                )
                for topic in request.topics or ()
            ],
        )


def play(
    scene: Callable[[MemorySession, ZooKeeperStore], Coroutine[Any, Any, None]],
) -> None:
    async def whole() -> None:
        session = MemoryZooKeeper().session()
        await session.start()
        await scene(session, ZooKeeperStore(session))

    asyncio.run(whole())
