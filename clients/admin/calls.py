"""Whom an admin call goes to, and how often: a broker, the controller, a coordinator, the leaders.

Each call is asked again while time may heal what came of it: the controller or a coordinator has
moved, a leader is being elected. Raises DeadlineExceeded then, and BrokerError for what is final.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from clients.admin.descriptions import ConfigResource, ListedOffset
from clients.admin.requests import by_keeper
from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint, ClusterView
from clients.errors import (
    BrokerError,
    ConnectionFailed,
    DeadlineExceeded,
    NoBrokersAvailable,
    UnsupportedApi,
)
from clients.offset_requests import list_offsets_request, listed_offsets
from protocol.errors import ErrorCode
from protocol.registry import KEY_OF
from protocol.topic_partition import TopicPartition

T = TypeVar("T")

CONTROLLER_GRACE_MS = 1_000
"""How much longer than the time-out we send with a request we wait for its response."""


@attrs.frozen
class AdminCalls:
    """The calls of one admin client. `read` makes of a response what is wanted; the BrokerError it
    raises, if retriable, has the call made again."""

    cluster: Cluster

    async def view(self, topics: Sequence[str] | None) -> ClusterView:
        """The cluster now, with these topics; None: with all."""

        async def ask() -> ClusterView:
            await self.cluster.refresh(topics, all_topics=topics is None)
            if not self.cluster.view.brokers:
                raise NoBrokersAvailable("the broker asked knows of none yet")
            return self.cluster.view

        return await self.cluster.retrying(ask, "metadata")

    async def broker(self, node_id: int | None, request: Any, read: Callable[[Any], T]) -> T:
        """Ask one broker; None is any."""

        async def ask() -> T:
            await self.cluster.refresh()
            if node_id is None:
                return read(await self.cluster.ask_any(lambda connection: connection.call(request)))
            return read(await (await self.cluster.connection(node_id)).call(request))

        return await self.cluster.retrying(ask, "any broker" if node_id is None else str(node_id))

    async def brokers(
        self, request: Any, read: Callable[[BrokerEndpoint, Any], T], what: str
    ) -> list[T]:
        """Ask all brokers: of all or none, a broker that is gone has left to others what it had."""

        async def of_broker(broker: BrokerEndpoint) -> T:
            connection = await self.cluster.connection(broker)
            return read(broker, await connection.call(request))

        async def ask() -> list[T]:
            await self.cluster.refresh()
            return await asyncio.gather(*map(of_broker, self.cluster.brokers.values()))

        return await self.cluster.retrying(ask, what)

    async def controller(self, request: Any, read: Callable[[Any], T], *, since: int = 0) -> T:
        """Ask the controller, and the next one when it has moved.

        `since` is the first version that says what the request means. Raises UnsupportedApi.
        """

        async def ask() -> T:
            await self.cluster.refresh()
            if self.cluster.controller_id not in self.cluster.brokers:
                raise BrokerError(ErrorCode.NOT_CONTROLLER, "there is no controller")
            connection = await self.cluster.connection(self.cluster.controller_id, "controller")
            api_key = KEY_OF[type(request)]
            if connection.version_of(api_key) < since:
                raise UnsupportedApi(f"the controller is too old for this {api_key.name}")
            timeout_ms = self.cluster.config.request_timeout_ms + CONTROLLER_GRACE_MS
            return read(await connection.call(request, timeout_ms=timeout_ms))

        return await self.cluster.retrying(ask, "controller")

    async def keepers(
        self,
        resources: Iterable[ConfigResource],
        request_for: Callable[[list[ConfigResource]], Any],
        read: Callable[[Any], dict[ConfigResource, T]],
    ) -> dict[ConfigResource, T]:
        """Ask for each resource whoever keeps its settings: a broker its own, any all others."""
        found: dict[ConfigResource, T] = {}
        for broker, kept in by_keeper(resources).items():
            found |= await self.broker(broker, request_for(kept), read)
        return found

    async def coordinator(self, group_id: str, request: Any, read: Callable[[Any], T]) -> T:
        """Ask a group's coordinator, and the next one when it has moved."""

        async def ask() -> T:
            return await self._coordinator_once(group_id, request, read)

        return await self.cluster.retrying(ask, f"group {group_id}")

    async def deletion(self, group_id: str, request: Any, read: Callable[[Any], T]) -> T | None:
        """Have a group's coordinator delete what it keeps; asked as above.

        None if it finds no such group after an attempt that may well have been the one that deleted
        it: whose answer is lost, or was that nobody knows.
        """
        may_be_done = False

        async def ask() -> T | None:
            nonlocal may_be_done
            try:
                return await self._coordinator_once(group_id, request, read)
            except (BrokerError, ConnectionFailed) as error:
                code = error.code if isinstance(error, BrokerError) else None
                if may_be_done and code is ErrorCode.GROUP_ID_NOT_FOUND:
                    return None
                may_be_done |= code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                raise

        return await self.cluster.retrying(ask, f"group {group_id}")

    async def _coordinator_once(self, group_id: str, request: Any, read: Callable[[Any], T]) -> T:
        response = await self.cluster.call_coordinator(group_id, request, "admin")
        try:
            return read(response)
        except BrokerError as error:
            if error.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                self.cluster.forget_coordinator(group_id)
            raise

    async def leaders(
        self, times: Mapping[TopicPartition, int], isolation: int, timeout_ms: int | None
    ) -> dict[TopicPartition, ListedOffset]:
        """Ask the leaders for offsets; by the time-out a partition may have an error in place of
        an answer, if none is left without either."""
        found: dict[TopicPartition, ListedOffset] = {}

        async def ask() -> None:
            rest = {p: time for p, time in times.items() if p not in found or found[p].error}
            await self.cluster.refresh({partition.topic for partition in rest})
            found.update(await self._leaders_once(rest, isolation))
            for partition, listed in found.items():
                if listed.error.retriable:
                    raise BrokerError(listed.error, str(partition))

        try:
            await self.cluster.retrying(ask, "offsets", timeout_ms)
        except DeadlineExceeded:
            if len(found) < len(times):
                raise
        return found

    async def _leaders_once(
        self, times: Mapping[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, ListedOffset]:
        """All at the same time."""
        view = self.cluster.view
        found: dict[TopicPartition, ListedOffset] = {}
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for partition, time in times.items():
            leader = view.leaders.get(partition, -1)
            if leader in view.brokers:
                by_leader[leader][partition] = time
            else:
                known = partition.partition in view.topics.get(partition.topic, {})
                found[partition] = _no_offset(
                    ErrorCode.LEADER_NOT_AVAILABLE
                    if known
                    else view.errors.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                )

        async def of_leader(leader: int, wanted: dict[TopicPartition, int]) -> None:
            try:
                connection = await self.cluster.connection(leader)
                response = await connection.call(list_offsets_request(wanted, isolation=isolation))
            except ConnectionFailed:
                found.update(dict.fromkeys(wanted, _no_offset(ErrorCode.NETWORK_EXCEPTION)))
                return
            answers = listed_offsets(response)
            for partition in wanted:
                if partition not in answers:
                    found[partition] = _no_offset(ErrorCode.UNKNOWN_SERVER_ERROR)
                    continue
                answer = answers[partition]
                code = ErrorCode.of(answer.error_code)
                found[partition] = ListedOffset(
                    answer.offset, answer.timestamp, answer.leader_epoch, code
                )

        await asyncio.gather(*(of_leader(*asked) for asked in by_leader.items()))
        return found


def _no_offset(code: ErrorCode) -> ListedOffset:
    return ListedOffset(-1, -1, -1, code)
