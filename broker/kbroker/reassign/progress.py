"""Report how far a reassignment is: once, or repeatedly until nothing moves."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from broker.kbroker.cluster_access import ClusterAccess
from broker.kbroker.over_brokers import OverBrokers
from broker.kbroker.reassign.plan import (
    CopyProgress,
    Plan,
    Sizes,
    Status,
    build_current_plan,
    estimate_time_left_ms,
    find_status,
    measure_progress,
)
from broker.kbroker.reassign.replica_places import (
    PlacedReplica,
    Places,
    PlaceStatus,
    locate_replicas,
)
from broker.kbroker.reassign.rows import Item, format_status, show_items
from broker.kbroker.reassign.throttle import unlimit_speed
from clients.admin.descriptions import PartitionReassignment
from clients.command_line.interrupts import Interrupts
from clients.command_line.output import INTERRUPTED, Failure, is_table, report
from clients.command_line.printing import say
from clients.errors import ClientError
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition


async def read_state(
    cluster: ClusterAccess,
) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[TopicPartition, PartitionReassignment]]:
    """Return the replicas of all partitions, and the reassignments in progress."""
    # Reassignments first: one that ends in between shows its final replicas.
    moving = await cluster.list_reassignments()
    return build_current_plan((await cluster.describe_topics()).values()), moving


def without_adding(
    replicas: tuple[int, ...], moving: PartitionReassignment | None
) -> tuple[int, ...]:
    """Return the replicas without those that a reassignment is adding."""
    return tuple(broker for broker in replicas if moving is None or broker not in moving.adding)


async def build_status_items(cluster: ClusterAccess, plan: Plan, places: Places) -> list[Item]:
    """Build items of COLUMNS; bytes are None unless brokers report them."""
    current, moving = await read_state(cluster)
    placed_replicas = await _locate_replicas(cluster, places)

    # Bytes are measured for the plan's own partitions.
    moving_here = {partition: moving[partition] for partition in moving if partition in plan}
    progress = await measure_all_progress(cluster, moving_here)

    items = []
    for partition, target in sorted(plan.items()):
        reassignment = moving.get(partition)
        of_partition = [
            placed for placed in placed_replicas if placed.replica.topic_partition == partition
        ]
        copied_bytes, total_bytes = _sum_bytes(progress.get(partition), of_partition)
        items.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "state": find_status(partition, target, current, moving),
                "replicas": current.get(partition),
                "target": target,
                "adding": reassignment.adding if reassignment else (),
                "removing": reassignment.removing if reassignment else (),
                "copied_bytes": copied_bytes,
                "total_bytes": total_bytes,
                "log_dirs": [placed.to_item() for placed in of_partition],
                "placed": of_partition,
            }
        )
    return items


def _sum_bytes(
    between_brokers: CopyProgress | None, within_brokers: Iterable[PlacedReplica]
) -> tuple[int | None, int | None]:
    """Sum copied and total bytes of a partition's moves; None without a move."""
    moves: list[CopyProgress | PlacedReplica] = [
        *([between_brokers] if between_brokers else []),
        *within_brokers,
    ]
    if not moves:
        return None, None
    return sum(move.copied_bytes for move in moves), sum(move.total_bytes for move in moves)


def is_moving(item: Item) -> bool:
    """True if a replica of the partition moves between brokers or directories."""
    return item["state"] is Status.IN_PROGRESS or any(
        placed.is_moving for placed in item.get("placed", ())
    )


async def _locate_replicas(cluster: ClusterAccess, places: Places) -> list[PlacedReplica]:
    if not places:
        return []
    live = await cluster.list_brokers()
    brokers = {replica.broker for replica in places if replica.broker in live}
    return locate_replicas(places, await cluster.describe_log_dirs(brokers))


async def measure_all_progress(
    cluster: ClusterAccess, moving: Mapping[TopicPartition, PartitionReassignment]
) -> dict[TopicPartition, CopyProgress]:
    """Measure the progress of reassignments by the sizes of the logs; {} without the brokers."""
    if not moving or not isinstance(cluster, OverBrokers):
        return {}

    topics = await cluster.describe_topics(sorted({partition.topic for partition in moving}))

    # The added replicas copy from the leader, whose size is the total.
    leaders = {p: topics[p.topic].partitions[p.partition].leader for p in moving}
    adding = {broker for reassignment in moving.values() for broker in reassignment.adding}

    # A broker that is down would hold up the report.
    live = set(await cluster.list_brokers())
    sizes = await read_log_sizes(cluster, {*leaders.values(), *adding} & live)
    return {
        partition: measure_progress(partition, leaders[partition], reassignment, sizes)
        for partition, reassignment in moving.items()
    }


async def read_log_sizes(cluster: OverBrokers, brokers: Iterable[int]) -> Sizes:
    """Read the sizes of all replicas on these brokers; none for a broker that fails."""
    sizes: dict[tuple[TopicPartition, int], int] = {}

    async def read_sizes(broker: int) -> None:
        try:
            directories = await cluster.admin.describe_log_dirs(broker)
        except (ApiError, ClientError):
            return
        for directory in directories.values():
            for partition, replica in directory.replicas.items():
                # A future replica belongs to a move within its broker.
                if not replica.is_future:
                    sizes[partition, broker] = replica.size_bytes

    await asyncio.gather(*map(read_sizes, brokers))
    return sizes


@attrs.define(eq=False)
class CopySpeed:
    """The speed of copying, measured from one report to the next."""

    now_s: Callable[[], float]
    _previous: CopyProgress | None = None
    _measured_at_s: float = 0.0

    def line(self, items: Iterable[Item]) -> str:
        """Measure again; say how much is done and how long the rest takes at this speed."""
        items = list(items)
        done = sum(not is_moving(item) for item in items)
        now_s = self.now_s()
        progress = CopyProgress(
            sum(item["copied_bytes"] or 0 for item in items),
            sum(item["total_bytes"] or 0 for item in items),
        )

        left_ms = None
        if self._previous is not None:
            elapsed_ms = int((now_s - self._measured_at_s) * 1000)
            left_ms = estimate_time_left_ms(self._previous, progress, elapsed_ms)
        self._previous = progress
        self._measured_at_s = now_s

        # Rounded up: 0 s would mean the end.
        left = "" if left_ms is None else f", about {-(-left_ms // 1000)} s left"
        return (
            f"{done} of {len(items)} partitions done, "
            f"{progress.copied_bytes} of {progress.total_bytes} bytes of the rest copied{left}"
        )


async def report_status(
    cluster: ClusterAccess,
    output: str,
    plan: Plan,
    places: Places,
    watch: float | None,
    *,
    preserve: bool,
    interrupts: Interrupts,
    before: Sequence[Failure] = (),
) -> list[Failure]:
    """Report the status of each partition of a plan, and return the failures.

    With `watch`, first report progress every so many seconds until nothing moves, or until the
    command is interrupted. When nothing moves any more the throttles are removed, unless
    `preserve`. Failures of `before` are shown too.
    """
    speed = CopySpeed(time.monotonic)
    while True:
        items = await build_status_items(cluster, plan, places)
        moving = [item for item in items if is_moving(item)]
        if watch is None or not moving or interrupts.is_asked:
            break

        # Progress is for people; stdout has the result alone.
        say(speed.line(items), err=True)
        await interrupts.pause(watch)

    # Failures between brokers, then between directories.
    failures = [
        Failure(f"{item['topic']}-{item['partition']}", item["state"].name, format_status(item))
        for item in items
        if item["state"] in (Status.NOT_ACTIVE, Status.MISSING)
    ]
    placed_replicas = [placed for item in items for placed in item["placed"]]
    failures += [
        Failure(str(placed.replica), placed.status.name, placed.sentence)
        for placed in placed_replicas
        if placed.status not in (PlaceStatus.COMPLETE, PlaceStatus.IN_PROGRESS)
    ]

    # Who watches no longer is told that the work goes on.
    if watch is not None and moving:
        text = "it goes on, and is not watched any more: `kbroker reassign verify` reports on it"
        failures.append(Failure("reassignment", INTERRUPTED, text))

    # The result, in the sentences of Kafka's tool.
    if is_table(output):
        say("Status of partition reassignment:")
        for item in items:
            say(format_status(item))
        for placed in placed_replicas:
            say(placed.sentence)
        if moving:
            say(speed.line(items))
        report(failure for failure in failures if failure.error == INTERRUPTED)

    # While anything is copied its limits stay.
    if not moving and not preserve:
        await unlimit_speed(cluster, plan)

    if not is_table(output):
        show_items(items, [*before, *failures], output)
    return failures
