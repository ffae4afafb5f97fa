"""Who a broker is: the cluster it belongs to and its number, from ZooKeeper and its disks.

`meta.properties` in each log directory remembers both, so that a disk put into another broker, or
a broker pointed at another cluster, is found out before anything is written.
"""

from __future__ import annotations

import base64
import contextlib
import uuid

import attrs

from broker.settings.config import BrokerConfig
from core_log.log_manager import LogManager
from core_log.meta_properties import agree
from zk.api import NodeExists, NoNode, ZkSession
from zk.znodes import BrokerSeqId, ClusterId


async def get_or_create_cluster_id(zk: ZkSession) -> str:
    """The id of the cluster; the first broker to ask makes one (22 characters of base64url)."""
    while True:
        try:
            data, _ = await zk.get(ClusterId.path())
            return ClusterId.decode(data).id
        except NoNode:
            fresh = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            try:
                await zk.create(ClusterId.path(), ClusterId(id=fresh).encode(), make_parents=True)
            except NodeExists:
                continue
            return fresh


def check_disks(config: BrokerConfig, logs: LogManager, cluster: str) -> int:
    """This broker's number as far as it is known: -1 if it is to be given one.

    Raises InconsistentMetaProperties when a directory is another broker's or cluster's.

    To be asked before the logs are loaded: loading takes away the mark of a clean stop, and
    recovery cuts. A directory that cannot be read is left to the loading, which can do without.
    """
    with contextlib.suppress(OSError):
        return agree(logs.read_meta_properties(), config.broker_id, cluster).broker_id
    return config.broker_id


async def assign_broker_id(
    zk: ZkSession, config: BrokerConfig, logs: LogManager, cluster: str
) -> int:
    """This broker's number, remembered in every log directory from now on.

    Raises InconsistentMetaProperties when what a directory remembers is another broker's or
    cluster's.
    """
    meta = agree(logs.read_meta_properties(), config.broker_id, cluster)
    if meta.broker_id < 0:
        meta = attrs.evolve(meta, broker_id=await _next_id(zk) + config.reserved_broker_max_id)
    logs.write_meta_properties(meta)
    return meta.broker_id


async def _next_id(zk: ZkSession) -> int:
    """A number no broker had: the version of a node that every asker sets once."""
    while True:
        try:
            return (await zk.set(BrokerSeqId.path(), b"")).version
        except NoNode:
            await zk.ensure_path(BrokerSeqId.path())
