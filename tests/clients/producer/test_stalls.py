"""A producer whose process stands still fails no record that it can send afterwards."""

import asyncio
from typing import Any

import pytest

from clients.errors import DeliveryTimedOut
from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from tests.clients.producer.running_producer import with_producer
from tests.clients.scripted_broker import SILENCE, ScriptedBroker
from tests.stage.clock import OwnTimeLoop

SETTINGS = {"delivery_timeout_ms": 5000, "request_timeout_ms": 1500, "retry_backoff_ms": 500}


def stand_still(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, OwnTimeLoop)
    loop.work(seconds)


def test_record_that_waited_for_another_attempt_when_the_process_stood_still_is_sent() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.produce_errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        sent = await producer.send("t", b"x")
        await broker.received(ApiKey.PRODUCE)
        await asyncio.sleep(0.1)
        stand_still(10)
        assert (await sent).offset == 0

    with_producer(scenario, **SETTINGS)


def test_record_whose_response_was_lost_when_the_process_stood_still_is_sent_again() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        take = broker.answers[ApiKey.PRODUCE]
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        sent = await producer.send("t", b"x")
        await broker.received(ApiKey.PRODUCE)
        broker.answers[ApiKey.PRODUCE] = take
        stand_still(10)
        assert (await sent).offset == 0

    with_producer(scenario, **SETTINGS)


def test_time_in_which_the_process_ran_counts_before_and_after_a_stall() -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        def refuse(request: Any) -> Any:
            broker.produce_errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
            return broker.produce(request)

        broker.answers[ApiKey.PRODUCE] = refuse
        sent = await producer.send("t", b"x")
        await asyncio.sleep(0.6)
        stand_still(10)
        with pytest.raises(DeliveryTimedOut):
            await sent

    with_producer(scenario, **SETTINGS)
