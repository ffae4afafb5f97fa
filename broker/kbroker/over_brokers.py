"""`OverBrokers` reaches a cluster through the admin client, and does without newer APIs."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.kbroker.cluster_access import LogDirs
from clients.admin import Admin
from clients.admin.descriptions import (
    BROKER_RESOURCE,
    ConfigResource,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    ScramCredentialInfo,
    TopicDescription,
    TopicPartitionReplica,
    UserChange,
)
from clients.admin.verdicts import Verdicts
from clients.command_line.missing_rights import find_hidden_topics
from clients.command_line.output import Failure
from clients.errors import BrokerError, DeadlineExceeded, KgroupError, UnsupportedApi
from protocol.acls import AclBinding, AclFilter
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from protocol.messages.describe_configs import DescribeConfigsResponseConfig

Configs = tuple["DescribeConfigsResponseConfig", ...]

FROM_TOPIC, FROM_BROKER, FROM_BROKER_DEFAULTS = 1, 2, 3
"""DescribeConfigs' sources of dynamic settings (KIP-226)."""


def own_config_source(resource: ConfigResource) -> int:
    """Return the source that DescribeConfigs reports for a resource's own settings."""
    if resource.resource_type != BROKER_RESOURCE:
        return FROM_TOPIC
    return FROM_BROKER if resource.name else FROM_BROKER_DEFAULTS


def _own(resource: ConfigResource, configs: Configs) -> dict[str, str | None]:
    source = own_config_source(resource)
    return {config.name: config.value for config in configs if config.config_source == source}


@frozen
class OverBrokers:
    """The `ClusterAccess` that sends requests to the brokers."""

    admin: Admin
    is_by_zookeeper: bool = False

    # --- brokers and topics -----------------------------------------------------------------------

    async def list_brokers(self) -> Mapping[int, str | None]:
        cluster = await self.admin.describe_cluster()
        return {broker.node_id: broker.rack for broker in cluster.brokers}

    async def describe_topics(
        self, names: Sequence[str] | None = None
    ) -> dict[str, TopicDescription]:
        return await self.admin.describe_topics(names)

    async def list_marked_topics(self) -> Collection[str]:
        return ()

    async def find_hidden_topics(self) -> Sequence[Failure]:
        return await find_hidden_topics(self.admin)

    async def find_taken_names(self, names: Sequence[str]) -> Collection[str]:
        topics = [NewTopic(name, 1, 1) for name in names]
        verdicts = await self.admin.create_topics(topics, validate_only=True)
        return [
            name
            for name, error in verdicts.items()
            if error is not None and error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        ]

    async def create_topic(self, topic: NewTopic) -> None:
        _raise_first(await self.admin.create_topics([topic]))

    async def create_partitions(self, topic: str, new: NewPartitions) -> None:
        _raise_first(await self.admin.create_partitions({topic: new}))

    async def delete_topics(self, names: Sequence[str]) -> Verdicts[str]:
        return await self.admin.delete_topics(names)

    # --- settings ---------------------------------------------------------------------------------

    async def describe_own_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        # The response has all effective settings, defaults included: choose by source.
        configs_of = await self.admin.describe_configs(resources)
        return {resource: _own(resource, configs) for resource, configs in configs_of.items()}

    async def describe_each_own_config(
        self, topics: Iterable[str]
    ) -> dict[str, dict[str, str | None] | KgroupError]:
        return {
            resource.name: configs if isinstance(configs, KgroupError) else _own(resource, configs)
            for resource, configs in (await self._describe_topic_configs(topics)).items()
        }

    async def change_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> Verdicts[ConfigResource]:
        """Brokers before Kafka 2.3 only replace all settings of a resource at once (KIP-339)."""
        try:
            return await self.admin.incremental_alter_configs(changes)
        except UnsupportedApi:
            # AlterConfigs removes what it does not name, so the settings that stay are sent too.
            replacements = {}
            for resource, own in (await self.describe_own_configs(changes)).items():
                merged = {**own, **changes[resource]}
                replacements[resource] = {k: v for k, v in merged.items() if v is not None}
            return await self.admin.alter_configs(replacements)

    async def describe_min_insync_replicas(
        self, topics: Iterable[str]
    ) -> Mapping[str, int | KgroupError]:
        found: dict[str, int | KgroupError] = {}
        for resource, configs in (await self._describe_topic_configs(topics)).items():
            if isinstance(configs, KgroupError):
                found[resource.name] = configs
                continue
            for config in configs:
                if config.name == "min.insync.replicas" and config.value is not None:
                    found[resource.name] = int(config.value)
        return found

    async def _describe_topic_configs(
        self, topics: Iterable[str]
    ) -> Mapping[ConfigResource, Configs | KgroupError]:
        """Return all settings of each topic, or the error where they cannot be seen now."""
        resources = [ConfigResource.topic(topic) for topic in topics]
        try:
            return await self.admin.describe_configs(resources)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
        except DeadlineExceeded as error:
            # Brokers of Kafka wait for a ZooKeeper that is away, in silence.
            if not isinstance(error.__cause__, BrokerError):
                return dict.fromkeys(resources, error)
        # It may be that of one topic.
        return await self.admin.describe_each_config(resources)

    # --- users ------------------------------------------------------------------------------------

    async def describe_users(self) -> Mapping[str, Sequence[ScramCredentialInfo]]:
        return await self.admin.describe_user_scram_credentials()

    async def change_users(self, changes: Sequence[UserChange]) -> Verdicts[str]:
        return await self.admin.alter_user_scram_credentials(changes)

    # --- ACLs -------------------------------------------------------------------------------------

    async def describe_acls(self, wanted: AclFilter) -> Sequence[AclBinding]:
        return await self.admin.describe_acls(wanted)

    async def create_acls(self, bindings: Sequence[AclBinding]) -> Verdicts[AclBinding]:
        return await self.admin.create_acls(bindings)

    async def delete_acls(self, filters: Sequence[AclFilter]) -> Verdicts[AclBinding]:
        deleted = await self.admin.delete_acls(filters)
        return {
            binding: error for of_filter in deleted.values() for binding, error in of_filter.items()
        }

    # --- replicas ---------------------------------------------------------------------------------

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int]]
    ) -> Verdicts[TopicPartition]:
        return await self.admin.alter_partition_reassignments(targets)

    async def cancel_reassignments(
        self, partitions: Iterable[TopicPartition]
    ) -> Verdicts[TopicPartition]:
        # A target of None cancels (KIP-455).
        return await self.admin.alter_partition_reassignments(dict.fromkeys(partitions))

    async def list_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        return await self.admin.list_partition_reassignments()

    async def place_replicas(
        self, places: Mapping[TopicPartitionReplica, str]
    ) -> Verdicts[TopicPartitionReplica]:
        return await self.admin.alter_replica_log_dirs(places)

    async def describe_log_dirs(self, brokers: Iterable[int]) -> dict[int, LogDirs]:
        # Each broker knows its own directories alone.
        broker_ids = sorted(set(brokers))
        log_dirs = await asyncio.gather(*map(self.admin.describe_log_dirs, broker_ids))
        return dict(zip(broker_ids, log_dirs, strict=True))

    async def elect(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> Verdicts[TopicPartition]:
        return await self.admin.elect_leaders(election_type, partitions)


def _raise_first(verdicts: Verdicts[str]) -> None:
    for error in verdicts.values():
        if error is not None:
            raise error
