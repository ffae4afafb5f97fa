"""The admin client: topics, settings, replicas, groups and offsets of a cluster.

Each call goes to the broker that can answer it: the controller for topics and replicas, leaders for
offsets (one request per leader), coordinators for groups, a broker itself for its own settings and
disks. Answers that time may heal (NOT_CONTROLLER, no leader yet, a coordinator still loading) are
asked again until `default.api.timeout.ms`; then DeadlineExceeded. Every call may raise it, and
BrokerError, and NoBrokersAvailable; UnsupportedApi where the broker is too old for a call.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self

from clients.admin import group_responses as answers
from clients.admin import requests
from clients.admin.calls import AdminCalls
from clients.admin.descriptions import (
    ClusterDescription,
    ConfigResource,
    GroupDescription,
    GroupListing,
    ListedOffset,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    TopicDescription,
    TopicPartitionReplica,
)
from clients.admin.requests import Verdicts, from_controller, of_all, raise_for, verdict
from clients.cluster import Cluster
from clients.config import IGNORED, ClusterConfig
from clients.errors import BrokerError, left_out
from clients.offset_requests import (
    EARLIEST_TIME,
    LATEST_TIME,
)
from offsets.requests import (
    commit_request,
    delete_offsets_request,
    fetch_offsets_request,
)
from protocol.messages.controlled_shutdown import ControlledShutdownRequest
from protocol.messages.delete_groups import DeleteGroupsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
)
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.elect_leaders import PREFERRED, UNCLEAN
from protocol.messages.list_groups import ListGroupsRequest
from protocol.settings import load
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "PREFERRED",
    "UNCLEAN",
    "Admin",
    "ClusterDescription",
    "ConfigResource",
    "GroupDescription",
    "GroupListing",
    "ListedOffset",
    "LogDirDescription",
    "NewPartitions",
    "NewTopic",
    "PartitionReassignment",
    "TopicDescription",
    "TopicPartitionReplica",
]

UNCLEAN_SINCE = 1  # the version of ElectLeaders that tells the two elections apart


class Admin:
    """An admin client: `async with Admin("host:port") as admin`.

    Takes `bootstrap.servers`, or all settings of a client by Kafka's names.
    """

    def __init__(self, bootstrap: str | Mapping[str, Any], /, **keywords: Any) -> None:
        named = {"bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap
        self.config, self.notes = load(ClusterConfig, {**named, **keywords}, accepted=IGNORED)
        self._cluster = Cluster(self.config.bootstrap_servers, config=self.config)
        self._ask = AdminCalls(self._cluster)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._cluster.close()

    # -- topics

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Verdicts[str]:
        """Create topics; gives per topic None or what the controller had against it."""
        timeout_ms = self.config.request_timeout_ms
        wanted = list(topics)

        def read(response: Any) -> Verdicts[str]:
            return from_controller(
                {t.name: verdict(t.error_code, t.error_message or t.name) for t in response.topics}
            )

        request = requests.create_topics_request(wanted, timeout_ms, validate_only=validate_only)
        names = [topic.name for topic in wanted]
        return of_all(names, await self._ask.controller(request, read))

    async def create_partitions(
        self, wanted: Mapping[str, NewPartitions], *, validate_only: bool = False
    ) -> Verdicts[str]:
        """Give topics more partitions; gives per topic None or what spoke against it."""
        timeout_ms = self.config.request_timeout_ms

        def read(response: Any) -> Verdicts[str]:
            return from_controller(
                {t.name: verdict(t.error_code, t.error_message or t.name) for t in response.results}
            )

        request = requests.create_partitions_request(
            wanted, timeout_ms, validate_only=validate_only
        )
        return of_all(wanted, await self._ask.controller(request, read))

    async def delete_topics(self, names: Iterable[str]) -> Verdicts[str]:
        """Delete topics; gives per topic None or what the controller had against it."""
        wanted = list(names)
        request = DeleteTopicsRequest(topic_names=wanted, timeout_ms=self.config.request_timeout_ms)

        def read(response: Any) -> Verdicts[str]:
            return from_controller(
                {t.name: verdict(t.error_code, t.name) for t in response.responses}
            )

        return of_all(wanted, await self._ask.controller(request, read))

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Names of all topics, sorted."""
        view = await self._ask.view(None)
        return sorted(name for name in view.topics if internal or name not in view.internal)

    async def describe_topics(
        self, names: Iterable[str] | None = None
    ) -> dict[str, TopicDescription]:
        """Describe topics, or all of them. Raises BrokerError for one that does not exist."""
        if names is None:
            _, topics = await self.describe_all()
            return topics
        wanted = sorted(names)
        view = await self._ask.view(wanted)
        for name in wanted:
            if name in view.errors:
                raise BrokerError(view.errors[name], name)
            if name not in view.topics:
                raise left_out(name)
        return {name: TopicDescription.of(name, view) for name in wanted}

    async def describe_cluster(self) -> ClusterDescription:
        """Brokers and controller."""
        return ClusterDescription.of(await self._ask.view([]))

    async def describe_all(self) -> tuple[ClusterDescription, dict[str, TopicDescription]]:
        """The cluster and all topics, both as one broker knew them at one moment."""
        view = await self._ask.view(None)
        topics = {name: TopicDescription.of(name, view) for name in sorted(view.topics)}
        return ClusterDescription.of(view), topics

    # -- settings

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, synonyms: bool = False
    ) -> dict[ConfigResource, tuple[DescribeConfigsResponseConfig, ...]]:
        """All settings of topics and brokers. A broker is asked for its own."""

        def read(response: DescribeConfigsResponse) -> dict[ConfigResource, Any]:
            for result in response.results:
                raise_for(result.error_code, result.error_message or result.resource_name)
            return {
                ConfigResource(result.resource_type, result.resource_name): tuple(result.configs)
                for result in response.results
            }

        request_for = partial(requests.describe_configs_request, synonyms=synonyms)
        wanted = list(resources)
        found = await self._ask.keepers(wanted, request_for, read)
        for resource in wanted:
            if resource not in found:
                raise left_out(resource.name)
        return found

    async def alter_configs(
        self, configs: Mapping[ConfigResource, Mapping[str, str]], *, validate_only: bool = False
    ) -> Verdicts[ConfigResource]:
        """Replace all settings that a topic or broker has of its own; others have their defaults.

        Gives per resource None or what spoke against it.
        """

        def request_for(kept: Iterable[ConfigResource]) -> Any:
            changes = {resource: configs[resource] for resource in kept}
            return requests.alter_configs_request(changes, validate_only=validate_only)

        verdicts = await self._ask.keepers(configs, request_for, requests.altered_configs)
        return of_all(configs, verdicts)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> Verdicts[ConfigResource]:
        """Change single settings, None being to take one away (brokers from 2.3 on).

        Gives per resource None or what spoke against it.
        """

        def request_for(kept: Iterable[ConfigResource]) -> Any:
            of_these = {resource: changes[resource] for resource in kept}
            return requests.incremental_alter_configs_request(of_these, validate_only=validate_only)

        verdicts = await self._ask.keepers(changes, request_for, requests.altered_configs)
        return of_all(changes, verdicts)

    # -- replicas

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Verdicts[TopicPartition]:
        """Begin to move partitions, None being to stop and go back (brokers from 2.4 on).

        Gives per partition None or what spoke against it. They are under way then, not done.
        """
        request = requests.reassignments_request(targets, self.config.request_timeout_ms)

        def read(response: Any) -> Verdicts[TopicPartition]:
            return from_controller(requests.begun_reassignments(response))

        return of_all(targets, await self._ask.controller(request, read))

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Those of `partitions`, or of all, that are on the move (brokers from 2.4 on)."""
        asked = None if partitions is None else list(partitions)
        request = requests.list_reassignments_request(asked, self.config.request_timeout_ms)
        return await self._ask.controller(request, requests.listed_reassignments)

    async def elect_leaders(
        self, election_type: int, partitions: Iterable[TopicPartition] | None = None
    ) -> Verdicts[TopicPartition]:
        """Elect PREFERRED or UNCLEAN leaders (brokers from 2.2, unclean from 2.4 on).

        Gives per partition None or what spoke against it, ELECTION_NOT_NEEDED above all. Without
        `partitions` all that need it are elected for, and only these are in the result.
        """
        asked = None if partitions is None else list(partitions)
        timeout_ms = self.config.request_timeout_ms
        request = requests.elect_leaders_request(election_type, asked, timeout_ms)

        def read(response: Any) -> Verdicts[TopicPartition]:
            return from_controller(requests.elected_leaders(response))

        since = UNCLEAN_SINCE if election_type == UNCLEAN else 0
        verdicts = await self._ask.controller(request, read, since=since)
        return verdicts if asked is None else of_all(asked, verdicts)

    async def alter_replica_log_dirs(
        self, places: Mapping[TopicPartitionReplica, str]
    ) -> Verdicts[TopicPartitionReplica]:
        """Begin to move replicas to other log directories (absolute paths) of their brokers.

        Gives per replica None or what spoke against it. REPLICA_NOT_AVAILABLE: the broker has none
        yet, and will make it there. They are under way then; `describe_log_dirs` says how far.
        """

        async def of_broker(
            broker: int, told: Mapping[TopicPartition, str]
        ) -> Verdicts[TopicPartitionReplica]:
            request = requests.alter_log_dirs_request(told)
            read = partial(requests.altered_log_dirs, broker, told)
            return await self._ask.broker(broker, request, read)

        by_broker = requests.by_broker(places)
        parts = await asyncio.gather(*(of_broker(*told) for told in by_broker.items()))
        verdicts = {replica: error for part in parts for replica, error in part.items()}
        return of_all(places, verdicts)

    async def describe_log_dirs(self, broker: int) -> dict[str, LogDirDescription]:
        """A broker's log directories by path, with the replicas in each, and those that are being
        moved there (`is_future`)."""
        request = DescribeLogDirsRequest(topics=None)
        return await self._ask.broker(broker, request, requests.log_dirs)

    async def controlled_shutdown(self, broker: int) -> tuple[TopicPartition, ...]:
        """Have the controller move all leaders off a broker that is about to be stopped.

        Gives the partitions that it leads still. Until it registers anew it is elected nowhere.
        """
        request = ControlledShutdownRequest(broker_id=broker)
        return await self._ask.controller(request, requests.remaining_partitions)

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
        return await self._ask.leaders(times, isolation, timeout_ms)

    # -- groups

    async def list_groups(self) -> list[GroupListing]:
        """The groups of all brokers, sorted by id. Groups kept in ZooKeeper are not among them."""
        lists = await self._ask.brokers(ListGroupsRequest(), answers.listed_groups, "groups")
        return sorted((group for groups in lists for group in groups), key=lambda g: g.group_id)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """State and members of groups. One that does not exist has the state "Dead"."""

        async def of_group(group_id: str) -> GroupDescription:
            request = DescribeGroupsRequest(groups=[group_id])
            read = partial(answers.described_group, group_id)
            group = await self._ask.coordinator(group_id, request, read)
            return GroupDescription(await self._cluster.coordinator(group_id), group)

        wanted = list(dict.fromkeys(group_ids))
        described = await asyncio.gather(*map(of_group, wanted))
        return dict(zip(wanted, described, strict=True))

    async def group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed with its coordinator; partitions without are absent."""
        asked = None if partitions is None else list(partitions)
        request = fetch_offsets_request(group_id, asked)
        read = partial(answers.committed_offsets, group_id, asked)
        return await self._ask.coordinator(group_id, request, read)

    async def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit for a group that has no members now.

        Raises BrokerError naming the partition, UNKNOWN_MEMBER_ID if the group has members.
        """
        request = commit_request(group_id, offsets)
        read = partial(answers.all_committed, group_id, offsets)
        await self._ask.coordinator(group_id, request, read)

    async def delete_groups(self, group_ids: Iterable[str]) -> Verdicts[str]:
        """Forget groups and all they have committed (brokers from 1.1 on).

        Gives per group None or what spoke against it: NON_EMPTY_GROUP where it has members,
        GROUP_ID_NOT_FOUND.
        """

        async def of_group(group_id: str) -> BrokerError | None:
            request = DeleteGroupsRequest(groups_names=[group_id])
            try:
                await self._ask.deletion(
                    group_id, request, partial(answers.group_deleted, group_id)
                )
            except BrokerError as error:
                return error
            return None

        wanted = list(dict.fromkeys(group_ids))
        return dict(zip(wanted, await asyncio.gather(*map(of_group, wanted)), strict=True))

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Verdicts[TopicPartition]:
        """Forget what a group has committed for these (brokers from 2.4 on).

        Gives per partition None, also where there was nothing to forget, or what spoke against it:
        GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION. Raises BrokerError for the group.
        """
        asked = list(partitions)
        request = delete_offsets_request(group_id, asked)
        read = partial(answers.offsets_deleted, group_id, asked)
        return await self._ask.deletion(group_id, request, read) or dict.fromkeys(asked)
