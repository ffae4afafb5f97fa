"""The cluster as a client knows it: brokers, leaders, coordinators, and a connection to each.

Knowledge is a snapshot (`ClusterView`), replaced whole by each refresh. Refreshes are single-flight
and paced: who asks while one is under way shares it. Every `await` here that can fail in a way
that time may heal (no leader yet, no coordinator yet, a broker restarting) is repeated with
`retry.backoff.ms` between until a deadline.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs

from clients.cluster_view import BrokerEndpoint, ClusterView, parse_bootstrap
from clients.config import ClusterConfig
from clients.connection import Connection
from clients.errors import (
    ClientError,
    ConnectionFailed,
    DeadlineExceeded,
    NoBrokersAvailable,
)
from clients.registered_brokers import brokers_registered_at
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.topic_partition import TopicPartition

T = TypeVar("T")
Connect = Callable[..., Awaitable[Connection]]
FindBrokers = Callable[[], Awaitable[list[str]]]


@attrs.define(eq=False)
class _Slot:
    """The one connection of a (node, purpose), and when it may be tried again."""

    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    connection: Connection | None = None
    failures: int = 0
    reason: str = ""
    retry_at: float = 0.0


class Cluster:
    """A cluster's brokers, and connections to them. Owned by one client; `close` closes all."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str | None = None,
        config: ClusterConfig | None = None,
        create_topics: bool = False,
        connect: Connect = Connection.open,
    ) -> None:
        self.config = config or ClusterConfig()
        zookeeper = self.config.zookeeper_connect
        self.bootstrap = [] if zookeeper and not bootstrap else parse_bootstrap(bootstrap)
        self._find_brokers: FindBrokers | None = None
        if zookeeper:
            timeout_ms = self.config.socket_connection_setup_timeout_ms
            self._find_brokers = partial(brokers_registered_at, zookeeper, timeout_ms)
        self.client_id = self.config.client_id if client_id is None else client_id
        self.view = ClusterView()
        self.topics_of_interest: set[str] = set()
        """What a refresh asks for; topics enter by being asked about."""
        self._create_topics = create_topics
        self._connect = connect
        self._slots: dict[tuple[str, int, str], _Slot] = {}
        self._coordinators: dict[str, BrokerEndpoint] = {}
        self._refresh_lock = asyncio.Lock()
        self._refreshes = 0
        self._tried_at = self._refreshed_at = float("-inf")
        self._refreshed_topics: frozenset[str] | None = frozenset()
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

        Raises ApiError for a topic that can never be, or may not be seen; DeadlineExceeded.
        """

        def known() -> int | None:
            return len(self.view.topics.get(topic, ())) or None

        return await self._wait_for(known, topic, f"topic {topic}", timeout_ms)

    async def coordinator(self, group: str, *, timeout_ms: int | None = None) -> BrokerEndpoint:
        """The broker that keeps a group; remembered until `forget_coordinator`.

        The first question after a cluster's start is normally answered 15 while the offsets topic
        is being made, so that is asked again. Raises ApiError, DeadlineExceeded.
        """
        if group in self._coordinators:
            return self._coordinators[group]

        async def ask() -> BrokerEndpoint:
            connection = await self.any_connection()
            response: FindCoordinatorResponse = await connection.call(
                FindCoordinatorRequest(key=group)
            )
            code = ErrorCode.of(response.error_code)
            if code is not ErrorCode.NONE:
                raise ApiError(code, response.error_message or f"coordinator of {group}")
            return BrokerEndpoint(response.node_id, response.host, response.port)

        found = await self.retrying(ask, f"coordinator of group {group}", timeout_ms)
        self._coordinators[group] = found
        return found

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
        """Send a request to a group's coordinator. Raises as `coordinator` and `Connection.call`.

        The caller looks at the response's errors and calls `forget_coordinator` for what they say.
        """
        endpoint = await self.coordinator(group)
        try:
            connection = await self.connection(endpoint, purpose)
            return await connection.call(request, timeout_ms=timeout_ms)
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
        slot = self._slots.setdefault((endpoint.host, endpoint.port, purpose), _Slot())
        async with slot.lock:
            if slot.connection is not None and not slot.connection.closed:
                return slot.connection
            return await self._open(endpoint, slot)

    def open_connection(self, node_id: int, purpose: str = "") -> Connection | None:
        """The connection if it is open already."""
        endpoint = self.brokers.get(node_id)
        slot = (
            None if endpoint is None else self._slots.get((endpoint.host, endpoint.port, purpose))
        )
        if slot is None or slot.connection is None or slot.connection.closed:
            return None
        return slot.connection

    async def any_connection(self, purpose: str = "") -> Connection:
        """A connection to any broker: an open one, else known brokers and the bootstrap addresses,
        then those registered in ZooKeeper, each in random order.

        Raises NoBrokersAvailable, naming what each said.
        """
        for (_, _, kept), slot in self._slots.items():
            if kept == purpose and slot.connection is not None and not slot.connection.closed:
                return slot.connection
        reasons: list[str] = []
        known = [*_shuffled(self.brokers.values()), *_shuffled(self.bootstrap)]
        connection = await self._first_connection(known, purpose, reasons)
        if connection is None and self._find_brokers is not None:
            registered = await self._registered_brokers(self._find_brokers, reasons)
            connection = await self._first_connection(registered, purpose, reasons)
        if connection is None:
            raise NoBrokersAvailable("; ".join(dict.fromkeys(reasons)))
        return connection

    async def retrying(
        self, ask: Callable[[], Awaitable[T]], what: str, timeout_ms: int | None = None
    ) -> T:
        """Call `ask` until it succeeds, fails for good, or the time is up (DeadlineExceeded)."""
        deadline = self._deadline(timeout_ms)
        while True:
            try:
                return await ask()
            except (ClientError, ApiError) as error:
                retriable = error.code.retriable if isinstance(error, ApiError) else error.retriable
                if not retriable or self._closed:
                    raise
                if _now() + self.config.retry_backoff_ms / 1000 >= deadline:
                    raise DeadlineExceeded(f"{what}: {error}") from error
            await asyncio.sleep(self.config.retry_backoff_ms / 1000)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        connections = [slot.connection for slot in self._slots.values()]
        await asyncio.gather(*(open.close() for open in connections if open is not None))

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
                raise ApiError(missing, topic)
            return found

        return await self.retrying(ask, what, timeout_ms)

    async def _first_connection(
        self, endpoints: Iterable[BrokerEndpoint], purpose: str, reasons: list[str]
    ) -> Connection | None:
        for endpoint in endpoints:
            try:
                return await self.connection(endpoint, purpose)
            except ConnectionFailed as failure:
                reasons.append(str(failure))
        return None

    async def _registered_brokers(
        self, find_brokers: FindBrokers, reasons: list[str]
    ) -> list[BrokerEndpoint]:
        """What ZooKeeper says, asked no more often than `reconnect.backoff.max.ms`."""
        if _now() < self._look_again_at:
            reasons.append("backing off from ZooKeeper")
            return []
        self._look_again_at = _now() + self.config.reconnect_backoff_max_ms / 1000
        try:
            self.bootstrap = parse_bootstrap(await find_brokers())
        except NoBrokersAvailable as error:
            reasons.append(str(error))
            return []
        return _shuffled(self.bootstrap)

    async def _ask_for_metadata(self, names: frozenset[str] | None) -> MetadataResponse:
        connection = await self.any_connection()
        if names is None and connection.version_of(ApiKey.METADATA) == 0:
            names = frozenset()  # which meant all topics then
        topics = None if names is None else [MetadataRequestTopic(name=n) for n in sorted(names)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._create_topics)
        response: MetadataResponse = await connection.call(request)
        return response

    async def _pace(self) -> None:
        due = self._tried_at + self.config.retry_backoff_ms / 1000
        if due > _now():
            await asyncio.sleep(due - _now())

    async def _open(self, endpoint: BrokerEndpoint, slot: _Slot) -> Connection:
        if slot.retry_at > _now():
            raise ConnectionFailed(endpoint.host, endpoint.port, f"backing off: {slot.reason}")
        try:
            connection = await self._connect(
                endpoint.host,
                endpoint.port,
                client_id=self.client_id,
                request_timeout_ms=self.config.request_timeout_ms,
                connect_timeout_ms=self.config.socket_connection_setup_timeout_ms,
                send_buffer_bytes=self.config.send_buffer_bytes,
                receive_buffer_bytes=self.config.receive_buffer_bytes,
                negotiate=self.config.api_version_request,
                broker_version=self.config.broker_version,
            )
        except ConnectionFailed as failure:
            slot.reason = failure.reason
            slot.retry_at = _now() + self._reconnect_backoff_ms(slot.failures) / 1000
            slot.failures += 1
            raise
        slot.failures, slot.connection = 0, connection
        return connection

    def _reconnect_backoff_ms(self, failures: int) -> float:
        """Doubles up to the maximum; a fifth of chance, so that a fleet does not come as one."""
        base, most = self.config.reconnect_backoff_ms, self.config.reconnect_backoff_max_ms
        backoff: int = min(base << min(failures, 30), max(base, most))
        return backoff * random.uniform(0.8, 1.2)

    def _deadline(self, timeout_ms: int | None) -> float:
        if timeout_ms is None:
            timeout_ms = self.config.default_api_timeout_ms
        return _now() + timeout_ms / 1000


def _now() -> float:
    return asyncio.get_running_loop().time()


def _shuffled(endpoints: Iterable[BrokerEndpoint]) -> list[BrokerEndpoint]:
    """In random order, so that a fleet of clients does not ask the first broker all at once."""
    kept = list(endpoints)
    random.shuffle(kept)
    return kept
