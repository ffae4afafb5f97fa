"""Whatever a broker does to a client, its calls raise KgroupErrors."""

import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clients.admin import Admin
from clients.errors import KgroupError
from clients.producer.producer import Producer
from clients.simple_consumer import SimpleConsumer
from protocol.api_key import ApiKey
from tests.clients.errors.tried_calls import (
    ADMIN,
    ASK_NOBODY,
    IMPATIENT,
    MADE_OR_ENDED,
    OLD_PRODUCER,
    PRODUCER,
    SIMPLE_CONSUMER,
    TRANSACTIONS,
    against,
    lies,
    outcomes,
    public_calls,
)
from tests.clients.lying_broker import HONEST, Lie, empty, inventing
from tests.clients.producer.transactions.coordinating_broker import CoordinatingBroker
from tests.stage.clock import ImpatientLoop, run_in_own_time


def test_every_public_call_of_a_client_is_among_those_tried() -> None:
    producing = {**PRODUCER, **TRANSACTIONS}
    for client, calls in ((Admin, ADMIN), (SimpleConsumer, SIMPLE_CONSUMER), (Producer, producing)):
        assert calls.keys() == public_calls(client) - MADE_OR_ENDED - ASK_NOBODY


async def admin_scene(bootstrap: str) -> None:
    async with Admin({"bootstrap.servers": bootstrap, **IMPATIENT}) as admin:
        await outcomes(admin, ADMIN, 2)


async def simple_consumer_scene(bootstrap: str) -> None:
    host, port = bootstrap.split(":")
    async with SimpleConsumer(host, int(port), 30) as consumer:
        await outcomes(consumer, SIMPLE_CONSUMER, 2)


async def following_scene(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, **IMPATIENT}
    try:
        consumer = await SimpleConsumer.for_leader(settings, "t", 0)
    except KgroupError:
        return
    async with consumer:
        await outcomes(consumer, SIMPLE_CONSUMER, 1)


async def producer_scene(bootstrap: str, **more: Any) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "max.block.ms": 60,
        "delivery.timeout.ms": 60,
        **IMPATIENT,
        **more,
    }
    async with Producer(settings) as producer:
        await outcomes(producer, PRODUCER, 2)


async def idempotent_producer_scene(bootstrap: str) -> None:
    await producer_scene(bootstrap, **{"enable.idempotence": True})


async def transactional_producer_scene(bootstrap: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": "x",
        "max.block.ms": 60,
        "delivery.timeout.ms": 60,
        **IMPATIENT,
    }
    # In a block of its own it would be initialized, or have failed, before the first call.
    producer = Producer(settings)
    try:
        await outcomes(producer, {**TRANSACTIONS, **PRODUCER}, 3)
    finally:
        await producer.close()


async def old_producer_scene(bootstrap: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "producer.type": "sync",
        "retry.backoff.ms": 5,
        "request.timeout.ms": 30,
        "message.send.max.retries": 1,
    }
    async with Producer(settings) as producer:
        await outcomes(producer, OLD_PRODUCER, 2)


SCENES = [
    admin_scene,
    simple_consumer_scene,
    following_scene,
    producer_scene,
    idempotent_producer_scene,
    transactional_producer_scene,
    old_producer_scene,
]


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("lie", [*lies()])
def test_a_broker_that_refuses_or_lies_is_a_kgroup_error(
    lie: Lie, scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    against(lie, scene)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("more", [{ApiKey.ADD_PARTITIONS_TO_TXN}, {ApiKey.PRODUCE}, set()])
def test_a_coordinator_that_gives_an_id_and_lies_later_is_a_kgroup_error(
    more: set[ApiKey], seed: int, logged: None
) -> None:
    honest = HONEST | {ApiKey.INIT_PRODUCER_ID, *more}
    truth = CoordinatingBroker({"t": 2})
    against(inventing(seed, honest), transactional_producer_scene, truth=truth)


@pytest.mark.parametrize("scene", SCENES)
def test_a_broker_that_mixes_up_its_answers_is_a_kgroup_error(
    scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    against(empty, scene, shift=1)


@pytest.mark.parametrize("scene", SCENES)
def test_a_broker_that_is_gone_is_a_kgroup_error(
    scene: Callable[[str], Awaitable[None]], logged: None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    run_in_own_time(scene(f"127.0.0.1:{port}"), loop=ImpatientLoop)  # type: ignore[arg-type]
