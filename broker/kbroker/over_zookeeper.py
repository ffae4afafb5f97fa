"""A command's way past the brokers: into ZooKeeper, as the tools of Kafka 0.8 to 2.3 write there.

What is written is checked here as the controller would, because nobody answers: a topic that is
created wrongly would only be found in a broker's log. Settings are followed by a notification, by
which brokers know that they have changed.
"""

import asyncio
import random
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from broker.cluster.partition_creation import add_partitions
from broker.cluster.topic_creation import TopicCreator
from broker.cluster.topic_names import TopicNames
from broker.controller.topic_changes import (
    TopicDefaults,
    check_configs,
    plan_partitions,
    plan_topic,
)
from broker.kbroker.cluster_access import LogDirs, NeedsBrokers
from broker.settings.entity_configs import unknown_topic
from clients.admin.descriptions import (
    BROKER_RESOURCE,
    ConfigResource,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    TopicDescription,
    TopicPartitionReplica,
)
from clients.admin.requests import Verdicts, create_partitions_request, create_topics_request
from clients.cluster_view import PartitionView
from clients.errors import DeadlineExceeded
from core_log.config import LogConfig
from groups.zookeeper.filters import INTERNAL_TOPICS
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elect_leaders import UNCLEAN
from protocol.topic_partition import TopicPartition
from zk.api import NodeExists, NoNode, ZkSession, children_if_there, get_if_there
from zk.znodes import (
    DEFAULT_ENTITY,
    BrokerId,
    ConfigChange,
    DeleteTopic,
    EntityConfig,
    PartitionState,
    PreferredReplicaElection,
    ReassignPartitions,
    TopicAssignment,
)

DEFAULTS = TopicDefaults(num_partitions=-1, replication_factor=-1, log=LogConfig())
"""The brokers' own are not known here."""


def config_entity(resource: ConfigResource) -> tuple[str, str]:
    """Type and name below /config."""
    if resource.resource_type == BROKER_RESOURCE:
        return "brokers", resource.name or DEFAULT_ENTITY
    return "topics", resource.name


@attrs.frozen
class OverZooKeeper:
    """A `ClusterAccess`."""

    zk: ZkSession
    timeout_ms: int
    is_by_zookeeper: bool = True

    async def list_brokers(self) -> Mapping[int, str | None]:
        names = await children_if_there(self.zk, BrokerId.directory())
        ids = [int(name) for name in names if name.isdigit()]
        found = await self.zk.get_many([BrokerId.path(each) for each in ids])
        return {
            broker_id: BrokerId.decode(node[0], BrokerId.path(broker_id)).rack
            for broker_id, node in zip(ids, found, strict=True)
            if node is not None
        }

    # -- topics

    async def describe_topics(
        self, names: Sequence[str] | None = None
    ) -> dict[str, TopicDescription]:
        live = await self.list_brokers()
        assignments = await self._assignments(names)
        partitions = [
            TopicPartition(topic, index)
            for topic, node in assignments.items()
            for index in node.partitions
        ]
        found = await self.zk.get_many([PartitionState.path(*each) for each in partitions])
        states = {
            each: PartitionState.decode(node[0], PartitionState.path(*each)) if node else None
            for each, node in zip(partitions, found, strict=True)
        }
        return {
            topic: TopicDescription(
                topic,
                topic in INTERNAL_TOPICS,
                {
                    index: _partition(states[TopicPartition(topic, index)], replicas, live)
                    for index, replicas in node.partitions.items()
                },
            )
            for topic, node in assignments.items()
        }

    async def _topics(self) -> list[str]:
        return await children_if_there(self.zk, TopicAssignment.directory())

    async def _assignments(self, names: Sequence[str] | None) -> dict[str, TopicAssignment]:
        wanted = await self._topics() if names is None else names
        found = await self.zk.get_many([TopicAssignment.path(each) for each in wanted])
        assignments = {}
        for name, node in zip(wanted, found, strict=True):
            if node is not None:
                path = TopicAssignment.path(name)
                assignments[name] = TopicAssignment.decode(node[0], path)
            elif names is not None:
                raise unknown_topic(name)
        return assignments

    async def list_marked_topics(self) -> Collection[str]:
        return await children_if_there(self.zk, DeleteTopic.directory())

    async def create_topic(self, topic: NewTopic) -> None:
        if not topic.assignments and -1 in (topic.num_partitions, topic.replication_factor):
            raise NeedsBrokers("a topic without --partitions or --replication-factor")
        racks = await self.list_brokers()
        existing = await self._topics()
        written = asyncio.Event()
        creator = TopicCreator(
            self.zk, racks=lambda: racks, touch=lambda _: written.set(), rng=random.Random()
        )
        (wanted,) = create_topics_request([topic], self.timeout_ms, validate_only=False).topics
        plan = plan_topic(wanted, TopicNames(existing), DEFAULTS, creator.place)
        await creator.start()
        try:
            creation = creator.create_assigned(plan)
            async with asyncio.timeout(self.timeout_ms / 1000):
                await written.wait()
        except TimeoutError:
            raise DeadlineExceeded(f"topic {topic.name}: ZooKeeper does not answer") from None
        finally:
            await creator.close()
        assert creation.result is not None
        if creation.result is not ErrorCode.NONE:
            raise ApiError(creation.result, f"topic {topic.name}")

    async def create_partitions(self, topic: str, new: NewPartitions) -> None:
        if topic in await self.list_marked_topics():
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic} is being deleted")
        if any(partition.topic == topic for partition in await self.list_reassignments()):
            moving = f"partitions of {topic} are on the move"
            raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, moving)
        racks = await self.list_brokers()
        request = create_partitions_request({topic: new}, self.timeout_ms, validate_only=False)
        (wanted,) = request.topics
        await add_partitions(
            self.zk,
            topic,
            lambda existing: plan_partitions(wanted, existing, racks),
            validate_only=False,
        )

    async def delete_topics(self, names: Sequence[str]) -> Verdicts[str]:
        verdicts: Verdicts[str] = {}
        existing = await self._topics()
        for name in names:
            verdicts[name] = None
            if name not in existing:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                verdicts[name] = ApiError(code, f"The topic '{name}' does not exist.")
            elif name in INTERNAL_TOPICS:
                why = f"topic {name} is one of Kafka's own, and may not be deleted"
                verdicts[name] = ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
            else:
                try:
                    await self.zk.create(DeleteTopic.path(name), None, make_parents=True)
                except NodeExists:
                    why = f"topic {name} is already marked for deletion"
                    verdicts[name] = ApiError(ErrorCode.INVALID_REQUEST, why)
        return verdicts

    # -- settings

    async def describe_own_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        return {resource: dict((await self._config(resource)).config) for resource in resources}

    async def change_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> Verdicts[ConfigResource]:
        verdicts: Verdicts[ConfigResource] = {}
        for resource, changed in changes.items():
            try:
                await self._change(resource, changed)
                verdicts[resource] = None
            except ApiError as error:
                verdicts[resource] = error
        return verdicts

    async def _change(self, resource: ConfigResource, changed: Mapping[str, str | None]) -> None:
        before = await self._config(resource)
        values = {k: v for k, v in {**before.config, **changed}.items() if v is not None}
        kind, name = config_entity(resource)
        if kind == "topics":
            if name not in await self._topics():
                raise unknown_topic(name)
            check_configs(values, DEFAULTS.log)
        path, content = EntityConfig.path(kind, name), attrs.evolve(before, config=values).encode()
        try:
            await self.zk.set(path, content)
        except NoNode:
            await self.zk.create(path, content, make_parents=True)
        change = ConfigChange(EntityConfig.entity_path(kind, name)).encode()
        await self.zk.create(ConfigChange.prefix(), change, sequence=True, make_parents=True)

    async def _config(self, resource: ConfigResource) -> EntityConfig:
        path = EntityConfig.path(*config_entity(resource))
        found = await get_if_there(self.zk, path)
        return EntityConfig.decode(found[0], path) if found else EntityConfig({})

    async def describe_min_insync_replicas(self, topics: Iterable[str]) -> Mapping[str, int]:
        raise NeedsBrokers("min.insync.replicas, whose default is the brokers',")

    # -- replicas

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int]]
    ) -> Verdicts[TopicPartition]:
        replicas = {(p.topic, p.partition): tuple(to) for p, to in targets.items()}
        content = ReassignPartitions(replicas).encode()
        try:
            await self.zk.create(ReassignPartitions.path(), content, make_parents=True)
        except NodeExists:
            raise ApiError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS, "there is an existing assignment running"
            ) from None
        return dict.fromkeys(targets)

    async def cancel_reassignments(
        self, partitions: Iterable[TopicPartition]
    ) -> Verdicts[TopicPartition]:
        raise NeedsBrokers("to cancel a reassignment")

    async def place_replicas(
        self, places: Mapping[TopicPartitionReplica, str]
    ) -> Verdicts[TopicPartitionReplica]:
        raise NeedsBrokers("to choose log directories")

    async def describe_log_dirs(self, brokers: Iterable[int]) -> dict[int, LogDirs]:
        raise NeedsBrokers("to look at log directories")

    async def list_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Those of the tool's node, and those that brokers were asked for (KIP-455)."""
        path = ReassignPartitions.path()
        found = await get_if_there(self.zk, path)
        asked = ReassignPartitions.decode(found[0], path).replicas if found else {}
        moving = {}
        for topic, node in (await self._assignments(None)).items():
            for index, replicas in node.partitions.items():
                target = asked.get((topic, index))
                if target is not None:
                    adding = tuple(each for each in target if each not in replicas)
                    removing = tuple(each for each in replicas if each not in target)
                else:
                    adding, removing = node.adding.get(index, ()), node.removing.get(index, ())
                    if not adding and not removing:
                        continue
                partition = TopicPartition(topic, index)
                moving[partition] = PartitionReassignment(replicas, adding, removing)
        return moving

    async def elect(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> Verdicts[TopicPartition]:
        """The controller takes the node away once it has tried all."""
        if election_type == UNCLEAN:
            raise NeedsBrokers("an unclean election")
        before = await self._preferred_leads()
        verdicts: Verdicts[TopicPartition] = {
            each: ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {each}")
            if each not in before
            else ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"{each} is led as it should be")
            for each in partitions or ()
            if before.get(each, True)
        }
        asked = [each for each in partitions or before if not before.get(each, True)]
        if not asked:
            return verdicts
        content = PreferredReplicaElection(tuple((p.topic, p.partition) for p in asked)).encode()
        try:
            await self.zk.create(PreferredReplicaElection.path(), content, make_parents=True)
        except NodeExists:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "an election of preferred leaders is in progress already"
            ) from None
        await self._until_gone(PreferredReplicaElection.path())
        after = await self._preferred_leads()
        for each in asked:
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            verdicts[each] = None if after.get(each) else ApiError(code, str(each))
        return verdicts

    async def _preferred_leads(self) -> dict[TopicPartition, bool]:
        return {
            TopicPartition(topic.name, index): partition.leader == partition.replicas[0]
            for topic in (await self.describe_topics()).values()
            for index, partition in topic.partitions.items()
        }

    async def _until_gone(self, path: str) -> None:
        changed = asyncio.Event()
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                while await self.zk.exists(path, lambda _: changed.set()) is not None:
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise DeadlineExceeded(f"no controller has taken {path} away so far") from None


def _partition(
    state: PartitionState | None, replicas: tuple[int, ...], live: Collection[int]
) -> PartitionView:
    """A leader that does not live is none, as brokers say it."""
    if state is None:
        return PartitionView(-1, -1, replicas, ())
    leader = state.leader if state.leader in live else -1
    return PartitionView(leader, state.leader_epoch, replicas, state.isr)
