"""Scenes on a simulated cluster: clients of several kinds, faults, and how scenes end."""

import asyncio
import threading

import aiokafka
import pytest

from kgroup import ConsumerConnector, Producer
from kgroup.testing.simulation import CLIENT, Cluster, Faults, Violation, simulate, until

API_VERSIONS_V0 = bytes.fromhex("0012000000000005ffff")
"""API 18, version 0, correlation id 5, no client id."""


def test_streams_of_bytes_reach_a_broker() -> None:
    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("b1", 9092)
        writer.write(len(API_VERSIONS_V0).to_bytes(4, "big") + API_VERSIONS_V0)
        await writer.drain()
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.close()
        await writer.wait_closed()
        return answer

    async def scene(cluster: Cluster, faults: Faults) -> bytes:
        return await cluster.client("bytes").run(ask)

    correlation_id_and_error = bytes.fromhex("000000050000")
    assert simulate(scene, seed=1, brokers=1).startswith(correlation_id_and_error)


def test_clients_of_others_run_as_they_are() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> list[bytes]:
        received: list[bytes] = []

        async def consume() -> None:
            consumer = aiokafka.AIOKafkaConsumer(
                "orders",
                bootstrap_servers=cluster.bootstrap,
                group_id="g",
                auto_offset_reset="earliest",
            )
            async with consumer:
                async for message in consumer:
                    received.append(message.value)

        async def produce() -> None:
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
                for number in range(20):
                    await producer.send_and_wait("orders", b"%d" % number)

        cluster.client("consumer").spawn(consume())
        await cluster.client("producer").run(produce)
        await until(lambda: len(received) == 20, "all is consumed")
        return received

    received = simulate(scene, seed=2, topics={"orders": 1})
    assert received == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("membership", ["zookeeper", "coordinator"])
def test_our_members_get_all_records_though_they_are_killed(membership: str) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> set[bytes]:
        received: set[bytes] = set()

        def begin(name: str) -> None:
            cluster.run_client(name, lambda: consume(name))

        async def consume(name: str) -> None:
            config = CLIENT | {"group.id": "g", "auto.offset.reset": "smallest"}
            if membership == "coordinator":
                config |= {"membership": "coordinator", "bootstrap.servers": cluster.bootstrap}
                config |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}
                connector = ConsumerConnector(config)
            else:
                config |= {"consumer.id": name, "zookeeper.connect": "zk:2181"}
                config |= {"rebalance.backoff.ms": 500, "rebalance.max.retries": 20}
                connector = ConsumerConnector(config, zk=await cluster.open_session())

            streams = await connector.create_message_streams({"orders": 1})
            async for message in streams["orders"][0]:
                received.add(message.value)

        begin("one")
        begin("two")
        async with Producer(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as producer:
            for number in range(40):
                await producer.send_and_wait("orders", b"%d" % number, partition=number % 4)
                await asyncio.sleep(0.5)
                if number in (10, 25):
                    faults.kill_client()
        await until(lambda: len(received) == 40, "all is consumed")
        return received

    received = simulate(scene, seed=3, topics={"orders": 4})
    assert received == {b"%d" % number for number in range(40)}


def test_killed_client_runs_no_finally_and_is_started_again() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> list[str]:
        said: list[str] = []

        async def wait() -> None:
            said.append("begins")
            try:
                await asyncio.sleep(3600)
            finally:
                said.append("ends")

        cluster.run_client("waiting", wait)
        await asyncio.sleep(1)
        faults.kill_client()
        await until(lambda: len(said) > 1, "another process")
        return list(said)

    assert simulate(scene, seed=4, brokers=1) == ["begins", "begins"]


@pytest.mark.parametrize("brokers", [1, 2, 5])
def test_clusters_of_any_size_stand_their_faults(brokers: int) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> int:
        await faults.strike(20)
        faults.heal()
        async with Producer(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as producer:
            await until(
                lambda: producer.send_and_wait("orders", b"last"),
                "a record is taken",
                retry_on=(Exception,),
            )
        return cluster.story.faults.total()

    assert simulate(scene, seed=5, brokers=brokers, topics={"orders": 2}) >= 3


def test_same_seed_tells_the_same_story_and_another_one_does_not() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None:
        await faults.strike(10)
        raise AssertionError("the end")

    def story_of(seed: int) -> str:
        with pytest.raises(Violation, match="the end") as raised:
            simulate(scene, seed=seed, topics={"orders": 1})
        return raised.value.story

    assert story_of(6) == story_of(6)
    assert story_of(6).partition("\n")[2] != story_of(7).partition("\n")[2]


def test_client_that_raises_ends_the_story_and_is_named() -> None:
    async def fail() -> None:
        raise ValueError("a bug")

    async def scene(cluster: Cluster, faults: Faults) -> None:
        cluster.run_client("buggy", fail)
        await asyncio.sleep(60)

    with pytest.raises(Violation, match="buggy failed: ValueError") as raised:
        simulate(scene, seed=8, brokers=1)
    assert "in fail" in raised.value.story


def test_thread_is_refused_and_named() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None:
        with pytest.raises(RuntimeError, match="starts the thread worker"):
            threading.Thread(name="worker").start()

    simulate(scene, seed=11, brokers=1)


def test_connection_with_tls_is_refused_with_the_reason() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None:
        with pytest.raises(ValueError, match="no TLS"):
            await asyncio.open_connection("b1", 9092, ssl=True)

    simulate(scene, seed=9, brokers=1)


def test_simulation_inside_of_an_event_loop_is_refused() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> None: ...

    async def inside() -> None:
        with pytest.raises(RuntimeError, match="call it where none runs"):
            simulate(scene, seed=10)

    asyncio.run(inside())
