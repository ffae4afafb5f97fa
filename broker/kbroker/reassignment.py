"""What goes with moving partitions: limits of speed, and how far it is."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs
import click

from broker.kbroker.cluster_access import ClusterAccess
from broker.kbroker.over_brokers import OverBrokers
from broker.kbroker.reassignment_plan import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    Plan,
    Progress,
    Sizes,
    Status,
    current_plan,
    progress_of,
    status_of,
    throttle_of,
    time_left_ms,
)
from clients.descriptions import ConfigResource, PartitionReassignment
from clients.errors import ClientError
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition

Item = dict[str, Any]


async def looked(
    cluster: ClusterAccess,
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[TopicPartition, PartitionReassignment]]:
    """Where all replicas are, and what is on the move."""
    moving = await cluster.reassignments()
    return current_plan((await cluster.topics()).values()), moving


def without_coming(
    replicas: tuple[int, ...], moving: PartitionReassignment | None
) -> tuple[int, ...]:
    """The replicas without those that are only coming."""
    return tuple(each for each in replicas if moving is None or each not in moving.adding)


# --- limits of speed ------------------------------------------------------------------------------


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


async def unlimit_speed(cluster: ClusterAccess, plan: Plan) -> None:
    """Take the limits of these topics and of all live brokers away, where there are any.

    The brokers' limits hold for whatever else is on the move: then all of them stay.
    """
    if others := sorted(each for each in await cluster.reassignments() if each not in plan):
        names = ", ".join(map(str, others))
        click.echo(f"Throttles stay while others are on the move: {names}", err=True)
        return
    resources = {
        ConfigResource.topic(each.topic): (LEADER_REPLICAS, FOLLOWER_REPLICAS) for each in plan
    }
    for broker in await cluster.brokers():
        resources[ConfigResource.broker(broker)] = (LEADER_RATE, FOLLOWER_RATE)
    own = await cluster.own_configs(resources)
    changes: dict[ConfigResource, dict[str, str | None]] = {
        resource: dict.fromkeys(set_here)
        for resource, names in resources.items()
        if (set_here := [name for name in names if name in own[resource]])
    }
    if changes:
        await _change(cluster, changes)
        click.echo(f"Clearing throttles on {', '.join(map(_named, changes))}", err=True)


def _named(resource: ConfigResource) -> str:
    is_topic = resource == ConfigResource.topic(resource.name)
    return f"{'topic' if is_topic else 'broker'} {resource.name}"


async def _change(
    cluster: ClusterAccess, changes: Mapping[ConfigResource, Mapping[str, str | None]]
) -> None:
    for resource, error in (await cluster.change_configs(changes)).items():
        if error is not None:
            raise ApiError(error.code, f"{_named(resource)}: {error.detail}")


# --- how far it is --------------------------------------------------------------------------------


async def status_items(cluster: ClusterAccess, plan: Plan) -> list[Item]:
    """Items of COLUMNS; bytes only where brokers tell them."""
    current, moving = await looked(cluster)
    concerned = {each: how for each, how in moving.items() if each in plan}
    progress = await progress_by_partition(cluster, concerned)
    items = []
    for partition, target in sorted(plan.items()):
        how, far = moving.get(partition), progress.get(partition)
        items.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "state": status_of(partition, target, current, moving),
                "replicas": current.get(partition),
                "target": target,
                "adding": how.adding if how else (),
                "removing": how.removing if how else (),
                "copied_bytes": far.copied_bytes if far else None,
                "total_bytes": far.total_bytes if far else None,
            }
        )
    return items


async def progress_by_partition(
    cluster: ClusterAccess, moving: Mapping[TopicPartition, PartitionReassignment]
) -> dict[TopicPartition, Progress]:
    """From the sizes of the logs; nothing where the brokers cannot be asked."""
    if not moving or not isinstance(cluster, OverBrokers):
        return {}
    view = await cluster.topics(sorted({each.topic for each in moving}))
    leaders = {each: view[each.topic].partitions[each.partition].leader for each in moving}
    asked = {*leaders.values(), *(b for how in moving.values() for b in how.adding)}
    sizes = await log_sizes(cluster, asked & set(await cluster.brokers()))
    return {each: progress_of(each, leaders[each], how, sizes) for each, how in moving.items()}


async def log_sizes(cluster: OverBrokers, brokers: Iterable[int]) -> Sizes:
    """Of all replicas on these brokers. One that does not answer has none."""
    sizes: dict[tuple[TopicPartition, int], int] = {}

    async def of_broker(broker: int) -> None:
        try:
            directories = await cluster.admin.describe_log_dirs(broker)
        except (ApiError, ClientError):
            return
        for directory in directories.values():
            for partition, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes[partition, broker] = replica.size_bytes

    await asyncio.gather(*map(of_broker, brokers))
    return sizes


@attrs.define(eq=False)
class Pace:
    """How fast bytes are copied, from one look to the next."""

    now_s: Callable[[], float]
    _before: Progress | None = None
    _at_s: float = 0.0

    def line(self, items: Iterable[Item]) -> str:
        """How far all of them are, and how long it will take at this speed."""
        items = list(items)
        done = sum(item["state"] is not Status.IN_PROGRESS for item in items)
        now = Progress(
            *(sum(item[k] or 0 for item in items) for k in ("copied_bytes", "total_bytes"))
        )
        at_s, before = self.now_s(), self._before
        left_ms = None
        if before is not None:
            left_ms = time_left_ms(before, now, int((at_s - self._at_s) * 1000))
        self._before, self._at_s = now, at_s
        left = "" if left_ms is None else f", about {-(-left_ms // 1000)} s left"
        return (
            f"{done} of {len(items)} partitions done, "
            f"{now.copied_bytes} of {now.total_bytes} bytes of the rest copied{left}"
        )
