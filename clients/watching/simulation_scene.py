"""Read what a simulation of a group's assignment starts from. Nothing joins the group."""

from collections.abc import Mapping, Sequence

import attrs

from clients.command_line.output import Failure
from clients.command_line.sessions import Sessions
from clients.errors import BrokerError, ClientError
from clients.groups.group_facts import MemberFacts
from clients.groups.group_reader import GroupReader
from clients.groups.group_view import unknown_group
from clients.groups.lag import lag_of
from clients.watching.assignment_simulation import SimulatedMember
from protocol.consumer_protocol import decode_topics
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.primitives import WireError
from protocol.topic_partition import TopicPartition


@frozen
class Scene:
    """The members and topics to simulate with, and what could not be read of them."""

    members: tuple[SimulatedMember, ...] = ()
    partition_counts: Mapping[str, int] = attrs.Factory(dict)
    lags: Mapping[TopicPartition, int] = attrs.Factory(dict)
    failures: Sequence[Failure] = ()
    new_member_prefix: str = "new-"
    """Beginning of the id of a member that is made up: range goes by the order of ids."""


async def read_scene(sessions: Sessions, group: str, *, with_lag: bool = False) -> Scene:
    """Read a group's members, topics and lag. Raises BrokerError if there is no such group."""
    reader = GroupReader(sessions)
    facts = await reader.group(group)
    if not facts.exists:
        # A group that cannot be read may exist.
        if reader.failures:
            failure = reader.failures[0]
            raise ClientError(f"{failure.what}: {failure.message}")
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, unknown_group(group).message)

    subscriptions = await read_subscriptions(sessions, group)
    all_topics = tuple(sorted({partition.topic for partition in facts.partitions}))
    members = tuple(
        SimulatedMember(
            member.consumer_id,
            subscriptions.get(member.consumer_id, all_topics),
            member.partitions,
            member.group_instance_id,
        )
        for member in facts.members
    )

    names = {topic for member in members for topic in member.topics}
    existing = names & set(await sessions.admin.list_topics(internal=True))
    topics = await sessions.admin.describe_topics(sorted(existing))
    lags = {}
    if with_lag:
        logs = await reader.logs_of([facts])
        for partition, log in logs.items():
            lag = lag_of(facts.current_offset(partition), log)
            lags[partition] = lag.counted(assigned=True)

    counts = {name: len(topic.partitions) for name, topic in topics.items()}
    prefix = "new-"
    # Or the forecast would depend on how the group's name sorts (fault strangers-94).
    if facts.type == "zookeeper":
        prefix = new_member_prefix(group, facts.members)
    return Scene(members, counts, lags, reader.failures, prefix)


def new_member_prefix(group: str, members: Sequence[MemberFacts]) -> str:
    """Return how the id of the next member in ZooKeeper begins, behind those of the last host."""
    hosts = [f"{member.host}-" for member in members if member.host]
    return f"{group}_{max(hosts, default='')}new-"


async def read_subscriptions(sessions: Sessions, group: str) -> dict[str, tuple[str, ...]]:
    """Return the topics of each member at the group's coordinator."""
    description = (await sessions.admin.describe_groups([group]))[group].group
    topics = {}
    for member in description.members:
        # A group that is not of consumers, or is just rebalancing, has nothing to read.
        try:
            topics[member.member_id] = tuple(decode_topics(bytes(member.member_metadata)))
        except WireError:
            continue
    return topics
