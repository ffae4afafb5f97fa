"""Send admin calls to the right brokers: any broker, the controller, a coordinator, the leaders.

A call is repeated while its error may pass: the controller or coordinator moved, a leader is being
elected. It raises DeadlineExceeded after its time, and BrokerError for an error that stays.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from clients.admin.descriptions import BROKER_RESOURCE, ConfigResource, ListedOffset
from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint, ClusterView
from clients.errors import (
    BrokerError,
    ConnectionFailed,
    DeadlineExceeded,
    KgroupError,
    NoBrokersAvailable,
    UnsupportedApi,
    left_out,
)
from clients.offset_requests import list_offsets_request, listed_offsets
from clients.transport.connection import Connection
from protocol.api import key_of
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.messages.find_coordinator import GROUP_KEY
from protocol.topic_partition import TopicPartition

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

AskBroker = Callable[[Connection, BrokerEndpoint, list[K]], Awaitable[Mapping[K, T | KgroupError]]]
"""Asks a broker about some groups, or other keys; returns a result or an error for each."""

MAX_KEYS = 200
"""Groups, transactional ids or partitions in a request, at most."""
UNKNOWN_ROUNDS = 2
"""Rounds after which a topic that nobody waits for is unknown: one broker may be behind."""
CONTROLLER_GRACE_MS = 1_000
"""Added to the timeout in a request, to get the time for which we wait for its response."""


@frozen
class AdminCalls:
    """The calls of one admin client.

    `read` turns a response into the result of a call. If it raises a retriable BrokerError, the
    call is repeated.
    """

    cluster: Cluster

    async def view(self, topics: Sequence[str] | None) -> ClusterView:
        """Return the current cluster with these topics; None returns all topics."""

        async def ask() -> ClusterView:
            await self.cluster.refresh(topics, all_topics=topics is None)
            if not self.cluster.view.brokers:
                raise NoBrokersAvailable("the broker that answered knows no brokers yet")

            return self.cluster.view

        return await self.cluster.retrying(ask, "metadata")

    async def broker(
        self, node_id: int | None, request: Any, read: Callable[[Any], T], *, since: int = 0
    ) -> T:
        """Call one broker; None is any broker.

        `since` is the first version of the request that can say what is meant. Raises
        UnsupportedApi if the broker does not know it.
        """

        async def call(connection: Connection) -> Any:
            _check_version(connection, request, since, "broker")
            return await connection.call(request)

        async def ask() -> T:
            # Fresh brokers for each attempt: the last one may have failed because of old ones.
            await self.cluster.refresh(())
            if node_id is None:
                return read(await self.cluster.ask_any(call))

            return read(await call(await self.cluster.connection(node_id)))

        return await self.cluster.retrying(ask, key_of(request).name)

    async def each_broker(
        self, ask_one: Callable[[Connection, BrokerEndpoint], Awaitable[T]], what: str
    ) -> dict[BrokerEndpoint, T | KgroupError]:
        """Ask all brokers; if the error of one may pass, all again.

        Another broker may have taken over its groups by then. Returns a result or error for each
        broker. Raises if no broker responds at all.
        """
        results: dict[BrokerEndpoint, T | KgroupError] = {}

        async def call(broker: BrokerEndpoint) -> T | KgroupError:
            try:
                return await ask_one(await self.cluster.connection(broker), broker)
            except KgroupError as error:
                return error

        async def ask() -> None:
            await self.cluster.refresh(())
            brokers = list(self.cluster.brokers.values())
            responses = await asyncio.gather(*map(call, brokers))

            # Only what the last round says counts.
            results.clear()
            results.update(zip(brokers, responses, strict=True))
            for result in responses:
                if isinstance(result, KgroupError) and self._may_pass(result):
                    raise result

        try:
            await self.cluster.retrying(ask, what)
        except DeadlineExceeded:
            if not results:
                raise
        return results

    async def controller(self, request: Any, read: Callable[[Any], T], *, since: int = 0) -> T:
        """Call the controller, or the next one after it has moved.

        `since` is the first version of the request that can say what is meant. Raises
        UnsupportedApi if the controller does not know it.
        """

        async def ask() -> T:
            await self.cluster.refresh(())

            # Between two controllers, metadata may name none, or one that is gone.
            if self.cluster.controller_id not in self.cluster.brokers:
                raise BrokerError(ErrorCode.NOT_CONTROLLER, "there is no controller")

            connection = await self.cluster.connection(self.cluster.controller_id, "controller")
            _check_version(connection, request, since, "controller")

            # The controller responds within the request's timeout, so wait a little longer.
            timeout_ms = self.cluster.config.request_timeout_ms + CONTROLLER_GRACE_MS
            return read(await connection.call(request, timeout_ms=timeout_ms))

        return await self.cluster.retrying(ask, "controller")

    async def keepers(
        self,
        resources: Iterable[ConfigResource],
        request_for: Callable[[list[ConfigResource]], Any],
        read: Callable[[Any], dict[ConfigResource, T]],
    ) -> dict[ConfigResource, T]:
        """Call for each resource the keeper of its settings: a broker for its own, else any."""
        results: dict[ConfigResource, T] = {}

        for broker, same_broker in _by_keeper(resources).items():
            results |= await self.broker(broker, request_for(same_broker), read)
        return results

    async def each_keeper(
        self,
        resources: Iterable[ConfigResource],
        request_for: Callable[[list[ConfigResource]], Any],
        read: Callable[[Any], dict[ConfigResource, T | KgroupError]],
        at: int | None = None,
    ) -> dict[ConfigResource, T | KgroupError]:
        """Call the keepers as `keepers` does, all at once. Returns a result or error for each.

        `at` is the broker that is asked for topics, by default any.
        """

        async def call(
            broker: int | None, same_broker: list[ConfigResource]
        ) -> dict[ConfigResource, T | KgroupError]:
            try:
                keeper = at if broker is None else broker
                results = await self.broker(keeper, request_for(same_broker), read)
            except KgroupError as error:
                return dict.fromkeys(same_broker, error)
            return {
                resource: results.get(resource, left_out(resource.name)) for resource in same_broker
            }

        parts = await asyncio.gather(*(call(*item) for item in _by_keeper(resources).items()))
        return {resource: result for part in parts for resource, result in part.items()}

    async def coordinator(
        self,
        group_id: str,
        make_request: Callable[[], Any],
        read: Callable[[Any], T],
        *,
        since: int = 0,
    ) -> T:
        """Call a group's coordinator, or the next one after it has moved.

        `make_request` makes the request of each try. `since` is as for `controller`.
        """

        async def ask() -> T:
            return await self._coordinator_once(group_id, make_request(), read, since)

        return await self.cluster.retrying(ask, f"group {group_id}")

    async def coordinators(
        self,
        keys: Iterable[str],
        ask: AskBroker[str, T],
        what: str,
        *,
        key_type: int = GROUP_KEY,
    ) -> dict[str, T | KgroupError]:
        """Ask each coordinator about many of its groups, or transactional ids, at once.

        Returns a result or error for each. Keys whose error may pass are asked for again, as with
        `coordinator`.
        """
        kind = "group" if key_type == GROUP_KEY else "transactional id"

        async def find(key: str) -> BrokerEndpoint | KgroupError:
            try:
                find_now = partial(self.cluster.find_coordinator, key, key_type)
                return await self.cluster.retrying(find_now, f"coordinator of {kind} {key}")
            except KgroupError as error:
                return error

        async def place(keys: list[str]) -> list[BrokerEndpoint | KgroupError]:
            return await asyncio.gather(*map(find, keys))

        def may_pass(key: str, error: KgroupError) -> bool:
            if not self._may_pass(error):
                return False
            if getattr(error, "code", None) is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                self.cluster.forget_coordinator(key, key_type)
            return True

        return await self._each(keys, place, ask, may_pass, what)

    async def each_leader(
        self,
        partitions: Iterable[TopicPartition],
        ask: AskBroker[TopicPartition, T],
        what: str,
        *,
        broker_id: int | None = None,
    ) -> dict[TopicPartition, T | KgroupError]:
        """Ask the leaders of partitions, or one broker for all of them, about many at once.

        Returns a result or error for each. Partitions whose error may pass are asked for again.
        """
        num_rounds = 0

        def find(partition: TopicPartition) -> BrokerEndpoint | KgroupError:
            view = self.cluster.view
            if broker_id is not None:
                unknown = BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id}")
                return view.brokers.get(broker_id, unknown)

            if partition.partition not in view.topics.get(partition.topic, {}):
                code = view.errors.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return BrokerError(code, str(partition), ApiKey.METADATA)
            leader = view.brokers.get(view.leaders.get(partition, -1))
            return leader or view.no_leader(partition)

        async def place(partitions: list[TopicPartition]) -> list[BrokerEndpoint | KgroupError]:
            nonlocal num_rounds
            num_rounds += 1
            try:
                await self.cluster.refresh({partition.topic for partition in partitions})
            except KgroupError as error:
                return [error] * len(partitions)
            return [find(partition) for partition in partitions]

        def may_pass(partition: TopicPartition, error: KgroupError) -> bool:
            code = getattr(error, "code", None)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return num_rounds < UNKNOWN_ROUNDS
            # One broker that does not have the partition will not get it by waiting.
            if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and broker_id is not None:
                return False
            return self._may_pass(error)

        return await self._each(partitions, place, ask, may_pass, what)

    async def _each(
        self,
        keys: Iterable[K],
        place: Callable[[list[K]], Awaitable[Sequence[BrokerEndpoint | KgroupError]]],
        ask: AskBroker[K, T],
        may_pass: Callable[[K, KgroupError], bool],
        what: str,
    ) -> dict[K, T | KgroupError]:
        """Ask the broker where `place` puts each key; those whose error may pass again."""
        left = list(dict.fromkeys(keys))
        results: dict[K, T | KgroupError] = {}

        async def ask_broker(broker: BrokerEndpoint, some: list[K]) -> None:
            try:
                connection = await self.cluster.connection(broker, "admin")
                answered = dict(await ask(connection, broker, some))
            except KgroupError as error:
                answered = dict.fromkeys(some, error)
            for key in some:
                results[key] = answered.get(key, left_out(key))

        async def ask_all() -> None:
            nonlocal left
            by_broker: dict[BrokerEndpoint, list[K]] = defaultdict(list)
            for key, broker in zip(left, await place(left), strict=True):
                if isinstance(broker, KgroupError):
                    results[key] = broker
                else:
                    by_broker[broker].append(key)
            await asyncio.gather(
                *(
                    ask_broker(broker, own[start : start + MAX_KEYS])
                    for broker, own in by_broker.items()
                    for start in range(0, len(own), MAX_KEYS)
                )
            )

            passing = {
                key: error
                for key in left
                if isinstance(error := results[key], KgroupError) and may_pass(key, error)
            }
            left = list(passing)
            for error in passing.values():
                raise error

        # At the end of the time each key has its own error.
        with contextlib.suppress(DeadlineExceeded):
            await self.cluster.retrying(ask_all, what)
        return results

    def _may_pass(self, error: KgroupError) -> bool:
        """Return whether another attempt may not meet an error."""
        # The whole time of a call has been spent on DeadlineExceeded.
        return self.cluster.may_pass(error) and not isinstance(error, DeadlineExceeded)

    async def deletion(self, group_id: str, request: Any, read: Callable[[Any], T]) -> T | None:
        """Let a group's coordinator delete something. Calls it as `coordinator` does.

        Returns None if the coordinator does not know the group after an earlier attempt that may
        have deleted it although it failed.
        """
        may_be_done = False

        async def ask() -> T | None:
            nonlocal may_be_done
            try:
                return await self._coordinator_once(group_id, request, read)
            except (BrokerError, ConnectionFailed) as error:
                code = error.code if isinstance(error, BrokerError) else None

                # An earlier attempt may have deleted it before its response was lost.
                if may_be_done and code is ErrorCode.GROUP_ID_NOT_FOUND:
                    return None

                # A coordinator that loads has refused, so nothing can be deleted yet.
                may_be_done |= code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                raise

        return await self.cluster.retrying(ask, f"group {group_id}")

    async def _coordinator_once(
        self, group_id: str, request: Any, read: Callable[[Any], T], since: int = 0
    ) -> T:
        async def call(connection: Connection) -> Any:
            _check_version(connection, request, since, "coordinator")
            return await connection.call(request)

        try:
            return read(await self.cluster.ask_coordinator(group_id, call, "admin"))
        except BrokerError as error:
            # What the request itself needs has the right to find the coordinator in it.
            if error.api_key == ApiKey.FIND_COORDINATOR:
                error.api_key = key_of(request)
            if error.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                self.cluster.forget_coordinator(group_id)
            raise

    async def leaders(
        self,
        times: Mapping[TopicPartition, int],
        isolation: int,
        timeout_ms: int | None,
        waits_for_topics: bool,
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offsets that the leaders give for `times`.

        A partition may have an error instead, if each has an offset or an error at the timeout.
        """
        # Nothing to ask for is no reason to ask who leads.
        if not times:
            return {}
        offsets: dict[TopicPartition, ListedOffset] = {}
        unreachable: set[TopicPartition] = set()
        num_rounds = 0

        def may_pass(error: ErrorCode) -> bool:
            if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not waits_for_topics:
                return num_rounds < UNKNOWN_ROUNDS
            return error.retriable

        async def ask() -> None:
            nonlocal num_rounds
            num_rounds += 1

            # Only partitions without a final result are asked for again.
            rest = {
                partition: time
                for partition, time in times.items()
                if partition not in offsets or offsets[partition].error
            }
            # Leaders that were just read will do, unless one of them has an error.
            topics = {partition.topic for partition in rest}
            if offsets:
                await self.cluster.refresh(topics)
            else:
                await self.cluster.refresh_unless_just_read(topics)
            offsets.update(await self._leaders_once(rest, isolation, unreachable))

            # One error that may pass repeats the round, for partitions in error alone.
            for partition, listed in offsets.items():
                if may_pass(listed.error) and partition not in unreachable:
                    raise listed.failure(partition)

        try:
            await self.cluster.retrying(ask, "offsets", timeout_ms)
        except DeadlineExceeded:
            # Partitions that never succeeded have their errors in the result.
            if len(offsets) < len(times):
                raise

        return offsets

    async def _leaders_once(
        self,
        times: Mapping[TopicPartition, int],
        isolation: int,
        unreachable: set[TopicPartition],
    ) -> dict[TopicPartition, ListedOffset]:
        """Ask all leaders concurrently, once. Note partitions whose leader is not waited for."""
        view = self.cluster.view
        offsets: dict[TopicPartition, ListedOffset] = {}

        # Partitions without a reachable leader have their result now.
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for partition, time in times.items():
            leader = view.leaders.get(partition, -1)
            if leader in view.brokers:
                by_leader[leader][partition] = time
            else:
                # A partition that exists waits for a leader; any other may never exist.
                if partition.partition in view.topics.get(partition.topic, {}):
                    reason = view.why_leaderless(partition)
                    offsets[partition] = _no_offset(ErrorCode.LEADER_NOT_AVAILABLE, reason)
                else:
                    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    offsets[partition] = _no_offset(view.errors.get(partition.topic, unknown))

        async def ask_leader(leader: int, times: dict[TopicPartition, int]) -> None:
            try:
                connection = await self.cluster.connection(leader)
                response = await connection.call(list_offsets_request(times, isolation=isolation))
            except ConnectionFailed as failure:
                unreachable.update(() if self._may_pass(failure) else times)
                # Another leader may answer in the next round; the others have their results.
                silence = _no_offset(ErrorCode.NETWORK_EXCEPTION, str(failure))
                offsets.update(dict.fromkeys(times, silence))
                return

            responses = listed_offsets(response)

            # A partition that the response lacks must not pass for one without records.
            for partition in times:
                if partition not in responses:
                    offsets[partition] = _no_offset(ErrorCode.UNKNOWN_SERVER_ERROR)
                    continue

                listed = responses[partition]
                offsets[partition] = ListedOffset(
                    listed.offset,
                    listed.timestamp,
                    listed.leader_epoch,
                    ErrorCode.of(listed.error_code),
                )

        await asyncio.gather(*(ask_leader(*item) for item in by_leader.items()))
        return offsets


def _no_offset(code: ErrorCode, detail: str = "") -> ListedOffset:
    return ListedOffset(-1, -1, -1, code, detail)


def _check_version(connection: Connection, request: Any, since: int, broker: str) -> None:
    """Raise UnsupportedApi if a broker does not know version `since` of a request."""
    api_key = key_of(request)
    if connection.version_of(api_key) < since:
        raise UnsupportedApi(f"the {broker} is too old for this {api_key.name} request")


def _by_keeper(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Group the resources by the broker that keeps their settings; None is any broker."""
    by_broker: dict[int | None, list[ConfigResource]] = defaultdict(list)

    for resource in resources:
        # Defaults for all brokers have no name, and any broker can change them.
        is_one_broker = resource.resource_type == BROKER_RESOURCE and resource.name
        by_broker[int(resource.name) if is_one_broker else None].append(resource)

    return by_broker
