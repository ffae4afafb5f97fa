"""A broker that is a connection answering from lists, and a fetcher of it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from clients.errors import ConnectionFailed
from clients.high_level.config import load_consumer_config
from clients.high_level.fetchers import BrokerFetcher
from clients.high_level.metrics import Meters
from clients.high_level.streams import MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from core_log.leader_epochs import LeaderEpochs
from core_log.memory_directory import MemoryDirectory
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponseEpochEndOffset,
    FetchResponsePartition,
    FetchResponseTopic,
    partition_error,
)
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.records.batch import encode_batch
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT_S = 0.1


class Broker:
    """Partitions as [start, end) of offsets, a batch of ten records each; errors on demand."""

    request_timeout_ms = 30_000
    throttled_until_s = 0.0

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, tuple[int, int]] = {P0: (0, 30), P1: (0, 30)}
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.asked: list[dict[TopicPartition, int]] = []
        self.corrupt_at: int | None = None
        self.sends_parts = False
        """True: send a part of a batch that is larger than the limit, as brokers before KIP-74."""
        self.last_stable_offset: int | None = None
        """The end of what is committed, if it is not the end of the log."""
        self.isolations: set[int] = set()
        """Isolation levels of all requests."""
        self.sizes: list[tuple[int, int]] = []
        """Limits of the requests: (of the whole response, of its first partition)."""
        self.down = False
        self.wait_s = WAIT_S
        self.epochs = LeaderEpochs(MemoryDirectory())
        """The leader epochs of all logs."""
        self.compacted = range(0)
        """Offsets of batches that the logs have no more."""
        self.leader_epochs: dict[TopicPartition, int] = {}
        """The epochs in which it leads, where it compares them with those of requests."""
        self.last_epochs: list[int] = []
        """What the requests said of the record before the first offset."""
        self.silence_s = 0.0
        """For so long a quota wants us to be silent, and gets an answer without partitions."""

    async def connect(self) -> Any:
        return self

    async def call(self, request: Any, *, timeout_ms: int | None = None) -> Any:
        if self.down:
            raise ConnectionFailed("h", 1, "down")
        self.isolations.add(request.isolation_level)
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)

        assert isinstance(request, FetchRequest)
        asked = {
            TopicPartition(topic.topic, p.partition): p
            for topic in request.topics
            for p in topic.partitions
        }
        self.asked.append({partition: p.fetch_offset for partition, p in asked.items()})
        first = request.topics[0].partitions[0]
        self.last_epochs.append(first.last_fetched_epoch)
        self.sizes.append((request.max_bytes, first.partition_max_bytes))
        await asyncio.sleep(self.wait_s)
        if self.silence_s:
            self.throttled_until_s = asyncio.get_running_loop().time() + self.silence_s
            self.wait_s = self.silence_s
            return FetchResponse(throttle_time_ms=int(1000 * self.silence_s), responses=[])
        return FetchResponse(
            responses=[
                FetchResponseTopic(topic=p.topic, partitions=[self._answer(p, wanted)])
                for p, wanted in asked.items()
            ]
        )

    def _answer(
        self, partition: TopicPartition, wanted: FetchRequestPartition
    ) -> FetchResponsePartition:
        """As of a broker from 2.7 on."""
        offset, last_epoch = wanted.fetch_offset, wanted.last_fetched_epoch
        leader_epoch = self.leader_epochs.get(partition, wanted.current_leader_epoch)
        if wanted.current_leader_epoch != leader_epoch:
            return partition_error(partition.partition, ErrorCode.FENCED_LEADER_EPOCH)
        response = self._fetch(partition, offset, wanted.partition_max_bytes)
        start, log_end = self.logs[partition]
        if last_epoch < 0 or offset < start or partition in self.errors:
            return response

        epoch, end = self.epochs.end_offset_for(last_epoch, log_end)
        if epoch < 0:
            return partition_error(partition.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == last_epoch and offset <= end:
            return response
        return FetchResponsePartition(
            partition_index=partition.partition,
            error_code=ErrorCode.NONE,
            high_watermark=response.high_watermark,
            records=b"",
            diverging_epoch=FetchResponseEpochEndOffset(epoch=epoch, end_offset=end),
        )

    def _fetch(self, partition: TopicPartition, offset: int, size: int) -> FetchResponsePartition:
        start, end = self.logs[partition]
        code = self.errors.get(partition, ErrorCode.NONE)
        if code is ErrorCode.NONE and not start <= offset <= end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        batch = b""

        if code is ErrorCode.NONE and offset < end:
            batches = range(offset - offset % 10, end, 10)
            first = next(base for base in batches if base not in self.compacted)
            values = [(0, None, b"%d" % (first + i), ()) for i in range(10)]
            epoch = self.epochs.epoch_of(first)
            batch = encode_batch(values, base_offset=first, leader_epoch=epoch)
            if self.corrupt_at == first:
                batch = batch[:-1] + bytes([batch[-1] ^ 1])
            if self.sends_parts:
                batch = batch[:size]

        return FetchResponsePartition(
            partition_index=partition.partition,
            error_code=code,
            high_watermark=end,
            last_stable_offset=end if self.last_stable_offset is None else self.last_stable_offset,
            aborted_transactions=None,
            records=memoryview(batch),
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponseTopic(
                    name=topic.name,
                    partitions=[
                        ListOffsetsResponsePartition(
                            partition_index=p.partition_index,
                            error_code=self.errors.get(
                                TopicPartition(topic.name, p.partition_index), ErrorCode.NONE
                            ),
                            old_style_offsets=(),
                            offset=self.logs[TopicPartition(topic.name, p.partition_index)][
                                0 if p.timestamp == -2 else 1
                            ],
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


class Scene:
    """A fetcher at work on a broker; `feed` makes streams."""

    def __init__(self, **settings: str) -> None:
        config, _ = load_consumer_config({"group.id": "g", "zookeeper.connect": "z:1", **settings})
        self.broker = Broker()
        self.given_back: list[PartitionFeed] = []
        self.meters = Meters(asyncio.get_running_loop().time)
        self.fetcher = BrokerFetcher(config, 7, self.broker.connect, self._give_back, self.meters)

    def _give_back(self, feeds: Iterable[PartitionFeed]) -> None:
        self.given_back += feeds

    def feed(self, partition: TopicPartition, position: int | None) -> PartitionFeed:
        stream = MessageStream(
            bytes_decoder,
            bytes_decoder,
            max_chunks=self.fetcher.config.queued_max_message_chunks,
            timeout_ms=1000,
            on_room=self.fetcher.wake.set,
        )
        feed = PartitionFeed(partition, stream, position)
        self.fetcher.add(feed)
        return feed

    async def __aenter__(self) -> "Scene":
        self.task = asyncio.ensure_future(self.fetcher.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()


async def offsets(feed: PartitionFeed, count: int) -> list[int]:
    return [(await anext(feed.stream)).offset for _ in range(count)]


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_virtual_time(scene())
