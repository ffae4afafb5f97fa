"""The brokers ZooKeeper knows of: where a client begins that was told `zookeeper.connect` alone.

Only the first address comes from here. Who leads what, a client asks those brokers themselves.
"""

import logging

from clients.cluster_view import is_address
from clients.errors import NoBrokersAvailable
from zk.api import NoNode, ZkError, ZkSession, children_if_there
from zk.session import KazooSession
from zk.znodes import BrokerId, ZnodeError

_log = logging.getLogger(__name__)


async def registered_brokers(zk: ZkSession) -> list[str]:
    """`host:port` of every plain listener of every live broker.

    A broker whose znode cannot be read, or names no address, is left out, and logged. Raises
    NoBrokersAvailable, naming those, when no address is left; ZkError.
    """
    addresses, unreadable = [], []
    for broker_id in await children_if_there(zk, BrokerId.directory()):
        path = BrokerId.path(broker_id)
        try:
            content, _ = await zk.get(path)
            broker = BrokerId.decode(content, path)
        except NoNode:
            continue  # it went down between listing and reading
        except ZnodeError as error:
            _log.error("a broker is left out: %s", error)
            unreadable.append(str(error))
            continue
        for endpoint in broker.endpoints:
            address = f"{endpoint.host}:{endpoint.port}"
            if endpoint.security_protocol != "PLAINTEXT":
                continue
            if is_address(endpoint.host, endpoint.port):
                addresses.append(address)
            else:
                _log.error("a broker is left out: %s: %r is no address", path, address)
                unreadable.append(f"{path}: {address!r} is no address")
    if not addresses:
        raise NoBrokersAvailable("; ".join(["no broker is registered in ZooKeeper", *unreadable]))
    return addresses


async def brokers_registered_at(zookeeper_connect: str, timeout_ms: int) -> list[str]:
    """The same by a session that lasts as long as the reading takes.

    Raises NoBrokersAvailable also for a ZooKeeper that does not answer in time.
    """
    session = KazooSession(zookeeper_connect, connection_timeout_ms=timeout_ms)
    try:
        await session.start()
        try:
            return await registered_brokers(session)
        finally:
            await session.close()
    except ZkError as error:
        raise NoBrokersAvailable(f"ZooKeeper: {error}") from error
