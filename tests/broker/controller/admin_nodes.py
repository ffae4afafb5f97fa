"""Nodes of ZooKeeper through which tools command a controller."""

import json
from typing import Any

from tests.broker.controller.cluster import Cluster
from zk.znodes import (
    PreferredReplicaElection,
    ReassignPartitions,
    TopicAssignment,
)

REASSIGN = ReassignPartitions.path()
PREFERRED = PreferredReplicaElection.path()


def move(*replicas: int, topic: str = "t") -> bytes:
    return ReassignPartitions({(topic, 0): replicas}).encode()


async def topic_node(cluster: Cluster, topic: str = "t") -> Any:
    data, _ = await cluster.session.get(TopicAssignment.path(topic))
    assert data is not None
    return json.loads(data)


async def exists(cluster: Cluster, path: str) -> bool:
    return await cluster.session.exists(path) is not None
