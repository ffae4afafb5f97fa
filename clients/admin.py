"""The admin client: topics, configs, groups and offsets of a cluster.

Each call goes to the broker that can answer it: the controller for topics, leaders for offsets (one
request per leader), coordinators for groups, a broker itself for its own settings. Answers that
time may heal (NOT_CONTROLLER, no leader yet, a coordinator still loading) are asked again until
`default.api.timeout.ms`; then DeadlineExceeded. Every call may raise it, and ApiError, and
NoBrokersAvailable.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint, ClusterView
from clients.config import IGNORED, ClusterConfig
from clients.descriptions import (
    BROKER_RESOURCE,
    ClusterDescription,
    ConfigResource,
    GroupDescription,
    GroupListing,
    ListedOffset,
    NewTopic,
    TopicDescription,
)
from clients.errors import ConnectionFailed, DeadlineExceeded
from clients.offset_requests import (
    EARLIEST_TIME,
    LATEST_TIME,
    commit_request,
    commit_results,
    committed_offsets,
    fetch_offsets_request,
    list_offsets_request,
    listed_offsets,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
)
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponseGroup
from protocol.messages.list_groups import ListGroupsRequest
from protocol.settings import load
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "Admin",
    "ClusterDescription",
    "ConfigResource",
    "GroupDescription",
    "GroupListing",
    "ListedOffset",
    "NewTopic",
    "TopicDescription",
]

T = TypeVar("T")

CONTROLLER_GRACE_MS = 1_000
"""How much longer than the time-out we send with a request we wait for its response."""


class Admin:
    """An admin client: `async with Admin("host:port") as admin`.

    Takes `bootstrap.servers`, or all settings of a client by Kafka's names.
    """

    def __init__(self, bootstrap: str | Mapping[str, Any], /, **keywords: Any) -> None:
        named = {"bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap
        self.config, self.notes = load(ClusterConfig, {**named, **keywords}, accepted=IGNORED)
        self._cluster = Cluster(self.config.bootstrap_servers, config=self.config)

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
        """Close all connections."""
        await self._cluster.close()

    # -- topics

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, ApiError | None]:
        """Create topics; gives per topic None or what the controller had against it."""
        request = CreateTopicsRequest(
            topics=[_new_topic(topic) for topic in topics],
            timeout_ms=self.config.request_timeout_ms,
            validate_only=validate_only,
        )

        def results(response: Any) -> dict[str, ApiError | None]:
            return {
                t.name: _error(t.error_code, t.error_message or t.name) for t in response.topics
            }

        return await self._ask_controller(request, results)

    async def delete_topics(self, names: Iterable[str]) -> dict[str, ApiError | None]:
        """Delete topics; gives per topic None or what the controller had against it."""
        request = DeleteTopicsRequest(
            topic_names=list(names), timeout_ms=self.config.request_timeout_ms
        )

        def results(response: Any) -> dict[str, ApiError | None]:
            return {t.name: _error(t.error_code, t.name) for t in response.responses}

        return await self._ask_controller(request, results)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Names of all topics, sorted."""
        view = await self._view(None)
        return sorted(name for name in view.topics if internal or name not in view.internal)

    async def describe_topics(
        self, names: Iterable[str] | None = None
    ) -> dict[str, TopicDescription]:
        """Describe topics, or all of them. Raises ApiError for one that does not exist."""
        wanted = None if names is None else list(names)
        view = await self._view(wanted)
        for name in wanted or ():
            if name in view.errors:
                raise ApiError(view.errors[name], name)
        return {
            name: TopicDescription(name, name in view.internal, view.topics[name])
            for name in sorted(view.topics if wanted is None else wanted)
        }

    async def describe_cluster(self) -> ClusterDescription:
        """Brokers and controller."""
        view = await self._view([])
        brokers = tuple(view.brokers[node_id] for node_id in sorted(view.brokers))
        return ClusterDescription(view.cluster_id, view.controller_id, brokers)

    async def describe_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, tuple[DescribeConfigsResponseConfig, ...]]:
        """All settings of topics and brokers. A broker is asked for its own."""
        described = {}
        by_broker: dict[int | None, list[ConfigResource]] = defaultdict(list)
        for resource in resources:
            is_broker = resource.resource_type == BROKER_RESOURCE and resource.name
            by_broker[int(resource.name) if is_broker else None].append(resource)
        for broker, wanted in by_broker.items():
            for result in await self._describe_configs(broker, wanted):
                resource = ConfigResource(result.resource_type, result.resource_name)
                if result.error_code:
                    code = ErrorCode.of(result.error_code)
                    raise ApiError(code, result.error_message or resource.name)
                described[resource] = tuple(result.configs)
        return described

    # -- offsets

    async def list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation: int = 0,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Each partition's offset at a time (ms), or at EARLIEST_TIME or LATEST_TIME.

        Leaders are asked at the same time, in one request each. A partition that cannot answer by
        the time-out has its error in its result.
        """
        found: dict[TopicPartition, ListedOffset] = {}

        async def ask() -> None:
            rest = {p: time for p, time in times.items() if p not in found or found[p].error}
            await self._cluster.refresh({partition.topic for partition in rest})
            found.update(await self._list_offsets_once(rest, isolation))
            for partition, listed in found.items():
                if listed.error.retriable:
                    raise ApiError(listed.error, str(partition))

        try:
            await self._cluster.retrying(ask, "offsets", timeout_ms)
        except DeadlineExceeded:
            if len(found) < len(times):
                raise
        return found

    # -- groups

    async def list_groups(self) -> list[GroupListing]:
        """The groups of all brokers, sorted by id. Groups kept in ZooKeeper are not among them."""
        view = await self._view([])

        async def of_broker(broker: BrokerEndpoint) -> list[GroupListing]:
            async def ask() -> list[GroupListing]:
                connection = await self._cluster.connection(broker)
                response = await connection.call(ListGroupsRequest())
                _raise_for(response.error_code, f"groups of broker {broker.node_id}")
                return [GroupListing(g.group_id, g.protocol_type, broker) for g in response.groups]

            return await self._cluster.retrying(ask, f"groups of broker {broker.node_id}")

        lists = await asyncio.gather(*map(of_broker, view.brokers.values()))
        return sorted((group for groups in lists for group in groups), key=lambda g: g.group_id)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """State and members of groups. One that does not exist has the state "Dead"."""

        async def of_group(group_id: str) -> GroupDescription:
            def read(response: Any) -> DescribeGroupsResponseGroup:
                (group,) = response.groups
                _raise_for(group.error_code, group_id)
                assert isinstance(group, DescribeGroupsResponseGroup)
                return group

            group = await self._ask_coordinator(
                group_id, DescribeGroupsRequest(groups=[group_id]), read
            )
            return GroupDescription(await self._cluster.coordinator(group_id), group)

        wanted = list(dict.fromkeys(group_ids))
        described = await asyncio.gather(*map(of_group, wanted))
        return dict(zip(wanted, described, strict=True))

    async def group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed with its coordinator; partitions without are absent."""

        def read(response: Any) -> dict[TopicPartition, OffsetAndMetadata]:
            _raise_for(response.error_code, f"offsets of group {group_id}")
            committed = committed_offsets(response)
            for partition, offset in committed.items():
                _raise_for(offset.error, f"offset of group {group_id} for {partition}")
            return {
                partition: OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)
                for partition, offset in committed.items()
                if offset.offset >= 0
            }

        return await self._ask_coordinator(
            group_id, fetch_offsets_request(group_id, partitions), read
        )

    async def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit for a group that has no members now.

        Raises ApiError naming the partition, UNKNOWN_MEMBER_ID if the group has members.
        """

        def read(response: Any) -> None:
            for partition, code in commit_results(response).items():
                _raise_for(code, f"commit of group {group_id} for {partition}")

        await self._ask_coordinator(group_id, commit_request(group_id, offsets), read)

    # -- inside

    async def _view(self, topics: Sequence[str] | None) -> ClusterView:
        async def ask() -> ClusterView:
            await self._cluster.refresh(topics, all_topics=topics is None)
            return self._cluster.view

        return await self._cluster.retrying(ask, "metadata")

    async def _ask_controller(
        self, request: Any, results: Callable[[Any], dict[str, ApiError | None]]
    ) -> dict[str, ApiError | None]:
        async def ask() -> dict[str, ApiError | None]:
            await self._cluster.refresh()
            if self._cluster.controller_id not in self._cluster.brokers:
                raise ApiError(ErrorCode.NOT_CONTROLLER, "there is no controller")
            connection = await self._cluster.connection(self._cluster.controller_id, "controller")
            response = await connection.call(
                request, timeout_ms=self.config.request_timeout_ms + CONTROLLER_GRACE_MS
            )
            answers = results(response)
            for error in answers.values():
                if error is not None and error.code is ErrorCode.NOT_CONTROLLER:
                    raise error
            return answers

        return await self._cluster.retrying(ask, "controller")

    async def _ask_coordinator(self, group_id: str, request: Any, read: Callable[[Any], T]) -> T:
        async def ask() -> T:
            response = await self._cluster.call_coordinator(group_id, request, "admin")
            try:
                return read(response)
            except ApiError as error:
                if error.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                    self._cluster.forget_coordinator(group_id)
                raise

        return await self._cluster.retrying(ask, f"group {group_id}")

    async def _describe_configs(
        self, broker: int | None, resources: Sequence[ConfigResource]
    ) -> Sequence[DescribeConfigsResponseResult]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequestResource(
                    resource_type=resource.resource_type,
                    resource_name=resource.name,
                    configuration_keys=None,
                )
                for resource in resources
            ]
        )

        async def ask() -> Sequence[DescribeConfigsResponseResult]:
            await self._cluster.refresh()
            if broker is None:
                connection = await self._cluster.any_connection()
            else:
                connection = await self._cluster.connection(broker)
            response: DescribeConfigsResponse = await connection.call(request)
            return response.results

        return await self._cluster.retrying(ask, "configs")

    async def _list_offsets_once(
        self, times: Mapping[TopicPartition, int], isolation: int
    ) -> dict[TopicPartition, ListedOffset]:
        view = self._cluster.view
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
                connection = await self._cluster.connection(leader)
                response = await connection.call(list_offsets_request(wanted, isolation=isolation))
            except ConnectionFailed:
                found.update(dict.fromkeys(wanted, _no_offset(ErrorCode.NETWORK_EXCEPTION)))
                return
            for partition, answer in listed_offsets(response).items():
                code = ErrorCode.of(answer.error_code)
                found[partition] = ListedOffset(
                    answer.offset, answer.timestamp, answer.leader_epoch, code
                )

        await asyncio.gather(*(of_leader(*asked) for asked in by_leader.items()))
        return found


def _no_offset(code: ErrorCode) -> ListedOffset:
    return ListedOffset(-1, -1, -1, code)


def _new_topic(topic: NewTopic) -> CreateTopicsRequestTopic:
    return CreateTopicsRequestTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else topic.num_partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        assignments=[
            CreateTopicsRequestAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in topic.assignments.items()
        ],
        configs=[
            CreateTopicsRequestConfig(name=name, value=value)
            for name, value in topic.configs.items()
        ],
    )


def _error(code: int, detail: str) -> ApiError | None:
    return ApiError(ErrorCode.of(code), detail) if code else None


def _raise_for(code: int, detail: str) -> None:
    if code:
        raise ApiError(ErrorCode.of(code), detail)
