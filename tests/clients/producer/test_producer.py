"""The producer against a scripted broker: acknowledged, retried, refused and lost records."""

import asyncio
import logging
from typing import Any

import pytest

from clients.errors import (
    BrokerError,
    BufferExhausted,
    DeadlineExceeded,
    DeliveryTimedOut,
    ProducerClosed,
    RecordTooLarge,
)
from clients.producer.deliveries import RecordMetadata
from clients.producer.producer import Producer
from clients.serializers import int_encoder, json_encoder
from protocol.api_key import ApiKey
from protocol.bounds import MAX_BATCH_BYTES
from protocol.errors import ErrorCode
from protocol.messages import produce
from protocol.messages.produce import ProduceResponseRecordError as RecordError
from protocol.settings import SettingError
from tests.clients.producer.running_producer import P0, values, with_producer
from tests.clients.scripted_broker import HANG_UP, SILENCE, ScriptedBroker, all_versions
from tests.stage.clock import OwnTimeLoop


def test_records_are_acknowledged_with_their_offsets_in_order() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = [await producer.send("t", b"%d" % n, timestamp_ms=n) for n in range(500)]
        got = await asyncio.gather(*sent)
        assert got == [RecordMetadata("t", 0, n, n) for n in range(500)]
        assert values(broker) == [b"%d" % n for n in range(500)]

    with_producer(scenario)


def test_key_value_headers_and_time_arrive_as_serialized() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        headers = [("h", b"1"), ("n", None)]
        await producer.send_and_wait("t", {"a": 1}, key=7, headers=headers, timestamp_ms=123)
        await producer.send_and_wait("t", None, key=8)
        record, tombstone = broker.log[P0]
        assert (record.key, record.value) == (b"\0\0\0\7", b'{"a":1}')
        assert (record.headers, record.timestamp_ms) == (tuple(headers), 123)
        assert tombstone.value is None

    with_producer(scenario, key_serializer=int_encoder, value_serializer=json_encoder)


def test_equal_keys_go_to_the_partition_of_their_hash() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = [await producer.send_and_wait("t", b"", key=b"key") for _ in range(3)]
        assert {metadata.partition for metadata in sent} == {4}

    with_producer(scenario, {"t": 7})


def test_keyless_records_fill_a_batch_and_then_move_on() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = [await producer.send("t", b"x" * 100) for _ in range(40)]
        got = [metadata.partition for metadata in await asyncio.gather(*sent)]
        runs = [p for n, p in enumerate(got) if n == 0 or got[n - 1] != p]
        assert len(set(got)) > 1
        assert len(runs) <= 6, "a batch of 1000 bytes takes seven of these records"

    with_producer(scenario, {"t": 3}, batch_size=1000, linger_ms=50)


def test_own_partitioner_decides_and_is_held_to_the_range() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        assert (await producer.send_and_wait("t", b"", key=b"a")).partition == 1
        with pytest.raises(ValueError, match="partitioner chose 9 of 3 for t"):
            await producer.send("t", b"", key=b"b")

    with_producer(scenario, {"t": 3}, partitioner=lambda key, n: 1 if key == b"a" else 9)


def test_batch_refused_by_an_old_leader_is_sent_again_before_later_records() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors += [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
        for n in range(200):
            await producer.send("t", b"%03d" % n * 20)
        await producer.flush()
        assert values(broker) == [b"%03d" % n * 20 for n in range(200)]
        assert len(broker.asked(ApiKey.METADATA)) > 1

    with_producer(scenario, batch_size=500)


def test_records_survive_a_connection_that_is_lost() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: HANG_UP
        delivery = await producer.send("t", b"a")
        await broker.received(ApiKey.PRODUCE)
        broker.answers[ApiKey.PRODUCE] = broker.produce
        assert (await delivery).offset == 0

    with_producer(scenario)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"retries": 0, "enable_idempotence": False}, BrokerError),
        # On a busy machine the time may be over before the first attempt is.
        (
            {"delivery_timeout_ms": 300, "request_timeout_ms": 200, "linger_ms": 0},
            (DeliveryTimedOut, BrokerError),
        ),
    ],
    ids=["no attempt is left", "no time is left"],
)
def test_the_broker_that_did_not_respond_is_named(
    settings: dict[str, Any], error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: HANG_UP
        with pytest.raises(error) as failed:
            await producer.send_and_wait("t", b"a")
        assert "t-0" in str(failed.value)
        assert "NETWORK_EXCEPTION" in str(failed.value)
        assert f"127.0.0.1:{broker.port}: closed by the broker" in str(failed.value)

    with_producer(scenario, **settings)


def test_batch_over_the_brokers_limit_is_split_until_it_fits() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        def at_most_1000_bytes(request: Any) -> Any:
            if len(request.topic_data[0].partition_data[0].records) > 1000:
                broker.produce_errors.append(ErrorCode.MESSAGE_TOO_LARGE)
            return broker.produce(request)

        broker.answers[ApiKey.PRODUCE] = at_most_1000_bytes
        sent = [await producer.send("t", b"%03d" % n * 20) for n in range(100)]
        sent.append(await producer.send("t", b"x" * 2000))
        sent.append(await producer.send("t", b"last"))
        *small, too_large, last = sent
        assert [(await delivery).offset for delivery in small] == list(range(100))
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE: t-0"):
            await too_large
        assert (await last).offset == 100

    with_producer(scenario, linger_ms=20)


def test_error_that_no_retry_heals_fails_each_record_with_its_own_exception() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        sent = [await producer.send("t", b"a"), await producer.send("t", b"b")]
        first, second = await asyncio.gather(*sent, return_exceptions=True)
        assert first is not second
        assert [type(first), type(second)] == [BrokerError, BrokerError]
        assert (await producer.send_and_wait("t", b"c")).offset == 0

    with_producer(scenario, linger_ms=10)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT]
)
def test_so_it_does_behind_a_response_that_leaves_it_open(code: ErrorCode) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors += [code, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        with pytest.raises(BrokerError, match="the records may be in the log"):
            await producer.send_and_wait("t", b"a")

    with_producer(scenario)


@pytest.mark.fault("strangers-120")
def test_a_refusal_behind_an_attempt_without_a_response_says_that_records_may_be_there() -> None:
    """Who sends what was refused again would double it."""

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: HANG_UP
        delivery = await producer.send("t", b"a")
        await broker.received(ApiKey.PRODUCE)
        broker.produce_errors += [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
        broker.answers[ApiKey.PRODUCE] = broker.produce
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED: t-0; an attempt before"):
            await delivery
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED: t-0; ask for WRITE"):
            await producer.send_and_wait("t", b"b")

    with_producer(scenario)


@pytest.mark.fault("strangers-184")
def test_who_may_not_see_a_topic_is_told_the_right_to_write_which_is_the_one_to_ask_for() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        why = "^TOPIC_AUTHORIZATION_FAILED: secret; ask for WRITE on the topic$"
        with pytest.raises(BrokerError, match=why):
            await producer.send("secret", b"a")

    with_producer(scenario)


def test_failure_that_nobody_awaits_is_not_reported_to_the_loop() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        complaints: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(context)
        )
        broker.produce_errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        await producer.send("t", b"a")
        await producer.flush()
        assert complaints == []

    with_producer(scenario)


def test_record_that_is_never_answered_fails_after_the_delivery_timeout() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        with pytest.raises(DeliveryTimedOut, match="t-0"):
            await producer.send_and_wait("t", b"a")

    with_producer(scenario, request_timeout_ms=30, delivery_timeout_ms=80)


def test_record_of_a_partition_without_a_leader_says_which_broker_has_to_start() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.leaders[P0], broker.in_sync[P0] = -1, [9]
        with pytest.raises(
            DeliveryTimedOut, match=r"^t-0: .* it has no leader, .* start broker 9$"
        ):
            await producer.send_and_wait("t", b"a", partition=0)

    with_producer(scenario, request_timeout_ms=30, delivery_timeout_ms=80)


def test_without_acks_records_are_done_when_sent_with_offset_unknown() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        assert (await producer.send_and_wait("t", b"a")).offset == -1
        await broker.received(ApiKey.PRODUCE)
        assert values(broker) == [b"a"]

    with_producer(scenario, acks=0)


def test_several_partitions_of_a_leader_share_a_request() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        for partition in range(5):
            await producer.send("t", b"x", partition=partition)
        await producer.flush()
        (request,) = broker.asked(ApiKey.PRODUCE)
        (topic,) = request.topic_data
        assert [sent.index for sent in topic.partition_data] == [0, 1, 2, 3, 4]

    with_producer(scenario, {"t": 5}, linger_ms=10_000)


def test_no_more_requests_are_unanswered_than_told() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        for partition in (0, 1):
            await producer.send("t", b"a", partition=partition)
            await broker.received(ApiKey.PRODUCE, partition + 1)
        await producer.send("t", b"a", partition=2)
        for _ in range(5):  # time enough for a request to come
            await producer._cluster.refresh(["t"])
        assert len(broker.asked(ApiKey.PRODUCE)) == 2
        await producer.close(timeout_ms=0)

    with_producer(scenario, {"t": 3}, max_in_flight_requests_per_connection=2)


def test_flush_ends_lingering_and_returns_when_all_is_acknowledged() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        delivery = await producer.send("t", b"a")
        await producer.flush()
        assert delivery.done()

    with_producer(scenario, linger_ms=100_000, delivery_timeout_ms=200_000)


def test_unknown_topic_is_waited_for_and_then_refused() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(DeadlineExceeded, match="nope"):
            await producer.send("nope", b"a")
        broker.topics["nope"] = 1
        assert (await producer.send_and_wait("nope", b"a")).offset == 0

    with_producer(scenario, max_block_ms=50)


def test_partition_that_does_not_exist_yet_is_waited_for() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(DeadlineExceeded, match="partition 1 of t, which has 1"):
            await producer.send("t", b"a", partition=1)
        broker.topics["t"] = 2
        assert (await producer.send_and_wait("t", b"a", partition=1)).partition == 1

    with_producer(scenario, max_block_ms=50)


def test_partition_that_does_not_exist_is_said_to_be_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, OwnTimeLoop)
        sending = asyncio.ensure_future(producer.send("t", b"a", partition=1))
        while not caplog.messages:
            loop.work(0.5)
            await asyncio.sleep(0.001)
        assert caplog.messages == ["t-1: topic t has 1 partitions; trying again"]
        broker.topics["t"] = 2
        await (await sending)
        assert caplog.messages[1].startswith("t-1: works again")

    with_producer(scenario)


def test_full_buffer_blocks_and_then_refuses_and_serves_again_once_there_is_room() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        first = await producer.send("t", b"x" * 600)
        with pytest.raises(BufferExhausted, match=r"buffer\.memory"):
            await producer.send("t", b"x" * 600)
        broker.answers[ApiKey.PRODUCE] = broker.produce
        broker.hang_up()
        await producer.send_and_wait("t", b"y" * 600)
        assert (await first).offset == 0

    with_producer(scenario, buffer_memory=1000, max_block_ms=50)


def test_waiting_for_room_is_first_come_first_served() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        order = [b"a" * 600, b"b" * 900, b"c" * 100, b"d" * 800]
        sends = [asyncio.create_task(producer.send_and_wait("t", value)) for value in order]
        await asyncio.gather(*sends)
        assert values(broker) == order

    with_producer(scenario, buffer_memory=1000)


def test_record_too_large_for_a_request_or_the_buffer_is_refused_at_once() -> None:
    async def request_bound(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(RecordTooLarge, match=r"max\.request\.size, 500"):
            await producer.send("t", b"x" * 500)

    async def buffer_bound(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(RecordTooLarge, match=r"buffer\.memory, 400"):
            await producer.send("t", b"x" * 500)

    async def bound_of_all_readers(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(
            RecordTooLarge, match=f"the size that any reader takes, {MAX_BATCH_BYTES}"
        ):
            await producer.send("t", bytes(MAX_BATCH_BYTES))

    with_producer(request_bound, max_request_size=500)
    with_producer(buffer_bound, buffer_memory=400)
    with_producer(bound_of_all_readers, max_request_size=2**31 - 1, buffer_memory=2**31 - 1)


def test_value_that_is_not_bytes_is_refused_with_its_type() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(TypeError, match="expected bytes, got str"):
            await producer.send("t", "text")

    with_producer(scenario)


@pytest.mark.parametrize(
    "wrong", [{"partition": -1}, {"timestamp_ms": -5}, {"timestamp_ms": 2**63}]
)
def test_negative_partition_or_timestamp_is_refused(wrong: dict[str, Any]) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(ValueError, match="is negative"):
            await producer.send("t", b"", **wrong)

    with_producer(scenario)


@pytest.mark.fault("strangers-143")
def test_a_time_that_is_no_int_is_refused_by_the_call() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        wrong: Any = 1_700_000_000_000.5
        with pytest.raises(TypeError, match=r"timestamp_ms 1700000000000\.5 must be an int"):
            await producer.send("t", b"", timestamp_ms=wrong)
        with pytest.raises(TypeError, match="must be an int"):
            await producer.send_many("t", [b""], timestamp_ms=wrong)

    with_producer(scenario)


@pytest.mark.fault("strangers-159")
@pytest.mark.parametrize("names_records", [True, False])
def test_what_a_broker_says_of_records_that_it_refuses_is_in_the_error(
    names_records: bool,
) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        said = "Compacted topic cannot accept message without key."

        def refuse(request: Any) -> Any:
            response = produce.error_response(request, ErrorCode.INVALID_RECORD)
            (part,) = response.responses[0].partition_responses
            if names_records:
                part.record_errors = [RecordError(batch_index=0, batch_index_error_message=said)]
            else:
                part.error_message = said
            return response

        broker.answers[ApiKey.PRODUCE] = refuse
        with pytest.raises(BrokerError, match=r"^INVALID_RECORD: t-0: Compacted .* without key$"):
            await producer.send_and_wait("t", b"")

    with_producer(scenario)


@pytest.mark.fault("strangers-150")
def test_a_partition_that_is_no_int_is_refused_by_the_call_and_ends_no_other_record() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        wrong: Any = 0.0
        refused = r"partition 0\.0 must be an int"
        with pytest.raises(TypeError, match=refused):
            await producer.send("t", b"", partition=wrong)
        with pytest.raises(TypeError, match=refused):
            await producer.send_many("t", [b""], partition=wrong)
        with pytest.raises(TypeError, match=refused):
            await producer.send("t", b"", key=b"its partitioner's")
        with pytest.raises(ValueError, match="beyond 32 bits"):
            await producer.send("t", b"", partition=1 << 31)
        assert (await producer.send_and_wait("t", b"fine", partition=False)).partition == 0

    with_producer(scenario, partitioner=lambda key, partitions: 0.0)


@pytest.mark.fault("strangers-151")
@pytest.mark.parametrize("name", ["a\ud800", "a" * 40_000])
def test_a_topic_name_that_cannot_be_sent_fails_alone(name: str) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(BrokerError, match=r"^INVALID_TOPIC_EXCEPTION: topic 'a"):
            await producer.send(name, b"")
        assert (await producer.send_and_wait("other", b"fine")).offset == 0

    with_producer(scenario, {"t": 1, "other": 1})


@pytest.mark.parametrize("setting", ["client.id", "transactional.id"])
def test_an_id_that_cannot_be_sent_is_refused_by_name(setting: str) -> None:
    with pytest.raises(SettingError, match=rf"{setting}: has no UTF-8 form"):
        Producer({"bootstrap.servers": "b:1", setting: "a\ud800"})


@pytest.mark.parametrize(("key", "error"), [("\ud800", ValueError), (b"h", TypeError)])
def test_header_key_without_an_utf8_form_is_refused_by_name(
    key: Any, error: type[Exception]
) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        with pytest.raises(error, match=r"^t: header key .* UTF-8"):
            await producer.send("t", b"v", headers=[("fine", b""), (key, b"1")])

    with_producer(scenario)


def test_close_sends_what_lingers_and_refuses_what_comes_after() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        delivery = await producer.send("t", b"a")
        await producer.close()
        assert (await delivery).offset == 0
        with pytest.raises(ProducerClosed):
            await producer.send("t", b"b")
        await producer.close()

    with_producer(scenario, linger_ms=100_000, delivery_timeout_ms=200_000)


def test_close_with_a_timeout_fails_what_was_not_acknowledged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        delivery = await producer.send("t", b"a")
        await producer.close(timeout_ms=20)
        with pytest.raises(ProducerClosed):
            await delivery

    with_producer(scenario)
    messages = [record.message for record in caplog.records if record.name.startswith("clients")]
    assert messages == ["1 records were not acknowledged when the producer closed"]


def test_records_leave_while_their_sender_does_nothing_but_send() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        sent = [await producer.send("t", b"x" * 100) for _ in range(2000)]
        assert sent[0].done()

    with_producer(scenario, batch_size=4096)


def test_broker_too_old_for_the_codec_fails_the_records() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.API_VERSIONS] = lambda request: all_versions(PRODUCE=(0, 6))
        with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
            await producer.send_and_wait("t", b"a")

    with_producer(scenario, compression_type="zstd")


def test_delivery_timeout_shorter_than_linger_and_request_is_refused_if_set() -> None:
    with pytest.raises(SettingError, match=r"delivery\.timeout\.ms"):
        Producer({"bootstrap.servers": "h:1", "delivery.timeout.ms": 100})


def test_delivery_timeout_that_was_not_set_is_raised_to_linger_and_request() -> None:
    producer = Producer({"bootstrap.servers": "h:1", "request.timeout.ms": 600_000})
    assert producer.config.delivery_timeout_ms == 600_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transactional.id", ""),
        ("transaction.timeout.ms", "0"),
        ("acks", "2"),
        ("compression.type", "brotli"),
        ("key.serializer", "com.example.Mine"),
        ("linger.msec", "5"),
    ],
)
def test_setting_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingError) as refused:
        Producer({"bootstrap.servers": "h:1", name: value})
    assert refused.value.name == name


def test_setting_without_effect_is_noted() -> None:
    producer = Producer({"bootstrap.servers": "h:1", "metric.reporters": "x"})
    assert producer.notes == ["metric.reporters=x: there is no JMX here"]


def test_records_nobody_awaits_are_counted_and_named_in_one_line_when_they_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors += [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
        for _ in range(5):
            await producer.send("t", b"lost", partition=0)
            await producer.send("t", b"lost too", partition=1)
        await producer.flush()
        await producer.send_and_wait("t", b"kept", partition=0)
        assert producer.metrics.by_name() == {
            "record-send-total": 11,
            "record-retry-total": 0,
            "record-error-total": 10,
        }

    with caplog.at_level(logging.WARNING):
        with_producer(scenario, {"t": 2}, linger_ms=5)
    refused = "5 records were not delivered: TOPIC_AUTHORIZATION_FAILED"
    right = "ask for WRITE on the topic"
    assert caplog.messages == [f"t-{p}: {refused}: t-{p}; {right}" for p in (0, 1)]


def test_records_that_fail_while_a_producer_works_are_named_before_it_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors.append(ErrorCode.MESSAGE_TOO_LARGE)
        await producer.send("t", b"lost")
        await producer.flush()
        while not caplog.messages:
            await producer.send_and_wait("t", b"kept")
            await asyncio.sleep(0.1)
        assert producer.metrics.record_error_total == 1

    with caplog.at_level(logging.WARNING):
        with_producer(scenario)
    assert len(caplog.messages) == 1


def test_attempts_that_failed_and_records_that_expired_are_counted() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await producer.send_and_wait("t", b"at last")
        assert producer.metrics.record_retry_total == 1
        assert producer.metrics.record_error_total == 0
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        await producer.send("t", b"a")
        await producer.send("t", b"b")
        await producer.flush()
        assert producer.metrics.record_error_total == 2

    with_producer(scenario, request_timeout_ms=30, delivery_timeout_ms=60)


@pytest.mark.fault("scale-C4")
def test_records_for_new_topics_one_after_the_other_ask_for_each_of_them_once() -> None:
    topics = {f"t{number:03}": 1 for number in range(100)}

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        for topic in topics:
            await producer.send(topic, b"x")
        await producer.flush()
        asked = [
            topic.name for request in broker.asked(ApiKey.METADATA) for topic in request.topics
        ]
        assert asked == list(topics)

    with_producer(scenario, topics)
