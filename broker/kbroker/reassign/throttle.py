"""Limit the speed of a reassignment before it begins, and remove the limits at its end."""

from collections.abc import Mapping, Sequence

from broker.kbroker.cluster_access import ClusterAccess
from broker.kbroker.reassign.plan import (
    DIRECTORY_RATE,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Plan,
    plan_throttle,
)
from broker.kbroker.reassign.replica_places import Places
from clients.admin.descriptions import ConfigResource
from clients.command_line.printing import say
from clients.errors import ClientError
from protocol.errors import ApiError


async def limit_speed(cluster: ClusterAccess, plan: Plan, current: Plan, rate: int) -> None:
    """Limit replication to `rate` bytes a second, before anything moves. Raises ApiError."""
    # Rates belong to brokers, the lists of throttled replicas to topics (KIP-73).
    throttle = plan_throttle(plan, current)
    brokers = throttle.brokers
    if not cluster.is_by_zookeeper:
        # What is down copies nothing, and cannot be asked (fault strangers-52).
        brokers = brokers & set(await cluster.list_brokers())
    changes: dict[ConfigResource, dict[str, str | None]] = {
        ConfigResource.broker(broker): {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
        for broker in sorted(brokers)
    }
    for topic, settings in throttle.topic_configs.items():
        changes[ConfigResource.topic(topic)] = dict(settings)

    try:
        await _change_configs(cluster, changes)
    except ApiError:
        # Nothing moves: what is limited already would stay so.
        await unlimit_speed(cluster, plan)
        raise
    for broker in sorted(throttle.brokers - brokers):
        say(f"Warning: broker {broker} is down, and has no throttle if it comes back", err=True)
    say(
        "Warning: You must run verify periodically, until the reassignment completes, to ensure "
        "the throttle is removed.",
        err=True,
    )
    say(f"The inter-broker throttle limit was set to {rate} B/s", err=True)


async def limit_directories(cluster: ClusterAccess, places: Places, rate: int) -> None:
    """Limit moves between a broker's directories to `rate` bytes a second. Raises ApiError."""
    brokers = sorted({replica.broker for replica in places})
    await _change_configs(
        cluster, {ConfigResource.broker(broker): {DIRECTORY_RATE: str(rate)} for broker in brokers}
    )
    say(f"The replica-alter-dir throttle limit was set to {rate} B/s", err=True)


async def unlimit_speed(cluster: ClusterAccess, plan: Plan) -> None:
    """Remove the limits of the plan's topics and of all live brokers.

    While partitions of other plans move, all limits stay: a broker's limit is theirs too. A broker
    that does not respond keeps its limits, and the rest of the command goes on.
    """
    # Limits that somebody still needs stay.
    moving = await cluster.list_reassignments()
    if others := sorted(partition for partition in moving if partition not in plan):
        names = ", ".join(map(str, others))
        say(f"Throttles stay while other partitions are being moved: {names}", err=True)
        return

    # The lists of the plan's topics.
    topic_names = dict.fromkeys(partition.topic for partition in plan)
    topics = [ConfigResource.topic(topic) for topic in topic_names]
    cleared = await _clear(cluster, topics, (LEADER_REPLICAS, FOLLOWER_REPLICAS))

    # The rates of all live brokers: nothing records which of them were limited.
    live = await cluster.list_brokers()
    # It may come back with its limit, for good (fault strangers-62).
    for down in sorted({broker for replicas in plan.values() for broker in replicas} - live.keys()):
        say(f"Throttles of broker {down} stay, if it has any: it is down", err=True)
    for broker in map(ConfigResource.broker, live):
        try:
            cleared += await _clear(cluster, [broker], (LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE))
        except ClientError as error:
            say(f"Throttles of {_format_resource(broker)} stay, if it has any: {error}", err=True)

    if cleared:
        say(f"Clearing throttles on {', '.join(map(_format_resource, cleared))}", err=True)


async def _clear(
    cluster: ClusterAccess, resources: Sequence[ConfigResource], names: Sequence[str]
) -> list[ConfigResource]:
    """Remove these settings; return the resources that had one of them."""
    # Each change notifies every broker: leave out resources that have no limit.
    own = await cluster.describe_own_configs(resources)
    changes: dict[ConfigResource, dict[str, str | None]] = {
        resource: dict.fromkeys(own_names)
        for resource in resources
        if (own_names := [name for name in names if name in own[resource]])
    }
    if changes:
        await _change_configs(cluster, changes)
    return list(changes)


def _format_resource(resource: ConfigResource) -> str:
    is_topic = resource == ConfigResource.topic(resource.name)
    return f"{'topic' if is_topic else 'broker'} {resource.name}"


async def _change_configs(
    cluster: ClusterAccess, changes: Mapping[ConfigResource, Mapping[str, str | None]]
) -> None:
    for resource, error in (await cluster.change_configs(changes)).items():
        if error is not None:
            raise ApiError(error.code, f"{_format_resource(resource)}: {error.detail}")
