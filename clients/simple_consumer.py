"""The simple consumer: one broker, partitions and offsets by hand, nothing kept in between.

The calls of Kafka's SimpleConsumer (0.7 to 1.1) on today's protocol. It connects on first use; a
call whose connection fails is made once more on a new one, as it always was, so a call may be
executed twice and may last twice `so_timeout_ms`. Errors of single partitions are results, not
exceptions, except where a call can have only one.

A consumer made by `for_leader` goes after its partition: when its broker answers that it does not
lead it, or is gone, the call is made again at the broker that does. Likewise its calls for a group
go after the group's coordinator.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import attrs

from clients.cluster_view import BrokerEndpoint
from clients.config import IGNORED, ClusterConfig
from clients.errors import BrokerError, ConnectionFailed, left_out
from clients.fetching import FetchedPartition, Isolation, fetch_once
from clients.followed_partition import UNSETTLED, FollowedPartition
from clients.offset_requests import (
    EARLIEST_TIME,
    LATEST_TIME,
    list_offsets_request,
    listed_offsets,
)
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
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_offsets import ListOffsetsResponsePartition
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.settings import load
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

__all__ = ["EARLIEST_TIME", "LATEST_TIME", "FetchRequest", "SimpleConsumer"]

T = TypeVar("T")
_Fetched = dict[TopicPartition, FetchedPartition]
_Listed = dict[TopicPartition, ListOffsetsResponsePartition]
_ErrorOf = Callable[[T, TopicPartition], ErrorCode]
"""What an answer says of a partition; NONE if nothing was asked of it."""


@attrs.frozen
class FetchRequest:
    """Read a partition from `offset` on, about `max_size` bytes.

    A first batch that is larger comes whole all the same.
    """

    topic: str
    partition: int
    offset: int
    max_size: int = 1_048_576


class SimpleConsumer:
    """Calls to one broker. `so_timeout_ms` bounds connecting and each response.

    `buffer_size` is the socket's receive buffer, -1 for the system's choice. A broker from before
    0.10 cannot say what it speaks: `broker_version` ("0.8.2") does, if there are such.
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
    ) -> None:
        self.host = host
        self.port = port
        self.so_timeout_ms = so_timeout_ms
        self.buffer_size = buffer_size
        self.client_id = client_id
        self.broker_version = broker_version
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._followed: FollowedPartition | None = None

    @classmethod
    async def for_leader(
        cls, config: Mapping[str, Any], topic: str, partition: int
    ) -> "SimpleConsumer":
        """A consumer of the broker that leads a partition, whichever it is at the time.

        It is found through `bootstrap.servers` or `zookeeper.connect`. Raises BrokerError for a
        topic that cannot be, DeadlineExceeded if there is no leader within
        `default.api.timeout.ms`; so do later calls, when the leader has moved.
        """
        settings, _ = load(ClusterConfig, config, accepted=IGNORED)
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
        consumer._followed = followed
        return consumer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the next call would connect again."""
        await self._disconnect()
        if self._followed is not None:
            await self._followed.close()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def fetch(
        self,
        request: FetchRequest,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> FetchedPartition:
        """Read one partition. Returns at once unless told to wait for `min_bytes`."""
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
        """Read partitions; the results stand in the order of the requests.

        The same partition asked twice is asked in two requests.
        """
        results: list[FetchedPartition] = []
        rest = list(requests)
        while rest:
            wanted: dict[TopicPartition, tuple[int, int]] = {}
            for request in rest:
                partition = TopicPartition(request.topic, request.partition)
                if partition in wanted:
                    break
                wanted[partition] = (request.offset, request.max_size)
            rest = rest[len(wanted) :]

            async def ask(
                connection: Connection, wanted: dict[TopicPartition, tuple[int, int]] = wanted
            ) -> dict[TopicPartition, FetchedPartition]:
                return await fetch_once(
                    connection,
                    wanted,
                    max_wait_ms=max_wait_ms,
                    min_bytes=min_bytes,
                    max_bytes=0x7FFFFFFF,
                    isolation=isolation,
                )

            fetched = await self._at_leader(ask, _error_fetched)
            results += [fetched[partition] for partition in wanted]
        return results

    async def get_offsets_before(
        self, topic: str, partition: int, time: int, max_num_offsets: int
    ) -> list[int]:
        """Offsets where segments written before `time` (ms) begin, newest first.

        LATEST_TIME begins with the log's end, EARLIEST_TIME gives its start alone. A broker without
        this old question (version 0 of ListOffsets) is asked for the one offset at the time.
        Raises BrokerError.
        """
        if max_num_offsets < 1:
            raise ValueError(f"max_num_offsets {max_num_offsets} is less than 1")
        return await self._list_offsets(topic, partition, time, max_num_offsets)

    async def earliest_or_latest_offset(self, topic: str, partition: int, time: int) -> int:
        """The offset at EARLIEST_TIME or LATEST_TIME. Raises BrokerError."""
        offsets = await self._list_offsets(topic, partition, time)
        if not offsets:
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{topic}-{partition} at time {time}")
        return offsets[0]

    async def _list_offsets(
        self, topic: str, partition: int, time: int, max_num_offsets: int = 0
    ) -> list[int]:
        """Ask in the old way for so many offsets, or in the newest for one."""
        asked = TopicPartition(topic, partition)

        async def ask(connection: Connection) -> _Listed:
            least, _ = connection.versions.get(ApiKey.LIST_OFFSETS, (0, 0))
            version = 0 if max_num_offsets and least == 0 else None
            request = list_offsets_request({asked: time}, max_num_offsets=max_num_offsets or 1)
            return listed_offsets(await connection.call(request, version=version))

        answer = (await self._at_leader(ask, _error_listed)).get(asked)
        if answer is None:
            raise left_out(asked)
        if answer.error_code:
            raise BrokerError(ErrorCode.of(answer.error_code), str(asked))
        if answer.old_style_offsets:
            return list(answer.old_style_offsets)
        return [answer.offset] if answer.offset >= 0 else []

    async def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        version: int | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit for a group without members; gives each partition's error code.

        Version 0 is kept in ZooKeeper by any broker, later ones by the group's coordinator alone:
        if this broker is not it, the one it names is asked. Raises BrokerError if it names none.
        """
        positions = {
            partition: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }

        async def ask(connection: Connection) -> dict[TopicPartition, ErrorCode]:
            response = await connection.call(commit_request(group, positions), version=version)
            return commit_results(response)

        return await self._at_coordinator(group, ask, lambda results: list(results.values()))

    async def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, version: int | None = None
    ) -> dict[TopicPartition, FetchedOffset]:
        """What a group has committed. Versions as for `commit_offsets`.

        Raises BrokerError for an error of the whole request, such as NOT_COORDINATOR.
        """
        asked = list(partitions)

        async def ask(connection: Connection) -> OffsetFetchResponse:
            request = fetch_offsets_request(group, asked)
            response: OffsetFetchResponse = await connection.call(request, version=version)
            return response

        response = await self._at_coordinator(group, ask, _errors_of_offsets)
        if response.error_code:
            raise BrokerError(ErrorCode.of(response.error_code), f"offsets of group {group}")
        return fetch_results(response)

    async def find_coordinator(self, group: str) -> BrokerEndpoint:
        """The broker that keeps a group. Raises BrokerError; COORDINATOR_NOT_AVAILABLE is worth
        another try, as a cluster makes its offsets topic when first asked.
        """

        async def ask(connection: Connection) -> FindCoordinatorResponse:
            response: FindCoordinatorResponse = await connection.call(
                FindCoordinatorRequest(key=group)
            )
            return response

        found = await self._at_any(ask)
        if found.error_code:
            raise BrokerError(ErrorCode.of(found.error_code), f"coordinator of group {group}")
        return BrokerEndpoint(found.node_id, found.host, found.port)

    async def _at_leader(self, ask: Ask[T], error: _ErrorOf[T]) -> T:
        """Ask; at the broker that leads the followed partition by then, if this one no longer does,
        until `default.api.timeout.ms` have passed.
        """
        followed = self._followed
        if followed is None:
            return await self._twice(ask)
        settings, now = followed.settings, asyncio.get_running_loop().time
        ends = now() + settings.default_api_timeout_ms / 1000
        while True:
            try:
                answer = await self._twice(ask)
                if not error(answer, followed.partition).is_stale_metadata or now() >= ends:
                    return answer
            except ConnectionFailed:
                if now() >= ends:
                    raise
            await asyncio.sleep(settings.retry_backoff_ms / 1000)
            await self._go_to_leader(followed, max(0, round((ends - now()) * 1000)))

    async def _go_to_leader(self, followed: FollowedPartition, timeout_ms: int) -> None:
        leader = await followed.leader(timeout_ms)
        if leader.address != (self.host, self.port):
            await self._disconnect()
            self.host, self.port = leader.address

    async def _at_any(self, ask: Ask[T]) -> T:
        """Ask what any broker can answer; the leader of by then, if the one before is gone."""
        try:
            return await self._twice(ask)
        except ConnectionFailed:
            if self._followed is None:
                raise
        await self._go_to_leader(self._followed, self._followed.settings.default_api_timeout_ms)
        return await self._twice(ask)

    async def _at_coordinator(
        self,
        group: str,
        ask: Ask[T],
        errors: Callable[[T], list[ErrorCode]],
    ) -> T:
        """Ask; once more at the group's coordinator, if this broker is not it and names another.

        A consumer that follows asks until there is a coordinator that answers, for as long as
        `default.api.timeout.ms`.
        """
        answer = await self._at_any(ask)
        unsettled = UNSETTLED.intersection(errors(answer))
        if unsettled and self._followed is not None:
            return await self._followed.ask_coordinator(group, ask, errors)
        if ErrorCode.NOT_COORDINATOR not in unsettled:
            return answer
        found = await self.find_coordinator(group)
        if (found.host, found.port) == (self.host, self.port):
            return answer
        async with SimpleConsumer(
            found.host,
            found.port,
            self.so_timeout_ms,
            self.buffer_size,
            self.client_id,
            broker_version=self.broker_version,
        ) as coordinator:
            return await coordinator._twice(ask)

    async def _twice(self, ask: Ask[T]) -> T:
        """Ask, and once more on a new connection if the connection failed."""
        try:
            return await ask(await self._connected())
        except ConnectionFailed:
            return await ask(await self._connected())

    async def _connected(self) -> Connection:
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
                )
            return self._connection


def _error_fetched(answer: _Fetched, partition: TopicPartition) -> ErrorCode:
    return answer[partition].error if partition in answer else ErrorCode.NONE


def _error_listed(answer: _Listed, partition: TopicPartition) -> ErrorCode:
    return ErrorCode.of(answer[partition].error_code) if partition in answer else ErrorCode.NONE


def _errors_of_offsets(response: OffsetFetchResponse) -> list[ErrorCode]:
    of_partitions = [offset.error for offset in fetch_results(response).values()]
    return [ErrorCode.of(response.error_code), *of_partitions]
