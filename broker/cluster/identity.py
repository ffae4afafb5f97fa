"""Find out this broker's id and its cluster, from ZooKeeper and from its disks.

`meta.properties` in each log directory holds both. So a disk that was put into another broker, or a
broker with another cluster's address, is detected before anything is written.
"""

from __future__ import annotations

import base64
import uuid

import attrs

from broker.settings.config import BrokerConfig
from core_log.log_manager import LogManager
from core_log.meta_properties import agree
from zk.api import NodeExists, NoNode, ZkSession
from zk.znodes import BrokerSeqId, ClusterId


async def get_or_create_cluster_id(zk: ZkSession) -> str:
    """Return the cluster's id: 22 characters of base64url, which the first broker creates."""
    while True:
        try:
            data, _ = await zk.get(ClusterId.path())
            return ClusterId.decode(data).id
        except NoNode:
            # A random UUID, as Kafka writes it.
            new_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            try:
                await zk.create(ClusterId.path(), ClusterId(id=new_id).encode(), make_parents=True)
            except NodeExists:
                continue  # another broker was faster
            return new_id


def check_disks(config: BrokerConfig, logs: LogManager, cluster_id: str) -> int:
    """Return this broker's id as far as it is known: -1 if it is assigned later.

    Raises InconsistentMetaProperties when a directory is another broker's or cluster's.

    Call this before the logs are loaded: loading deletes the mark of a clean shutdown, and recovery
    truncates. A directory that cannot be read is offline from here on.
    """
    return agree(logs.read_meta_properties(), config.broker_id, cluster_id).broker_id


async def assign_broker_id(
    zk: ZkSession, config: BrokerConfig, logs: LogManager, cluster_id: str
) -> int:
    """Return this broker's id, and write it into every log directory.

    Raises InconsistentMetaProperties when a directory is another broker's or cluster's.
    """
    meta = agree(logs.read_meta_properties(), config.broker_id, cluster_id)

    # Generated ids are above those that people may choose.
    if meta.broker_id < 0:
        meta = attrs.evolve(meta, broker_id=await _next_id(zk) + config.reserved_broker_max_id)

    # Also a known id is written: a new disk has no meta.properties yet.
    logs.write_meta_properties(meta)
    return meta.broker_id


async def _next_id(zk: ZkSession) -> int:
    """Return a number that no broker has had: the version of a node that each caller sets once."""
    while True:
        # Each write raises the version by one, whoever writes.
        try:
            return (await zk.set(BrokerSeqId.path(), b"")).version
        except NoNode:
            await zk.ensure_path(BrokerSeqId.path())
