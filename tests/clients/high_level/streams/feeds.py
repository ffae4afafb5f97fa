"""Streams, feeds and chunks to test."""

from collections.abc import Callable, Coroutine
from typing import Any

from clients.high_level.streams import Chunk, MessageStream, PartitionFeed
from clients.serializers import str_decoder
from protocol.records.batch import Record
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def records(start: int, end: int) -> list[Record]:
    return [Record(offset, 0, None, b"%d" % offset, ()) for offset in range(start, end)]


def a_stream(**settings: Any) -> MessageStream:
    return MessageStream(str_decoder, str_decoder, **settings)


def a_feed(stream: MessageStream, position: int | None = 0) -> PartitionFeed:
    return PartitionFeed(P0, stream, position)


def put(feed: PartitionFeed, start: int, end: int, next_offset: int | None = None) -> None:
    feed.stream.put(Chunk(feed, start, next_offset or end, records(start, end)))


async def take(stream: MessageStream, count: int) -> list[int]:
    return [(await anext(stream)).offset for _ in range(count)]


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_virtual_time(scene())
