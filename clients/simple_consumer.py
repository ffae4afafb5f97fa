"""The simple consumer: one broker, partitions and offsets by hand, nothing kept in between.

The calls of Kafka's SimpleConsumer (0.7 to 1.1) on today's protocol. It connects on first use; a
call whose connection fails is made once more on a new one, as it always was, so a call may be
executed twice and may last twice `so_timeout_ms`. Errors of single partitions are results, not
exceptions, except where a call can have only one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import attrs

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint
from clients.config import IGNORED, ClusterConfig
from clients.connection import Connection
from clients.errors import ConnectionFailed
from clients.fetching import FetchedPartition, Isolation, fetch_once
from clients.offset_requests import (
    EARLIEST_TIME,
    LATEST_TIME,
    CommittedOffset,
    commit_request,
    commit_results,
    committed_offsets,
    fetch_offsets_request,
    list_offsets_request,
    listed_offsets,
)
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.list_offsets import ListOffsetsResponsePartition
from protocol.messages.offset_fetch import OffsetFetchResponse
from protocol.settings import load
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

__all__ = ["EARLIEST_TIME", "LATEST_TIME", "FetchRequest", "SimpleConsumer"]

T = TypeVar("T")


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

    `buffer_size` is the socket's receive buffer, -1 for the system's choice.
    """

    def __init__(
        self,
        host: str,
        port: int,
        so_timeout_ms: int = 30_000,
        buffer_size: int = 65_536,
        client_id: str = "",
    ) -> None:
        self.host = host
        self.port = port
        self.so_timeout_ms = so_timeout_ms
        self.buffer_size = buffer_size
        self.client_id = client_id
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()

    @classmethod
    async def for_leader(
        cls, config: Mapping[str, Any], topic: str, partition: int
    ) -> "SimpleConsumer":
        """A consumer of the broker that leads a partition, found through `bootstrap.servers`.

        Raises ApiError for a topic that cannot be, DeadlineExceeded if there is no leader within
        `default.api.timeout.ms`.
        """
        settings, _ = load(ClusterConfig, config, accepted=IGNORED)
        cluster = Cluster(settings.bootstrap_servers, config=settings)
        try:
            leader = await cluster.leader(TopicPartition(topic, partition))
        finally:
            await cluster.close()
        return cls(
            leader.host,
            leader.port,
            settings.request_timeout_ms,
            settings.receive_buffer_bytes,
            settings.client_id,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; the next call would connect again."""
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

            fetched = await self._twice(ask)
            results += [fetched[partition] for partition in wanted]
        return results

    async def get_offsets_before(
        self, topic: str, partition: int, time: int, max_num_offsets: int
    ) -> list[int]:
        """Offsets where segments written before `time` (ms) begin, newest first.

        LATEST_TIME begins with the log's end, EARLIEST_TIME gives its start alone. A broker without
        this old question (version 0 of ListOffsets) is asked for the one offset at the time.
        Raises ApiError.
        """
        asked = TopicPartition(topic, partition)

        async def ask(connection: Connection) -> ListOffsetsResponsePartition:
            least, _ = connection.versions.get(ApiKey.LIST_OFFSETS, (0, 0))
            request = list_offsets_request({asked: time}, max_num_offsets=max_num_offsets)
            response = await connection.call(request, version=0 if least == 0 else None)
            return listed_offsets(response)[asked]

        answer = _checked(await self._twice(ask), asked)
        if answer.old_style_offsets:
            return list(answer.old_style_offsets)
        return [answer.offset] if answer.offset >= 0 else []

    async def earliest_or_latest_offset(self, topic: str, partition: int, time: int) -> int:
        """The offset at EARLIEST_TIME or LATEST_TIME. Raises ApiError."""
        asked = TopicPartition(topic, partition)

        async def ask(connection: Connection) -> ListOffsetsResponsePartition:
            response = await connection.call(list_offsets_request({asked: time}))
            return listed_offsets(response)[asked]

        return _checked(await self._twice(ask), asked).offset

    async def commit_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        version: int | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit for a group without members; gives each partition's error code.

        Version 0 is kept in ZooKeeper by any broker, later ones by the group's coordinator alone.
        """
        positions = {
            partition: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }

        async def ask(connection: Connection) -> dict[TopicPartition, ErrorCode]:
            response = await connection.call(commit_request(group, positions), version=version)
            return commit_results(response)

        return await self._twice(ask)

    async def fetch_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, version: int | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed. Versions as for `commit_offsets`.

        Raises ApiError for an error of the whole request, such as NOT_COORDINATOR.
        """
        asked = list(partitions)

        async def ask(connection: Connection) -> OffsetFetchResponse:
            request = fetch_offsets_request(group, asked)
            response: OffsetFetchResponse = await connection.call(request, version=version)
            return response

        response = await self._twice(ask)
        if response.error_code:
            raise ApiError(ErrorCode.of(response.error_code), f"offsets of group {group}")
        return committed_offsets(response)

    async def find_coordinator(self, group: str) -> BrokerEndpoint:
        """The broker that keeps a group. Raises ApiError; COORDINATOR_NOT_AVAILABLE is worth
        another try, as a cluster makes its offsets topic when first asked.
        """

        async def ask(connection: Connection) -> FindCoordinatorResponse:
            response: FindCoordinatorResponse = await connection.call(
                FindCoordinatorRequest(key=group)
            )
            return response

        found = await self._twice(ask)
        if found.error_code:
            raise ApiError(ErrorCode.of(found.error_code), f"coordinator of group {group}")
        return BrokerEndpoint(found.node_id, found.host, found.port)

    async def _twice(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
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
                )
            return self._connection


def _checked(
    answer: ListOffsetsResponsePartition, asked: TopicPartition
) -> ListOffsetsResponsePartition:
    if answer.error_code:
        raise ApiError(ErrorCode.of(answer.error_code), str(asked))
    return answer
