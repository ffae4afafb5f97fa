"""`OverZooKeeper` reads and writes ZooKeeper itself, as the tools of Kafka 0.8 to 2.3 do.

No broker responds, so this module makes the controller's checks before it writes: a mistake in a
new topic would show up in a broker's log alone. A change of settings is followed by a notification
node, which tells the brokers to read them.
"""

import asyncio
import random
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from broker.authentication.scram_changes import apply_changes, changes_of, check_changes
from broker.authentication.scram_users import list_users, parse_credentials, read_users
from broker.authorization.acl_authorizer import AclAuthorizer
from broker.authorization.acl_index import Policy
from broker.cluster.partition_creation import add_partitions
from broker.cluster.topic_creation import TopicCreator
from broker.controller.topic_changes import (
    ReplicaRoom,
    TopicDefaults,
    check_configs,
    plan_partitions,
    plan_topic,
)
from broker.controller.topic_names import TopicNames
from broker.kbroker.cluster_access import LogDirs, NeedsBrokers
from broker.settings.entity_configs import (
    BROKERS,
    TOPICS,
    USERS,
    alter,
    alter_client,
    unknown_topic,
)
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
from clients.admin.requests import create_partitions_request, create_topics_request
from clients.admin.user_requests import alter_request
from clients.admin.verdicts import Verdicts
from clients.cluster_view import PartitionView
from clients.command_line.output import Failure
from clients.errors import DeadlineExceeded, KgroupError
from core_log.config import LogConfig
from protocol.acls import AclBinding, AclFilter
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.special_values import UNCLEAN
from protocol.topic_partition import TopicPartition
from zk.api import NodeExists, ZkSession, children_if_there, get_if_there
from zk.znodes import (
    DEFAULT_ENTITY,
    BrokerId,
    ClientEntity,
    DeleteTopic,
    EntityConfig,
    PartitionState,
    PreferredReplicaElection,
    ReassignPartitions,
    TopicAssignment,
)

DEFAULTS = TopicDefaults(num_partitions=-1, replication_factor=-1, log=LogConfig())
"""Kafka's defaults; those of the brokers are not in ZooKeeper."""


def config_entity(resource: ConfigResource) -> tuple[str, str]:
    """Return the entity's type and name below /config."""
    if resource.resource_type == BROKER_RESOURCE:
        return BROKERS, resource.name or DEFAULT_ENTITY
    return TOPICS, resource.name


@frozen
class OverZooKeeper:
    """The `ClusterAccess` that writes to ZooKeeper."""

    zk: ZkSession
    timeout_ms: int
    is_by_zookeeper: bool = True
    _authorizers: list[AclAuthorizer] = attrs.field(factory=list)
    """The one that was loaded, if ACLs were asked for."""

    async def list_brokers(self) -> Mapping[int, str | None]:
        names = await children_if_there(self.zk, BrokerId.directory())
        ids = BrokerId.ids_of(names)
        nodes = await self.zk.get_many([BrokerId.path(broker_id) for broker_id in ids])
        return {
            broker_id: BrokerId.decode(node[0], BrokerId.path(broker_id)).rack
            for broker_id, node in zip(ids, nodes, strict=True)
            # A broker may leave between the two reads.
            if node is not None
        }

    # --- topics -----------------------------------------------------------------------------------

    async def describe_topics(
        self, names: Sequence[str] | None = None
    ) -> dict[str, TopicDescription]:
        live = await self.list_brokers()
        assignments = await self._read_assignments(names)

        # The state of a partition whose topic was just created may be missing.
        paths = {
            TopicPartition(topic, partition_id): PartitionState.path(topic, partition_id)
            for topic, assignment in assignments.items()
            for partition_id in assignment.partitions
        }
        nodes = await self.zk.get_many(list(paths.values()))
        states = {
            topic_partition: PartitionState.decode(node[0], path) if node else None
            for (topic_partition, path), node in zip(paths.items(), nodes, strict=True)
        }

        return {
            topic: TopicDescription(
                topic,
                topic in INTERNAL_TOPICS,
                {
                    partition_id: _view_partition(
                        states[TopicPartition(topic, partition_id)], replicas, live
                    )
                    for partition_id, replicas in assignment.partitions.items()
                },
            )
            for topic, assignment in assignments.items()
        }

    async def _list_topics(self) -> list[str]:
        return await children_if_there(self.zk, TopicAssignment.directory())

    async def _read_assignments(self, names: Sequence[str] | None) -> dict[str, TopicAssignment]:
        wanted = await self._list_topics() if names is None else names
        nodes = await self.zk.get_many([TopicAssignment.path(name) for name in wanted])

        assignments = {}
        for name, node in zip(wanted, nodes, strict=True):
            if node is not None:
                path = TopicAssignment.path(name)
                assignments[name] = TopicAssignment.decode(node[0], path)
            elif names is not None:
                # A topic that was asked for must exist; a listed one may be deleted meanwhile.
                raise unknown_topic(name)
        return assignments

    async def list_marked_topics(self) -> Collection[str]:
        return await children_if_there(self.zk, DeleteTopic.directory())

    async def find_hidden_topics(self) -> Sequence[Failure]:
        return ()

    async def find_taken_names(self, names: Sequence[str]) -> Collection[str]:
        return set(names) & set(await self._list_topics())

    async def create_topic(self, topic: NewTopic) -> None:
        # The defaults are settings of the brokers, which ZooKeeper does not hold.
        if not topic.assignments and -1 in (topic.num_partitions, topic.replication_factor):
            raise NeedsBrokers("a topic without --partitions or --replication-factor")

        racks = await self.list_brokers()
        existing = await self._list_topics()
        written = asyncio.Event()
        creator = TopicCreator(
            self.zk, racks=lambda: racks, touch=lambda _: written.set(), rng=random.Random()
        )

        # The controller's own checks and placement.
        (wanted,) = create_topics_request([topic], self.timeout_ms, validate_only=False).topics
        plan = plan_topic(wanted, TopicNames(existing), DEFAULTS, creator.place)

        # The creator writes in a task of its own; `touch` reports that it is done.
        await creator.start()
        try:
            creation = creator.create_assigned(plan)
            async with asyncio.timeout(self.timeout_ms / 1000):
                await written.wait()
        except TimeoutError:
            raise DeadlineExceeded(f"topic {topic.name}: ZooKeeper does not respond") from None
        finally:
            await creator.close()

        assert creation.result is not None
        if creation.result is not ErrorCode.NONE:
            raise ApiError(creation.result, f"topic {topic.name}")

    async def create_partitions(self, topic: str, new: NewPartitions) -> None:
        # The checks that a controller makes before a topic may grow.
        if topic in await self.list_marked_topics():
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic} is being deleted")
        if any(partition.topic == topic for partition in await self.list_reassignments()):
            message = f"partitions of {topic} are being reassigned"
            raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)

        # New partitions begin behind those that exist when the node is written.
        racks = await self.list_brokers()
        request = create_partitions_request({topic: new}, self.timeout_ms, validate_only=False)
        (wanted,) = request.topics
        await add_partitions(
            self.zk,
            topic,
            lambda existing: plan_partitions(wanted, existing, racks, ReplicaRoom()),
            validate_only=False,
        )

    async def delete_topics(self, names: Sequence[str]) -> Verdicts[str]:
        verdicts: Verdicts[str] = {}
        existing = await self._list_topics()

        for name in names:
            verdicts[name] = None
            if name not in existing:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                verdicts[name] = ApiError(code, f"The topic '{name}' does not exist.")
            elif name in INTERNAL_TOPICS:
                message = f"topic {name} is one of Kafka's own and cannot be deleted"
                verdicts[name] = ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
            else:
                try:
                    # The node is a mark: the controller deletes the topic, and then the node.
                    await self.zk.create(DeleteTopic.path(name), None, make_parents=True)
                except NodeExists:
                    message = f"topic {name} is already marked for deletion"
                    verdicts[name] = ApiError(ErrorCode.INVALID_REQUEST, message)
        return verdicts

    # --- settings ---------------------------------------------------------------------------------

    async def describe_own_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, str | None]]:
        return {
            resource: dict((await self._read_config(resource)).config) for resource in resources
        }

    async def describe_each_own_config(
        self, topics: Iterable[str]
    ) -> dict[str, dict[str, str | None] | KgroupError]:
        own = await self.describe_own_configs(map(ConfigResource.topic, topics))
        return {resource.name: configs for resource, configs in own.items()}

    async def change_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> Verdicts[ConfigResource]:
        verdicts: Verdicts[ConfigResource] = {}
        for resource, changed in changes.items():
            try:
                await self._change_config(resource, changed)
                verdicts[resource] = None
            except ApiError as error:
                verdicts[resource] = error
        return verdicts

    async def _change_config(
        self, resource: ConfigResource, changed: Mapping[str, str | None]
    ) -> None:
        entity_type, name = config_entity(resource)

        def merge(own: Mapping[str, str]) -> dict[str, str]:
            # One node holds all settings of a resource: those that are not named stay.
            values = {k: v for k, v in {**own, **changed}.items() if v is not None}
            # Only a topic's settings can be checked here: a broker's depend on its own file.
            if entity_type == TOPICS:
                check_configs(values, DEFAULTS.log)
            return values

        await self._ensure_directory(entity_type)
        await self._write_in_time(
            alter(self.zk, entity_type, name, merge), EntityConfig.entity_path(entity_type, name)
        )

    async def _ensure_directory(self, entity_type: str) -> None:
        # No broker of this cluster may have been started yet.
        directory = EntityConfig.directory(entity_type)
        if await self.zk.exists(directory) is None:
            await self.zk.ensure_path(directory)

    async def _write_in_time(self, write: Coroutine[Any, Any, None], entity_path: str) -> None:
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                await write
        except TimeoutError:
            raise DeadlineExceeded(
                f"settings of {entity_path}: ZooKeeper does not respond"
            ) from None

    async def _read_config(self, resource: ConfigResource) -> EntityConfig:
        path = EntityConfig.path(*config_entity(resource))
        node = await get_if_there(self.zk, path)
        return EntityConfig.decode(node[0], path) if node else EntityConfig({})

    async def describe_min_insync_replicas(
        self, topics: Iterable[str]
    ) -> Mapping[str, int | KgroupError]:
        raise NeedsBrokers("min.insync.replicas, which defaults to the brokers' setting,")

    # --- users ------------------------------------------------------------------------------------

    async def describe_users(self) -> Mapping[str, Sequence[ScramCredentialInfo]]:
        users = await list_users(self.zk)
        described = {}
        for user, stored in zip(users, await read_users(self.zk, users), strict=True):
            # A node without credentials has quotas alone.
            settings = stored.settings or {}
            infos = [
                ScramCredentialInfo(mechanism, credential.iterations)
                for mechanism, credential in sorted(parse_credentials(user, settings).items())
            ]
            if infos:
                described[user] = infos
        return described

    async def change_users(self, changes: Sequence[UserChange]) -> Verdicts[str]:
        # What brokers would do, beginning with the request.
        request = await asyncio.get_running_loop().run_in_executor(None, alter_request, changes)
        await self._ensure_directory(USERS)
        verdicts: Verdicts[str] = {}
        for user, of_user in changes_of(request).items():
            entity = ClientEntity(user=user)
            try:
                check_changes(of_user)
                write = alter_client(self.zk, entity, partial(apply_changes, of_user))
                await self._write_in_time(write, entity.entity_path())
                verdicts[user] = None
            except ApiError as error:
                verdicts[user] = error
        return verdicts

    # --- ACLs -------------------------------------------------------------------------------------

    async def describe_acls(self, wanted: AclFilter) -> Sequence[AclBinding]:
        return (await self._authorizer()).find(wanted)

    async def create_acls(self, bindings: Sequence[AclBinding]) -> Verdicts[AclBinding]:
        errors = await (await self._authorizer()).add(bindings)
        return dict(zip(bindings, errors, strict=True))

    async def delete_acls(self, filters: Sequence[AclFilter]) -> Verdicts[AclBinding]:
        deleted = await (await self._authorizer()).remove(filters)
        return {binding: error for of_filter in deleted for binding, error in of_filter.items()}

    async def _authorizer(self) -> AclAuthorizer:
        """Return what brokers have, with the ACLs as the command found them."""
        if not self._authorizers:
            authorizer = AclAuthorizer(self.zk, Policy(), asyncio.ensure_future)
            await authorizer.load()
            self._authorizers.append(authorizer)
        return self._authorizers[0]

    # --- replicas ---------------------------------------------------------------------------------

    async def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int]]
    ) -> Verdicts[TopicPartition]:
        replicas = {(p.topic, p.partition): tuple(to) for p, to in targets.items()}

        # A single node holds the reassignment until the controller has finished it.
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
        """Return the reassignments of the tool's znode, and those of brokers (KIP-455)."""
        path = ReassignPartitions.path()
        node = await get_if_there(self.zk, path)
        targets = ReassignPartitions.decode(node[0], path).replicas if node else {}

        moving = {}
        for topic, assignment in (await self._read_assignments(None)).items():
            for partition_id, replicas in assignment.partitions.items():
                target = targets.get((topic, partition_id))
                if target is not None:
                    # In the tool's node: it names the new replicas only.
                    adding = tuple(broker for broker in target if broker not in replicas)
                    removing = tuple(broker for broker in replicas if broker not in target)
                else:
                    # Begun by brokers: the topic's own node has both sets, if it moves.
                    adding = assignment.adding.get(partition_id, ())
                    removing = assignment.removing.get(partition_id, ())
                    if not adding and not removing:
                        continue

                topic_partition = TopicPartition(topic, partition_id)
                moving[topic_partition] = PartitionReassignment(replicas, adding, removing)
        return moving

    async def elect(
        self, election_type: int, partitions: Sequence[TopicPartition] | None
    ) -> Verdicts[TopicPartition]:
        """Request an election and wait until the controller, done, has deleted the znode."""
        if election_type == UNCLEAN:
            raise NeedsBrokers("an unclean election")

        # Partitions that are unknown, or need no election, never reach the controller.
        before = await self._has_preferred_leader()
        verdicts: Verdicts[TopicPartition] = {}
        for partition in partitions or ():
            if partition not in before:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                verdicts[partition] = ApiError(code, f"there is no partition {partition}")
            elif before[partition]:
                message = f"{partition} is led by its preferred leader already"
                verdicts[partition] = ApiError(ErrorCode.ELECTION_NOT_NEEDED, message)

        # Without a list: every partition that its preferred leader does not lead.
        elected = [p for p in partitions or before if not before.get(p, True)]
        if not elected:
            return verdicts

        content = PreferredReplicaElection(tuple((p.topic, p.partition) for p in elected)).encode()
        try:
            await self.zk.create(PreferredReplicaElection.path(), content, make_parents=True)
        except NodeExists:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "an election of preferred leaders is in progress already"
            ) from None
        await self._await_deletion(PreferredReplicaElection.path())

        # The controller reports no result: it shows in the partitions' leaders.
        after = await self._has_preferred_leader()
        for partition in elected:
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            verdicts[partition] = None if after.get(partition) else ApiError(code, str(partition))
        return verdicts

    async def _has_preferred_leader(self) -> dict[TopicPartition, bool]:
        """Return for each partition whether its first replica leads it."""
        return {
            TopicPartition(topic.name, partition_id): partition.leader == partition.replicas[0]
            for topic in (await self.describe_topics()).values()
            for partition_id, partition in topic.partitions.items()
        }

    async def _await_deletion(self, path: str) -> None:
        changed = asyncio.Event()
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                # Look and watch in one request, so that no deletion is missed.
                while await self.zk.exists(path, lambda _: changed.set()) is not None:
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise DeadlineExceeded(f"no controller has deleted {path} so far") from None


def _view_partition(
    state: PartitionState | None, replicas: tuple[int, ...], live: Collection[int]
) -> PartitionView:
    """View a partition as brokers report it: -1 for a leader that is not live."""
    if state is None:
        return PartitionView(-1, -1, replicas, ())
    leader = state.leader if state.leader in live else -1
    return PartitionView(leader, state.leader_epoch, replicas, state.isr)
