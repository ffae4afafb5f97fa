"""Feeds that are opened: what the application may do before they are fetched, and once replaced."""

from __future__ import annotations

from typing import Any

from clients.high_level.delivery import StreamDelivery
from clients.high_level.streams import MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from offsets.store import CoordinatorStore
from protocol.topic_partition import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def refuse(request: Any) -> Any:
    raise AssertionError("nothing is committed here")


class Scene:
    def __init__(self) -> None:
        self.fetching: list[PartitionFeed] = []
        self.stream = MessageStream(bytes_decoder, bytes_decoder)
        store = CoordinatorStore(refuse)
        self.delivery = StreamDelivery(
            "g", "g_a", store, self.fetching.extend, commit_retries=0, commit_backoff_ms=1
        )
        self.delivery.streams = [self.stream]
        self.delivery.stream_of = lambda partition, thread: self.stream


def test_feed_that_is_replaced_delivers_nothing_more() -> None:
    work = Scene()
    work.delivery.start({P0: ("0", 5)})
    work.delivery.start({P0: ("0", 7)})
    former, feed = work.fetching
    assert (former.live, feed.live) == (False, True)
