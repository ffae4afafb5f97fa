"""Where replicas shall be, as Kafka's reassignment tool has it in a file of JSON, and what follows.

    {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}

Here a plan is read, checked, proposed and compared with what is; nothing here talks to a cluster.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs

from broker.controller.replica_placement import place_replicas
from clients.admin.descriptions import PartitionReassignment, TopicDescription
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
    """The plan cannot be read, or cannot be meant; the message names what is wrong in it."""


# --- files ----------------------------------------------------------------------------------------


def read_plan(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """The plan in a file. Raises ReassignmentError, also for what it says twice."""
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    entries = plan_entries(text)
    if not entries:
        raise ReassignmentError("Partition reassignment list cannot be empty")
    named = [TopicPartition(_field(e, "topic", str), _field(e, "partition", int)) for e in entries]
    if twice := [str(each) for each, count in Counter(named).items() if count > 1]:
        raise ReassignmentError(
            f"Partition reassignment contains duplicate topic partitions: {', '.join(twice)}"
        )
    for partition, entry in zip(named, entries, strict=True):
        replicas = _field(entry, "replicas", list)
        if not replicas or not all(type(each) is int for each in replicas):
            raise ReassignmentError(f"{partition}: replicas are broker ids, at least one")
        if doubled := [str(each) for each, count in Counter(replicas).items() if count > 1]:
            raise ReassignmentError(
                "Partition replica lists may not contain duplicate entries: "
                f"{partition} contains multiple entries for {', '.join(doubled)}"
            )
        _check_log_dirs(partition, entry, len(replicas))
        plan[partition] = tuple(replicas)
    return plan


def _check_log_dirs(partition: TopicPartition, entry: Mapping[str, Any], replicas: int) -> None:
    directories = entry.get("log_dirs", [ANY] * replicas)
    if not isinstance(directories, list) or len(directories) != replicas:
        raise ReassignmentError(
            f"Size of replicas list {replicas} is different from size of log dirs list "
            f"for partition {partition}"
        )
    for each in directories:
        if each != ANY and not (isinstance(each, str) and each.startswith("/")):
            raise ReassignmentError(
                f"{partition}: log directory {each!r} is neither {ANY!r} nor an absolute path"
            )


def plan_text(plan: Plan) -> str:
    """One line of JSON, as Kafka's tool writes it."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(replicas),
            "log_dirs": [ANY] * len(replicas),
        }
        for partition, replicas in sorted(plan.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def plan_entries(text: str) -> list[Mapping[str, Any]]:
    """The partitions of a plan as they stand there. Raises ReassignmentError."""
    return _entries(text, "partitions")


def read_topics_to_move(text: str) -> list[str]:
    """`{"version":1,"topics":[{"topic":"t"}]}`. Raises ReassignmentError."""
    topics = [_field(entry, "topic", str) for entry in _entries(text, "topics")]
    if not topics:
        raise ReassignmentError("there is no topic to move in the file")
    if twice := [each for each, count in Counter(topics).items() if count > 1]:
        raise ReassignmentError(
            f"List of topics to reassign contains duplicate entries: {', '.join(twice)}"
        )
    return topics


def read_partitions(text: str) -> list[TopicPartition]:
    """`{"partitions":[{"topic":"t","partition":0}]}`, of elections. Raises ReassignmentError."""
    found = [
        TopicPartition(_field(entry, "topic", str), _field(entry, "partition", int))
        for entry in _entries(text, "partitions")
    ]
    if twice := [str(each) for each, count in Counter(found).items() if count > 1]:
        raise ReassignmentError(f"the file names partitions twice: {', '.join(twice)}")
    return found


def _entries(text: str, key: str) -> list[Mapping[str, Any]]:
    try:
        whole = json.loads(text)
    except ValueError as error:
        raise ReassignmentError(f"not JSON: {error}") from None
    entries = whole.get(key) if isinstance(whole, dict) else None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ReassignmentError(f"the JSON is an object with a list of objects as {key!r}")
    version = whole.get("version", 1)
    if version != 1:
        raise ReassignmentError(f"version {version!r} of the file is not known, only 1")
    return entries


def _field(entry: Mapping[str, Any], name: str, kind: type) -> Any:
    value = entry.get(name)
    if type(value) is not kind:
        raise ReassignmentError(f"{json.dumps(entry)}: {name!r} is missing, or no {kind.__name__}")
    return value


# --- what is asked, and what there is -------------------------------------------------------------


def current_plan(topics: Iterable[TopicDescription]) -> dict[TopicPartition, tuple[int, ...]]:
    """Where the replicas of these topics are."""
    return {
        TopicPartition(topic.name, index): partition.replicas
        for topic in topics
        for index, partition in topic.partitions.items()
    }


def check_plan(plan: Plan, current: Plan, brokers: Collection[int]) -> None:
    """Raises ReassignmentError for partitions and brokers that are not there.

    A broker that keeps something is no stranger, though it may be down.
    """
    if unknown := sorted(str(each) for each in plan if each not in current):
        raise ReassignmentError(
            f"The proposed assignment contains non-existent partitions: {', '.join(unknown)}"
        )
    known = {*brokers, *(each for replicas in current.values() for each in replicas)}
    _check_brokers({each for replicas in plan.values() for each in replicas}, known)


def _check_brokers(named: Iterable[int], brokers: Collection[int]) -> None:
    if unknown := sorted(each for each in named if each not in brokers):
        raise ReassignmentError(
            "The proposed assignment contains non-existent brokerIDs: "
            f"{', '.join(map(str, unknown))}"
        )


def proposed_plan(
    topics: Iterable[TopicDescription],
    onto: Collection[int],
    racks: Mapping[int, str | None],
    chance: Callable[[int], int],
) -> dict[TopicPartition, tuple[int, ...]]:
    """A new place on the brokers `onto` for each partition, spread as for a new topic.

    `chance(n)` is a number below n. Raises ReassignmentError, and ApiError when there are fewer
    brokers than replicas.
    """
    _check_brokers(onto, racks)
    there = {each: racks[each] for each in onto}
    plan = {}
    for topic in topics:
        indexes = sorted(topic.partitions)
        placed = place_replicas(
            there,
            len(indexes),
            max(len(each.replicas) for each in topic.partitions.values()),
            start_index=chance(len(there)),
            shift=chance(len(there)),
        )
        for place, index in enumerate(indexes):
            plan[TopicPartition(topic.name, index)] = placed[place]
    return plan


class Status(StrEnum):
    """How far one partition of a plan is."""

    COMPLETE = "complete"
    IN_PROGRESS = "in_progress"
    NOT_ACTIVE = "not_active"
    MISSING = "missing"


def status_of(
    partition: TopicPartition,
    target: Sequence[int],
    current: Plan,
    moving: Mapping[TopicPartition, PartitionReassignment],
) -> Status:
    """What has become of one partition's part of a plan."""
    if partition in moving:
        return Status.IN_PROGRESS
    if partition not in current:
        return Status.MISSING
    return Status.COMPLETE if current[partition] == tuple(target) else Status.NOT_ACTIVE


# --- throttles ------------------------------------------------------------------------------------


@attrs.frozen
class Throttle:
    """Which replicas a limit of replication holds for, as the topics' settings say it."""

    brokers: frozenset[int]
    topic_configs: Mapping[str, Mapping[str, str]]


def throttle_of(plan: Plan, current: Plan) -> Throttle:
    """Those that send are all replicas that there are; those that fetch are the ones that come."""
    brokers: set[int] = set()
    sending: dict[str, list[str]] = defaultdict(list)
    fetching: dict[str, list[str]] = defaultdict(list)
    for partition, target in sorted(plan.items()):
        topic, index = partition.topic, partition.partition
        new = [each for each in target if each not in current[partition]]
        if not new:
            continue
        brokers |= {*current[partition], *new}
        sending[topic] += [f"{index}:{each}" for each in current[partition]]
        fetching[topic] += [f"{index}:{each}" for each in new]
    return Throttle(
        frozenset(brokers),
        {
            topic: {
                LEADER_REPLICAS: ",".join(sending[topic]),
                FOLLOWER_REPLICAS: ",".join(fetching[topic]),
            }
            for topic in sending
        },
    )


# --- progress -------------------------------------------------------------------------------------


Sizes = Mapping[tuple[TopicPartition, int], int]
"""Bytes of each replica, by partition and broker."""


@attrs.frozen
class Progress:
    """How many bytes of the replicas that come are there, of how many."""

    copied_bytes: int
    total_bytes: int

    @property
    def remaining_bytes(self) -> int:
        """What is yet to be copied."""
        return self.total_bytes - self.copied_bytes


def progress_of(
    partition: TopicPartition, leader: int, moving: PartitionReassignment, sizes: Sizes
) -> Progress:
    """Each replica that comes will be as large as the leader's.

    A copy that is larger than its leader's, whose old segments have gone meanwhile, is whole.
    """
    whole = sizes.get((partition, leader), 0)
    copied = sum(min(whole, sizes.get((partition, each), 0)) for each in moving.adding)
    return Progress(copied, whole * len(moving.adding))


def time_left_ms(before: Progress, now: Progress, elapsed_ms: int) -> int | None:
    """At the speed between two looks; None while nothing moves."""
    copied = now.copied_bytes - before.copied_bytes
    if copied <= 0 or elapsed_ms <= 0:
        return None
    return now.remaining_bytes * elapsed_ms // copied
