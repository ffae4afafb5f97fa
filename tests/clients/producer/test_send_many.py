"""Many records in one call, and one future for all of them."""

import asyncio
import random
from typing import Any, cast

import pytest

from clients import blocking
from clients.errors import (
    BrokerError,
    BufferExhausted,
    ProducerClosed,
    RecordsNotDelivered,
    RecordTooLarge,
)
from clients.producer.deliveries import RecordMetadata
from clients.producer.lot import Lot
from clients.producer.partitioner import key_partition
from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.clients.producer.running_producer import values, with_producer
from tests.clients.scripted_broker import SILENCE, ScriptedBroker
from tests.stage.cluster import DevCluster

NUMBERS = [b"%d" % number for number in range(500)]


def test_the_future_has_the_places_of_all_in_order() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = await producer.send_many("t", NUMBERS, timestamp_ms=7)
        assert await sent == [RecordMetadata("t", 0, offset, 7) for offset in range(500)]
        assert values(broker) == NUMBERS

    with_producer(scenario)


def test_keys_choose_partitions_and_each_partition_keeps_the_order() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        keys = [b"%d" % (number % 10) for number in range(500)]
        places = await (await producer.send_many("t", NUMBERS, keys))
        alone = [await producer.send_and_wait("t", b"", key=key) for key in keys[:10]]
        assert [place.partition for place in places[:10]] == [place.partition for place in alone]

        for partition in range(3):
            sent = [
                (place.offset, value)
                for place, value in zip(places, NUMBERS, strict=True)
                if place.partition == partition
            ]
            assert sent == sorted(sent)
            expected = [value for _, value in sent]
            assert values(broker, TopicPartition("t", partition))[: len(sent)] == expected

    with_producer(scenario, {"t": 3}, batch_size=300)


def test_records_of_several_topics_go_where_each_goes_alone() -> None:
    partitions = {"one": 1, "four": 4}

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        # Both topics are known before.
        for topic in partitions:
            await producer.send_and_wait(topic, b"", partition=0)
        records = [
            producer.records.encode(topic, b"", b"%d" % number, None, (), 0)
            for number in range(40)
            for topic in partitions
        ]
        deliveries = [asyncio.get_running_loop().create_future() for _ in records]
        assert await producer._buffer_all(records, deliveries) == (80, None)

        places = await asyncio.gather(*deliveries)
        assert [(place.topic, place.partition) for place in places] == [
            (topic, key_partition(b"%d" % number, count))
            for number in range(40)
            for topic, count in partitions.items()
        ]

    with_producer(scenario, partitions, linger_ms=5)


def test_partition_and_headers_are_those_of_all() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = await producer.send_many("t", [b"a", b"b"], partition=1, headers=[("h", b"1")])
        assert [place.partition for place in await sent] == [1, 1]
        headers = [record.headers for record in broker.log[TopicPartition("t", 1)]]
        assert headers == [(("h", b"1"),)] * 2

    with_producer(scenario, {"t": 2})


def test_more_records_than_the_buffer_holds_wait_for_room_and_keep_their_order() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        places = await (await producer.send_many("t", NUMBERS))
        assert [place.offset for place in places] == [*range(500)]
        assert values(broker) == NUMBERS

    with_producer(scenario, buffer_memory=1000, batch_size=200)


def test_places_are_a_sequence_as_a_list_is() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        places = await (await producer.send_many("t", NUMBERS, timestamp_ms=7, partition=0))
        expected = [RecordMetadata("t", 0, offset, 7) for offset in range(500)]
        assert (len(places), [*places], [*reversed(places)]) == (500, expected, expected[::-1])
        assert (places[-1], places[497:], places[::250]) == (
            expected[-1],
            expected[497:],
            expected[::250],
        )
        assert (places == expected, places == expected[1:]) == (True, False)
        assert repr(places) == repr(expected)
        with pytest.raises(IndexError):
            places[500]

    with_producer(scenario, batch_size=300)


def test_without_acknowledgement_no_offset_is_known() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        places = await (await producer.send_many("t", NUMBERS, timestamp_ms=7))
        assert [*places] == [RecordMetadata("t", 0, -1, 7)] * 500

    with_producer(scenario, acks="0")


@pytest.mark.parametrize("seed", range(20))
def test_records_are_stored_as_each_alone_is(seed: int) -> None:
    """With keys, headers, null values, serializers, and batches and buffers that are full."""
    draw = random.Random(seed)
    count = draw.choice([1, 7, 300])
    values_sent = [b"x" * draw.choice([10, draw.randrange(60)]) for _ in range(count)]
    if draw.random() < 0.2:
        values_sent[draw.randrange(count)] = cast(bytes, None)
    keys = [b"k" * draw.randrange(1, 4) for _ in range(count)] if draw.random() < 0.4 else None
    headers = [("h", b"1"), ("n", None)] if draw.random() < 0.3 else []
    settings = {
        "batch_size": draw.choice([100, 300, 16384]),
        "buffer_memory": draw.choice([1_000, 1 << 20]),
        "value_serializer": None if draw.random() < 0.5 else reverse,
    }

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        t0, u0 = TopicPartition("t", 0), TopicPartition("u", 0)
        for topic in "tu":
            await producer.send_and_wait(topic, b"", partition=0, timestamp_ms=5)
        sent = await producer.send_many(
            "t", values_sent, keys, partition=0, headers=headers, timestamp_ms=7
        )
        for number, value in enumerate(values_sent):
            key = None if keys is None else keys[number]
            await producer.send("u", value, key=key, partition=0, headers=headers, timestamp_ms=7)
        await producer.flush()

        assert [place.offset for place in await sent] == [*range(1, 1 + count)]
        stored, expected = ([r._replace(offset=0) for r in broker.log[p]] for p in (t0, u0))
        assert stored == expected

    with_producer(scenario, {"t": 1, "u": 1}, **settings)


def reverse(value: bytes | None) -> bytes | None:
    return None if value is None else value[::-1]


def test_no_records_are_delivered_at_once() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        assert await (await producer.send_many("t", [])) == []

    with_producer(scenario)


def test_a_record_that_cannot_be_sent_is_refused_before_any_is() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(TypeError, match="expected bytes, got str"):
            await producer.send_many("t", [b"a", "b"])
        with pytest.raises(RecordTooLarge):
            await producer.send_many("t", [b"a", b"x" * 600])
        with pytest.raises(ValueError, match="1 keys were given for 2 values"):
            await producer.send_many("t", [b"a", b"b"], [b"k"])
        await producer.flush()
        assert values(broker) == []

    with_producer(scenario, max_request_size=500)


def test_the_failure_names_the_first_record_that_failed_and_how_many() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send_and_wait("t", b"", partition=0)
        broker.produce_errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        sent = await producer.send_many("t", NUMBERS, partition=0)
        with pytest.raises(RecordsNotDelivered) as raised:
            await sent

        error = raised.value
        failed = [n for n, result in enumerate(error.results) if isinstance(result, BrokerError)]
        assert 0 < len(failed) < 500
        assert (error.first, error.num_failed) == (failed[0], len(failed))
        assert f"t: {len(failed)} of 500 records were not delivered" in str(error)
        assert f"the first is values[{failed[0]}]" in str(error)
        assert error.__cause__ is error.results[failed[0]]

        stored = [value for n, value in enumerate(NUMBERS) if n not in failed]
        assert values(broker)[1:] == stored
        places = [result for result in error.results if isinstance(result, RecordMetadata)]
        assert [place.offset for place in places] == [*range(1, 1 + len(stored))]

    with_producer(scenario, batch_size=500)


def test_records_that_find_no_room_fail_with_all_behind_them() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        sent = await producer.send_many("t", [b"x" * 300] * 5)
        broker.answers[ApiKey.PRODUCE] = broker.produce
        broker.hang_up()
        with pytest.raises(
            RecordsNotDelivered, match=r"2 of 5 .* values\[3\]: .*buffer\.memory"
        ) as e:
            await sent
        assert [type(result) for result in e.value.results] == [
            *[RecordMetadata] * 3,
            *[BufferExhausted] * 2,
        ]

        # The first record of a call has nothing before it: the call itself fails.
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        await producer.send_many("t", [b"x" * 300] * 3)
        with pytest.raises(BufferExhausted):
            await producer.send_many("t", [b"x" * 300])
        await producer.close(timeout_ms=0)

    with_producer(scenario, buffer_memory=1000, max_block_ms=50)


def test_a_close_fails_what_is_not_buffered_yet() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        sending = asyncio.create_task(producer.send_many("t", [b"x" * 300] * 5))
        await broker.received(ApiKey.PRODUCE)
        await producer.close(timeout_ms=0)
        with pytest.raises(RecordsNotDelivered) as raised:
            await (await sending)
        assert [type(result) for result in raised.value.results] == [ProducerClosed] * 5

        with pytest.raises(ProducerClosed):
            await producer.send_many("t", [b"x"])

    with_producer(scenario, buffer_memory=1000)


def test_a_batch_that_is_sent_again_or_split_keeps_the_order() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors += [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.MESSAGE_TOO_LARGE,
        ]
        places = await (await producer.send_many("t", NUMBERS))
        assert [place.offset for place in places] == [*range(500)]
        assert values(broker) == NUMBERS

    with_producer(scenario)


def test_a_partitioner_that_raises_fails_its_record_and_those_behind() -> None:
    def only_two(key: bytes | None, num_partitions: int) -> int:
        if key == b"bad":
            raise LookupError("no such place")
        return 1

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = await producer.send_many("t", [b"a", b"b", b"c"], [b"k", b"bad", b"k"])
        with pytest.raises(RecordsNotDelivered, match=r"2 of 3 .* values\[1\]: no such place"):
            await sent
        assert values(broker, TopicPartition("t", 1)) == [b"a"]

    with_producer(scenario, {"t": 2}, partitioner_class=only_two)


def test_a_serializer_that_gives_no_bytes_fails_the_call_before_anything_is_buffered() -> None:
    def text_once(value: bytes) -> Any:
        return "no bytes" if value == b"bad" else value

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(TypeError, match="expected bytes, got str"):
            await producer.send_many("t", [b"a", b"b", b"bad", b"c"])
        await producer.send_and_wait("t", b"next")
        assert values(broker) == [b"next"]

    with_producer(scenario, value_serializer=text_once)


def test_records_with_and_without_keys_and_partitions_are_buffered_in_order() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        kinds: list[tuple[bytes | None, int | None]] = [(None, None), (b"k", None), (None, 1)]
        records = [
            producer.records.encode("t", b"%d" % number, *kinds[number // 7 % 3], (), 0)
            for number in range(210)
        ]
        deliveries = [asyncio.get_running_loop().create_future() for _ in records]
        assert await producer._buffer_all(records, deliveries) == (210, None)

        places = await asyncio.gather(*deliveries)
        for kind, partition in (1, key_partition(b"k", 2)), (2, 1):
            assert {p.partition for n, p in enumerate(places) if n // 7 % 3 == kind} == {partition}
        for partition in range(2):
            numbers = [n for n, place in enumerate(places) if place.partition == partition]
            expected = [b"%d" % number for number in numbers]
            assert values(broker, TopicPartition("t", partition)) == expected

    with_producer(scenario, {"t": 2}, batch_size=300)


def test_who_cancels_the_future_stops_no_record() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = await producer.send_many("t", NUMBERS)
        sent.cancel()
        await producer.flush()
        assert values(broker) == NUMBERS

    with_producer(scenario, linger_ms=100_000, delivery_timeout_ms=200_000)


def test_a_failure_that_nobody_awaits_is_not_reported_to_the_loop() -> None:
    async def scene() -> None:
        complaints: list[Any] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        future: asyncio.Future[Any] = loop.create_future()
        Lot("t", 2, future).fail_from(0, ValueError("no"))
        assert future.done()
        del future
        assert complaints == []

    asyncio.run(scene())


def test_a_producer_of_messages_names_the_call_for_many() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        async with Producer(
            {"bootstrap.servers": broker.bootstrap, "producer.type": "sync"}
        ) as old:
            with pytest.raises(TypeError, match="list of messages"):
                await old.send_many("t", [b"x"])

    with_producer(scenario)


def test_the_blocking_twin_sends_many_behind_what_was_sent_before(dev_cluster: DevCluster) -> None:
    settings = {"bootstrap.servers": dev_cluster.address("bootstrap")}
    with blocking.Producer(settings) as producer:
        first = producer.send("sent-many", b"first", partition=0)
        sent = producer.send_many("sent-many", NUMBERS, partition=0)
        last = producer.send("sent-many", b"last", partition=0)
        assert first.result(30).offset == 0
        assert [place.offset for place in sent.result(30)] == [*range(1, 501)]
        assert last.result(30).offset == 501
