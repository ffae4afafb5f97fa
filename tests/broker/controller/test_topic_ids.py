"""The controller writes the ids of topics into their znodes, those of new ones at once."""

from __future__ import annotations

import json

from broker.controller.cluster_writer import pinning_write
from broker.controller.effects import PinTopicIds, SetTimer
from broker.controller.events import AssignmentsRead, PinningDue
from broker.controller.partitions import handle_assignments_read
from broker.controller.topic_ids import TOPICS_AT_ONCE, handle_pinning_due
from protocol.topic_identity import derive_topic_id, encode_id
from tests.broker.controller.admin_nodes import REASSIGN, move, topic_node
from tests.broker.controller.cluster import Cluster, on_cluster
from tests.broker.controller.script import active_state
from zk.api import Stat
from zk.znodes import ClusterId, TopicAssignment

CLUSTER = "rI0PvrWuTxmUcxWV8Zn3fA"
GIVEN = encode_id(bytes(range(16)))


async def identify(cluster: Cluster) -> None:
    """Give the cluster its id, as the first broker does before it registers."""
    data = ClusterId(CLUSTER).encode()
    await cluster.session.create(ClusterId.path(), data, make_parents=True)


async def derived_id(cluster: Cluster, topic: str = "t") -> str:
    _, stat = await cluster.session.get(TopicAssignment.path(topic))
    return encode_id(derive_topic_id(CLUSTER, topic, stat.czxid))


@on_cluster
async def test_topic_that_is_created_gets_its_derived_id(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await identify(cluster)
    await cluster.create("t", (1, 2))
    assert await topic_node(cluster) == {
        "version": 3,
        "partitions": {"0": [1, 2]},
        "adding_replicas": {},
        "removing_replicas": {},
        "topic_id": await derived_id(cluster),
    }


def test_new_topics_are_pinned_before_anybody_can_consume_them() -> None:
    state = active_state([1])
    topics = tuple(f"t{number:03}" for number in range(TOPICS_AT_ONCE + 1))
    assignments = {topic: {0: (1,)} for topic in topics}
    first, second, *rest = handle_assignments_read(state, AssignmentsRead(assignments, topics))
    assert first == PinTopicIds(topics[:TOPICS_AT_ONCE])
    assert second == PinTopicIds(topics[TOPICS_AT_ONCE:])
    assert rest
    assert not any(isinstance(effect, PinTopicIds | SetTimer) for effect in rest)


@on_cluster
async def test_controller_pins_all_topics_that_it_finds(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    topics = [f"t{number}" for number in range(2 * TOPICS_AT_ONCE + 1)]
    for topic in topics:
        node = TopicAssignment({0: (1, 2)}).encode()
        await cluster.session.create(TopicAssignment.path(topic), node)
    await cluster.settle()
    await identify(cluster)
    await cluster.kill(1)
    await cluster.settle()
    for topic in topics:
        data, _ = await cluster.session.get(TopicAssignment.path(topic))
        assert json.loads(data or b"")["topic_id"] == await derived_id(cluster, topic)


@on_cluster
async def test_id_that_a_topic_has_stays_and_so_does_it_when_replicas_move(
    cluster: Cluster,
) -> None:
    await cluster.start(1, 2)
    await identify(cluster)
    given = b'{"version":3,"partitions":{"0":[1]},"topic_id":"%s"}' % GIVEN.encode()
    await cluster.put(TopicAssignment.path("t"), given)
    await cluster.put(REASSIGN, move(2))
    await cluster.leader_writes(1, 2)
    node_after = await topic_node(cluster)
    assert node_after["partitions"] == {"0": [2]}
    assert (node_after["version"], node_after["topic_id"]) == (3, GIVEN)


@on_cluster
async def test_id_that_an_older_controller_dropped_comes_back_the_same(cluster: Cluster) -> None:
    await cluster.start(1, 2)
    await identify(cluster)
    await cluster.create("t", (1, 2))
    topic_id = (await topic_node(cluster))["topic_id"]
    dropped = TopicAssignment({0: (1, 2)}).encode()
    await cluster.session.set(TopicAssignment.path("t"), dropped)
    await cluster.settle()
    assert (await topic_node(cluster))["topic_id"] == topic_id


@on_cluster
async def test_write_of_another_is_not_overwritten(cluster: Cluster) -> None:
    await cluster.start(1)
    path = TopicAssignment.path("t")
    await cluster.session.create(path, TopicAssignment({0: (1,)}).encode())
    data, stat = await cluster.session.get(path)
    write = pinning_write(CLUSTER, "t", data, stat)
    assert write is not None
    assert write.version == stat.version
    assert pinning_write(CLUSTER, "t", write.data, stat) is None


def test_node_that_cannot_be_parsed_is_left_as_it_is() -> None:
    stat = Stat(0, 0, 1, 1, 0, 0, 0, 0)
    assert pinning_write(CLUSTER, "t", b"{", stat) is None


def test_topics_are_pinned_a_few_at_a_time() -> None:
    state = active_state([1])
    topics = tuple(f"t{number:03}" for number in range(TOPICS_AT_ONCE + 1))
    for topic in topics:
        state.add_partitions(topic, {0: (1,)})
    pin, timer = handle_pinning_due(state, PinningDue(state.resignations, topics))
    assert pin == PinTopicIds(topics[:TOPICS_AT_ONCE])
    assert isinstance(timer, SetTimer)
    assert timer.event == PinningDue(state.resignations, topics[TOPICS_AT_ONCE:])


def test_neither_a_deleted_topic_nor_one_of_an_earlier_reign_is_pinned() -> None:
    state = active_state([1])
    state.add_partitions("t", {0: (1,)})
    state.deletions.add("t")
    assert handle_pinning_due(state, PinningDue(state.resignations, ("t", "gone"))) == []
    state.deletions.clear()
    assert handle_pinning_due(state, PinningDue(state.resignations - 1, ("t",))) == []
