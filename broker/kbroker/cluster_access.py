"""The operations on a cluster that commands need, whichever way leads there (open_cluster.py)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import click

from clients.admin.descriptions import (
    ConfigResource,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    ScramCredentialInfo,
    TopicDescription,
    TopicPartitionReplica,
    UserChange,
)
from clients.admin.verdicts import Verdicts
from clients.command_line.output import Failure
from clients.errors import KgroupError
from protocol.acls import AclBinding, AclFilter
from protocol.topic_partition import TopicPartition

LogDirs = Mapping[str, LogDirDescription]
"""A broker's log directories by path."""


class NeedsBrokers(click.UsageError):
    """ZooKeeper alone is not enough for this command."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"{operation} needs the brokers: give --bootstrap-server")


class ClusterAccess(Protocol):
    """The operations that commands need. Every call may raise ApiError, ClientError or ZkError.

    A verdict is None for what succeeded.
    """

    @property
    def is_by_zookeeper(self) -> bool:
        """True if operations are written to ZooKeeper, where no broker confirms them."""

    # --- brokers and topics -----------------------------------------------------------------------

    async def list_brokers(self) -> Mapping[int, str | None]:
        """Return the rack of each live broker, by broker id."""

    async def describe_topics(
        self, names: Sequence[str] | None = None
    ) -> dict[str, TopicDescription]:
        """Describe these topics, or all. Raises ApiError for one that does not exist."""

    async def list_marked_topics(self) -> Collection[str]:
        """Return the topics that are marked for deletion; brokers do not report them."""

    async def find_hidden_topics(self) -> Sequence[Failure]:
        """Return a failure if brokers may leave topics out that the client may not describe."""

    async def find_taken_names(self, names: Sequence[str]) -> Collection[str]:
        """Return those of `names` that no topic can be created with, though it may be deleted."""

    async def create_topic(self, topic: NewTopic) -> None: ...

    async def create_partitions(self, topic: str, new: NewPartitions) -> None: ...

    async def delete_topics(self, names: Sequence[str]) -> Verdicts[str]: ...

    # --- settings ---------------------------------------------------------------------------------

    async def describe_own_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        """Return the settings that each resource was given; None for a secret value."""

    async def describe_each_own_config(
        self, topics: Iterable[str]
    ) -> dict[str, dict[str, str | None] | KgroupError]:
        """Return the same of each topic, or the error where the client may not see them."""

    async def change_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> Verdicts[ConfigResource]:
        """Set single settings; a value of None removes the setting."""

    async def describe_min_insync_replicas(
        self, topics: Iterable[str]
    ) -> Mapping[str, int | KgroupError]:
        """Return the effective `min.insync.replicas` of each topic, or an error as above.

        Raises NeedsBrokers.
        """

    # --- users ------------------------------------------------------------------------------------

    async def describe_users(self) -> Mapping[str, Sequence[ScramCredentialInfo]]:
        """Return the credentials of the users that can log in by SCRAM."""

    async def change_users(self, changes: Sequence[UserChange]) -> Verdicts[str]:
        """Give passwords to users, or take them away."""

    # --- ACLs -------------------------------------------------------------------------------------

    async def describe_acls(self, wanted: AclFilter) -> Sequence[AclBinding]:
        """Return the ACLs that a filter chooses."""

    async def create_acls(self, bindings: Sequence[AclBinding]) -> Verdicts[AclBinding]: ...

    async def delete_acls(self, filters: Sequence[AclFilter]) -> Verdicts[AclBinding]:
        """Delete the ACLs that filters choose; return them."""

    # --- replicas ---------------------------------------------------------------------------------

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int]]
    ) -> Verdicts[TopicPartition]: ...

    async def cancel_reassignments(
        self, partitions: Iterable[TopicPartition]
    ) -> Verdicts[TopicPartition]:
        """Raises NeedsBrokers."""

    async def list_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Return the partitions that are being reassigned."""

    async def place_replicas(
        self, places: Mapping[TopicPartitionReplica, str]
    ) -> Verdicts[TopicPartitionReplica]:
        """Place replicas in these log directories of their brokers. Raises NeedsBrokers."""

    async def describe_log_dirs(self, brokers: Iterable[int]) -> dict[int, LogDirs]:
        """Raises NeedsBrokers."""

    async def elect(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> Verdicts[TopicPartition]:
        """Elect leaders; None is all partitions that need an election."""
