"""A close is shared: whoever comes second waits for the first, and takes nothing away from it."""

import asyncio
from typing import Any

import pytest

from clients.errors import FailedToSendMessage, ProducerClosed
from clients.producer.messages import KeyedMessage
from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.messages.init_producer_id import InitProducerIdResponse
from tests.clients.producer.running_producer import values, with_producer
from tests.clients.producer.transactions.coordinating_broker import CoordinatingBroker
from tests.clients.scripted_broker import SILENCE, ScriptedBroker
from tests.stage.clock import run_in_own_time

RECORDS = 200
SLOWLY = {
    "batch_size": 100,
    "linger_ms": 100_000,
    "delivery_timeout_ms": 200_000,
    "max_in_flight_requests_per_connection": 1,
}
"""Settings with which a flush takes many requests, one after the other."""


async def send_all(producer: Producer) -> list[asyncio.Future[Any]]:
    return [await producer.send("t", b"%d" % number) for number in range(RECORDS)]


@pytest.mark.fault("scale-C1")
@pytest.mark.parametrize("is_idempotent", [False, True])
def test_two_closes_at_once_deliver_all_and_end_together(is_idempotent: bool) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda request: InitProducerIdResponse(
            producer_id=1, producer_epoch=0
        )
        deliveries = await send_all(producer)
        first = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        await producer.close()
        assert all(delivery.done() for delivery in deliveries), "the second one returned first"
        await first
        assert [(await delivery).offset for delivery in deliveries] == list(range(RECORDS))
        assert len(values(broker)) == RECORDS

    with_producer(scenario, **SLOWLY, enable_idempotence=is_idempotent)


@pytest.mark.fault("scale-C1")
def test_a_close_that_is_cancelled_goes_on_for_the_next_one() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        deliveries = await send_all(producer)
        first = asyncio.create_task(producer.close())
        await broker.received(ApiKey.PRODUCE, 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await producer.close()
        assert [(await delivery).offset for delivery in deliveries] == list(range(RECORDS))

    with_producer(scenario, **SLOWLY)


def test_a_second_close_with_less_time_ends_both() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        delivery = await producer.send("t", b"a")
        first = asyncio.create_task(producer.close())
        await broker.received(ApiKey.PRODUCE)
        await producer.close(timeout_ms=20)
        await first
        with pytest.raises(ProducerClosed):
            await delivery

    with_producer(scenario, request_timeout_ms=100_000, delivery_timeout_ms=200_000)


def test_a_close_ends_a_flush_with_all_that_it_waits_for() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        deliveries = await send_all(producer)
        flush = asyncio.create_task(producer.flush())
        await broker.received(ApiKey.PRODUCE, 2)
        await producer.close()
        await flush
        assert [(await delivery).offset for delivery in deliveries] == list(range(RECORDS))

    with_producer(scenario, **SLOWLY)


@pytest.mark.fault("scale-C1")
def test_two_closes_of_an_async_producer_send_all_that_is_queued() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        for number in range(RECORDS):
            await producer.send(KeyedMessage("t", None, b"%d" % number))
        first = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        await producer.close()
        await first
        assert len(values(broker)) == RECORDS

    with_producer(scenario, producer_type="async", batch_num_messages=10)


QUEUED = {"producer_type": "async", "request_timeout_ms": 100_000}


@pytest.mark.fault("scale-C1")
def test_each_close_hears_of_messages_that_were_not_sent() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        await producer.send(KeyedMessage("t", None, b"a"))
        outcomes = await asyncio.gather(
            producer.close(timeout_ms=20), producer.close(), return_exceptions=True
        )
        for outcome in outcomes:
            assert isinstance(outcome, FailedToSendMessage), outcome
            assert [message.message for message in outcome.messages] == [b"a"]
        # They know: nothing is raised again from the end of `async with`.
        await producer.close()

    with_producer(scenario, **QUEUED)


@pytest.mark.fault("scale-C1")
def test_a_close_after_a_cancelled_one_has_its_own_time_and_hears_how_it_ended() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        await producer.send(KeyedMessage("t", None, b"a"))
        first = asyncio.create_task(producer.close())
        await broker.received(ApiKey.PRODUCE)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        # Only the caller's own time ends a queue whose broker keeps silent for longer.
        before_s = asyncio.get_running_loop().time()
        with pytest.raises(FailedToSendMessage):
            await producer.close(timeout_ms=20)
        assert asyncio.get_running_loop().time() - before_s < 50

    with_producer(scenario, **QUEUED)


@pytest.mark.fault("scale-C1")
def test_a_close_hears_how_a_cancelled_one_has_ended_meanwhile() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        await producer.send(KeyedMessage("t", None, b"a"))
        first = asyncio.create_task(producer.close(timeout_ms=20))
        await broker.received(ApiKey.PRODUCE)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(FailedToSendMessage):
            await producer.close()

    with_producer(scenario, **QUEUED)


def test_a_close_while_the_id_is_asked_for_ends_both() -> None:
    async def run() -> None:
        async with CoordinatingBroker() as broker:
            broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda request: SILENCE
            producer = Producer(bootstrap_servers=broker.bootstrap, transactional_id="x")
            initializing = asyncio.create_task(producer.init_transactions())
            await broker.received(ApiKey.INIT_PRODUCER_ID)
            await asyncio.gather(producer.close(), producer.close())
            with pytest.raises(ProducerClosed):
                await initializing

    run_in_own_time(run())
