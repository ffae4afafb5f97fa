"""Open what a command talks to: brokers, and ZooKeeper if its address is given.

Commands that need no ZooKeeper start without its client, which is imported where one is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from clients.admin import Admin
from clients.command_line.command_group import CommandFailed
from clients.command_line.output import DEFAULT_BOOTSTRAP_SERVER, Target
from clients.errors import DeadlineExceeded, KgroupError, NoBrokersAvailable
from clients.security import protocol_of
from clients.transport.connection import Connection
from protocol.api_key import ApiKey
from protocol.frozen import frozen
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.settings import load
from protocol.zookeeper_security import ZooKeeperSecurity, security_in

if TYPE_CHECKING:
    from zk.api import ZkError, ZkSession
    from zk.session import KazooSession

FIRST_VERSION_OF_CLUSTER_ID = 2
"""Of Metadata: Kafka 0.10.1."""
CONNECTION_SETUP = "socket.connection.setup.timeout.ms"
CONNECTION_SETUP_MS = 10_000
"""The default of clients. A command that is given less time takes no longer to connect."""


@frozen
class Sessions:
    """The open clients of a command. `zk` is None if no ZooKeeper was given.

    It is None too if a command goes on without ZooKeeper, which could not be reached because of
    `zk_failure`. `options`: those of the target, for the next command.
    """

    admin: Admin
    zk: ZkSession | None = None
    zk_failure: ZkError | None = None
    options: str = ""


@asynccontextmanager
async def connected(
    target: Target,
    *,
    brokers: bool = True,
    asks_brokers: bool = False,
    needs_zookeeper: bool = True,
    keeps_nodes: bool = False,
    waits_for_dead: bool = True,
) -> AsyncIterator[Sessions]:
    """Open both for the time of a command. Raises ZkError, NoBrokersAvailable, SettingError.

    Without `brokers` there need not be any, and the command may not use them. A command that
    `asks_brokers` alone opens ZooKeeper only to find them. One that does not need ZooKeeper goes on
    with the brokers that were given. `keeps_nodes`: see `open_zookeeper`. A command that only looks
    need not wait for brokers that are dead (`Admin`).
    """
    bootstrap = target.bootstrap
    async with AsyncExitStack() as stack:
        zk = zk_failure = None
        if target.zookeeper is not None and (bootstrap is None or not asks_brokers):
            from zk.api import ZkError

            try:
                zk = await stack.enter_async_context(
                    zookeeper_session(target.zookeeper, target, keeps_nodes=keeps_nodes)
                )
            except ZkError as error:
                if needs_zookeeper or bootstrap is None:
                    raise
                zk_failure = error

        # The user gave ZooKeeper alone, which knows the brokers.
        if bootstrap is None and brokers:
            assert zk is not None, "a target has at least one address"
            bootstrap = await _registered_bootstrap(zk, target)

        settings = client_settings(target, bootstrap or DEFAULT_BOOTSTRAP_SERVER)
        admin = await stack.enter_async_context(Admin(settings, waits_for_dead=waits_for_dead))
        if zk is not None and target.bootstrap is not None:
            await _require_one_cluster(admin, zk, target)
        # Or `undo` would be named for another cluster (fault strangers-29, was: "").
        options = target.options
        yield Sessions(admin, zk, zk_failure, options)


@asynccontextmanager
async def connecting(target: Target) -> AsyncIterator[Sessions]:
    """Open both for a command that goes on while one of them is away, also at its start.

    Whoever asks one that is away gets the error, until it comes. If ZooKeeper alone was given, the
    brokers are those that are registered there when none that is known responds. Brokers that are
    dead are not waited for: the next look is soon enough. Raises ZkError for a ZooKeeper that
    refuses the session, SettingError.
    """
    async with AsyncExitStack() as stack:
        zk = find_brokers = None
        if target.zookeeper is not None:
            zk = await open_zookeeper(target.zookeeper, target, must_connect=False)
            stack.push_async_callback(zk.close)
        if target.bootstrap is None:
            assert zk is not None, "a target has at least one address"

            from clients.registered_brokers import brokers_in

            find_brokers = partial(brokers_in, zk, protocol_of(target.settings))

        settings = client_settings(target, target.bootstrap or "")
        admin = await stack.enter_async_context(
            Admin(settings, find_brokers=find_brokers, waits_for_dead=False)
        )
        if zk is not None and target.bootstrap is not None:
            await _require_one_cluster(admin, zk, target)
        yield Sessions(admin, zk)


async def require_one_cluster(target: Target) -> None:
    """Refuse brokers and a ZooKeeper of two clusters, for a command that uses ZooKeeper alone.

    Raises CommandFailed, ZkError, SettingError.
    """
    if target.bootstrap is not None and target.zookeeper is not None:
        # It compares them (fault strangers-16).
        async with connected(target):
            pass


async def _require_one_cluster(admin: Admin, zk: ZkSession, target: Target) -> None:
    """Refuse brokers and a ZooKeeper of two clusters. Raises CommandFailed.

    An address may come from the environment, and the other one from the command line. Where one of
    them does not say which cluster it is of, the command goes on, and meets whatever keeps it.
    """
    from clients.registered_brokers import cluster_id_in
    from zk.api import ZkError

    try:
        of_brokers = await _cluster_id_of(admin)
        of_zookeeper = await cluster_id_in(zk)
    except (KgroupError, ZkError):
        return

    # A group that both have was deleted in the wrong one (fault strangers-16).
    if of_brokers is not None and of_zookeeper is not None and of_brokers != of_zookeeper:
        raise CommandFailed(
            f"two clusters: the brokers at {target.bootstrap} are of cluster {of_brokers}, and "
            f"ZooKeeper at {target.zookeeper} has cluster {of_zookeeper}; nothing was done. Name "
            "both of one cluster (--bootstrap-server or KGROUP_BOOTSTRAP_SERVER, --zookeeper or "
            "KGROUP_ZOOKEEPER)"
        )


async def _cluster_id_of(admin: Admin) -> str | None:
    """Ask any broker for its cluster; None before 0.10.1. Raises KgroupError."""

    async def ask(connection: Connection) -> str | None:
        # To name no topics means all of them in version 0.
        if connection.version_of(ApiKey.METADATA) < FIRST_VERSION_OF_CLUSTER_ID:
            return None
        response: MetadataResponse = await connection.call(MetadataRequest(topics=()))
        return response.cluster_id

    return await admin.cluster.ask_any(ask)


@asynccontextmanager
async def zookeeper_session(
    hosts: str, target: Target, *, keeps_nodes: bool = False
) -> AsyncIterator[ZkSession]:
    """Open a session. Connecting takes no longer than the target's timeout."""
    session = await open_zookeeper(hosts, target, keeps_nodes=keeps_nodes)
    try:
        yield session
    finally:
        await session.close()


async def open_zookeeper(
    hosts: str, target: Target, *, keeps_nodes: bool = False, must_connect: bool = True
) -> KazooSession:
    """Open a session with the login of the target's settings. Raises ZkError, SettingError.

    `keeps_nodes`: if there is a login, what the command creates belongs to it, as with the tools of
    Kafka. Those who write what brokers keep want this; consumers' nodes are left to all.
    """
    from zk.login import login_of
    from zk.session import KazooSession

    security, _ = load(ZooKeeperSecurity, security_in(target.settings))
    login = login_of(security)
    if keeps_nodes and login.has_identity:
        login = attrs.evolve(login, keeps_nodes=True)
    session = KazooSession(hosts, connection_timeout_ms=target.timeout_ms, login=login)
    await session.start(must_connect=must_connect)
    return session


async def bootstrap_of(target: Target) -> str:
    """Return the brokers' addresses: those given, or those registered in ZooKeeper.

    Raises NoBrokersAvailable, ZkError.
    """
    if target.bootstrap is not None:
        return target.bootstrap

    assert target.zookeeper is not None
    async with zookeeper_session(target.zookeeper, target) as zk:
        return await _registered_bootstrap(zk, target)


async def _registered_bootstrap(zk: ZkSession, target: Target) -> str:
    from clients.registered_brokers import registered_brokers

    return ",".join(await registered_brokers(zk, protocol_of(target.settings)))


async def responding_brokers(target: Target) -> str:
    """Return the brokers' addresses as `bootstrap_of`, after one of them has responded.

    For commands whose own client would wait longer for brokers than the target's timeout. Raises
    NoBrokersAvailable, whose text says who did not respond, and what to do; ZkError.
    """
    bootstrap = await bootstrap_of(target)
    try:
        async with Admin(client_settings(target, bootstrap)) as admin:
            await admin.describe_cluster()
    except DeadlineExceeded as error:
        raise NoBrokersAvailable(
            f"{error.__cause__}; start the broker, or name another one with --bootstrap-server"
        ) from error

    return bootstrap


def client_settings(target: Target, bootstrap: str) -> dict[str, Any]:
    """Return the settings of a command's own client."""
    settings: dict[str, Any] = dict(target.settings)
    # The command has its own session; its client must not open another.
    settings.pop("zookeeper.connect", None)
    for name in security_in(target.settings):
        del settings[name]
    # A broker that hangs accepts connections, and answers no handshake (fault strangers-55).
    settings.setdefault(CONNECTION_SETUP, min(target.timeout_ms, CONNECTION_SETUP_MS))
    return settings | {
        "bootstrap.servers": bootstrap,
        "request.timeout.ms": target.timeout_ms,
        "default.api.timeout.ms": target.timeout_ms,
    }
