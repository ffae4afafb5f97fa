"""Faults that Kafka's producers once had, each as the scenario in which it showed.

Those of consumers' calls are in test_simple_consumer.py, those of the queue and its hooks in
test_send_queue.py (KAFKA-116, 138, 326, 709, 6897). Others have their test by another name:

| fault | test |
|---|---|
| KAFKA-332 | test_old_producer.py, test_failed_send_is_tried_again_as_often_as_told_... |
| KAFKA-807, 1824 | kgroup/test_messages.py, test_keys_are_cut_as_properties_say |
| KAFKA-890, 901 | test_cluster.py, test_a_fleet_of_clients_does_not_ask_the_same_broker_first |
| KAFKA-1469, 1988, negative hashes | the vectors of test_old_partitioner.py, test_partitioner.py |
| KAFKA-774 | test_cluster_view.py, test_topic_that_answers_with_an_error_keeps_... |
| KAFKA-1733 | test_connection.py, test_peer_that_does_not_accept_is_given_up_in_time |
| KAFKA-2120 | test_connection.py, test_unanswered_request_closes_the_connection_... |
| KAFKA-2138 | test_accumulator.py, test_hurry_does_not_override_backing_off |
| KAFKA-3197, 3388, 5429, 7709 | test_accumulator.py, test_batch_given_up_in_flight_... |
| KAFKA-3594, 3747 | test_accumulator.py, test_drained_batch_takes_no_more_records |
| KAFKA-3995 | test_producer.py, test_batch_over_the_brokers_limit_is_split_until_it_fits |
| KAFKA-4254, 6833 | test_producer.py, test_partition_that_does_not_exist_yet_is_waited_for |
| KAFKA-4402 | test_partitioner.py, test_topics_stick_independently |
| KAFKA-5886 | test_producer.py, test_record_that_is_never_answered_fails_after_... |
| KAFKA-7311 | test_accumulator.py, test_next_check_comes_no_later_than_the_next_batch_expires |
| KAFKA-13834 | test_accumulator.py, test_request_is_bounded_and_who_was_served_goes_behind_... |

Left out are those of sockets that are renewed by the clock (226, 268), of partitions that a broker
chooses (161), of idempotence, of threads, and of callbacks, of which a future has its own (4699).
"""

import asyncio
import contextlib
from typing import Any

import pytest

from clients.errors import DeadlineExceeded, FailedToSendMessage, ProducerClosed
from clients.producer.messages import ProducerData
from clients.producer.old_config import load_old_producer_config
from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataResponse
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition
from tests.clients.producer.running_producer import values, with_producer
from tests.clients.scripted_broker import HANG_UP, SILENCE, ScriptedBroker
from tests.stage.clock import run_in_own_time

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_messages_of_mixed_topics_and_partitions_are_neither_lost_nor_mixed(codec: str) -> None:
    """KAFKA-107, and KAFKA-110: no partition of a request is empty."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = [ProducerData("tu"[n % 2], n % 3, b"%d" % n) for n in range(60)]
        await producer.send(sent)
        await producer.close()
        for index, topic in enumerate("tu"):
            for partition in range(3):
                expected = [b"%d" % n for n in range(60) if (n % 2, n % 3) == (index, partition)]
                assert values(broker, TopicPartition(topic, partition)) == expected
        for request in broker.asked(ApiKey.PRODUCE):
            for topic in request.topic_data:
                assert all(len(sent.records) > 61 for sent in topic.partition_data)

    settings = {"producer.type": "async", "batch.size": 20, "compression.codec": codec}
    with_producer(scenario, {"t": 3, "u": 3}, **settings, **{"key.serializer.class": "NullEncoder"})


def test_record_that_cannot_be_encoded_leaves_no_empty_batch_behind() -> None:
    """KAFKA-110."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(TypeError):
            await producer.send("t", "text")
        await producer.flush()
        assert broker.asked(ApiKey.PRODUCE) == []

    with_producer(scenario, value_serializer=lambda value: value)


def test_batch_that_cannot_be_encoded_fails_alone() -> None:
    """KAFKA-1702: it took all later batches for all brokers with it."""

    class Broken:
        size_estimate = 100

        def build(self, **numbers: int) -> bytes:
            raise MemoryError

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        bad = await producer.send("t", b"a", partition=0)
        good = await producer.send("t", b"b", partition=1)
        producer._accumulator._queues[P0][0].builder = Broken()  # type: ignore[assignment]
        await producer.flush()
        with pytest.raises(Exception, match="t-0: not encoded: MemoryError"):
            await bad
        assert (await good).offset == 0
        later = await producer.send("t", b"c", partition=0)
        await producer.flush()
        assert (await later).offset == 0

    with_producer(scenario, {"t": 2}, linger_ms=100_000, delivery_timeout_ms=200_000)


def test_records_follow_a_broker_that_comes_back_elsewhere() -> None:
    """KAFKA-129: metadata is read again, and the record goes to the present leader."""

    async def run() -> None:
        async with ScriptedBroker({"t": 1}, 1) as old, ScriptedBroker({"t": 1}, 2) as new:
            old.peers[2], new.peers[1] = new.port, old.port
            old.leaders[P0] = new.leaders[P0] = 1
            bootstrap = f"{old.bootstrap},{new.bootstrap}"
            async with Producer(bootstrap_servers=bootstrap, retry_backoff_ms=1) as producer:
                await producer.send_and_wait("t", b"a")
                new.leaders[P0] = 2
                await old.__aexit__()
                await producer.send_and_wait("t", b"b")
            assert (values(old), values(new)) == ([b"a"], [b"b"])

    run_in_own_time(run())


@pytest.mark.parametrize("name", ["zookeeper.connect", "bootstrap.servers"])
def test_address_that_is_empty_counts_as_absent(name: str) -> None:
    """KAFKA-279, KAFKA-290."""
    with pytest.raises(SettingError, match=r"bootstrap\.servers: names no broker"):
        Producer({name: ""})


@pytest.mark.parametrize(
    ("given", "field"),
    [("queue.time", "queue_buffering_max_ms"), ("batch.size", "batch_num_messages")],
)
def test_setting_by_its_older_name_reaches_the_producer(given: str, field: str) -> None:
    """KAFKA-279: settings were read, and had no effect."""
    needed = {"producer.type": "async", "bootstrap.servers": "h:1"}
    config, _ = load_old_producer_config({**needed, given: 77})
    assert getattr(config, field) == 77


def test_keyless_messages_go_only_to_partitions_with_a_leader() -> None:
    """KAFKA-691, KAFKA-1984: the choice is among all partitions with a leader."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        led = {3, 5}
        for partition in set(range(8)) - led:
            broker.leaders[TopicPartition("t", partition)] = -1
        chosen = set()
        for _ in range(40):
            (metadata,) = await producer.send(ProducerData("t", None, b"")) or []
            chosen.add(metadata.partition)
        assert chosen == led

    with_producer(
        scenario,
        {"t": 8},
        **{"producer.type": "sync", "topic.metadata.refresh.interval.ms": 0},
    )


def test_keyless_messages_share_a_partition_until_metadata_is_read_anew() -> None:
    """KAFKA-959: a partition for each message caused a request for each."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        chosen = set()
        for _ in range(20):
            sent = await producer.send(ProducerData("t", None, [b"", b""])) or []
            chosen |= {metadata.partition for metadata in sent}
        assert len(chosen) == 1

    with_producer(scenario, {"t": 50}, **{"producer.type": "sync"})


def test_error_without_acks_closes_the_connection_and_later_records_arrive() -> None:
    """KAFKA-736: with acks=0 a broker can only hang up on an error."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: HANG_UP
        await producer.send_and_wait("t", b"lost")
        await broker.received(ApiKey.PRODUCE)
        broker.answers[ApiKey.PRODUCE] = broker.produce
        while not broker.log[P0]:
            await producer.send_and_wait("t", b"later")
        assert set(values(broker)) == {b"later"}

    with_producer(scenario, acks="0")


def test_first_message_of_a_new_topic_waits_for_its_leader_and_holds_up_no_other() -> None:
    """KAFKA-899."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.leaders[P0] = -1
        sending = asyncio.create_task(
            producer.send([ProducerData("t", None, b"a"), ProducerData("u", None, b"b")])
        )
        while not broker.log[TopicPartition("u", 0)]:
            await asyncio.sleep(0)
        assert not sending.done()
        del broker.leaders[P0]
        await sending
        assert values(broker) == [b"a"]

    with_producer(scenario, {"t": 1, "u": 1}, **{"producer.type": "sync"})


def test_reading_metadata_anew_keeps_the_connections() -> None:
    """KAFKA-1017: each refresh made new ones."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        for _ in range(5):
            await producer.send(ProducerData("t", None, b""))
        assert len(broker.asked(ApiKey.METADATA)) >= 5
        assert broker.connections == 2, "one for metadata, one for producing"

    settings = {"producer.type": "sync", "topic.metadata.refresh.interval.ms": 0}
    with_producer(scenario, **settings)


def test_producers_do_not_all_begin_with_the_same_partition() -> None:
    """KAFKA-1071."""

    async def first_partition(bootstrap: str) -> int:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            return (await producer.send_and_wait("t", b"")).partition

    async def run() -> set[int]:
        async with ScriptedBroker({"t": 100}) as broker:
            return {await first_partition(broker.bootstrap) for _ in range(10)}

    assert len(run_in_own_time(run())) > 1


def test_batch_that_backs_off_holds_up_no_other_partition() -> None:
    """KAFKA-1251, KAFKA-1260, KAFKA-1286."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        slow = await producer.send("t", b"a", partition=0)
        await broker.received(ApiKey.PRODUCE)
        assert (await producer.send_and_wait("t", b"b", partition=1)).offset == 0
        assert not slow.done()

    with_producer(scenario, {"t": 2}, retry_backoff_ms=500)


def test_close_waits_for_what_was_sent_and_is_not_acknowledged_yet() -> None:
    """KAFKA-1259."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        delivery = await producer.send("t", b"a")
        await broker.received(ApiKey.PRODUCE)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.02)
        assert not closing.done()
        broker.answers[ApiKey.PRODUCE] = broker.produce
        broker.hang_up()
        await closing
        assert (await delivery).offset == 0

    with_producer(scenario)


def test_messages_given_by_an_iterator_are_all_sent_also_on_the_second_attempt() -> None:
    """KAFKA-1496."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await producer.send(ProducerData("t", None, iter([b"%d" % n for n in range(5)])))
        await producer.send(ProducerData("t", None, b"%d" % n) for n in range(5, 8))
        assert values(broker) == [b"%d" % n for n in range(8)]

    with_producer(scenario, **{"producer.type": "sync"})


def test_no_time_to_block_means_not_to_wait() -> None:
    """KAFKA-1836: 0 waited for ever."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(DeadlineExceeded):
            await producer.send("nope", b"a")

    with_producer(scenario, max_block_ms=0)


def test_cluster_that_is_away_is_not_asked_in_a_busy_loop() -> None:
    """KAFKA-1642; KAFKA-1919: a response without brokers counts as a failure too."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.METADATA] = lambda request: MetadataResponse(
            brokers=[], controller_id=-1, topics=[]
        )
        with pytest.raises(DeadlineExceeded):
            await producer.send("t", b"a")
        assert 2 <= len(broker.asked(ApiKey.METADATA)) <= 12

    with_producer(scenario, max_block_ms=200, retry_backoff_ms=20)


def test_caller_who_gives_up_waiting_for_room_leaves_the_room_to_others() -> None:
    """KAFKA-3651, KAFKA-4840; KAFKA-3655: and nothing is hurried for this caller any more."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        await producer.send("t", b"x" * 600)
        gives_up = asyncio.create_task(producer.send("t", b"y" * 600))
        waits = asyncio.create_task(producer.send_and_wait("t", b"z" * 600))
        await broker.received(ApiKey.PRODUCE)
        gives_up.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gives_up
        broker.answers[ApiKey.PRODUCE] = broker.produce
        broker.hang_up()
        await waits
        assert [value[:1] for value in values(broker) if value] == [b"x", b"z"]
        assert producer._accumulator.hurrying == 0

    with_producer(scenario, buffer_memory=1000)


def test_flush_that_is_cancelled_hurries_nothing_any_longer() -> None:
    """KAFKA-3655."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        await producer.send("t", b"a")
        flushing = asyncio.create_task(producer.flush())
        await broker.received(ApiKey.PRODUCE)
        flushing.cancel()
        await asyncio.wait([flushing])
        assert producer._accumulator.hurrying == 0
        await producer.close(timeout_ms=0)

    with_producer(scenario)


def test_time_to_block_is_one_for_metadata_and_room() -> None:
    """KAFKA-3648: the time started again with each wait."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        first = await producer.send("t", b"x" * 600)
        now = asyncio.get_running_loop().time
        begins = now()
        waiting = [asyncio.create_task(producer.send("t", b"y" * 600)) for _ in range(5)]
        await asyncio.wait(waiting)
        assert all(isinstance(task.exception(), DeadlineExceeded) for task in waiting)
        assert now() - begins < 0.1 * 3, "not one after the other"
        await producer.close(timeout_ms=0)
        with pytest.raises(ProducerClosed):
            await first

    with_producer(scenario, buffer_memory=1000, max_block_ms=100)


def test_record_that_waits_when_the_producer_closes_is_told() -> None:
    """KAFKA-4235, KAFKA-6897."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        await producer.send("t", b"x" * 600)
        waits = asyncio.create_task(producer.send("t", b"y" * 600))
        await broker.received(ApiKey.PRODUCE)
        await producer.close(timeout_ms=0)
        with pytest.raises(ProducerClosed):
            await waits

    with_producer(scenario, buffer_memory=1000)


def test_record_whose_topic_is_looked_for_when_the_producer_closes_is_told() -> None:
    """KAFKA-6897: it waited on for max.block.ms."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        waits = asyncio.create_task(producer.send("nope", b"a"))
        await broker.received(ApiKey.METADATA)
        await producer.close(timeout_ms=0)
        with pytest.raises(ProducerClosed):
            await waits

    with_producer(scenario, max_block_ms=100_000)


@pytest.mark.fault("strangers-172")
def test_records_whose_topic_is_looked_for_are_all_told_at_once_of_the_close() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.METADATA] = lambda request: SILENCE
        sends = [asyncio.create_task(producer.send("nope", b"a")) for _ in range(100)]
        await broker.received(ApiKey.METADATA)
        await producer.close(timeout_ms=0)
        closed_s = asyncio.get_running_loop().time()
        ended = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(each) for each in ended} == {ProducerClosed}
        assert asyncio.get_running_loop().time() - closed_s < 1

    with_producer(scenario, max_block_ms=100_000, retry_backoff_ms=100)


def test_sending_again_from_a_failed_delivery_is_safe() -> None:
    """KAFKA-4557: an expiry's callback changed the collection that was being iterated."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        again: list[asyncio.Task[Any]] = []

        def resend(delivery: asyncio.Future[Any]) -> None:
            again.append(asyncio.ensure_future(producer.send_and_wait("t", b"again")))

        for _ in range(10):
            (await producer.send("t", b"first")).add_done_callback(resend)
        await producer.flush()
        while len(again) < 10:
            await asyncio.sleep(0)
        assert [(await task).offset for task in again] == list(range(10))

    with_producer(scenario, linger_ms=5)


def test_partitioner_of_the_users_own_is_asked_once_a_record() -> None:
    """KAFKA-9965: asked twice for a record that opens a batch, a counter skips partitions."""
    asked: list[Any] = []

    def in_turn(key: Any, num_partitions: int) -> int:
        asked.append(key)
        return len(asked) % num_partitions

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = [await producer.send("t", b"%d" % n) for n in range(9)]
        assert [(await delivery).partition for delivery in sent] == [1, 2, 0] * 3

    with_producer(scenario, {"t": 3}, partitioner=in_turn, batch_size=0)
    assert len(asked) == 9


def test_keyless_records_without_batches_do_not_loop() -> None:
    """KAFKA-14303: batch.size=0 and no key looked for another partition in an endless loop."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = [await producer.send("t", b"%d" % n) for n in range(10)]
        await asyncio.gather(*sent)
        assert all(request.topic_data for request in broker.asked(ApiKey.PRODUCE))

    with_producer(scenario, {"t": 2}, batch_size=0)


def test_constructor_that_fails_has_opened_nothing() -> None:
    """KAFKA-2121."""

    async def run() -> int:
        async with ScriptedBroker({"t": 1}) as broker:
            with pytest.raises(SettingError):
                Producer({"bootstrap.servers": broker.bootstrap, "value.serializer": "no.Such"})
            return broker.connections + len(asyncio.all_tasks()) - 1

    assert asyncio.run(run()) == 0


def test_retries_do_not_go_on_for_ever_when_the_topic_is_gone() -> None:
    """KAFKA-1515, KAFKA-332: attempts are bounded, and the error is typed."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        await producer.send(ProducerData("t", None, b"a"))
        broker.topics.clear()
        broker.answers[ApiKey.PRODUCE] = lambda request: HANG_UP
        with pytest.raises(FailedToSendMessage):
            await producer.send(ProducerData("t", None, b"b"))

    with_producer(scenario, **{"producer.type": "sync", "request.timeout.ms": 100})
