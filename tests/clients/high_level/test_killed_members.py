"""Members that are killed one after the other, at a coordinator of a simulated cluster."""

import asyncio

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
