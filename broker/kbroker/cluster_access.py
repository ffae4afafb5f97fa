"""The two ways of an operator's command to a cluster: over its brokers, or past them.

With `--zookeeper` alone on the command line the command writes to ZooKeeper what the tools of
Kafka 0.8 to 2.3 write there, and the controller picks it up; no broker has to answer. In all other
cases the brokers are asked, which check more and say what came of it.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import click
from click.core import ParameterSource

from clients.admin.descriptions import (
    ConfigResource,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    TopicDescription,
    TopicPartitionReplica,
)
from clients.admin.requests import Verdicts
from clients.output import Target
from clients.sessions import connected
from protocol.topic_partition import TopicPartition

LogDirs = Mapping[str, LogDirDescription]
"""A broker's log directories by path."""


class NeedsBrokers(click.UsageError):
    """What was asked for cannot be done through ZooKeeper."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} needs the brokers: give --bootstrap-server")


class ClusterAccess(Protocol):
    """What commands want of a cluster. Every call may raise ApiError, ClientError or ZkError.

    Verdicts are None for what was done.
    """

    @property
    def is_by_zookeeper(self) -> bool:
        """Whether no broker answers for what is done."""

    async def list_brokers(self) -> Mapping[int, str | None]:
        """The live brokers' racks."""

    async def describe_topics(
        self, names: Sequence[str] | None = None
    ) -> dict[str, TopicDescription]:
        """These topics, or all. Raises ApiError for one that does not exist."""

    async def list_marked_topics(self) -> Collection[str]:
        """Topics that are about to go, as far as they are to be seen."""

    async def create_topic(self, topic: NewTopic) -> None: ...

    async def create_partitions(self, topic: str, new: NewPartitions) -> None: ...

    async def delete_topics(self, names: Sequence[str]) -> Verdicts[str]: ...

    async def describe_own_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        """The settings that each was given; None for a value that is secret."""

    async def change_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> Verdicts[ConfigResource]:
        """Set single settings, or take those away that are None."""

    async def describe_min_insync_replicas(self, topics: Iterable[str]) -> Mapping[str, int]:
        """`min.insync.replicas` as it counts for each topic. Raises NeedsBrokers."""

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int]]
    ) -> Verdicts[TopicPartition]: ...

    async def cancel_reassignments(
        self, partitions: Iterable[TopicPartition]
    ) -> Verdicts[TopicPartition]:
        """Raises NeedsBrokers."""

    async def list_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """What is on the move."""

    async def place_replicas(
        self, places: Mapping[TopicPartitionReplica, str]
    ) -> Verdicts[TopicPartitionReplica]:
        """Have replicas in these log directories. Raises NeedsBrokers."""

    async def describe_log_dirs(self, brokers: Iterable[int]) -> dict[int, LogDirs]:
        """Raises NeedsBrokers."""

    async def elect(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> Verdicts[TopicPartition]:
        """Elect leaders, of all partitions that need it when none are named."""


@asynccontextmanager
async def cluster_access(target: Target) -> AsyncIterator[ClusterAccess]:
    """The way that the command line being run asks for. Raises as `connected`."""
    from broker.kbroker.over_brokers import OverBrokers
    from broker.kbroker.over_zookeeper import OverZooKeeper

    is_by_zookeeper = names_zookeeper_alone(click.get_current_context())
    async with connected(target, brokers=not is_by_zookeeper) as sessions:
        if is_by_zookeeper:
            assert sessions.zk is not None
            yield OverZooKeeper(sessions.zk, target.timeout_ms)
        else:
            yield OverBrokers(sessions.admin)


def names_zookeeper_alone(context: click.Context) -> bool:
    """Whether the command line itself names ZooKeeper, and no broker."""
    typed = ParameterSource.COMMANDLINE
    return (
        context.get_parameter_source("zookeeper") is typed
        and context.get_parameter_source("bootstrap_server") is not typed
    )
