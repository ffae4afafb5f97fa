"""The cluster as a client knows it: brokers, leaders, coordinators, and a connection to each.

Knowledge is a snapshot (`ClusterView`), replaced whole by each refresh. Refreshes are single-flight
and paced: who asks while one is under way shares it. Every `await` here that can fail in a way
that time may heal (no leader yet, no coordinator yet, a broker restarting) is repeated with
`retry.backoff.ms` between until a deadline, and asked of another broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from clients.cluster_view import BrokerEndpoint, ClusterView, parse_bootstrap
from clients.config import ClusterConfig
from clients.errors import (
    BrokerError,
    ConnectionFailed,
    DeadlineExceeded,
    KgroupError,
    NoBrokersAvailable,
)
from clients.registered_brokers import brokers_registered_at
from clients.transport.connection import Connection
from clients.transport.connections import Ask, Connect, Connections
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.topic_partition import TopicPartition

T = TypeVar("T")
FindBrokers = Callable[[], Awaitable[list[str]]]
"""Gives the addresses of brokers as somebody else knows them; raises NoBrokersAvailable."""


class Cluster:
    """A cluster's brokers, and connections to them. Owned by one client; `close` closes all."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str | None = None,
        config: ClusterConfig | None = None,
        create_topics: bool = False,
        find_brokers: FindBrokers | None = None,
        connect: Connect = Connection.open,
    ) -> None:
        self.config = config or ClusterConfig()
        if self.config.zookeeper_connect:
            timeout_ms = self.config.socket_connection_setup_timeout_ms
            zookeeper = self.config.zookeeper_connect
            find_brokers = partial(brokers_registered_at, zookeeper, timeout_ms)
        self._find_brokers = find_brokers
        self.bootstrap = [] if find_brokers and not bootstrap else parse_bootstrap(bootstrap)
        self.client_id = self.config.client_id if client_id is None else client_id
        self.view = ClusterView()
        self.topics_of_interest: set[str] = set()
        """What a refresh asks for; topics enter by being asked about."""
        self._create_topics = create_topics
        self._connections = Connections(self.config, self.client_id, connect)
        self._coordinators: dict[str, BrokerEndpoint] = {}
        self._refresh_lock = asyncio.Lock()
        self._refreshes = 0
        self._tried_at = self._refreshed_at = float("-inf")
        self._refreshed_topics: frozenset[str] | None = frozenset()
        self._registered: list[BrokerEndpoint] = []
        self._look_again_at = float("-inf")
        self._closed = False

    @property
    def brokers(self) -> Mapping[int, BrokerEndpoint]:
        """Live brokers by id, as of the last refresh."""
        return self.view.brokers

    @property
    def controller_id(self) -> int:
        """The controller's broker id, -1 if unknown."""
        return self.view.controller_id

    @property
    def stale(self) -> bool:
        """Whether the view is older than `metadata.max.age.ms`."""
        return _now() - self._refreshed_at > self.config.metadata_max_age_ms / 1000

    async def refresh(
        self, topics: Iterable[str] | None = None, *, all_topics: bool = False
    ) -> None:
        """Ask a broker for the cluster and for `topics` besides those of interest already.

        Shares a refresh that is under way if it asks for all of these. Two refreshes are at least
        `retry.backoff.ms` apart. Raises NoBrokersAvailable, ConnectionFailed.
        """
        wanted = frozenset(topics or ())
        self.topics_of_interest |= wanted
        before = self._refreshes
        async with self._refresh_lock:
            asked = self._refreshed_topics
            shared = asked is None or (not all_topics and wanted <= asked)
            if self._refreshes > before and shared:
                return
            await self._pace()
            names = None if all_topics else frozenset(self.topics_of_interest)
            try:
                response = await self._ask_for_metadata(names)
            finally:
                self._tried_at = _now()
            if response.brokers:
                self.view = self.view.updated(response, whole=all_topics)
                self._refreshed_at = self._tried_at
            self._refreshes += 1
            self._refreshed_topics = names

    async def leader(
        self, partition: TopicPartition, *, timeout_ms: int | None = None
    ) -> BrokerEndpoint:
        """The leader of a partition, waiting for there to be one. Raises as `partitions`."""

        def known() -> BrokerEndpoint | None:
            return self.brokers.get(self.view.leaders.get(partition, -1))

        return await self._wait_for(known, partition.topic, f"leader of {partition}", timeout_ms)

    async def partitions(self, topic: str, *, timeout_ms: int | None = None) -> int:
        """Number of partitions, waiting for the topic to exist.

        Raises BrokerError for a topic that can never be, or may not be seen; DeadlineExceeded.
        """

        def known() -> int | None:
            return len(self.view.topics.get(topic, ())) or None

        return await self._wait_for(known, topic, f"topic {topic}", timeout_ms)

    async def coordinator(self, group: str, *, timeout_ms: int | None = None) -> BrokerEndpoint:
        """The broker that keeps a group; remembered until `forget_coordinator`.

        The first question after a cluster's start is normally answered 15 while the offsets topic
        is being made, so that is asked again. Raises BrokerError, DeadlineExceeded.
        """
        find = partial(self._find_coordinator, group)
        return await self.retrying(find, f"coordinator of group {group}", timeout_ms)

    def forget_coordinator(self, group: str) -> None:
        """Say that a group's coordinator answered that it is not, or does not answer."""
        self._coordinators.pop(group, None)

    async def call_coordinator(
        self,
        group: str,
        request: Any,
        purpose: str = "coordinator",
        *,
        timeout_ms: int | None = None,
    ) -> Any:
        """Send a request to a group's coordinator. Raises as `ask_coordinator`."""
        return await self.ask_coordinator(
            group, lambda connection: connection.call(request, timeout_ms=timeout_ms), purpose
        )

    async def ask_coordinator(self, group: str, ask: Ask[T], purpose: str = "coordinator") -> T:
        """Ask a group's coordinator. Raises as `coordinator`, and what `ask` raises.

        That it cannot be connected to is waited out, like that there is none: until the cluster
        has noticed that a broker is gone, its groups are still said to be there. The caller looks
        at the answer's errors and calls `forget_coordinator` for what they say.
        """

        async def connect() -> Connection:
            endpoint = await self._find_coordinator(group)
            try:
                return await self.connection(endpoint, purpose)
            except ConnectionFailed:
                self.forget_coordinator(group)
                raise

        connection = await self.retrying(connect, f"coordinator of group {group}")
        try:
            return await ask(connection)
        except ConnectionFailed:
            self.forget_coordinator(group)
            raise

    async def connection(self, node: int | BrokerEndpoint, purpose: str = "") -> Connection:
        """The connection to a broker for a purpose, opened if need be.

        Purposes keep long polls apart from commits: a broker answers one connection in order.
        Raises ConnectionFailed, at once while backing off from an earlier failure.
        """
        endpoint = node if isinstance(node, BrokerEndpoint) else self.brokers.get(node)
        if endpoint is None:
            raise ConnectionFailed(f"broker {node}", 0, "not in the cluster's metadata")
        return await self._connections.to(endpoint, purpose)

    def open_connection(self, node_id: int, purpose: str = "") -> Connection | None:
        """The connection if it is open already."""
        endpoint = self.brokers.get(node_id)
        return None if endpoint is None else self._connections.open_to(endpoint, purpose)

    async def ask_any(self, ask: Ask[T]) -> T:
        """Ask what any broker can answer: known ones and the bootstrap addresses, then those
        registered in ZooKeeper by now.

        Raises NoBrokersAvailable, naming what each said, and what `ask` raises.
        """
        known = [*self.brokers.values(), *self.bootstrap, *self._registered]
        try:
            return await self._connections.first_answer(known, ask)
        except NoBrokersAvailable as failure:
            if self._find_brokers is None:
                raise
            try:
                await self._find_registered(self._find_brokers)
                return await self._connections.first_answer(self._registered, ask)
            except NoBrokersAvailable as also:
                reasons = filter(None, map(str, (failure, also)))
                raise NoBrokersAvailable("; ".join(reasons)) from also

    def ask_another(self) -> None:
        """Say that what a broker told last was of no use: it may know less than others."""
        self._connections.doubt()

    async def retrying(
        self, ask: Callable[[], Awaitable[T]], what: str, timeout_ms: int | None = None
    ) -> T:
        """Call `ask` until it succeeds, fails for good, or the time is up (DeadlineExceeded)."""
        deadline = self._deadline(timeout_ms)
        while True:
            try:
                return await ask()
            except KgroupError as error:
                if not error.retriable or self._closed:
                    raise
                if _now() + self.config.retry_backoff_ms / 1000 >= deadline:
                    raise DeadlineExceeded(f"{what}: {error}") from error
                self.ask_another()
            await asyncio.sleep(self.config.retry_backoff_ms / 1000)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        await self._connections.close()

    async def _wait_for(
        self, known: Callable[[], T | None], topic: str, what: str, timeout_ms: int | None
    ) -> T:
        found = known()
        if found is not None and not self.stale:
            return found

        async def ask() -> T:
            await self.refresh([topic])
            code = self.view.errors.get(topic, ErrorCode.NONE)
            found = known()
            if found is None or not (code is ErrorCode.NONE or code.retriable):
                missing = ErrorCode.LEADER_NOT_AVAILABLE if code is ErrorCode.NONE else code
                raise BrokerError(missing, topic)
            return found

        return await self.retrying(ask, what, timeout_ms)

    async def _find_coordinator(self, group: str) -> BrokerEndpoint:
        if group not in self._coordinators:
            request = FindCoordinatorRequest(key=group)
            response: FindCoordinatorResponse = await self.ask_any(
                lambda connection: connection.call(request)
            )
            code = ErrorCode.of(response.error_code)
            if code is not ErrorCode.NONE:
                raise BrokerError(code, response.error_message or f"coordinator of {group}")
            found = BrokerEndpoint(response.node_id, response.host, response.port)
            self._coordinators[group] = found
        return self._coordinators[group]

    async def _find_registered(self, find_brokers: FindBrokers) -> None:
        """What ZooKeeper says, asked no more often than `reconnect.backoff.max.ms`."""
        if _now() < self._look_again_at:
            raise NoBrokersAvailable("backing off from ZooKeeper")
        self._look_again_at = _now() + self.config.reconnect_backoff_max_ms / 1000
        self._registered = parse_bootstrap(await find_brokers())

    async def _ask_for_metadata(self, names: frozenset[str] | None) -> MetadataResponse:
        async def ask(connection: Connection) -> MetadataResponse:
            wanted = names
            if wanted is None and connection.version_of(ApiKey.METADATA) == 0:
                wanted = frozenset()  # which meant all topics then
            topics = None
            if wanted is not None:
                topics = [MetadataRequestTopic(name=name) for name in sorted(wanted)]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._create_topics)
            response: MetadataResponse = await connection.call(request)
            return response

        return await self.ask_any(ask)

    async def _pace(self) -> None:
        due = self._tried_at + self.config.retry_backoff_ms / 1000
        if due > _now():
            await asyncio.sleep(due - _now())

    def _deadline(self, timeout_ms: int | None) -> float:
        if timeout_ms is None:
            timeout_ms = self.config.default_api_timeout_ms
        return _now() + timeout_ms / 1000


def _now() -> float:
    return asyncio.get_running_loop().time()
