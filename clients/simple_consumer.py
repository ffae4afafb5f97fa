"""The simple consumer: one broker, partitions and offsets by hand, no state in between.

It has the calls of Kafka's SimpleConsumer (0.7 to 1.1) on today's protocol. It connects on first
use. A call whose connection fails is repeated once on a new one, as it always was, so a call may be
executed twice and may take twice `so_timeout_ms`. Errors of single partitions are results, not
exceptions, except if a call can have only one.

A consumer made by `for_leader` follows its partition. If its broker does not lead the partition or
is gone, the call is repeated at the leader. Its calls for a group follow the group's coordinator.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from clients.arguments import (
    check_offsets,
    list_of,
    list_partitions,
    mapping_from_partitions,
    to_partition_number,
)
from clients.cluster_view import BrokerEndpoint
from clients.config import IGNORED, ClusterConfig
from clients.errors import BrokerError, ConnectionFailed, left_out
from clients.fetch_requests import Isolation
from clients.fetching import FetchedPartition, fetch_once
from clients.followed_partition import UNSETTLED, FollowedPartition
from clients.offset_requests import list_offsets_request, listed_offsets
from clients.security import SecurityConfig, login_of, tls_of
from clients.transport.connection import Connection
from clients.transport.connections import Ask
from offsets.requests import (
    FetchedOffset,
    commit_request,
    commit_results,
    fetch_offsets_request,
    fetch_results,
)
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_offsets import ListOffsetsResponsePartition
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.settings import SettingError, convert, load
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

__all__ = ["EARLIEST_TIME", "LATEST_TIME", "FetchRequest", "SimpleConsumer"]

T = TypeVar("T")
_Fetched = dict[TopicPartition, FetchedPartition]
_Listed = dict[TopicPartition, ListOffsetsResponsePartition]
_ErrorOf = Callable[[T, TopicPartition], ErrorCode]
"""Returns the error of a partition in a result; NONE if the partition is not in it."""


@frozen
class FetchRequest:
    """A read of a partition from `offset` on, of about `max_size` bytes.

    A first batch that is larger comes whole nevertheless.
    """

    topic: str
    partition: int
    offset: int
    max_size: int = 1_048_576


class SimpleConsumer:
    """Calls to one broker. `so_timeout_ms` limits connecting, and each response.

    `buffer_size` is the socket's receive buffer, -1 for the system's default. Brokers before 0.10
    cannot say their versions: `broker_version` ("0.8.2") names their release. `security` has the
    settings of security, such as `security.protocol` and `sasl.mechanism`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        so_timeout_ms: int = 30_000,
        buffer_size: int = 65_536,
        client_id: str = "",
        *,
        broker_version: str = "",
        security: Mapping[str, Any] | None = None,
    ) -> None:
        self.host: str = convert("host", host, str)
        self.port: int = convert("port", port, int)
        if not 0 <= self.port < 1 << 16:
            raise SettingError("port", "Value must be from 0 to 65535", str(port))
        own = {
            "request.timeout.ms": so_timeout_ms,
            "receive.buffer.bytes": buffer_size,
            "client.id": client_id,
            "broker.version.fallback": broker_version,
        }
        checked = load(ClusterConfig, own)[0]
        self.so_timeout_ms: int = checked.request_timeout_ms
        self.buffer_size: int = checked.receive_buffer_bytes
        self.client_id: str = checked.client_id
        self.broker_version: str = checked.broker_version_fallback

        settings = load(SecurityConfig, security or {})[0]
        self._tls = tls_of(settings)
        self._login = login_of(settings)
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._followed: FollowedPartition | None = None

    @classmethod
    async def for_leader(
        cls, config: Mapping[str, Any], topic: str, partition: int
    ) -> "SimpleConsumer":
        """Make a consumer at the leader of a partition, which it follows.

        The leader is found through `bootstrap.servers` or `zookeeper.connect`. Raises BrokerError
        for an impossible topic, DeadlineExceeded without a leader within
        `default.api.timeout.ms`; so do later calls when the leader moves.
        """
        partition = to_partition_number(partition)
        settings, _ = load(ClusterConfig, config, accepted=IGNORED)
        # The cluster only finds the leader; calls use a connection of their own.
        followed = FollowedPartition(TopicPartition(topic, partition), settings)
        try:
            leader = await followed.leader(settings.default_api_timeout_ms)
        except BaseException:
            await followed.close()
            raise

        consumer = cls(
            leader.host,
            leader.port,
            settings.request_timeout_ms,
            settings.receive_buffer_bytes,
            settings.client_id,
            broker_version=settings.broker_version,
        )

        consumer._tls = tls_of(settings)
        consumer._login = login_of(settings)
        consumer._followed = followed
        return consumer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. A later call connects again.

        Raises OtherLoop on another loop than that of the first call.
        """
        if self._connection is not None:
            # Who uses it there goes on (fault strangers-177).
            self._connection.check_loop()
        await self._disconnect()
        if self._followed is not None:
            await self._followed.close()

    async def _disconnect(self) -> None:
        connection = self._connection
        if connection is None:
            return

        # Another caller waits for the same end; a call that comes meanwhile opens a new one.
        await connection.close()
        if self._connection is connection:
            self._connection = None

    # -- messages

    async def fetch(
        self,
        request: FetchRequest,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> FetchedPartition:
        """Read one partition. Returns at once unless `max_wait_ms` and `min_bytes` are given."""
        (fetched,) = await self.multifetch(
            [request], max_wait_ms=max_wait_ms, min_bytes=min_bytes, isolation=isolation
        )
        return fetched

    async def multifetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> list[FetchedPartition]:
        """Read partitions; the results have the order of the requests.

        A partition that occurs twice is read in two requests.
        """
        results: list[FetchedPartition] = []
        rest = list_of(FetchRequest, requests)
        while rest:
            # Take requests up to the first partition that occurs again.
            requested: dict[TopicPartition, tuple[int, int]] = {}
            for request in rest:
                partition = TopicPartition(request.topic, request.partition)
                if partition in requested:
                    break
                requested[partition] = (request.offset, request.max_size)

            rest = rest[len(requested) :]

            # The default binds this round's requests; the closure would see those of the next.
            async def fetch(
                connection: Connection, requested: dict[TopicPartition, tuple[int, int]] = requested
            ) -> dict[TopicPartition, FetchedPartition]:
                return await fetch_once(
                    connection,
                    requested,
                    max_wait_ms=max_wait_ms,
                    min_bytes=min_bytes,
                    # The old request bounds partitions only, not the response (KIP-74).
                    max_bytes=0x7FFFFFFF,
                    isolation=isolation,
                )

            fetched = await self._at_leader(fetch, _error_fetched)
            results += [fetched[partition] for partition in requested]
        return results

    # -- offsets of a log

    async def get_offsets_before(
        self,
        topic: str,
        partition: int,
        time: int,
        max_num_offsets: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> list[int]:
        """Return offsets where segments written before `time` (ms) start, newest first.

        With LATEST_TIME the log's end comes first; EARLIEST_TIME gives only its start. A broker
        without version 0 of ListOffsets is asked for the one offset at the time, and so is any
        broker for committed data. Raises BrokerError.
        """
        if max_num_offsets < 1:
            raise ValueError(f"max_num_offsets {max_num_offsets} is less than 1")
        return await self._list_offsets(topic, partition, time, max_num_offsets, isolation)

    async def earliest_or_latest_offset(
        self,
        topic: str,
        partition: int,
        time: int,
        *,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> int:
        """Return the offset at EARLIEST_TIME or LATEST_TIME. Raises BrokerError.

        To readers of committed data the latest one is the last stable offset.
        """
        offsets = await self._list_offsets(topic, partition, time, isolation=isolation)
        if not offsets:
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{topic}-{partition} at time {time}")
        return offsets[0]

    async def _list_offsets(
        self,
        topic: str,
        partition: int,
        time: int,
        max_num_offsets: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> list[int]:
        """List up to `max_num_offsets` offsets in version 0, or (0) one in the newest version."""
        topic_partition = TopicPartition(topic, partition)

        async def ask(connection: Connection) -> _Listed:
            # Only version 0 returns several offsets; new brokers do not have it, and it knows no
            # transactions.
            least, _ = connection.versions.get(ApiKey.LIST_OFFSETS, (0, 0))
            wants_several = max_num_offsets and isolation is Isolation.READ_UNCOMMITTED
            version = 0 if wants_several and least == 0 else None
            request = list_offsets_request(
                {topic_partition: time}, max_num_offsets=max_num_offsets or 1, isolation=isolation
            )
            return listed_offsets(await connection.call(request, version=version))

        response = (await self._at_leader(ask, _error_listed)).get(topic_partition)
        if response is None:
            raise left_out(topic_partition)
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            raise BrokerError(code, str(topic_partition), ApiKey.LIST_OFFSETS)

        # Version 0 responds with a list, later versions with one offset.
        if response.old_style_offsets:
            return list(response.old_style_offsets)
        return [response.offset] if response.offset >= 0 else []

    # -- offsets of a group

    async def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        version: int | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit for a group without members; return the error code of each partition.

        Any broker keeps version 0 in ZooKeeper; later versions need the group's coordinator. If
        this broker is not the coordinator, the one that it names is asked. Raises BrokerError if it
        names none, ValueError for an offset that cannot be.
        """
        positions = {
            partition: offset
            if isinstance(offset, OffsetAndMetadata)
            else OffsetAndMetadata(offset)
            for partition, offset in mapping_from_partitions(offsets).items()
        }
        # A broker takes a negative one, and then there is none (fault strangers-67).
        check_offsets(positions)

        async def ask(connection: Connection) -> dict[TopicPartition, ErrorCode]:
            response = await connection.call(commit_request(group, positions), version=version)
            return commit_results(response)

        return await self._at_coordinator(group, ask, lambda results: list(results.values()))

    async def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, version: int | None = None
    ) -> dict[TopicPartition, FetchedOffset]:
        """Return a group's committed offsets. Versions as for `commit_offsets`.

        Raises BrokerError for an error of the whole request, such as NOT_COORDINATOR.
        """
        partition_list = list_partitions(partitions)

        async def ask(connection: Connection) -> OffsetFetchResponse:
            request = fetch_offsets_request(group, partition_list)
            response: OffsetFetchResponse = await connection.call(request, version=version)
            return response

        response = await self._at_coordinator(group, ask, _errors_of_offsets)
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            raise BrokerError(code, f"offsets of group {group}", ApiKey.OFFSET_FETCH)
        return fetch_results(response)

    async def find_coordinator(self, group: str) -> BrokerEndpoint:
        """Return the broker that keeps a group. Raises BrokerError.

        COORDINATOR_NOT_AVAILABLE is worth a retry: a cluster creates its offsets topic on the first
        question.
        """

        async def ask(connection: Connection) -> FindCoordinatorResponse:
            response: FindCoordinatorResponse = await connection.call(
                FindCoordinatorRequest(key=group)
            )
            return response

        response = await self._at_any(ask)
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            raise BrokerError(code, f"coordinator of group {group}", ApiKey.FIND_COORDINATOR)
        return BrokerEndpoint(response.node_id, response.host, response.port)

    # -- which broker

    async def _at_leader(self, ask: Ask[T], error: _ErrorOf[T]) -> T:
        """Ask this broker, or the followed partition's leader if this broker does not lead it.

        It is repeated until `default.api.timeout.ms` have passed.
        """
        followed = self._followed
        if followed is None:
            return await self._ask_twice(ask)
        settings = followed.settings
        now = asyncio.get_running_loop().time
        deadline = now() + settings.default_api_timeout_ms / 1000

        while True:
            try:
                result = await self._ask_twice(ask)

                # Only the followed partition's error moves the consumer; others are results.
                if not error(result, followed.partition).is_stale_metadata or now() >= deadline:
                    return result
            except ConnectionFailed:
                if now() >= deadline:
                    raise

            # The leader has moved, or its broker is gone.
            await asyncio.sleep(settings.retry_backoff_ms / 1000)
            await self._go_to_leader(followed, max(0, round((deadline - now()) * 1000)))

    async def _go_to_leader(self, followed: FollowedPartition, timeout_ms: int) -> None:
        leader = await followed.leader(timeout_ms)
        if leader.address != (self.host, self.port):
            await self._disconnect()
            self.host, self.port = leader.address

    async def _at_any(self, ask: Ask[T]) -> T:
        """Ask a question that any broker can answer; the followed leader if this broker is gone."""
        try:
            return await self._ask_twice(ask)
        except ConnectionFailed:
            if self._followed is None:
                raise
        await self._go_to_leader(self._followed, self._followed.settings.default_api_timeout_ms)
        return await self._ask_twice(ask)

    async def _at_coordinator(
        self,
        group: str,
        ask: Ask[T],
        errors: Callable[[T], list[ErrorCode]],
    ) -> T:
        """Ask this broker, and once more the group's coordinator if this broker names another.

        A consumer that follows its partition asks until a coordinator responds, for up to
        `default.api.timeout.ms`.
        """
        result = await self._at_any(ask)
        unsettled = UNSETTLED.intersection(errors(result))

        # A follower of a partition has a cluster, which can wait for a coordinator.
        if unsettled and self._followed is not None:
            return await self._followed.ask_coordinator(group, ask, errors)

        if ErrorCode.NOT_COORDINATOR not in unsettled:
            return result

        # Ask the named coordinator once, if it is another broker.
        coordinator = await self.find_coordinator(group)

        # This broker denied it and names itself: asking again would not help at once.
        if (coordinator.host, coordinator.port) == (self.host, self.port):
            return result

        async with SimpleConsumer(
            coordinator.host,
            coordinator.port,
            self.so_timeout_ms,
            self.buffer_size,
            self.client_id,
            broker_version=self.broker_version,
        ) as consumer:
            consumer._tls = self._tls
            consumer._login = self._login
            return await consumer._ask_twice(ask)

    async def _ask_twice(self, ask: Ask[T]) -> T:
        """Ask, and repeat it once on a new connection if the connection failed."""
        try:
            return await ask(await self._connect())
        except ConnectionFailed:
            return await ask(await self._connect())

    async def _connect(self) -> Connection:
        # Concurrent calls share one connection.
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                self._connection = await Connection.open(
                    self.host,
                    self.port,
                    client_id=self.client_id,
                    request_timeout_ms=self.so_timeout_ms,
                    connect_timeout_ms=self.so_timeout_ms,
                    receive_buffer_bytes=self.buffer_size,
                    broker_version=self.broker_version,
                    tls=self._tls,
                    login=self._login,
                )
            return self._connection


def _error_fetched(result: _Fetched, partition: TopicPartition) -> ErrorCode:
    return result[partition].error if partition in result else ErrorCode.NONE


def _error_listed(result: _Listed, partition: TopicPartition) -> ErrorCode:
    return ErrorCode.of(result[partition].error_code) if partition in result else ErrorCode.NONE


def _errors_of_offsets(response: OffsetFetchResponse) -> list[ErrorCode]:
    partition_errors = [offset.error for offset in fetch_results(response).values()]
    return [ErrorCode.of(response.error_code), *partition_errors]
