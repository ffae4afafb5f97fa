"""Batches that the caller has encoded, with one delivery for all their records."""

from typing import cast

import pytest

from clients.errors import BrokerError, RecordTooLarge
from clients.producer.accumulator import Accumulator
from clients.producer.config import ProducerConfig
from clients.producer.deliveries import Delivery, deliver, fail
from clients.producer.producer import Producer
from clients.producer.shared_delivery import SharedDelivery
from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceResponsePartition
from protocol.records.batch import BatchBuilder, decode_batch
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition

T0 = TopicPartition("t", 0)


def built(*values: bytes) -> BatchBuilder:
    builder = BatchBuilder()
    for value in values:
        builder.try_append(1_000, None, value)
    return builder


def acknowledged(base_offset: int) -> ProduceResponsePartition:
    return ProduceResponsePartition(index=0, error_code=0, base_offset=base_offset)


def test_a_batch_encoded_outside_is_sent_as_it_is_and_counts_until_it_ends() -> None:
    accumulator: Accumulator[Delivery] = Accumulator(ProducerConfig(), Codec.NONE)
    delivery = SharedDelivery(2)
    builder = built(b"a", b"b")
    accumulator.append_batch(T0, builder, cast(Delivery, delivery), 0)
    assert accumulator.buffered_bytes == builder.size_estimate

    (batch,) = accumulator.drain([T0], 0)
    assert [record.value for record in decode_batch(batch.seal())] == [b"a", b"b"]
    deliver(batch, acknowledged(7))
    accumulator.finish(batch)
    assert delivery.done()
    assert delivery.first is not None
    assert (delivery.first.offset, delivery.first.timestamp_ms) == (7, 1_000)
    assert accumulator.buffered_bytes == 0


def test_a_batch_that_was_split_fails_if_one_of_its_parts_does() -> None:
    accumulator: Accumulator[Delivery] = Accumulator(ProducerConfig(), Codec.NONE)
    delivery = SharedDelivery(2)
    accumulator.append_batch(T0, built(b"a", b"b"), cast(Delivery, delivery), 0)
    accumulator.split(*accumulator.drain([T0], 0))

    (part,) = accumulator.drain([T0], 0)
    deliver(part, acknowledged(7))
    accumulator.finish(part)
    assert not delivery.done()

    (part,) = accumulator.drain([T0], 0)
    assert fail(part, lambda: BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "t-0")) == 1
    assert delivery.done()
    assert isinstance(delivery.error, BrokerError)


async def test_a_batch_larger_than_a_request_is_refused() -> None:
    producer = Producer({"bootstrap.servers": "b:9092", "max.request.size": 100})
    with pytest.raises(RecordTooLarge, match=r"t-0 is larger than max\.request\.size, 100"):
        await producer.send_batch(T0, built(b"x" * 200), cast(Delivery, SharedDelivery(1)))
    await producer.close()


async def test_numbers_of_the_callers_need_an_idempotent_producer() -> None:
    producer = Producer({"bootstrap.servers": "b:9092"})
    with pytest.raises(ValueError, match=r"enable\.idempotence"):
        producer.use_numbers(cast("object", None))  # type: ignore[arg-type]
    await producer.close()
