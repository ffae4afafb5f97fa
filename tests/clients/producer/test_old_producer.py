"""The producer with `producer.type`, against a scripted broker: sync, async, handlers, failures."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from clients.errors import FailedToSendMessage, ProducerClosed
from clients.producer.deliveries import RecordMetadata
from clients.producer.handlers import CallbackHandler
from clients.producer.messages import KeyedMessage, ProducerData
from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import HANG_UP, SILENCE, ScriptedBroker
from tests.stage.clock import run_in_own_time

P0 = TopicPartition("t", 0)


def with_producer(
    scenario: Callable[[Producer, ScriptedBroker], Awaitable[Any]],
    kind: str,
    topics: Any = None,
    **settings: Any,
) -> Any:
    """Run a scenario with a producer of this type, with a time limit."""

    async def run() -> Any:
        async with ScriptedBroker(topics or {"t": 1}) as broker:
            fast = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, **settings}
            producer = Producer(bootstrap_servers=broker.bootstrap, producer_type=kind, **fast)
            async with producer:
                return await scenario(producer, broker)

    return run_in_own_time(run())


def values(broker: ScriptedBroker, partition: TopicPartition = P0) -> list[bytes | None]:
    return [record.value for record in broker.log[partition]]


# --- sync -----------------------------------------------------------------------------------------


def test_sync_send_returns_where_each_message_went_in_their_order() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        data = [ProducerData("u", None, b"a"), ProducerData("t", None, [b"b", b"c"])]
        sent = await producer.send(data)
        assert sent is not None
        assert [(m.topic, m.partition, m.offset) for m in sent] == [
            ("u", 0, 0),
            ("t", 0, 0),
            ("t", 0, 1),
        ]
        assert isinstance(sent[0], RecordMetadata)
        assert values(broker) == [b"b", b"c"]

    with_producer(scenario, "sync", {"t": 1, "u": 1})


def test_key_is_stored_and_a_partition_key_only_chooses() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send(KeyedMessage("t", "k", "v", part_key=3))
        (record,) = broker.log[TopicPartition("t", 3)]
        assert (record.key, record.value) == (b"k", b"v")

    with_producer(
        scenario, "sync", {"t": 4}, **{"serializer.class": "kafka.serializer.StringEncoder"}
    )


def test_keys_go_by_their_java_hash_and_not_by_murmur2() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        keys = ["key", "test-key", "polygenelubricants", 2**31]
        sent = await producer.send([ProducerData("t", key, b"") for key in keys])
        assert sent is not None
        assert [metadata.partition for metadata in sent] == [1, 6, 0, 0]

    encoder = {"key.serializer.class": lambda key: str(key).encode()}
    with_producer(scenario, "sync", {"t": 7}, **encoder)


def test_partitioner_of_the_users_own_sees_the_key_itself() -> None:
    class ByLength:
        def partition(self, key: str, num_partitions: int) -> int:
            return len(key) % num_partitions

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = await producer.send(ProducerData("t", "test", b""))
        assert sent is not None
        assert sent[0].partition == 1

    with_producer(
        scenario,
        "sync",
        {"t": 3},
        **{"partitioner.class": ByLength, "key.serializer.class": "StringEncoder"},
    )


@pytest.mark.parametrize("chosen", [-1, 3])
def test_partition_outside_the_topic_fails_the_message_at_once(chosen: int) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(FailedToSendMessage, match=f"partitioner chose {chosen} of 3"):
            await producer.send(ProducerData("t", b"k", b""))

    with_producer(scenario, "sync", {"t": 3}, **{"partitioner.class": lambda key, n: chosen})


def test_default_encoder_refuses_what_is_not_bytes_by_its_type_and_sends_nothing() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(TypeError, match="expected bytes, got str"):
            await producer.send(ProducerData("t", None, [b"a", "b"]))
        assert broker.asked(ApiKey.PRODUCE) == []
        assert producer.metrics.serialization_errors == 1

    with_producer(scenario, "sync")


def test_encoder_object_encodes_values_and_keys() -> None:
    class Hex:
        def to_message(self, data: int) -> bytes:
            return hex(data).encode()

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send(ProducerData("t", 1, [255]))
        (record,) = broker.log[P0]
        assert (record.key, record.value) == (b"0x1", b"0xff")

    with_producer(scenario, "sync", **{"serializer.class": Hex()})


def test_null_message_with_a_key_is_a_tombstone() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send(ProducerData("t", b"k", [None]))
        (record,) = broker.log[P0]
        assert (record.key, record.value) == (b"k", None)

    with_producer(scenario, "sync")


def test_failed_send_is_tried_again_as_often_as_told_and_then_says_what_was_not_sent() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors += [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
        with pytest.raises(FailedToSendMessage, match="NOT_LEADER_OR_FOLLOWER") as failed:
            await producer.send(ProducerData("t", None, [b"a", b"b"]))
        assert [message.message for message in failed.value.messages] == [b"a", b"b"]
        assert isinstance(failed.value.__cause__, ApiError)
        assert len(broker.asked(ApiKey.PRODUCE)) == 3
        assert (await producer.send(ProducerData("t", None, b"c"))) is not None
        assert values(broker) == [b"c"]

    with_producer(scenario, "sync", **{"message.send.max.retries": 2})


def test_of_two_topics_of_which_one_fails_the_other_is_stored_and_not_named() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        data = [ProducerData("t", None, b"a"), ProducerData("nope", None, b"b")]
        with pytest.raises(FailedToSendMessage) as failed:
            await producer.send(data)
        assert [message.topic for message in failed.value.messages] == ["nope"]
        assert values(broker) == [b"a"]

    with_producer(scenario, "sync", **{"message.send.max.retries": 1, "request.timeout.ms": 50})


def test_cluster_that_cannot_be_reached_is_given_up_after_the_attempts() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await broker.__aexit__()
        with pytest.raises(FailedToSendMessage, match=str(broker.port)):
            await producer.send(ProducerData("t", None, b"a"))

    with_producer(scenario, "sync")


def test_leader_that_is_gone_is_given_up_after_the_attempts() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send(ProducerData("t", None, b"a"))
        await broker.__aexit__()
        with pytest.raises(FailedToSendMessage, match="NETWORK_EXCEPTION"):
            await producer.send(ProducerData("t", None, b"a"))

    with_producer(scenario, "sync")


def test_broker_that_does_not_answer_is_given_up_after_its_time() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        with pytest.raises(FailedToSendMessage):
            await producer.send(ProducerData("t", None, b"a"))
        assert len(broker.asked(ApiKey.PRODUCE)) == 1

    with_producer(scenario, "sync", message_send_max_retries=0, request_timeout_ms=50)


def test_handler_of_the_users_own_sends_in_our_place() -> None:
    class Collecting:
        def __init__(self) -> None:
            self.told: list[Any] = []

        def init(self, props: dict[str, str]) -> None:
            self.told.append(props)

        def handle(self, events: list[KeyedMessage]) -> list[str]:
            self.told += [event.message for event in events]
            return ["kept"]

        def close(self) -> None:
            self.told.append("closed")

    handler = Collecting()

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        assert await producer.send(ProducerData("t", None, [1, 2])) == ["kept"]
        await producer.close()
        assert handler.told == [{"a": "b"}, 1, 2, "closed"]
        assert broker.requests == []

    given = {"event.handler": handler, "event.handler.props": "a=b"}
    with_producer(scenario, "sync", **given)


def test_topic_and_value_may_be_given_as_without_producer_type_but_no_more() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send("t", b"a", key=b"k")
        assert values(broker) == [b"a"]
        with pytest.raises(TypeError, match="headers"):
            await producer.send("t", b"a", headers=[("h", b"")])

    with_producer(scenario, "sync")


def test_only_the_named_topics_are_compressed() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send([ProducerData(topic, None, b"x" * 1000) for topic in ("t", "u")])
        sizes = {
            topic.name: len(topic.partition_data[0].records)
            for request in broker.asked(ApiKey.PRODUCE)
            for topic in request.topic_data
        }
        assert sizes["u"] < 200 < 1000 < sizes["t"]

    given = {"compression.codec": "1", "compressed.topics": "u"}
    with_producer(scenario, "sync", {"t": 1, "u": 1}, **given)


# --- async ----------------------------------------------------------------------------------------


def test_async_send_queues_and_returns_and_the_close_sends_the_rest() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        assert await producer.send(ProducerData("t", None, [b"a", b"b"])) is None
        assert broker.asked(ApiKey.PRODUCE) == []
        await producer.close()
        assert values(broker) == [b"a", b"b"]

    with_producer(scenario, "async", queue_time=100_000)


def test_messages_of_many_batches_arrive_in_order_in_each_partition() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        for n in range(1000):
            await producer.send(ProducerData("t", n % 3, b"%d" % n))
        await producer.flush()
        for partition in range(3):
            expected = [b"%d" % n for n in range(1000) if n % 3 == partition]
            assert values(broker, TopicPartition("t", partition)) == expected

    given = {"key.serializer.class": "NullEncoder", "batch.size": 70}
    with_producer(scenario, "async", {"t": 3}, **given)


def test_message_an_encoder_refuses_costs_no_other_and_is_reported() -> None:
    lost: list[Any] = []

    class Reporting:
        def not_sent(self, events: Sequence[KeyedMessage], error: BaseException) -> None:
            lost.extend(event.message for event in events)

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send(ProducerData("t", None, [b"a", "b", b"c"]))
        await producer.flush()
        assert values(broker) == [b"a", b"c"]
        assert lost == ["b"]
        assert (producer.metrics.messages, producer.metrics.failed_sends) == (3, 1)

    with_producer(scenario, "async", **{"callback.handler": Reporting()})


def test_before_sending_data_may_change_the_batch_and_costs_it_when_it_raises() -> None:
    class Filtering(CallbackHandler):
        lost = 0

        def before_sending_data(self, events: list[KeyedMessage]) -> list[KeyedMessage]:
            if any(event.message == b"bad" for event in events):
                raise ValueError
            return [event for event in events if event.message != b"skip"]

        def not_sent(self, events: Sequence[KeyedMessage], error: BaseException) -> None:
            self.lost += len(events)

    hooks = Filtering()

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send(ProducerData("t", None, [b"a", b"skip", b"b", b"bad", b"c", b"d"]))
        await producer.close()
        assert values(broker) == [b"a", b"c", b"d"]
        assert hooks.lost == 2

    with_producer(scenario, "async", **{"callback.handler": hooks, "batch.size": 2})


def test_hooks_are_called_in_the_order_of_0_7() -> None:
    told: list[str] = []

    class Telling(CallbackHandler):
        def init(self, props: Any) -> None:
            told.append(f"init {dict(props)}")

        def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
            told.append(f"before_enqueue {event.message!r}")
            return event

        def after_enqueue(self, event: KeyedMessage, added: bool) -> None:
            told.append(f"after_enqueue {event.message!r} {added}")

        def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> list[KeyedMessage]:
            told.append(
                f"after_dequeuing {event.message!r}" if event else "after_dequeuing nothing"
            )
            return super().after_dequeuing_existing_data(event)

        def before_sending_data(self, events: list[KeyedMessage]) -> list[KeyedMessage]:
            told.append(f"before_sending {[event.message for event in events]}")
            return events

        def last_batch_before_close(self) -> list[KeyedMessage]:
            told.append("last_batch_before_close")
            return [KeyedMessage("t", None, b"last")]

        def close(self) -> None:
            told.append("close")

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send(ProducerData("t", None, b"a"))
        await producer.flush()
        await producer.close()
        assert values(broker) == [b"a", b"last"]

    given = {"callback.handler": Telling(), "callback.handler.props": "a=b", "queue.time": 60_000}
    with_producer(scenario, "async", **given)
    assert told == [
        "init {'a': 'b'}",
        "before_enqueue b'a'",
        "after_enqueue b'a' True",
        "after_dequeuing b'a'",
        "after_dequeuing nothing",
        "before_sending [b'a']",
        "close",
        "last_batch_before_close",
        "before_sending [b'last']",
    ]


def test_hook_that_raises_in_close_does_not_keep_the_rest_from_being_sent() -> None:
    class Raising(CallbackHandler):
        def close(self) -> None:
            raise ValueError

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send(ProducerData("t", None, b"a"))
        await producer.close()
        assert values(broker) == [b"a"]

    with_producer(scenario, "async", **{"callback.handler": Raising})


def test_close_without_time_says_what_was_not_sent() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send(ProducerData("t", None, [b"a", b"b"]))
        with pytest.raises(FailedToSendMessage) as failed:
            await producer.close(timeout_ms=0)
        assert [message.message for message in failed.value.messages] == [b"a", b"b"]
        await producer.close()
        with pytest.raises(ProducerClosed):
            await producer.send(ProducerData("t", None, b"c"))

    with_producer(scenario, "async", queue_time=100_000)


def test_close_ends_in_its_time_although_the_broker_does_not_answer() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        await producer.send(ProducerData("t", None, [b"a", b"b", b"c"]))
        await broker.received(ApiKey.PRODUCE)
        with pytest.raises(FailedToSendMessage) as failed:
            await producer.close(timeout_ms=50)
        assert [message.message for message in failed.value.messages] == [b"a", b"b", b"c"]

    with_producer(scenario, "async", batch_size=2, queue_time=0)


def test_batch_that_cannot_be_sent_costs_no_later_one() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors += [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await producer.send(ProducerData("t", None, [b"a", b"b", b"c"]))
        await producer.flush()
        assert values(broker) == [b"c"]
        assert producer.metrics.failed_sends == 2

    with_producer(scenario, "async", batch_size=2)


def test_connection_that_is_lost_while_sending_costs_nothing() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        answers = [lambda request: HANG_UP, broker.produce]
        broker.answers[ApiKey.PRODUCE] = lambda request: answers.pop(0)(request)
        await producer.send(ProducerData("t", None, b"a"))
        await producer.flush()
        assert values(broker) == [b"a"]

    with_producer(scenario, "async")


# --- both -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_send_after_the_close_is_refused(kind: str) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.close()
        with pytest.raises(ProducerClosed):
            await producer.send(ProducerData("t", None, b"a"))

    with_producer(scenario, kind)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("serializer.class", "com.example.Mine"),
        ("key.serializer.class", object()),
        ("partitioner.class", "no.such.module:Thing"),
        ("event.handler", "no.such.module:Thing"),
        ("callback.handler", "json:NoSuchName"),
    ],
)
def test_class_that_cannot_be_made_is_refused_by_its_setting(name: str, value: Any) -> None:
    with pytest.raises(SettingError) as refused:
        Producer({"bootstrap.servers": "h:1", "producer.type": "async", name: value})
    assert refused.value.name == name


def test_without_producer_type_data_is_buffered_and_gives_a_list_of_futures() -> None:
    async def run() -> None:
        async with (
            ScriptedBroker({"t": 50}) as broker,
            Producer(bootstrap_servers=broker.bootstrap) as producer,
        ):
            futures = await producer.send([ProducerData("t", b"key", [b"a", b"b"])])
            assert futures is not None
            sent = await asyncio.gather(*futures)
            assert [(m.partition, m.offset) for m in sent] == [(31, 0), (31, 1)]
            chosen = KeyedMessage("t", b"k", b"c", part_key=b"key")
            (future,) = await producer.send(chosen) or []
            assert (await future).partition == 31

    run_in_own_time(run())
