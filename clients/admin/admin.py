"""The admin client: topics, settings, replicas, groups and offsets of a cluster.

Each call goes to the broker that can answer it: the controller for topics and replicas, leaders for
offsets and producers (one request per leader), coordinators for groups and transactions, each
broker for its own settings and disks. Errors that may pass (NOT_CONTROLLER, no leader yet, a
coordinator that loads) are retried until `default.api.timeout.ms`; then the call raises
DeadlineExceeded. Errors of topics in `describe_topics` are not retried. Every call may raise
DeadlineExceeded, BrokerError and NoBrokersAvailable, and UnsupportedApi if the broker is too old
for the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from clients.admin import group_calls, group_responses
from clients.admin.calls import UNKNOWN_ROUNDS, AdminCalls
from clients.admin.descriptions import (
    ClusterDescription,
    ConfigResource,
    FencedProducer,
    GroupDescription,
    GroupListing,
    GroupMemberId,
    ListedOffset,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    ProducerState,
    ScramCredentialInfo,
    ScramDeletion,
    ScramUpsertion,
    SettingValue,
    TopicDescription,
    TopicPartitionReplica,
    TransactionDescription,
    TransactionListing,
    UserChange,
)
from clients.admin.verdicts import (
    Verdicts,
    make_mutation_verdict,
    make_verdict,
    raise_for,
    reject_non_controller,
    unless_error,
    verdicts_of,
)
from clients.arguments import (
    check_broker,
    check_offsets,
    list_names,
    list_of,
    list_partitions,
    mapping_from,
    mapping_from_partitions,
)
from clients.cluster import Cluster, FindBrokers
from clients.cluster_view import BrokerEndpoint
from clients.config import IGNORED, ClusterConfig
from clients.errors import BrokerError, KgroupError, left_out
from clients.shared_close import SharedClose
from offsets.requests import (
    commit_request,
    delete_offsets_request,
    fetch_offsets_request,
)
from protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.find_coordinator import TRANSACTION_KEY
from protocol.settings import load
from protocol.special_values import EARLIEST_TIME, LATEST_TIME, PREFERRED, UNCLEAN
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from clients.admin.client_quotas import Matches, QuotaEntity
    from protocol.messages.describe_configs import (
        DescribeConfigsResponse,
        DescribeConfigsResponseConfig,
    )

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "PREFERRED",
    "UNCLEAN",
    "AclBinding",
    "AclEntry",
    "AclFilter",
    "Admin",
    "ClusterDescription",
    "ConfigResource",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "GroupMemberId",
    "ListedOffset",
    "LogDirDescription",
    "NewPartitions",
    "NewTopic",
    "Operation",
    "PartitionReassignment",
    "PatternType",
    "Permission",
    "ProducerState",
    "ResourcePattern",
    "ResourceType",
    "ScramCredentialInfo",
    "ScramDeletion",
    "ScramUpsertion",
    "TopicDescription",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
]

UNCLEAN_SINCE = 1
"""The first version of ElectLeaders that distinguishes the two elections."""


class Admin:
    """An admin client: `async with Admin("host:port") as admin`.

    Takes `bootstrap.servers`, or all settings of a client under Kafka's names.
    """

    config: ClusterConfig
    notes: list[str]
    """A text for each setting that is accepted and has no effect."""

    def __init__(
        self,
        bootstrap: str | Mapping[str, Any],
        /,
        *,
        find_brokers: FindBrokers | None = None,
        waits_for_dead: bool = True,
        **keywords: Any,
    ) -> None:
        """Open nothing yet.

        Unless it `waits_for_dead`, a broker at whose address nobody listens is an error at once of
        what it alone can say; else another one may take over within the time of the call.
        """
        settings = {"bootstrap.servers": bootstrap} if isinstance(bootstrap, str) else bootstrap
        self.config, self.notes = load(ClusterConfig, {**settings, **keywords}, accepted=IGNORED)
        self.cluster = Cluster(
            self.config.bootstrap_servers,
            config=self.config,
            find_brokers=find_brokers,
            waits_for_dead=waits_for_dead,
        )
        self._calls = AdminCalls(self.cluster)
        self.kept = AsyncExitStack()
        """What is kept open beside the admin client, and closed with it."""
        self._closing = SharedClose("admin-close")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Further calls wait for the same end.

        Raises OtherLoop on another loop than that of the first call.
        """
        # Who uses it there goes on (fault strangers-177).
        self.cluster.check_loop()
        await self._closing.join(self._close)

    async def _close(self) -> None:
        try:
            await self.kept.aclose()
        finally:
            await self.cluster.close()

    # -- topics

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Verdicts[str]:
        """Create topics. Returns None or the controller's error for each topic.

        Raises TypeError for what is no NewTopic, as a name alone.
        """
        from clients.admin import requests

        new_topics = list_of(NewTopic, topics)

        # The controller may have moved since metadata named it: its refusal is retried.
        def read(response: Any) -> Verdicts[str]:
            return reject_non_controller(
                {
                    result.name: make_mutation_verdict(
                        ApiKey.CREATE_TOPICS,
                        result.error_code,
                        result.error_message or result.name,
                        response.throttle_time_ms,
                    )
                    for result in response.topics
                }
            )

        request = requests.create_topics_request(
            new_topics, self.config.request_timeout_ms, validate_only=validate_only
        )
        # Verdicts in the caller's order, one for each topic that was asked for.
        names = [topic.name for topic in new_topics]
        return verdicts_of(names, await self._calls.controller(request, read))

    async def create_partitions(
        self, new_partitions: Mapping[str, NewPartitions], *, validate_only: bool = False
    ) -> Verdicts[str]:
        """Add partitions to topics. Returns None or the controller's error for each topic."""
        from clients.admin import requests

        def read(response: Any) -> Verdicts[str]:
            return reject_non_controller(
                {
                    result.name: make_mutation_verdict(
                        ApiKey.CREATE_PARTITIONS,
                        result.error_code,
                        result.error_message or result.name,
                        response.throttle_time_ms,
                    )
                    for result in response.results
                }
            )

        request = requests.create_partitions_request(
            mapping_from(str, new_partitions),
            self.config.request_timeout_ms,
            validate_only=validate_only,
        )
        return verdicts_of(new_partitions, await self._calls.controller(request, read))

    async def delete_topics(self, names: Iterable[str]) -> Verdicts[str]:
        """Delete topics. Returns None or the controller's error for each topic."""
        from protocol.messages.delete_topics import DeleteTopicsRequest

        topic_names = list_names(names, "topic")
        request = DeleteTopicsRequest(
            topic_names=topic_names, timeout_ms=self.config.request_timeout_ms
        )

        def read(response: Any) -> Verdicts[str]:
            return reject_non_controller(
                {
                    result.name: make_mutation_verdict(
                        ApiKey.DELETE_TOPICS,
                        result.error_code,
                        result.name,
                        response.throttle_time_ms,
                    )
                    for result in response.responses
                }
            )

        return verdicts_of(topic_names, await self._calls.controller(request, read))

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted."""
        view = await self._calls.view(None)

        # A topic with an error exists, too.
        names = view.topics.keys() | view.errors.keys()
        return sorted(name for name in names if internal or name not in view.internal)

    async def describe_topics(
        self, names: Iterable[str] | None = None
    ) -> dict[str, TopicDescription]:
        """Describe topics; None: all, as `describe_all` does.

        Raises BrokerError for a topic with an error, as Kafka's client does. That comes at once,
        also if the error may pass: so may that of a topic that does not exist.
        """
        if names is None:
            _, topics = await self.describe_all()
            return topics

        topic_names = sorted(list_names(names, "topic"))
        view = await self._calls.view(topic_names)

        # The first error ends the call: a description is asked for as a whole.
        for name in topic_names:
            if name in view.errors:
                raise BrokerError(view.errors[name], name, ApiKey.METADATA)
            if name not in view.topics:
                raise left_out(name)

        return {name: TopicDescription.of(name, view) for name in topic_names}

    async def describe_cluster(self) -> ClusterDescription:
        """Return the brokers and the controller."""
        return ClusterDescription.of(await self._calls.view([]))

    async def describe_all(self) -> tuple[ClusterDescription, dict[str, TopicDescription]]:
        """Return the cluster and all topics, from one response of one broker.

        A topic whose response is an error is described as it was before, or left out.
        """
        view = await self._calls.view(None)
        topics = {name: TopicDescription.of(name, view) for name in sorted(view.topics)}
        return ClusterDescription.of(view), topics

    # -- settings

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, synonyms: bool = False
    ) -> dict[ConfigResource, tuple[DescribeConfigsResponseConfig, ...]]:
        """Return all settings of topics and brokers. Each broker is asked for its own."""
        from clients.admin import requests

        def read(response: DescribeConfigsResponse) -> dict[ConfigResource, Any]:
            for result in response.results:
                raise_for(
                    ApiKey.DESCRIBE_CONFIGS,
                    result.error_code,
                    result.error_message or result.resource_name,
                )
            return {
                ConfigResource(result.resource_type, result.resource_name): tuple(result.configs)
                for result in response.results
            }

        request_for = partial(requests.describe_configs_request, synonyms=synonyms)
        resource_list = list_of(ConfigResource, resources)
        configs = await self._calls.keepers(resource_list, request_for, read)

        # A response without one of them would pass as a resource without settings.
        for resource in resource_list:
            if resource not in configs:
                raise left_out(resource.name)

        return configs

    async def describe_each_config(
        self, resources: Iterable[ConfigResource], *, at: int | None = None
    ) -> dict[ConfigResource, tuple[DescribeConfigsResponseConfig, ...] | KgroupError]:
        """Do the same as `describe_configs`, with an error for each resource that has one.

        An error of a resource is not waited out: its topic was deleted, or it may not be described.
        `at` is the broker whose defaults count for topics, by default any.
        """
        from clients.admin import requests

        def read(response: DescribeConfigsResponse) -> dict[ConfigResource, Any]:
            return {
                ConfigResource(result.resource_type, result.resource_name): make_verdict(
                    ApiKey.DESCRIBE_CONFIGS,
                    result.error_code,
                    result.error_message or result.resource_name,
                )
                or tuple(result.configs)
                for result in response.results
            }

        request_for = partial(requests.describe_configs_request, synonyms=False)
        resource_list = list_of(ConfigResource, resources)
        return await self._calls.each_keeper(resource_list, request_for, read, at)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, SettingValue]],
        *,
        validate_only: bool = False,
    ) -> Verdicts[ConfigResource]:
        """Replace all settings of topics or brokers. A setting that is left out gets its default.

        Returns None or an error for each resource.
        """
        from clients.admin import requests

        def request_for(resources: Iterable[ConfigResource]) -> Any:
            changes = {resource: configs[resource] for resource in resources}
            return requests.alter_configs_request(changes, validate_only=validate_only)

        # A broker's settings are changed at that broker.
        resources = mapping_from(ConfigResource, configs)
        verdicts = await self._calls.keepers(resources, request_for, requests.altered_configs)
        return verdicts_of(configs, verdicts)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, SettingValue | None]],
        *,
        validate_only: bool = False,
    ) -> Verdicts[ConfigResource]:
        """Change single settings; None deletes a setting (brokers from 2.3 on).

        Returns None or an error for each resource.
        """
        from clients.admin import requests

        def request_for(resources: Iterable[ConfigResource]) -> Any:
            subset = {resource: changes[resource] for resource in resources}
            return requests.incremental_alter_configs_request(subset, validate_only=validate_only)

        resources = mapping_from(ConfigResource, changes)
        verdicts = await self._calls.keepers(resources, request_for, requests.altered_configs)
        return verdicts_of(changes, verdicts)

    # -- quotas

    async def describe_client_quotas(
        self, matches: Matches | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of users and clients (brokers from 2.6 on).

        `matches` maps `user`, `client-id` or `ip` to the name that an entity must have: a name,
        None for all others, or ANY. `strict`: the entity has no other types.
        """
        from clients.admin import client_quotas

        request = client_quotas.describe_request(matches or {}, strict=strict)
        return await self._calls.broker(None, request, client_quotas.described)

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> Verdicts[QuotaEntity]:
        """Set quotas by their names, such as producer_byte_rate; None removes one.

        Returns None or an error for each entity. Brokers from 2.6 on.
        """
        from clients.admin import client_quotas

        entities = mapping_from(tuple, changes)
        request = client_quotas.alter_request(entities, validate_only=validate_only)
        return verdicts_of(changes, await self._calls.broker(None, request, client_quotas.altered))

    # -- users

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, tuple[ScramCredentialInfo, ...]]:
        """Return those of `users`, or of all, that can log in by SCRAM (brokers from 2.7 on)."""
        from clients.admin import user_requests

        names = None if users is None else list_names(users, "user")
        request = user_requests.describe_request(names)
        return await self._calls.broker(None, request, user_requests.described_users)

    async def alter_user_scram_credentials(self, changes: Iterable[UserChange]) -> Verdicts[str]:
        """Give passwords to users, or take them away (brokers from 2.7 on).

        No broker sees a password. Returns None or an error for each user; an error says that
        nothing of this user was changed.
        """
        from clients.admin import user_requests

        change_list = list(changes)
        for change in change_list:
            if not isinstance(change, UserChange):
                raise TypeError(f"{change!r} is no ScramUpsertion or ScramDeletion")
        # In a thread: each password takes milliseconds.
        request = await asyncio.get_running_loop().run_in_executor(
            None, user_requests.alter_request, change_list
        )

        def read(response: Any) -> Verdicts[str]:
            return reject_non_controller(user_requests.altered_users(response))

        users = dict.fromkeys(change.user for change in change_list)
        return verdicts_of(users, await self._calls.controller(request, read))

    # -- ACLs

    async def describe_acls(self, wanted: AclFilter = AclFilter()) -> list[AclBinding]:  # noqa: B008
        """Return the ACLs that a filter chooses, sorted; without one all of them.

        Raises BrokerError SECURITY_DISABLED if the broker has no authorizer.
        """
        from clients.admin import acl_requests

        since = acl_requests.first_version([wanted.pattern])
        request = acl_requests.describe_acls_request(wanted)
        return await self._calls.broker(None, request, acl_requests.described_acls, since=since)

    async def create_acls(self, bindings: Iterable[AclBinding]) -> Verdicts[AclBinding]:
        """Add ACLs. Returns None, also for one that exists, or the broker's error for each.

        Brokers learn of ACLs one after the other: another one may decide without them for a while.
        """
        from clients.admin import acl_requests

        binding_list = list_of(AclBinding, bindings)
        since = acl_requests.first_version(binding.resource.pattern for binding in binding_list)
        request = acl_requests.create_acls_request(binding_list)
        read = partial(acl_requests.created_acls, binding_list)
        verdicts = await self._calls.broker(None, request, read, since=since)
        return verdicts_of(binding_list, verdicts)

    async def delete_acls(
        self, filters: Iterable[AclFilter]
    ) -> dict[AclFilter, Verdicts[AclBinding]]:
        """Delete the ACLs that filters choose.

        Returns the ACLs of each filter, with None or the error for which one was not deleted. An
        ACL that two filters choose is with the first.
        """
        from clients.admin import acl_requests

        filter_list = list_of(AclFilter, filters)
        since = acl_requests.first_version(chosen.pattern for chosen in filter_list)
        request = acl_requests.delete_acls_request(filter_list)
        read = partial(acl_requests.deleted_acls, filter_list)
        return await self._calls.broker(None, request, read, since=since)

    # -- replicas

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Verdicts[TopicPartition]:
        """Start to move partitions; None cancels a move (brokers from 2.4 on).

        Returns None or an error for each partition. None means started, not finished.
        """
        from clients.admin import requests

        mapping_from_partitions(targets)
        request = requests.reassignments_request(targets, self.config.request_timeout_ms)

        def read(response: Any) -> Verdicts[TopicPartition]:
            return reject_non_controller(requests.begun_reassignments(response))

        return verdicts_of(targets, await self._calls.controller(request, read))

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return those of `partitions`, or of all, that are being moved (brokers from 2.4 on)."""
        from clients.admin import requests

        partition_list = None if partitions is None else list_partitions(partitions)
        request = requests.list_reassignments_request(
            partition_list, self.config.request_timeout_ms
        )
        return await self._calls.controller(request, requests.listed_reassignments)

    async def elect_leaders(
        self, election_type: int, partitions: Iterable[TopicPartition] | None = None
    ) -> Verdicts[TopicPartition]:
        """Elect PREFERRED or UNCLEAN leaders (brokers from 2.2, unclean from 2.4 on).

        Returns None or an error for each partition, often ELECTION_NOT_NEEDED. Without
        `partitions`, all partitions that need it get an election, and only these are returned.
        """
        from clients.admin import requests

        partition_list = None if partitions is None else list_partitions(partitions)
        timeout_ms = self.config.request_timeout_ms
        request = requests.elect_leaders_request(election_type, partition_list, timeout_ms)

        def read(response: Any) -> Verdicts[TopicPartition]:
            return reject_non_controller(requests.elected_leaders(response))

        # Version 0 has no field for the type, and would elect preferred leaders.
        since = UNCLEAN_SINCE if election_type == UNCLEAN else 0
        verdicts = await self._calls.controller(request, read, since=since)
        return verdicts if partition_list is None else verdicts_of(partition_list, verdicts)

    async def alter_replica_log_dirs(
        self, places: Mapping[TopicPartitionReplica, str]
    ) -> Verdicts[TopicPartitionReplica]:
        """Start to move replicas to other log directories (absolute paths) of their brokers.

        Returns None or an error for each replica. None means started; `describe_log_dirs` has the
        progress. REPLICA_NOT_AVAILABLE: the broker has no such replica yet, and will create it in
        that directory.
        """
        from clients.admin import requests

        async def alter_on_broker(
            broker_id: int, paths: Mapping[TopicPartition, str]
        ) -> Verdicts[TopicPartitionReplica]:
            request = requests.alter_log_dirs_request(paths)
            read = partial(requests.altered_log_dirs, broker_id, paths)
            return await self._calls.broker(broker_id, request, read)

        by_broker = requests.by_broker(mapping_from(TopicPartitionReplica, places))

        # The brokers are asked concurrently; replicas of one broker share a request.
        parts = await asyncio.gather(*(alter_on_broker(*item) for item in by_broker.items()))
        verdicts = {replica: error for part in parts for replica, error in part.items()}
        return verdicts_of(places, verdicts)

    async def describe_log_dirs(
        self, broker: int, *, with_replicas: bool = True
    ) -> dict[str, LogDirDescription]:
        """Return a broker's log directories by path; none if they may not be described.

        Each has its replicas, and copies of replicas that are being moved to it (`is_future`),
        unless the caller does without them.
        """
        from clients.admin import requests
        from protocol.messages.describe_log_dirs import DescribeLogDirsRequest

        # None would be any broker (fault strangers-165).
        check_broker(broker)
        request = DescribeLogDirsRequest(topics=None if with_replicas else ())
        return await self._calls.broker(broker, request, requests.log_dirs)

    async def controlled_shutdown(self, broker: int) -> tuple[TopicPartition, ...]:
        """Let the controller move all leaders off a broker that is about to stop.

        Returns the partitions that the broker still leads. It cannot become a leader again until it
        registers again.
        """
        from clients.admin import requests
        from protocol.messages.controlled_shutdown import ControlledShutdownRequest

        request = ControlledShutdownRequest(broker_id=broker)
        return await self._calls.controller(request, requests.remaining_partitions)

    # -- offsets

    async def list_offsets(
        self,
        times: Mapping[TopicPartition, int],
        *,
        isolation: int = 0,
        timeout_ms: int | None = None,
        waits_for_topics: bool = True,
    ) -> dict[TopicPartition, ListedOffset]:
        """Return each partition's offset at a time (ms), or at EARLIEST_TIME or LATEST_TIME.

        Leaders are asked concurrently, with one request each. The result of a partition without an
        offset at the timeout has its error. A topic that brokers do not know may have just been
        created, and is waited for; where it is rather a deleted one, `waits_for_topics` is False.
        """
        mapping_from_partitions(times)
        return await self._calls.leaders(times, isolation, timeout_ms, waits_for_topics)

    async def first_timestamps(
        self, offsets: Mapping[TopicPartition, int], *, isolation: int = 0
    ) -> dict[TopicPartition, int]:
        """Return the timestamp (ms) of the first record at or behind each offset.

        A partition is left out if it has no such record, the record has no timestamp, or it cannot
        be read now.
        """
        from clients.first_timestamps import read_first_timestamps

        mapping_from_partitions(offsets)
        return await read_first_timestamps(self.cluster, offsets, isolation)

    # -- groups

    async def list_groups(self) -> list[GroupListing]:
        """Return the groups of all coordinators, sorted by id. Groups in ZooKeeper are left out."""
        results = (await self.groups_of_each_broker()).values()
        listings = [group for result in results for group in unless_error(result)]
        return sorted(listings, key=lambda group: group.group_id)

    async def groups_of_each_broker(self) -> dict[BrokerEndpoint, list[GroupListing] | KgroupError]:
        """Return the groups that each broker coordinates, or its error."""
        results = await self._calls.each_broker(group_calls.list_groups, "groups")
        # Nobody has to ask for the coordinators of these groups.
        for broker, result in results.items():
            if not isinstance(result, KgroupError):
                self.cluster.learn_coordinators(dict.fromkeys((g.group_id for g in result), broker))
        return results

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Return the state and members of groups. An unknown group is in state "Dead"."""
        descriptions = await self.describe_each_group(group_ids)
        return {group_id: unless_error(result) for group_id, result in descriptions.items()}

    async def describe_each_group(
        self, group_ids: Iterable[str]
    ) -> dict[str, GroupDescription | KgroupError]:
        """Do the same as `describe_groups`, with an error for each group that has one.

        Each coordinator is asked for many of its groups at once.
        """
        ids = list_names(group_ids, "group")
        return await self._calls.coordinators(ids, group_calls.describe, "groups")

    async def group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets; partitions without one are absent.

        With `require_stable` transactions that have offsets of the group are waited for (brokers
        from 2.5 on). After the timeout of the call it raises DeadlineExceeded.
        """
        partition_list = None if partitions is None else list_partitions(partitions)
        request = fetch_offsets_request(group_id, partition_list, require_stable=require_stable)
        read = partial(group_responses.committed_offsets, group_id, partition_list)
        return await self._calls.coordinator(group_id, lambda: request, read)

    async def offsets_of_each_group(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KgroupError]:
        """Return all committed offsets of each group, or its error.

        Coordinators from 3.0 on are asked for many of their groups at once (KIP-709).
        """
        ids = list_names(group_ids, "group")
        return await self._calls.coordinators(ids, group_calls.fetch_offsets, "offsets")

    async def commit_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit offsets for a group that has no members.

        Raises BrokerError with the partition in its text; UNKNOWN_MEMBER_ID if the group has
        members. Raises TypeError and ValueError for impossible offsets.
        """
        verdicts = await self.alter_group_offsets(group_id, offsets)
        for error in verdicts.values():
            if error is not None:
                raise error

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Verdicts[TopicPartition]:
        """Commit offsets for a group that has no members.

        Returns None or an error for each partition, as UNKNOWN_TOPIC_OR_PARTITION: the others are
        committed. Raises BrokerError if the coordinator is not found, DeadlineExceeded if it does
        not respond, and TypeError and ValueError for impossible offsets.
        """
        check_offsets(offsets)
        verdicts: dict[TopicPartition, ApiError | None] = {}
        left = dict(offsets)
        num_rounds = 0
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        def may_pass(code: ErrorCode) -> bool:
            # Nobody waits a minute for a topic (fault strangers-153, was: code.retriable).
            return code.retriable and (code is not unknown or num_rounds < UNKNOWN_ROUNDS)

        def read(response: Any) -> None:
            nonlocal left, num_rounds
            num_rounds += 1
            found = group_responses.commit_verdicts(group_id, left, response)
            verdicts.update(found)
            passing = {p: e for p, e in found.items() if e is not None and may_pass(e.code)}
            # Not over what others commit meanwhile (fault strangers-144, was: left).
            left = {partition: left[partition] for partition in passing}
            for error in passing.values():
                raise error

        await self._calls.coordinator(group_id, lambda: commit_request(group_id, left), read)
        return verdicts

    async def delete_groups(self, group_ids: Iterable[str]) -> Verdicts[str]:
        """Delete groups and all their committed offsets (brokers from 1.1 on).

        Returns None or an error for each group: NON_EMPTY_GROUP if it has members,
        GROUP_ID_NOT_FOUND if it does not exist.
        """
        from protocol.messages.delete_groups import DeleteGroupsRequest

        async def delete(group_id: str) -> BrokerError | None:
            request = DeleteGroupsRequest(groups_names=[group_id])
            try:
                await self._calls.deletion(
                    group_id, request, partial(group_responses.group_deleted, group_id)
                )
            except BrokerError as error:
                return error
            return None

        ids = list(dict.fromkeys(list_names(group_ids, "group")))
        return dict(zip(ids, await asyncio.gather(*map(delete, ids)), strict=True))

    async def remove_group_members(
        self, group_id: str, members: Iterable[GroupMemberId], reason: str
    ) -> Verdicts[GroupMemberId]:
        """Remove members from a group at its coordinator (brokers from 2.4 on).

        Returns None or an error for each member: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID. Raises
        BrokerError for the group, and UnsupportedApi if the coordinator is older.
        """
        from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember

        leaving = list(dict.fromkeys(list_of(GroupMemberId, members)))
        request = LeaveGroupRequest(
            group_id=group_id,
            members=[
                LeaveGroupRequestMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    reason=reason,
                )
                for member in leaving
            ],
        )
        read = partial(group_responses.members_removed, group_id, leaving)
        # Before version 3 a request names one member, and gives no reason.
        return await self._calls.coordinator(group_id, lambda: request, read, since=3)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Verdicts[TopicPartition]:
        """Delete a group's committed offsets of these partitions (brokers from 2.4 on).

        Returns None, also for a partition without an offset, or an error for each partition:
        GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION. Raises BrokerError for the group.
        """
        partition_list = list_partitions(partitions)
        request = delete_offsets_request(group_id, partition_list)
        read = partial(group_responses.offsets_deleted, group_id, partition_list)

        # None: an earlier attempt deleted the group, and its offsets with it.
        return await self._calls.deletion(group_id, request, read) or dict.fromkeys(partition_list)

    # -- transactions

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators, sorted (brokers from 3.0 on).

        `states` are Kafka's names, such as Ongoing. `min_duration_ms`: only ids whose last
        transaction began longer ago (brokers from 3.8 on). Raises the error of a broker that has
        one: its ids would be missing.
        """
        results = await self.transactions_of_each_broker(
            states=states, producer_ids=producer_ids, min_duration_ms=min_duration_ms
        )
        listings = [listing for result in results.values() for listing in unless_error(result)]
        return sorted(listings, key=lambda listing: listing.transactional_id)

    async def transactions_of_each_broker(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int | None = None,
    ) -> dict[BrokerEndpoint, list[TransactionListing] | KgroupError]:
        """Do the same as `list_transactions`, with an error for each broker that has one."""
        from clients.admin.transaction_calls import TransactionFilter

        duration_ms = -1 if min_duration_ms is None else min_duration_ms
        wanted = TransactionFilter(
            tuple(list_names(states, "state")), tuple(producer_ids), duration_ms
        )
        return await self._calls.each_broker(wanted.list_transactions, "transactions")

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """Return the last transaction of each id (brokers from 3.0 on).

        Raises BrokerError TRANSACTIONAL_ID_NOT_FOUND for an id that no producer has used.
        """
        descriptions = await self.describe_each_transaction(transactional_ids)
        return {name: unless_error(result) for name, result in descriptions.items()}

    async def describe_each_transaction(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | KgroupError]:
        """Do the same as `describe_transactions`, with an error for each id that has one."""
        from clients.admin import transaction_calls

        ids = list_names(transactional_ids, "transactional id")
        return await self._calls.coordinators(
            ids, transaction_calls.describe, "transactions", key_type=TRANSACTION_KEY
        )

    async def fence_producers(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, FencedProducer | KgroupError]:
        """Fence all producers that have one of these ids, and abort what they have open.

        Returns a result or error for each id. A producer that is initialised later has the id.
        """
        from clients.admin import transaction_calls

        ids = list_names(transactional_ids, "transactional id")
        fence = partial(transaction_calls.fence, timeout_ms=self.config.request_timeout_ms)
        return await self._calls.coordinators(ids, fence, "producers", key_type=TRANSACTION_KEY)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers that the leader of each partition knows (brokers from 2.8 on).

        `broker` asks one replica in place of the leaders.
        """
        results = await self.producers_of_each_partition(partitions, broker=broker)
        return {partition: unless_error(result) for partition, result in results.items()}

    async def producers_of_each_partition(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...] | KgroupError]:
        """Do the same as `describe_producers`, with an error for each partition that has one."""
        from clients.admin import transaction_calls

        if broker is not None:
            check_broker(broker)
        return await self._calls.each_leader(
            list_partitions(partitions),
            transaction_calls.describe_producers,
            "producers",
            broker_id=broker,
        )

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int | None = None,
    ) -> None:
        """Abort the transaction that a producer has open on one partition, by a marker.

        This is for a transaction that no coordinator will end: any other is torn by it. The epochs
        are those of `describe_producers`. Raises BrokerError INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED if they are older than the partition's, and AbortInDoubt.
        """
        from clients.admin.transaction_calls import AbortMarker

        marker = AbortMarker(partition, producer_id, producer_epoch, coordinator_epoch)
        results = await self._calls.each_leader([partition], marker.write, "abort of a transaction")
        unless_error(results[partition])
