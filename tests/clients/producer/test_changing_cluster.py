"""A producer while leaders move, and brokers hang, stop, and come back at another address.

Nothing acknowledged is lost or out of order, and no broker is asked without a pause.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clients.errors import DeliveryTimedOut
from clients.producer.producer import Producer
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdResponse
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import SILENCE, ScriptedBroker
from tests.stage.clock import ImpatientLoop, run_in_own_time

P0 = TopicPartition("t", 0)
FIRST, SECOND = 1, 2
QUICK = {"retry.backoff.ms": 10, "reconnect.backoff.ms": 10, "acks": "all"}
HEALED_S = 0.5
"""Time for the first record's acknowledgement after the cluster is healthy again.

One or two backoffs take a tenth of a second each; the rest is for a busy machine.
"""

Scenario = Callable[[Producer, ScriptedBroker, ScriptedBroker], Awaitable[None]]


def with_two_brokers(scenario: Scenario, **settings: Any) -> None:
    """Run a scenario while both brokers are up and the first leads."""

    async def run() -> None:
        async with (
            ScriptedBroker({"t": 1}, FIRST) as first,
            ScriptedBroker({"t": 1}, SECOND) as second,
        ):
            for broker in (first, second):
                broker.peers = {FIRST: first.port, SECOND: second.port}
                broker.leaders[P0] = FIRST
            named = {"bootstrap.servers": f"{first.bootstrap},{second.bootstrap}", "acks": "all"}
            async with Producer({**named, **settings}) as producer:
                await scenario(producer, first, second)

    run_in_own_time(run(), loop=ImpatientLoop)


def lead(leader: int, epoch: int, *brokers: ScriptedBroker) -> None:
    """Set the leader and its epoch in these brokers' metadata."""
    for broker in brokers:
        broker.leaders[P0] = leader
        broker.leader_epoch = epoch


def values(broker: ScriptedBroker) -> list[bytes | None]:
    return [record.value for record in broker.log[P0]]


def elapsed_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_what_time_heals_is_tried_again_in_order(code: ErrorCode, idempotent: bool) -> None:
    async def scenario(producer: Producer, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.answers[ApiKey.INIT_PRODUCER_ID] = lambda request: init_producer_id(7)
        first.produce_errors = [code] * 3
        sent = [await producer.send("t", b"%d" % n) for n in range(20)]
        assert [(await delivery).offset for delivery in sent] == list(range(20))
        assert values(first) == [b"%d" % n for n in range(20)]
        attempts = {bytes(batch_of(r)) for r in first.asked(ApiKey.PRODUCE)[:4]}
        assert len(attempts) == 1  # the first batch, four times over

    settings = {**QUICK, "batch.size": 200, "enable.idempotence": idempotent}
    with_two_brokers(scenario, **settings)


@pytest.mark.parametrize("leader", [FIRST, -1])
def test_while_nobody_leads_it_asks_ten_times_a_second_and_goes_on_when_somebody_does(
    leader: int,
) -> None:
    async def scenario(producer: Producer, first: ScriptedBroker, second: ScriptedBroker) -> None:
        await producer.send_and_wait("t", b"before")
        first.produce_errors = [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000
        lead(leader, 1, first, second)
        asked = len(first.requests) + len(second.requests)
        delivery = await producer.send("t", b"after")
        await asyncio.wait([delivery], timeout=1.5)
        assert not delivery.done()
        # Each tenth of a second once for metadata, and once for the record if a leader is named.
        assert len(first.requests) + len(second.requests) - asked <= 15 * 2 + 8
        lead(SECOND, 2, first, second)
        healed = elapsed_s()
        await delivery
        assert elapsed_s() - healed < HEALED_S
        assert values(second) == [b"after"]

    with_two_brokers(scenario)


def test_a_leader_that_is_gone_is_connected_to_with_pauses_until_another_leads() -> None:
    async def scenario(producer: Producer, first: ScriptedBroker, second: ScriptedBroker) -> None:
        await producer.send_and_wait("t", b"before")
        await first.__aexit__()
        asked = len(second.requests)
        delivery = await producer.send("t", b"after")
        await asyncio.wait([delivery], timeout=1.5)
        assert len(second.requests) - asked <= 15 + 5
        lead(SECOND, 1, second)
        healed = elapsed_s()
        await delivery
        assert elapsed_s() - healed < HEALED_S

    with_two_brokers(scenario)


def test_a_leader_that_hangs_costs_one_request_timeout_and_is_not_asked_who_leads() -> None:
    async def scenario(producer: Producer, first: ScriptedBroker, second: ScriptedBroker) -> None:
        await producer.send_and_wait("t", b"before")
        for api_key in (ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.API_VERSIONS):
            first.answers[api_key] = lambda request: SILENCE
        lead(SECOND, 1, second)
        began = elapsed_s()
        sent = [await producer.send("t", b"%d" % n) for n in range(3)]
        await asyncio.gather(*sent)
        assert 0.6 < elapsed_s() - began < 0.6 + HEALED_S
        assert values(second) == [b"0", b"1", b"2"]

    with_two_brokers(scenario, **{"request.timeout.ms": 600, "delivery.timeout.ms": 20_000})


def test_a_deposed_leader_that_does_not_know_it_yet_is_not_written_to_again() -> None:
    """It would acknowledge records that it is about to truncate."""

    async def scenario(producer: Producer, first: ScriptedBroker, second: ScriptedBroker) -> None:
        lead(SECOND, 4, second)
        lead(FIRST, 3, first)
        while producer._cluster.view.leaders.get(P0) != SECOND:  # who is asked first, is chance
            producer._cluster.ask_another()
            await producer._cluster.refresh(["t"])
        second.produce_errors = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await producer.send_and_wait("t", b"x")
        assert (values(first), values(second)) == ([], [b"x"])
        assert first.asked(ApiKey.METADATA)

    with_two_brokers(scenario, **QUICK)


def test_a_broker_that_is_back_on_another_port_is_found_by_its_id() -> None:
    async def scenario(producer: Producer, first: ScriptedBroker, second: ScriptedBroker) -> None:
        await producer.send_and_wait("t", b"before")
        await first.__aexit__()
        async with ScriptedBroker({"t": 1}, FIRST) as again:
            assert again.port != first.port
            second.peers[FIRST] = again.port
            lead(FIRST, 1, second)
            await producer.send_and_wait("t", b"after")
            assert values(again) == [b"after"]

    with_two_brokers(scenario, **QUICK)


def test_who_gives_up_says_what_the_last_attempt_failed_with() -> None:
    async def scenario(producer: Producer, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.produce_errors = [ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000
        with pytest.raises(DeliveryTimedOut, match=r"t-0: .* failed with NOT_ENOUGH_REPLICAS"):
            await producer.send_and_wait("t", b"x")

    settings = {"request.timeout.ms": 100, "delivery.timeout.ms": 250, "linger.ms": 0}
    with_two_brokers(scenario, **settings)


def batch_of(request: Any) -> bytes:
    records: bytes = request.topic_data[0].partition_data[0].records
    return records


def init_producer_id(producer_id: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)
