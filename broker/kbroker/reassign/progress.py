"""How far it is with moving partitions: looked at once, or until nothing moves any more."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import attrs
import click

from broker.kbroker.cluster_access import ClusterAccess
from broker.kbroker.over_brokers import OverBrokers
from broker.kbroker.reassign.plan import (
    Plan,
    Progress,
    Sizes,
    Status,
    current_plan,
    progress_of,
    status_of,
    time_left_ms,
)
from broker.kbroker.reassign.replica_places import Placed, Places, PlaceStatus, placed
from broker.kbroker.reassign.rows import Item, show_items, status_line
from broker.kbroker.reassign.throttle import unlimit_speed
from clients.admin.descriptions import PartitionReassignment
from clients.errors import ClientError
from clients.output import Failure
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition


async def looked(
    cluster: ClusterAccess,
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[TopicPartition, PartitionReassignment]]:
    """Where all replicas are, and what is on the move."""
    moving = await cluster.list_reassignments()
    return current_plan((await cluster.describe_topics()).values()), moving


def without_coming(
    replicas: tuple[int, ...], moving: PartitionReassignment | None
) -> tuple[int, ...]:
    """The replicas without those that are only coming."""
    return tuple(each for each in replicas if moving is None or each not in moving.adding)


async def status_items(cluster: ClusterAccess, plan: Plan, places: Places) -> list[Item]:
    """Items of COLUMNS; bytes only where brokers tell them."""
    current, moving = await looked(cluster)
    within = await _placed(cluster, places)
    concerned = {each: how for each, how in moving.items() if each in plan}
    progress = await progress_by_partition(cluster, concerned)
    items = []
    for partition, target in sorted(plan.items()):
        how, far = moving.get(partition), progress.get(partition)
        here = [each for each in within if each.replica.topic_partition == partition]
        items.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "state": status_of(partition, target, current, moving),
                "replicas": current.get(partition),
                "target": target,
                "adding": how.adding if how else (),
                "removing": how.removing if how else (),
                "copied_bytes": _sum(far, here, "copied_bytes"),
                "total_bytes": _sum(far, here, "total_bytes"),
                "log_dirs": [each.item() for each in here],
                "placed": here,
            }
        )
    return items


def _sum(between: Progress | None, within: Iterable[Placed], field: str) -> int | None:
    """Bytes of moves between brokers, and between directories; None where there are neither."""
    moves = [*([between] if between else []), *within]
    return sum(getattr(each, field) for each in moves) if moves else None


def is_moving(item: Item) -> bool:
    """Whether anything of the partition is on its way."""
    return item["state"] is Status.IN_PROGRESS or any(
        each.is_moving for each in item.get("placed", ())
    )


async def _placed(cluster: ClusterAccess, places: Places) -> list[Placed]:
    if not places:
        return []
    live = await cluster.list_brokers()
    return placed(
        places, await cluster.describe_log_dirs(e.broker for e in places if e.broker in live)
    )


async def progress_by_partition(
    cluster: ClusterAccess, moving: Mapping[TopicPartition, PartitionReassignment]
) -> dict[TopicPartition, Progress]:
    """From the sizes of the logs; nothing where the brokers cannot be asked."""
    if not moving or not isinstance(cluster, OverBrokers):
        return {}
    view = await cluster.describe_topics(sorted({each.topic for each in moving}))
    leaders = {each: view[each.topic].partitions[each.partition].leader for each in moving}
    asked = {*leaders.values(), *(b for how in moving.values() for b in how.adding)}
    sizes = await log_sizes(cluster, asked & set(await cluster.list_brokers()))
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
        done = sum(not is_moving(item) for item in items)
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


async def verified(
    cluster: ClusterAccess,
    output: str,
    plan: Plan,
    places: Places,
    watch: float | None,
    *,
    preserve: bool,
) -> list[Failure]:
    """Say how each partition stands, once or until none moves; gives those that went wrong."""
    pace = Pace(time.monotonic)
    while True:
        items = await status_items(cluster, plan, places)
        moving = [item for item in items if is_moving(item)]
        if watch is None or not moving:
            break
        click.echo(pace.line(items), err=True)
        await asyncio.sleep(watch)
    failures = [
        Failure(f"{item['topic']}-{item['partition']}", item["state"].name, status_line(item))
        for item in items
        if item["state"] in (Status.NOT_ACTIVE, Status.MISSING)
    ]
    within = [each for item in items for each in item["placed"]]
    failures += [
        Failure(str(each.replica), each.status.name, each.sentence)
        for each in within
        if each.status not in (PlaceStatus.COMPLETE, PlaceStatus.IN_PROGRESS)
    ]
    if output == "table":
        click.echo("Status of partition reassignment:")
        for item in items:
            click.echo(status_line(item))
        for each in within:
            click.echo(each.sentence)
        if moving:
            click.echo(pace.line(items))
    if not moving and not preserve:
        await unlimit_speed(cluster, plan)
    if output != "table":
        show_items(items, failures, output)
    return failures
