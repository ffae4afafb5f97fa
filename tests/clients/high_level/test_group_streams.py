"""The streams of a member at a coordinator: which partitions feed which."""

from collections.abc import Sequence

from clients.high_level.coordinator_side import GroupStreams
from clients.high_level.delivery import StreamDelivery
from clients.high_level.streams import MessageStream
from clients.serializers import bytes_decoder
from groups.zookeeper.filters import Whitelist
from groups.zookeeper.registration import (
    FilterSubscription,
    StaticSubscription,
    Subscription,
    stream_index,
)
from offsets.store import CoordinatorStore
from protocol.topic_partition import TopicPartition

MEMBER = "g-12345678"


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


class Scene:
    """A member with two streams a topic, or two for all topics."""

    def __init__(self, subscription: Subscription) -> None:
        async def call(request: object) -> object:
            raise AssertionError("nothing is committed")

        store = CoordinatorStore(call, lambda: None)
        self.delivery = StreamDelivery("g", MEMBER, store, lambda feeds: None, 0, 0)
        streams = [MessageStream(bytes_decoder, bytes_decoder) for _ in range(2)]
        self.delivery.stream_of = lambda _, thread: streams[stream_index(thread)]
        self.numbers = {stream: number for number, stream in enumerate(streams)}
        self.streams = GroupStreams(MEMBER, self.delivery, subscription)

    def start(self, *started: TopicPartition) -> None:
        self.streams.open_at(dict.fromkeys(started, 0))

    def dealt(self) -> Sequence[str]:
        return sorted(f"{f.partition} on {self.numbers[f.stream]}" for f in self.delivery.owned)


def test_the_streams_of_a_filter_are_fed_evenly_over_all_its_topics() -> None:
    scene = Scene(FilterSubscription(Whitelist("t.*"), 2))
    scene.start(*(TopicPartition(f"t{number}", 0) for number in range(4)))
    assert scene.dealt() == ["t0-0 on 0", "t1-0 on 1", "t2-0 on 0", "t3-0 on 1"]


def test_a_new_topic_of_a_filter_goes_to_the_stream_that_has_fewest() -> None:
    scene = Scene(FilterSubscription(Whitelist("t.*"), 2))
    scene.start(*partitions("t0", 0, 1, 2))
    scene.start(*partitions("t1", 0))
    assert scene.dealt() == ["t0-0 on 0", "t0-1 on 1", "t0-2 on 0", "t1-0 on 1"]


def test_a_topic_with_streams_of_its_own_is_dealt_for_itself() -> None:
    scene = Scene(StaticSubscription({"a": 2, "b": 1}))
    scene.start(*partitions("b", 0, 1), *partitions("a", 2, 0))
    scene.start(*partitions("a", 1))
    assert scene.dealt() == ["a-0 on 0", "a-1 on 0", "a-2 on 1", "b-0 on 0", "b-1 on 0"]
