"""Move replicas to the log directories that a plan names (KIP-113), and follow the moves.

    {"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/data/b"]}

A broker without the replica responds REPLICA_NOT_AVAILABLE, remembers the directory and creates the
replica there. The request is repeated until the replica exists: the last response then says that
the move has begun or is done.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from broker.kbroker.cluster_access import ClusterAccess, LogDirs
from broker.kbroker.reassign.plan import ANY, ReassignmentError, parse_plan_entries
from clients.admin.descriptions import ReplicaDescription, TopicPartitionReplica
from clients.admin.verdicts import Verdicts
from clients.command_line.output import Failure, is_table, report
from clients.command_line.printing import say
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

Places = Mapping[TopicPartitionReplica, str]
"""Replica -> the path of its target log directory."""

RETRY_S = 0.1


def read_places(text: str) -> dict[TopicPartitionReplica, str]:
    """Read the places in a plan's file, which `read_plan` has checked."""
    return {
        TopicPartitionReplica(TopicPartition(entry["topic"], entry["partition"]), broker): path
        for entry in parse_plan_entries(text)
        # Without `log_dirs` nothing is placed.
        for broker, path in zip(entry["replicas"], entry.get("log_dirs", ()), strict=False)
        if path != ANY
    }


def check_places(places: Places, log_dirs: Mapping[int, LogDirs]) -> None:
    """Check that brokers have these directories and can use them. Raises ReassignmentError."""
    for replica, path in sorted(places.items()):
        of_broker = log_dirs[replica.broker]
        if path not in of_broker:
            raise ReassignmentError(
                f"{replica.topic_partition}: broker {replica.broker} has no log directory "
                f"{path!r}, only {', '.join(sorted(of_broker))}"
            )
        if of_broker[path].error is not ErrorCode.NONE:
            raise ReassignmentError(
                f"{replica.topic_partition}: {path!r} is offline on broker {replica.broker}"
            )


# --- moves ----------------------------------------------------------------------------------------


async def begin_moves(
    cluster: ClusterAccess, places: Places, timeout_ms: int, now_s: Callable[[], float]
) -> Verdicts[TopicPartitionReplica]:
    """Begin all moves; repeat the request for replicas that do not exist yet.

    Returns the last verdict of each replica, at the latest when `timeout_ms` is over.
    """
    verdicts: Verdicts[TopicPartitionReplica] = {}
    deadline_s = now_s() + timeout_ms / 1000
    rest = dict(places)

    while rest:
        verdicts |= await cluster.place_replicas(rest)

        # Replicas that do not exist so far: a reassignment is about to create them.
        rest = {
            replica: path
            for replica, path in rest.items()
            if _is_not_available(verdicts.get(replica))
        }

        # The last responses say why these replicas are not placed.
        if now_s() >= deadline_s:
            break
        if rest:
            await asyncio.sleep(RETRY_S)
    return verdicts


def _is_not_available(error: ApiError | None) -> bool:
    return error is not None and error.code is ErrorCode.REPLICA_NOT_AVAILABLE


# --- status ---------------------------------------------------------------------------------------


class PlaceStatus(StrEnum):
    """The state of a replica's move to its target directory."""

    COMPLETE = "complete"
    IN_PROGRESS = "in_progress"
    ELSEWHERE = "elsewhere"
    NOT_ACTIVE = "not_active"
    MISSING = "missing"


@frozen
class PlacedReplica:
    """A replica with its directories: the plan's target, the current one, and that of its move.

    Without a replica `current` is None, without a move `future` is None and the bytes are 0.
    """

    replica: TopicPartitionReplica
    target: str
    current: str | None
    future: str | None
    copied_bytes: int = 0
    total_bytes: int = 0

    @property
    def status(self) -> PlaceStatus:
        """The state of the move to the target."""
        if self.current is None:
            return PlaceStatus.MISSING

        # A move in progress counts more than the present directory.
        if self.future is not None:
            return PlaceStatus.IN_PROGRESS if self.future == self.target else PlaceStatus.ELSEWHERE
        return PlaceStatus.COMPLETE if self.current == self.target else PlaceStatus.NOT_ACTIVE

    @property
    def is_moving(self) -> bool:
        """True if a move is in progress, to the target or elsewhere."""
        return self.status in (PlaceStatus.IN_PROGRESS, PlaceStatus.ELSEWHERE)

    @property
    def sentence(self) -> str:
        """The sentence of kafka-reassign-partitions.sh for the status."""
        place = f"Partition {self.replica.topic_partition} on broker {self.replica.broker}"
        match self.status:
            case PlaceStatus.COMPLETE:
                return f"Reassignment of replica {self.replica} completed successfully."
            case PlaceStatus.IN_PROGRESS:
                return f"Reassignment of replica {self.replica} is still in progress."
            case PlaceStatus.ELSEWHERE:
                return f"{place} is being moved to log dir {self.future} instead of {self.target}."
            case PlaceStatus.NOT_ACTIVE:
                return f"{place} is not being moved from log dir {self.current} to {self.target}."
        return (
            f"Partition {self.replica.topic_partition} is not found in any live log dir on broker "
            f"{self.replica.broker}. There is likely an offline log directory on the broker."
        )

    def to_item(self) -> dict[str, Any]:
        """Return the JSON object of the replica."""
        return {
            "broker": self.replica.broker,
            "log_dir": self.target,
            "current_log_dir": self.current,
            "future_log_dir": self.future,
            "state": str(self.status),
        }


def locate_replicas(places: Places, log_dirs: Mapping[int, LogDirs]) -> list[PlacedReplica]:
    """Locate each replica in the log directories of its broker."""
    return [
        _locate_replica(replica, target, log_dirs.get(replica.broker, {}))
        for replica, target in sorted(places.items())
    ]


def _locate_replica(
    replica: TopicPartitionReplica, target: str, log_dirs: LogDirs
) -> PlacedReplica:
    # While it moves, a replica is in two directories: the current one and the future one.
    current: tuple[str, ReplicaDescription] | None = None
    future: tuple[str, ReplicaDescription] | None = None
    for path, directory in log_dirs.items():
        description = directory.replicas.get(replica.topic_partition)
        if description is None:
            continue
        if description.is_future:
            future = path, description
        else:
            current = path, description

    # A copy may be larger than the log itself, whose old segments were deleted meanwhile.
    total_bytes = current[1].size_bytes if current and future else 0
    copied_bytes = min(future[1].size_bytes, total_bytes) if future else 0
    return PlacedReplica(
        replica,
        target,
        current[0] if current else None,
        future[0] if future else None,
        copied_bytes,
        total_bytes,
    )


def format_places(value: Iterable[Mapping[str, Any]] | None) -> str:
    """Format replicas for a table's cell: 1:/data/b (in_progress); none as -."""
    texts = [f"{item['broker']}:{item['log_dir']} ({item['state']})" for item in value or ()]
    return " ".join(texts) or "-"


# --- steps of commands ----------------------------------------------------------------------------


async def move_within_brokers(
    cluster: ClusterAccess, output: str, places: Places, timeout_ms: int
) -> list[Failure]:
    """Begin the moves to other directories and print them; return those that failed."""
    verdicts = await begin_moves(cluster, places, timeout_ms, time.monotonic)
    failures = [Failure.of(str(replica), error) for replica, error in verdicts.items() if error]

    if is_table(output):
        if moving := sorted(replica for replica, error in verdicts.items() if error is None):
            names = ",".join(map(str, moving))
            say(f"Successfully started log directory moves for: {names}")
        report(failures)
    return failures


async def cancel_moves(cluster: ClusterAccess, places: Places) -> None:
    """Cancel the moves to these directories. Raises ApiError."""
    if not places:
        return

    # A move to the current directory cancels the one in progress.
    brokers = {replica.broker for replica in places}
    placed_replicas = locate_replicas(places, await cluster.describe_log_dirs(brokers))
    current_places = {
        placed.replica: placed.current
        for placed in placed_replicas
        if placed.is_moving and placed.current is not None
    }
    for error in (await cluster.place_replicas(current_places)).values():
        if error is not None:
            raise error

    if current_places:
        names = ",".join(map(str, sorted(current_places)))
        say(f"Successfully cancelled log directory moves for: {names}", err=True)
