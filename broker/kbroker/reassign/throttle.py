"""Limits of speed while partitions move: set before anything does, taken away when all is there."""

from collections.abc import Mapping, Sequence

import click

from broker.kbroker.cluster_access import ClusterAccess
from broker.kbroker.reassign.plan import (
    DIRECTORY_RATE,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Plan,
    throttle_of,
)
from broker.kbroker.reassign.replica_places import Places
from clients.admin.descriptions import ConfigResource
from clients.errors import ClientError
from protocol.errors import ApiError


async def limit_speed(cluster: ClusterAccess, plan: Plan, current: Plan, rate: int) -> None:
    """Before anything moves, so that nothing goes faster at first. Raises ApiError."""
    throttle = throttle_of(plan, current)
    changes: dict[ConfigResource, dict[str, str | None]] = {
        ConfigResource.broker(each): {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
        for each in sorted(throttle.brokers)
    }
    for topic, settings in throttle.topic_configs.items():
        changes[ConfigResource.topic(topic)] = dict(settings)
    await _change(cluster, changes)
    click.echo(
        "Warning: You must run verify periodically, until the reassignment completes, to ensure "
        f"the throttle is removed.\nThe inter-broker throttle limit was set to {rate} B/s",
        err=True,
    )


async def limit_directories(cluster: ClusterAccess, places: Places, rate: int) -> None:
    """How fast brokers may move replicas between their directories. Raises ApiError."""
    brokers = sorted({each.broker for each in places})
    await _change(
        cluster, {ConfigResource.broker(each): {DIRECTORY_RATE: str(rate)} for each in brokers}
    )
    click.echo(f"The replica-alter-dir throttle limit was set to {rate} B/s", err=True)


async def unlimit_speed(cluster: ClusterAccess, plan: Plan) -> None:
    """Take the limits of these topics and of all live brokers away, where there are any.

    The brokers' limits hold for whatever else is on the move: then all of them stay. One that does
    not answer keeps its own: what was to be done with the partitions is done without it.
    """
    if others := sorted(each for each in await cluster.list_reassignments() if each not in plan):
        names = ", ".join(map(str, others))
        click.echo(f"Throttles stay while others are on the move: {names}", err=True)
        return
    topics = [ConfigResource.topic(topic) for topic in dict.fromkeys(each.topic for each in plan)]
    cleared = await _clear(cluster, topics, (LEADER_REPLICAS, FOLLOWER_REPLICAS))
    for broker in map(ConfigResource.broker, await cluster.list_brokers()):
        try:
            cleared += await _clear(cluster, [broker], (LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE))
        except ClientError as error:
            click.echo(f"Throttles of {_named(broker)} stay, if it has any: {error}", err=True)
    if cleared:
        click.echo(f"Clearing throttles on {', '.join(map(_named, cleared))}", err=True)


async def _clear(
    cluster: ClusterAccess, resources: Sequence[ConfigResource], names: Sequence[str]
) -> list[ConfigResource]:
    """Take these settings away; from whom there were any to take."""
    own = await cluster.describe_own_configs(resources)
    changes: dict[ConfigResource, dict[str, str | None]] = {
        resource: dict.fromkeys(set_here)
        for resource in resources
        if (set_here := [name for name in names if name in own[resource]])
    }
    if changes:
        await _change(cluster, changes)
    return list(changes)


def _named(resource: ConfigResource) -> str:
    is_topic = resource == ConfigResource.topic(resource.name)
    return f"{'topic' if is_topic else 'broker'} {resource.name}"


async def _change(
    cluster: ClusterAccess, changes: Mapping[ConfigResource, Mapping[str, str | None]]
) -> None:
    for resource, error in (await cluster.change_configs(changes)).items():
        if error is not None:
            raise ApiError(error.code, f"{_named(resource)}: {error.detail}")
