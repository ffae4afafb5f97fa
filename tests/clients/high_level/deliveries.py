"""A delivery to test: its store, its streams, and an application that consumes."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from clients.high_level.delivery import StreamDelivery
from clients.high_level.streams import Chunk, MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from offsets.store import Offsets
from offsets.store_errors import CommitFailed
from protocol.errors import ErrorCode
from protocol.records.batch import Record
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Store:
    """A store that records commits; it fails as the next of `failures` says, None being success."""

    def __init__(self) -> None:
        self.commits: list[dict[TopicPartition, int]] = []
        self.epochs: list[dict[TopicPartition, int]] = []
        """The leader epochs of the same."""
        self.failures: list[Exception | None] = []
        self.answer: Offsets | Exception = {}
        self.latency_s = 0.0

    async def fetch(self, group: str, partitions: Iterable[TopicPartition]) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def commit(self, group: str, offsets: Offsets) -> None:
        await asyncio.sleep(self.latency_s)
        self.commits.append({p: offset.offset for p, offset in offsets.items()})
        self.epochs.append({p: offset.leader_epoch for p, offset in offsets.items()})
        if self.failures and (failure := self.failures.pop(0)):
            raise failure


class Scene:
    def __init__(self) -> None:
        self.store = Store()
        self.fetching: list[PartitionFeed] = []
        self.streams = [MessageStream(bytes_decoder, bytes_decoder) for _ in range(2)]
        self.delivery = StreamDelivery(
            "g", "g_a", self.store, self.fetching.extend, commit_retries=3, commit_backoff_ms=1000
        )
        self.delivery.streams = self.streams
        self.delivery.stream_of = lambda partition, thread: self.streams[int(thread)]

    async def consume(self, partition: TopicPartition, start: int, end: int) -> None:
        """Let an application take [start, end) and ask for more."""
        feed = next(f for f in self.fetching if f.partition == partition and f.live)
        records = [Record(offset, 0, None, None, ()) for offset in range(start, end + 1)]
        feed.stream.put(Chunk(feed, start, end + 1, records))
        for _ in records:
            await anext(feed.stream)


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_virtual_time(scene())


def retriable(*partitions: TopicPartition) -> CommitFailed:
    return CommitFailed(dict.fromkeys(partitions, ErrorCode.NOT_COORDINATOR))
