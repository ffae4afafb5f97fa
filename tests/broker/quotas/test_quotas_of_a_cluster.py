"""Quotas of whole brokers in virtual time: set by an administrator, kept, changed and removed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from clients.admin import Admin, NewPartitions, NewTopic
from clients.admin.client_quotas import ANY
from clients.errors import ConnectionFailed, DeliveryTimedOut
from clients.simple_consumer import EARLIEST_TIME, FetchRequest, SimpleConsumer
from clients.transport.connection import Connection
from kgroup import ConsumerConnector, Producer
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate
from protocol.special_values import LATEST_TIME
from protocol.topic_partition import TopicPartition
from zk.znodes import ClientEntity, ConfigChange, EntityConfig

MINUTE_S = 60.0
RATE = 20_000
ETL = (("client-id", "etl"),)
EVERYBODY = (("user", None),)


def on_a_cluster(
    story: Callable[[Cluster, Admin], Awaitable[Any]], *, brokers: int = 1, **topics: int
) -> Any:
    """Tell a story on a cluster, by an administrator of it."""

    async def scene(cluster: Cluster, faults: Faults) -> Any:
        settings = {**CLIENT, "default.api.timeout.ms": 60_000}
        settings["bootstrap.servers"] = cluster.bootstrap

        async def administer() -> Any:
            async with Admin(settings) as admin:
                return await story(cluster, admin)

        return await cluster.client("administrator").run(administer)

    return simulate(scene, seed=5, brokers=brokers, topics=topics)


async def set_quota(admin: Admin, entity: Any, **quotas: float | None) -> None:
    verdicts = await admin.alter_client_quotas({entity: quotas})
    assert verdicts == {entity: None}


async def produced_bytes(
    cluster: Cluster,
    seconds: float,
    client_id: str = "etl",
    *,
    size: int = 10_000,
    after_s: float = 0,
) -> int:
    """Send records one after the other; return how many bytes of them were acknowledged.

    Those of the first `after_s` seconds do not count.
    """
    loop = asyncio.get_running_loop()
    settings = {"bootstrap.servers": cluster.bootstrap, "client.id": client_id, **CLIENT}
    acknowledged = 0
    begin = loop.time() + after_s
    async with Producer(settings) as producer:
        while loop.time() < begin + seconds:
            await producer.send_and_wait("t", bytes(size))
            if begin <= loop.time() < begin + seconds:
                acknowledged += size
    return acknowledged


def test_a_producer_is_held_at_its_rate() -> None:
    """What ten windows allow may come at once; from then on the rate holds within 5 %.

    Each request is worth half a second.
    """

    async def story(cluster: Cluster, admin: Admin) -> int:
        await set_quota(admin, ETL, producer_byte_rate=RATE)
        return await produced_bytes(cluster, MINUTE_S, after_s=20)

    sent = on_a_cluster(story, t=1)
    assert sent == pytest.approx(RATE * MINUTE_S, rel=0.05)


@pytest.mark.fault("strangers-23")
@pytest.mark.fault("strangers-24")
def test_a_producer_with_next_to_no_quota_writes_once_and_its_close_ends() -> None:
    """The usual way to stop a client."""

    async def story(cluster: Cluster, admin: Admin) -> tuple[int, float]:
        await set_quota(admin, ETL, producer_byte_rate=1)
        settings = {"bootstrap.servers": cluster.bootstrap, "client.id": "etl", **CLIENT}
        settings["delivery.timeout.ms"] = 40_000
        loop = asyncio.get_running_loop()
        # The last ones are to be silent for more than 2 ** 31 ms, the most that can be said.
        for _ in range(240):
            async with Producer(settings) as producer:
                await producer.send_and_wait("t", bytes(10_000))

        async with Producer(settings) as producer:
            await producer.send_and_wait("t", b"the last one")
            # Nobody reads it for 24 days.
            later = await producer.send("t", b"later")
            with pytest.raises(DeliveryTimedOut):
                await later
            began_s = loop.time()
        took_s = loop.time() - began_s
        ends = await admin.list_offsets({TopicPartition("t", 0): LATEST_TIME})
        return ends[TopicPartition("t", 0)].offset, took_s

    written, took_s = on_a_cluster(story, t=1)
    assert written == 241
    assert took_s < 5


def test_others_are_not_throttled() -> None:
    async def story(cluster: Cluster, admin: Admin) -> int:
        await set_quota(admin, ETL, producer_byte_rate=100)
        return await produced_bytes(cluster, 5.0, "other")

    assert on_a_cluster(story, t=1) > 5 * RATE


@pytest.mark.fault("strangers-14")
def test_a_quota_that_is_removed_holds_nobody() -> None:
    async def story(cluster: Cluster, admin: Admin) -> tuple[dict[Any, Any], int]:
        await set_quota(admin, ETL, producer_byte_rate=100)
        before = await admin.describe_client_quotas({"client-id": "etl"})
        await set_quota(admin, ETL, producer_byte_rate=None)
        assert await admin.describe_client_quotas({"client-id": ANY}) == {}
        await asyncio.sleep(1)
        return before, await produced_bytes(cluster, 5.0)

    before, sent = on_a_cluster(story, t=1)
    assert before == {ETL: {"producer_byte_rate": 100.0}}
    assert sent > 5 * RATE


def test_a_consumer_below_one_fetch_gets_on() -> None:
    """250 bytes a second and fetches of 4 KB: BaseQuotaTest.testQuotaOverrideDelete of Kafka."""

    async def story(cluster: Cluster, admin: Admin) -> int:
        await produced_bytes(cluster, 3.0, "filler", size=1000)
        await set_quota(admin, ETL, consumer_byte_rate=250)
        host, _, port = cluster.bootstrap.partition(":")
        consumer = SimpleConsumer(host, int(port), 60_000, 65_536, "etl")
        loop = asyncio.get_running_loop()
        offset = await consumer.earliest_or_latest_offset("t", 0, EARLIEST_TIME)
        read, end = 0, loop.time() + 2 * MINUTE_S
        while loop.time() < end:
            for message in await consumer.fetch(FetchRequest("t", 0, offset, 4096)):
                read += len(message.value or b"")
                offset = message.offset + 1
        await consumer.close()
        return read

    read = on_a_cluster(story, t=1)
    assert 0 < read <= 250 * 1.05 * 2 * MINUTE_S + 2500


@pytest.mark.parametrize("fetched_bytes", [10_001, 25_000, 1_000_000])
def test_a_consumer_gets_most_of_its_rate_whatever_it_asks_for(fetched_bytes: int) -> None:
    """A response above the rate is withheld, and windows end by whole seconds: docs/quotas.md."""
    rate, size, before_s = 100_000, 10_000, 20.0

    async def story(cluster: Cluster, admin: Admin) -> float:
        seconds = before_s + MINUTE_S
        settings = {"bootstrap.servers": cluster.bootstrap, "client.id": "filler", **CLIENT}
        async with Producer(settings) as producer:
            # What comes at once, and what is read then.
            for _ in range(int((seconds + 15) * rate / size)):
                await producer.send_and_wait("t", bytes(size))

        await set_quota(admin, ETL, consumer_byte_rate=rate)
        host, _, port = cluster.bootstrap.partition(":")
        consumer = SimpleConsumer(host, int(port), 60_000, 65_536, "etl")
        loop = asyncio.get_running_loop()
        read, offset, begin = 0, 0, loop.time() + before_s
        while loop.time() < begin + MINUTE_S:
            fetched = await consumer.fetch(FetchRequest("t", 0, offset, fetched_bytes))
            offset = fetched.next_offset
            if begin <= loop.time() < begin + MINUTE_S:
                read += size * len(list(fetched))
        await consumer.close()
        return read / MINUTE_S

    assert 0.7 * rate < on_a_cluster(story, t=1) < 1.1 * rate


def test_a_member_of_a_group_reads_at_its_rate() -> None:
    async def story(cluster: Cluster, admin: Admin) -> tuple[int, float]:
        sent = await produced_bytes(cluster, 10.0, "filler")
        await set_quota(admin, ETL, consumer_byte_rate=RATE)
        settings = {
            "bootstrap.servers": cluster.bootstrap,
            "membership": "coordinator",
            "group.id": "g",
            "client.id": "etl",
            "auto.offset.reset": "smallest",
            **CLIENT,
        }
        loop = asyncio.get_running_loop()
        began, read = loop.time(), 0
        async with ConsumerConnector(settings) as connector:
            (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
            async for message in stream:
                read += len(message.value)
                if read == sent:
                    break
        return sent, loop.time() - began

    sent, took_s = on_a_cluster(story, t=1)
    assert sent > 20 * RATE
    assert sent / took_s < 2 * RATE  # ten windows' worth came at once


def test_partitions_are_created_at_the_rate_of_a_quota() -> None:
    """Of 30 partitions 11 are free, the others are paid for at one a second."""

    async def story(cluster: Cluster, admin: Admin) -> float:
        await set_quota(admin, EVERYBODY, controller_mutation_rate=1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for name, partitions in (("a", 30), ("b", 1)):
            while (await admin.create_topics([NewTopic(name, partitions, 1)]))[name] is not None:
                await asyncio.sleep(1)
        return loop.time() - began

    assert 19 <= on_a_cluster(story) < 25


@pytest.mark.parametrize(
    "change",
    [
        lambda admin: admin.create_topics([NewTopic("b", 1, 1)]),
        lambda admin: admin.create_partitions({"a": NewPartitions(31)}),
        lambda admin: admin.delete_topics(["a"]),
    ],
)
def test_refusal_by_a_quota_names_it_and_the_time_after_which_to_try_again(
    change: Callable[[Admin], Awaitable[dict[str, Any]]],
) -> None:
    """Of 30 partitions 11 are free, so that 19 tokens are owed, and one comes each second."""

    async def story(cluster: Cluster, admin: Admin) -> str:
        await set_quota(admin, EVERYBODY, controller_mutation_rate=1)
        await admin.create_topics([NewTopic("a", 30, 1)])
        # The connection of the first is to be silent until the debt is paid.
        async with Admin({**CLIENT, "bootstrap.servers": cluster.bootstrap}) as another:
            (error,) = (await change(another)).values()
        return str(error)

    assert on_a_cluster(story) == (
        "THROTTLING_QUOTA_EXCEEDED: The throttling quota has been exceeded: "
        "controller_mutation_rate; try again in 19 s"
    )


def test_quotas_of_another_tool_are_followed_by_all_brokers() -> None:
    """As kafka-configs.sh --zookeeper writes them."""

    async def story(cluster: Cluster, admin: Admin) -> dict[Any, Any]:
        entity = ClientEntity("al/ice", "c d")
        zk = await cluster.open_session()
        await zk.create(
            entity.path(),
            EntityConfig({"request_percentage": "12.5"}).encode(),
            make_parents=True,
        )
        change = ConfigChange(entity.entity_path()).encode()
        await zk.create(ConfigChange.prefix(), change, sequence=True, make_parents=True)

        return await admin.describe_client_quotas()

    found = on_a_cluster(story, brokers=3)
    assert found == {(("client-id", "c d"), ("user", "al/ice")): {"request_percentage": 12.5}}


def test_an_address_is_held_at_its_rate_of_new_connections() -> None:
    """Ten windows' worth come at once, and then one a second."""

    async def story(cluster: Cluster, admin: Admin) -> tuple[int, int]:
        host, _, port = cluster.bootstrap.partition(":")
        loop = asyncio.get_running_loop()

        async def connect_for(seconds: float) -> int:
            """Connect ten times a second at most; return how many connections were served."""
            served, end = 0, loop.time() + seconds
            while loop.time() < end:
                await asyncio.sleep(0.1)
                with contextlib.suppress(ConnectionFailed):
                    await (await Connection.open(host, int(port))).close()
                    served += 1
            return served

        await set_quota(admin, (("ip", None),), connection_creation_rate=1)
        await asyncio.sleep(1)
        limited = await connect_for(30)
        await set_quota(admin, (("ip", None),), connection_creation_rate=None)
        await asyncio.sleep(1)
        return limited, await connect_for(2)

    limited, free = on_a_cluster(story)
    assert 25 <= limited <= 41
    assert free >= 10


def test_a_quota_of_a_host_that_is_not_known_is_refused() -> None:
    async def story(cluster: Cluster, admin: Admin) -> str:
        entity = (("ip", "no.host.invalid"),)
        verdicts = await admin.alter_client_quotas({entity: {"connection_creation_rate": 1}})
        return str(verdicts[entity])

    assert "no.host.invalid is not a valid IP or resolvable host." in on_a_cluster(story)


@pytest.mark.fault("strangers-25")
@pytest.mark.parametrize("host", ["a..b", 64 * "x"])
def test_a_quota_of_a_name_that_is_no_host_is_refused_alone(host: str) -> None:
    async def story(cluster: Cluster, admin: Admin) -> tuple[Any, str]:
        address = (("ip", host),)
        quotas = {ETL: {"producer_byte_rate": 1.0}, address: {"connection_creation_rate": 1.0}}
        verdicts = await admin.alter_client_quotas(quotas)
        return verdicts[ETL], str(verdicts[address])

    of_client, of_address = on_a_cluster(story)
    assert of_client is None
    assert of_address.startswith("INVALID_REQUEST: ")
    assert f"{host} is not a valid IP or resolvable host." in of_address
