"""A leader loses its power and is back before there is a controller that could see it.

Its log has lost what was not flushed, and its followers have the lost records. Under the same epoch
it would write others at their offsets, and neither side could tell.
"""

from __future__ import annotations

import pytest

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate, until
from kgroup.testing.simulation.zookeeper import HOST as ZK_HOST
from protocol.topic_partition import TopicPartition
from tests.simulation.invariants import log_end, segments, whole
from zk.znodes import Controller

T0 = TopicPartition("t", 0)
UNFLUSHED = {"log.flush.interval.messages": "9223372036854775807"}
FEW, MANY = 20, 40


@pytest.mark.parametrize("seed", range(4))
def test_logs_are_the_same_after_their_leader_lost_its_power_unseen(seed: int) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> list[bytes]:
        return await lose_power_unseen(cluster, faults)

    logs = simulate(scene, seed=seed, settings=UNFLUSHED)
    assert len(set(logs)) == 1, f"seed {seed}: logs of {[len(log) for log in logs]} bytes differ"


async def lose_power_unseen(cluster: Cluster, faults: Faults) -> list[bytes]:
    """Return the bytes of the partition's log at each broker, when all are in sync again."""
    tree = cluster.zookeeper.server.tree
    controller = Controller.decode(tree[Controller.path()].data).broker_id
    leader, *others = sorted(cluster.nodes, key=lambda node: node.broker_id == controller)
    client = cluster.client("application")

    async def create() -> None:
        async with Admin(cluster.bootstrap) as admin:
            assignments = {0: [node.broker_id for node in (leader, *others)]}
            await admin.create_topics([NewTopic("t", assignments=assignments)])

    async def produce(count: int, acks: str) -> None:
        settings = CLIENT | {"bootstrap.servers": cluster.bootstrap, "acks": acks}
        async with Producer(settings) as producer:
            for number in range(count):
                await producer.send_and_wait("t", b"%d of %d" % (number, count))

    async def is_back() -> bool:
        return leader.serving

    async def are_in_sync() -> bool:
        ends = {log_end(log) for node in cluster.nodes if (log := node.log(T0))}
        return len(cluster.partition_states()[T0].isr) == len(cluster.nodes) and len(ends) == 1

    await client.run(create)
    await client.run(lambda: produce(FEW, "all"))

    # The controller is cut off from ZooKeeper, and deposed before it is heard again.
    mends = [faults.silence_host(ZK_HOST, [node.host for node in others], None)]
    mends.append(faults.silence_host(leader.host, [node.host for node in others], None))
    assert leader.session is not None
    leader.stop()
    cluster.zookeeper.expire(leader.session)
    leader.directory.lose_power()
    leader.start()
    await until(is_back, "the leader is back", 5, pause_s=0.1)
    cluster.zookeeper.delete(Controller.path())
    await client.run(lambda: produce(MANY, "1"))

    for mend in mends:
        mend()
    await until(are_in_sync, "all are in sync", 120, pause_s=0.5)
    return [
        b"".join(whole(log, name) for name in segments(log))
        for node in cluster.nodes
        if (log := node.log(T0)) is not None
    ]
