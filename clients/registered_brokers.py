"""Read the brokers registered in ZooKeeper, for a client that only has `zookeeper.connect`.

They are only the first addresses. A client asks the brokers themselves who leads which partition.
"""

import logging

from clients.cluster_view import is_address
from clients.errors import NoBrokersAvailable
from protocol.security_protocol import SecurityProtocol
from zk.api import ZkError, ZkSession, children_if_there, get_if_there
from zk.broker_znodes import BrokerId, ClusterId
from zk.failures import describe
from zk.znode_json import ZnodeError

logger = logging.getLogger(__name__)


async def registered_brokers(
    zk: ZkSession, security_protocol: str = SecurityProtocol.PLAINTEXT.name
) -> list[str]:
    """Return `host:port` of every listener of this protocol of every live broker.

    A broker whose znode is unreadable, or has no valid address, is logged and left out. Raises
    NoBrokersAvailable with these brokers in its text if no address is left; ZkError.
    """
    addresses = []
    unreadable = []
    others: set[str] = set()

    ids = await children_if_there(zk, BrokerId.directory())
    paths = [BrokerId.path(broker_id) for broker_id in ids]
    nodes = await zk.get_many(paths)

    for path, node in zip(paths, nodes, strict=True):
        # The broker stopped after its node was listed.
        if node is None:
            continue

        content, _ = node
        try:
            broker = BrokerId.decode(content, path)
        except ZnodeError as error:
            # One bad registration must not hide the other brokers.
            logger.error("broker left out: %s", error)
            unreadable.append(str(error))
            continue

        # A client speaks one protocol: listeners of others are of no use to it.
        for endpoint in broker.endpoints:
            address = f"{endpoint.host}:{endpoint.port}"
            if endpoint.security_protocol != security_protocol:
                others.add(endpoint.security_protocol)
                continue
            if is_address(endpoint.host, endpoint.port):
                addresses.append(address)
            else:
                logger.error("broker left out: %s: %r is not an address", path, address)
                unreadable.append(f"{path}: {address!r} is not an address")

    if not addresses:
        missing = "no broker is registered in ZooKeeper"
        if others or security_protocol != SecurityProtocol.PLAINTEXT.name:
            missing += f" with a listener of {security_protocol}"
        if others:
            missing += (
                f", only of {' and '.join(sorted(others))}: set security.protocol, and the login "
                "or certificates that it needs (commands read them from the file of "
                "--command-config)"
            )
        raise NoBrokersAvailable("; ".join([missing, *unreadable]))
    return addresses


async def cluster_id_in(zk: ZkSession) -> str | None:
    """Read the id of the cluster; None before Kafka 0.10.1. Raises ZkError."""
    found = await get_if_there(zk, ClusterId.path())
    if found is None:
        return None
    content, _ = found
    try:
        return ClusterId.decode(content).id
    except ZnodeError as error:
        logger.error("%s", error)
        return None


async def brokers_in(
    zk: ZkSession, security_protocol: str = SecurityProtocol.PLAINTEXT.name
) -> list[str]:
    """Read the registered brokers.

    Raises NoBrokersAvailable, also if ZooKeeper does not respond.
    """
    try:
        return await registered_brokers(zk, security_protocol)
    except ZkError as error:
        # Callers look for brokers; for them a silent ZooKeeper is the lack of any.
        raise NoBrokersAvailable(f"ZooKeeper: {describe(error)}") from error


async def brokers_registered_at(
    zookeeper_connect: str,
    timeout_ms: int,
    security_protocol: str = SecurityProtocol.PLAINTEXT.name,
) -> list[str]:
    """Read the registered brokers with a session of their own.

    Raises NoBrokersAvailable, also if ZooKeeper does not respond in time.
    """
    # Few clients need a ZooKeeper client, and importing one takes a while.
    from zk.session import KazooSession

    session = KazooSession(zookeeper_connect, connection_timeout_ms=timeout_ms)
    try:
        await session.start()
    except ZkError as error:
        raise NoBrokersAvailable(f"ZooKeeper: {describe(error)}") from error
    try:
        return await brokers_in(session, security_protocol)
    finally:
        await session.close()
