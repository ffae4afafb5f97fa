"""Replicas whose log directories a plan names (KIP-113), and how far their moves are.

    {"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/data/b"]}

A broker that has no replica yet remembers the directory and makes it there; it is told again until
it has one, so that what it says last is that the move has begun, or is done.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

import attrs
import click

from broker.kbroker.cluster_access import ClusterAccess, LogDirs
from broker.kbroker.reassign.plan import ANY, ReassignmentError, plan_entries
from clients.admin.descriptions import ReplicaDescription, TopicPartitionReplica
from clients.admin.requests import Verdicts
from clients.output import Failure, report
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition

Places = Mapping[TopicPartitionReplica, str]
"""Replica -> the path of the log directory that it is to be in."""

AGAIN_SECONDS = 0.1


def read_places(text: str) -> dict[TopicPartitionReplica, str]:
    """Those in a plan that `read_plan` has found to be one."""
    return {
        TopicPartitionReplica(TopicPartition(entry["topic"], entry["partition"]), broker): path
        for entry in plan_entries(text)
        for broker, path in zip(entry["replicas"], entry.get("log_dirs", ()), strict=False)
        if path != ANY
    }


def check_places(places: Places, log_dirs: Mapping[int, LogDirs]) -> None:
    """Raises ReassignmentError for directories that brokers do not have, or cannot use."""
    for replica, path in sorted(places.items()):
        known = log_dirs[replica.broker]
        if path not in known:
            raise ReassignmentError(
                f"{replica.topic_partition}: broker {replica.broker} has no log directory "
                f"{path!r}, only {', '.join(sorted(known))}"
            )
        if known[path].error is not ErrorCode.NONE:
            raise ReassignmentError(
                f"{replica.topic_partition}: {path!r} is offline on broker {replica.broker}"
            )


# --- beginning ------------------------------------------------------------------------------------


async def place(
    cluster: ClusterAccess, places: Places, timeout_ms: int, now_s: Callable[[], float]
) -> Verdicts[TopicPartitionReplica]:
    """Have all moves begun, those of replicas that are on their way to a broker as well."""
    verdicts: Verdicts[TopicPartitionReplica] = {}
    deadline_s, rest = now_s() + timeout_ms / 1000, dict(places)
    while rest:
        verdicts |= await cluster.place_replicas(rest)
        rest = {each: path for each, path in rest.items() if _is_to_come(verdicts.get(each))}
        if now_s() >= deadline_s:
            break
        if rest:
            await asyncio.sleep(AGAIN_SECONDS)
    return verdicts


def _is_to_come(error: ApiError | None) -> bool:
    return error is not None and error.code is ErrorCode.REPLICA_NOT_AVAILABLE


# --- how far they are -----------------------------------------------------------------------------


class PlaceStatus(StrEnum):
    """How one replica stands to the directory that a plan names for it."""

    COMPLETE = "complete"
    IN_PROGRESS = "in_progress"
    ELSEWHERE = "elsewhere"
    NOT_ACTIVE = "not_active"
    MISSING = "missing"


@attrs.frozen
class Placed:
    """A replica: the directory it should be in, the one it is in, the one it is moved to. Bytes
    are of the move, 0 without one."""

    replica: TopicPartitionReplica
    target: str
    current: str | None
    future: str | None
    copied_bytes: int = 0
    total_bytes: int = 0

    @property
    def status(self) -> PlaceStatus:
        """What has become of it."""
        if self.current is None:
            return PlaceStatus.MISSING
        if self.future is not None:
            return PlaceStatus.IN_PROGRESS if self.future == self.target else PlaceStatus.ELSEWHERE
        return PlaceStatus.COMPLETE if self.current == self.target else PlaceStatus.NOT_ACTIVE

    @property
    def is_moving(self) -> bool:
        """Whether it is on its way, or not yet where it could be."""
        return self.status in (PlaceStatus.IN_PROGRESS, PlaceStatus.ELSEWHERE)

    @property
    def sentence(self) -> str:
        """Kafka's."""
        where = f"Partition {self.replica.topic_partition} on broker {self.replica.broker}"
        match self.status:
            case PlaceStatus.COMPLETE:
                return f"Reassignment of replica {self.replica} completed successfully."
            case PlaceStatus.IN_PROGRESS:
                return f"Reassignment of replica {self.replica} is still in progress."
            case PlaceStatus.ELSEWHERE:
                return f"{where} is being moved to log dir {self.future} instead of {self.target}."
            case PlaceStatus.NOT_ACTIVE:
                return f"{where} is not being moved from log dir {self.current} to {self.target}."
        return (
            f"Partition {self.replica.topic_partition} is not found in any live log dir on broker "
            f"{self.replica.broker}. There is likely an offline log directory on the broker."
        )

    def item(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "broker": self.replica.broker,
            "log_dir": self.target,
            "current_log_dir": self.current,
            "future_log_dir": self.future,
            "state": str(self.status),
        }


def placed(places: Places, log_dirs: Mapping[int, LogDirs]) -> list[Placed]:
    """How each replica stands."""
    return [
        _placed(replica, target, log_dirs.get(replica.broker, {}))
        for replica, target in sorted(places.items())
    ]


def _placed(replica: TopicPartitionReplica, target: str, log_dirs: LogDirs) -> Placed:
    found: dict[bool, tuple[str, ReplicaDescription]] = {}
    for path, directory in log_dirs.items():
        described = directory.replicas.get(replica.topic_partition)
        if described is not None:
            found[described.is_future] = path, described
    current, future = (found.get(is_future, (None, None)) for is_future in (False, True))
    total = current[1].size_bytes if current[1] and future[1] else 0
    copied = min(future[1].size_bytes, total) if future[1] else 0
    return Placed(replica, target, current[0], future[0], copied, total)


def places_text(value: Iterable[Mapping[str, Any]] | None) -> str:
    """As in 1:/data/b (in_progress); - for none."""
    return " ".join(f"{e['broker']}:{e['log_dir']} ({e['state']})" for e in value or ()) or "-"


# --- what commands do with them -------------------------------------------------------------------


async def moved_within(
    cluster: ClusterAccess, output: str, places: Places, timeout_ms: int
) -> list[Failure]:
    """Begin the moves to other directories; gives those that could not begin."""
    verdicts = await place(cluster, places, timeout_ms, time.monotonic)
    failures = [Failure.of(str(replica), error) for replica, error in verdicts.items() if error]
    if output == "table":
        if moving := sorted(each for each, error in verdicts.items() if error is None):
            names = ",".join(map(str, moving))
            click.echo(f"Successfully started log directory moves for: {names}")
        report(failures)
    return failures


async def stay(cluster: ClusterAccess, places: Places) -> None:
    """Stop the moves to these directories. Raises ApiError."""
    if not places:
        return
    known = placed(places, await cluster.describe_log_dirs(each.broker for each in places))
    here = {e.replica: e.current for e in known if e.is_moving and e.current is not None}
    for error in (await cluster.place_replicas(here)).values():
        if error is not None:
            raise error
    if here:
        names = ",".join(map(str, sorted(here)))
        click.echo(f"Successfully cancelled log directory moves for: {names}", err=True)
