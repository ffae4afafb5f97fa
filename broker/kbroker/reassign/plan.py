"""A reassignment plan gives partitions new replicas, in the JSON of Kafka's reassignment tool.

    {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}

This module reads, checks and proposes plans, and compares them with the current replicas. It is
pure: it sends no requests.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from broker.controller.replica_placement import place_replicas
from clients.admin.descriptions import PartitionReassignment, TopicDescription
from protocol.errors import ApiError
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

Plan = Mapping[TopicPartition, tuple[int, ...]]
"""Partition -> its replicas, the preferred leader first."""

ANY = "any"
"""A log directory of the broker's choice."""

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


class ReassignmentError(Exception):
    """A plan cannot be read or is not possible; the message names the mistake."""


# --- files ----------------------------------------------------------------------------------------


def read_plan(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Read a plan from the text of its file. Raises ReassignmentError."""
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    entries = parse_plan_entries(text)
    if not entries:
        raise ReassignmentError("Partition reassignment list cannot be empty")

    # The partitions, none of them twice.
    partitions = [_read_partition(entry) for entry in entries]
    if duplicates := _find_duplicates(partitions):
        raise ReassignmentError(
            f"Partition reassignment contains duplicate topic partitions: {', '.join(duplicates)}"
        )

    # The replicas of each: brokers, none of them twice, and their directories.
    for partition, entry in zip(partitions, entries, strict=True):
        replicas = _read_field(entry, "replicas", list)

        # Not isinstance: JSON's true and false would pass as 1 and 0.
        if not replicas or not all(type(broker) is int for broker in replicas):
            raise ReassignmentError(f"{partition}: replicas must be broker ids, at least one")
        if duplicates := _find_duplicates(replicas):
            raise ReassignmentError(
                "Partition replica lists may not contain duplicate entries: "
                f"{partition} contains multiple entries for {', '.join(duplicates)}"
            )
        _check_log_dirs(partition, entry, len(replicas))
        plan[partition] = tuple(replicas)
    return plan


def _check_log_dirs(partition: TopicPartition, entry: Mapping[str, Any], replicas: int) -> None:
    directories = entry.get("log_dirs", [ANY] * replicas)

    # Directories belong to replicas by their positions.
    if not isinstance(directories, list) or len(directories) != replicas:
        raise ReassignmentError(
            f"Size of replicas list {replicas} is different from size of log dirs list "
            f"for partition {partition}"
        )
    for path in directories:
        if path != ANY and not (isinstance(path, str) and path.startswith("/")):
            raise ReassignmentError(
                f"{partition}: log directory {path!r} is neither {ANY!r} nor an absolute path"
            )


def format_plan(plan: Plan) -> str:
    """Format a plan as one line of JSON, as Kafka's tool writes it."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            # As in Kafka's tool, the way back does not name directories.
            "log_dirs": [ANY] * len(replicas),
        }
        for partition, replicas in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def parse_plan_entries(text: str) -> list[Mapping[str, Any]]:
    """Return the raw entries of a plan, one for each partition. Raises ReassignmentError."""
    return _parse_entries(text, "partitions")


def read_topics_to_move(text: str) -> list[str]:
    """Read topics from `{"version":1,"topics":[{"topic":"t"}]}`. Raises ReassignmentError."""
    topics = [_read_field(entry, "topic", str) for entry in _parse_entries(text, "topics")]
    if not topics:
        raise ReassignmentError("there is no topic to move in the file")
    if duplicates := _find_duplicates(topics):
        raise ReassignmentError(
            f"List of topics to reassign contains duplicate entries: {', '.join(duplicates)}"
        )
    return topics


def read_partitions(text: str) -> list[TopicPartition]:
    """Read the file of an election: `{"partitions":[{"topic":"t","partition":0}]}`.

    Raises ReassignmentError.
    """
    partitions = [_read_partition(entry) for entry in _parse_entries(text, "partitions")]
    if duplicates := _find_duplicates(partitions):
        raise ReassignmentError(f"the file names partitions twice: {', '.join(duplicates)}")
    return partitions


def _parse_entries(text: str, key: str) -> list[Mapping[str, Any]]:
    if not text.strip():
        raise ReassignmentError("the file is empty")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReassignmentError(f"not JSON: {error}") from None

    entries = document.get(key) if isinstance(document, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ReassignmentError(f"the JSON must be an object with a list of objects as {key!r}")

    # Kafka's tool reads a file without a version as version 1.
    version = document.get("version", 1)
    if version != 1:
        raise ReassignmentError(f"the file has the unknown version {version!r}, not 1")
    return entries


def _read_partition(entry: Mapping[str, Any]) -> TopicPartition:
    topic = _read_field(entry, "topic", str)
    return TopicPartition(topic, _read_field(entry, "partition", int))


def _read_field(entry: Mapping[str, Any], name: str, field_type: type) -> Any:
    value = entry.get(name)
    if type(value) is not field_type:
        type_name = field_type.__name__
        raise ReassignmentError(
            f"{json.dumps(entry)}: {name!r} is missing or not of type {type_name}"
        )
    return value


def _find_duplicates(values: Iterable[Hashable]) -> list[str]:
    return [str(value) for value, count in Counter(values).items() if count > 1]


# --- plans ----------------------------------------------------------------------------------------


def build_current_plan(topics: Iterable[TopicDescription]) -> dict[TopicPartition, tuple[int, ...]]:
    """Build the plan that leaves the replicas of these topics where they are."""
    return {
        TopicPartition(topic.name, partition_id): partition.replicas
        for topic in topics
        for partition_id, partition in topic.partitions.items()
    }


def check_plan(plan: Plan, current: Plan, brokers: Collection[int]) -> None:
    """Check that a plan's partitions and brokers exist. Raises ReassignmentError.

    A broker exists if it is live or has a replica of any partition.
    """
    if unknown := sorted(str(partition) for partition in plan if partition not in current):
        raise ReassignmentError(
            f"The proposed assignment contains non-existent partitions: {', '.join(unknown)}"
        )

    # A broker that is down may keep its replicas, and may get more: it copies them later.
    existing = {*brokers, *(broker for replicas in current.values() for broker in replicas)}
    _check_brokers({broker for replicas in plan.values() for broker in replicas}, existing)


def _check_brokers(brokers: Iterable[int], existing: Collection[int]) -> None:
    if unknown := sorted(broker for broker in brokers if broker not in existing):
        raise ReassignmentError(
            "The proposed assignment contains non-existent brokerIDs: "
            f"{', '.join(map(str, unknown))}"
        )


def propose_plan(
    topics: Iterable[TopicDescription],
    brokers: Collection[int],
    racks: Mapping[int, str | None],
    random_below: Callable[[int], int],
) -> dict[TopicPartition, tuple[int, ...]]:
    """Propose new replicas on `brokers` for each partition, spread as for a new topic.

    `random_below(n)` returns a number from 0 to n - 1. Raises ReassignmentError, and ApiError if
    there are fewer brokers than replicas.
    """
    _check_brokers(brokers, racks)
    rack_of = {broker: racks[broker] for broker in brokers}

    plan = {}
    for topic in topics:
        partition_ids = sorted(topic.partitions)
        try:
            placement = place_replicas(
                rack_of,
                len(partition_ids),
                # A partition may have more replicas than others while it is reassigned.
                max(len(partition.replicas) for partition in topic.partitions.values()),
                # Each topic begins at a random broker: small topics must not all share the first.
                start_index=random_below(len(rack_of)),
                shift=random_below(len(rack_of)),
            )
        except ApiError as error:
            raise ApiError(error.code, f"topic {topic.name}: {error.detail}") from None
        for index, partition_id in enumerate(partition_ids):
            plan[TopicPartition(topic.name, partition_id)] = placement[index]
    return plan


class Status(StrEnum):
    """The state of one partition of a plan."""

    COMPLETE = "complete"
    IN_PROGRESS = "in_progress"
    NOT_ACTIVE = "not_active"
    MISSING = "missing"


def find_status(
    partition: TopicPartition,
    target: Sequence[int],
    current: Plan,
    moving: Mapping[TopicPartition, PartitionReassignment],
) -> Status:
    """Compare one partition's part of a plan with the current state."""
    # Moving comes first: added replicas are listed at once, so they may equal the target.
    if partition in moving:
        return Status.IN_PROGRESS
    if partition not in current:
        return Status.MISSING
    return Status.COMPLETE if current[partition] == tuple(target) else Status.NOT_ACTIVE


# --- throttles ------------------------------------------------------------------------------------


@frozen
class Throttle:
    """The brokers and the topics' settings by which replication is throttled."""

    brokers: frozenset[int]
    topic_configs: Mapping[str, Mapping[str, str]]


def plan_throttle(plan: Plan, current: Plan) -> Throttle:
    """Plan the throttle: leaders' lists have the current replicas, followers' the added ones."""
    brokers: set[int] = set()
    leader_replicas: dict[str, list[str]] = defaultdict(list)
    follower_replicas: dict[str, list[str]] = defaultdict(list)

    for (topic, partition_id), target in sorted(plan.items()):
        replicas = current[TopicPartition(topic, partition_id)]
        added = [broker for broker in target if broker not in replicas]

        # Nothing is copied to replicas that are there.
        if not added:
            continue
        brokers |= {*replicas, *added}

        # Any current replica may lead while the added ones copy.
        leader_replicas[topic] += [f"{partition_id}:{broker}" for broker in replicas]
        follower_replicas[topic] += [f"{partition_id}:{broker}" for broker in added]

    return Throttle(
        frozenset(brokers),
        {
            topic: {
                LEADER_REPLICAS: ",".join(leader_replicas[topic]),
                FOLLOWER_REPLICAS: ",".join(follower_replicas[topic]),
            }
            for topic in leader_replicas
        },
    )


# --- progress -------------------------------------------------------------------------------------


Sizes = Mapping[tuple[TopicPartition, int], int]
"""Size of each replica in bytes, by partition and broker."""


@frozen
class CopyProgress:
    """Bytes that the added replicas have, of those that they will have."""

    copied_bytes: int
    total_bytes: int

    @property
    def remaining_bytes(self) -> int:
        """Bytes still to be copied."""
        return self.total_bytes - self.copied_bytes


def measure_progress(
    partition: TopicPartition, leader: int, moving: PartitionReassignment, sizes: Sizes
) -> CopyProgress:
    """Measure the progress of one partition; each added replica will be as large as the leader's.

    A copy may be larger than the leader's log, whose old segments were deleted: it counts as whole.
    """
    leader_size = sizes.get((partition, leader), 0)
    copied = sum(min(leader_size, sizes.get((partition, broker), 0)) for broker in moving.adding)
    return CopyProgress(copied, leader_size * len(moving.adding))


def estimate_time_left_ms(before: CopyProgress, now: CopyProgress, elapsed_ms: int) -> int | None:
    """Estimate the time left from two measurements; None if nothing was copied between them."""
    copied = now.copied_bytes - before.copied_bytes
    if copied <= 0 or elapsed_ms <= 0:
        return None
    return now.remaining_bytes * elapsed_ms // copied
