"""A producer whose process stands still fails no record that it can send afterwards."""

import asyncio
import re
from typing import Any

import attrs
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


def test_a_leader_that_does_not_respond_is_named_once_and_a_stall_of_ours_is_no_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def pass_time(steps: int) -> None:
        for _ in range(steps):
            stand_still(0.9)
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)

    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        sent = await producer.send("t", b"x")
        await broker.received(ApiKey.PRODUCE)
        await pass_time(2)
        stand_still(10)
        await pass_time(1)
        assert caplog.messages == []
        await pass_time(8)
        (line,) = caplog.messages
        named = f"writing to broker {broker.node_id}: no response for [0-9]+ s to a batch of t-0; "
        assert re.fullmatch(f"{named}trying again", line)

        # The response, late as it is, ends the silence.
        (request,) = broker.asked(ApiKey.PRODUCE)
        broker.answer_late(ApiKey.PRODUCE, broker.produce(request))
        await sent
        assert caplog.messages[1].startswith(f"writing to broker {broker.node_id}: works again")

    with_producer(scenario, delivery_timeout_ms=60_000)


def test_a_leader_that_makes_us_wait_for_a_quota_is_not_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(producer: Producer, broker: ScriptedBroker) -> None:
        take = broker.answers[ApiKey.PRODUCE]
        broker.answers[ApiKey.PRODUCE] = lambda request: attrs.evolve(
            take(request), throttle_time_ms=20_000
        )
        await producer.send_and_wait("t", b"x")
        broker.answers[ApiKey.PRODUCE] = lambda request: SILENCE
        sent = await producer.send("t", b"y")
        await broker.received(ApiKey.PRODUCE, 2)
        for _ in range(20):
            stand_still(0.9)
            await asyncio.sleep(0.001)
        assert caplog.messages == []
        *_, request = broker.asked(ApiKey.PRODUCE)
        broker.answer_late(ApiKey.PRODUCE, take(request))
        await sent

    with_producer(scenario, delivery_timeout_ms=60_000)
