"""Members that are killed one after the other, at a coordinator of a simulated cluster."""

import asyncio

import pytest

from kgroup import ConsumerConnector, Producer
from kgroup.testing.simulation import CLIENT, Client, Cluster, Faults, simulate, until

PARTITIONS = 4
SESSION_S = 45
"""session.timeout.ms as it is where nobody sets it."""


def test_member_that_is_killed_while_it_waits_for_another_one_takes_no_session_of_its_own() -> None:
    assert simulate(scene, seed=0, topics={"orders": PARTITIONS}) < 1.5 * SESSION_S


async def scene(cluster: Cluster, faults: Faults) -> float:
    """Return the seconds from the second kill until new processes consume all partitions."""
    received: set[bytes] = set()

    async def consume() -> None:
        config = CLIENT | {"group.id": "g", "auto.offset.reset": "smallest"}
        config |= {"membership": "coordinator", "bootstrap.servers": cluster.bootstrap}
        streams = await ConsumerConnector(config).create_message_streams({"orders": 1})
        async for message in streams["orders"][0]:
            received.add(message.value)

    async def restart(client: Client) -> None:
        client.kill()
        await asyncio.sleep(2)
        client.start()

    async def send(name: str) -> None:
        """Send a record to each partition, and wait until all are consumed."""
        values = {b"%s %d" % (name.encode(), number) for number in range(PARTITIONS)}
        for number, value in enumerate(sorted(values)):
            await producer.send_and_wait("orders", value, partition=number)
        await until(lambda: values <= received, f"what is sent {name} is consumed", 300)

    async with Producer(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as producer:
        one, two = (cluster.run_client(name, consume) for name in ("one", "two"))
        await send("before")

        # The others hear of the new process by heartbeats, and wait for the session of the old one.
        await restart(one)
        await asyncio.sleep(6)
        begins = cluster.world.now
        await restart(two)
        await send("after")
    return cluster.world.now - begins


@pytest.mark.fault("strangers-27")
@pytest.mark.parametrize(
    "membership", [{"membership": "coordinator"}, {"offsets.storage": "kafka"}, {}]
)
def test_what_comes_after_the_first_member_has_its_places_is_consumed(
    membership: dict[str, str],
) -> None:
    """It begins at the end of the log, and is killed before it has committed what it consumed."""

    async def scene(cluster: Cluster, faults: Faults) -> None:
        received: set[bytes] = set()

        async def consume() -> None:
            config = CLIENT | {"group.id": "g", "auto.commit.interval.ms": 600_000} | membership
            config |= {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "largest"}
            zk = None
            if "membership" not in config:
                config |= {"zookeeper.connect": "zk:2181"}
                zk = await cluster.open_session()
            streams = await ConsumerConnector(config, zk=zk).create_message_streams({"orders": 1})
            async for message in streams["orders"][0]:
                received.add(message.value)

        async with Producer(CLIENT | {"bootstrap.servers": cluster.bootstrap}) as producer:
            first = cluster.run_client("first", consume)
            await asyncio.sleep(10)
            first.kill()

            values = {b"%d" % number for number in range(PARTITIONS)}
            for number, value in enumerate(sorted(values)):
                await producer.send_and_wait("orders", value, partition=number)
            cluster.run_client("second", consume)
            await until(lambda: values <= received, "what came in between is consumed", 300)

    simulate(scene, seed=0, topics={"orders": PARTITIONS})
