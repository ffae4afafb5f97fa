"""Which consumer thread gets which partition: Kafka's `range` and `roundrobin`, and one of ours.

Pure functions of (threads per topic, partitions per topic), so that every member that read the
same ZooKeeper state computes the same answer, whatever language it is written in. Strings are
ordered as Java orders them, by UTF-16 code unit. (The coordinator's assignors of the same names
follow other rules.)

What Kafka calls `roundrobin` is two rules. Both deal out partitions in the order of their names'
hashes, and in 1.0 the text of a name changed from `[topic,partition]` to `topic-partition`
(KAFKA-5822), so that members of 1.0 and of an older release can't share a group. Ours can be in
either's: `roundrobin` is the older rule, `roundrobin-1.0` the newer.

`clustered` is ours alone: `range`, after the partitions have been put in order of the broker that
leads them, so that a thread's share lies on few brokers and its member holds few connections. The
broker is the preferred leader (the first replica), not the leader of the moment: every member must
sort alike, and this is what the topic's node says, which all members watch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from protocol.java_hash import java_string_hash
from protocol.topic_partition import TopicPartition

Threads = Mapping[str, Iterable[str]]
Partitions = Mapping[str, Iterable[int]]
Leaders = Mapping[TopicPartition, int]
Assignment = dict[TopicPartition, str]

CLUSTERED = "clustered"
NO_LEADERS: Leaders = MappingProxyType({})


def assign_range(
    threads_of: Threads, partitions_of: Partitions, leaders: Leaders = NO_LEADERS
) -> Assignment:
    """Per topic, consecutive shares; the first len(P) % len(C) threads get one partition more."""
    return _shares(threads_of, {topic: sorted(some) for topic, some in partitions_of.items()})


def assign_clustered(
    threads_of: Threads, partitions_of: Partitions, leaders: Leaders = NO_LEADERS
) -> Assignment:
    """`assign_range` over partitions ordered by preferred leader, then by number."""
    by_leader = {
        topic: sorted(some, key=lambda p: (leaders.get(TopicPartition(topic, p), -1), p))
        for topic, some in partitions_of.items()
    }
    return _shares(threads_of, by_leader)


def _shares(threads_of: Threads, ordered_partitions: Mapping[str, Sequence[int]]) -> Assignment:
    assignment: Assignment = {}
    for topic, threads in threads_of.items():
        ordered = java_sorted(threads)
        partitions = ordered_partitions.get(topic, ())
        share, extra = divmod(len(partitions), len(ordered)) if ordered else (0, 0)
        for index, thread in enumerate(ordered):
            start = share * index + min(index, extra)
            end = start + share + (index < extra)
            assignment |= {TopicPartition(topic, p): thread for p in partitions[start:end]}
    return assignment


def assign_round_robin(
    threads_of: Threads, partitions_of: Partitions, leaders: Leaders = NO_LEADERS
) -> Assignment:
    """Deal all partitions of all topics in turn, as Kafka 0.8 to 0.11."""
    return _dealt_out(threads_of, partitions_of, "[{},{}]")


def assign_round_robin_1_0(
    threads_of: Threads, partitions_of: Partitions, leaders: Leaders = NO_LEADERS
) -> Assignment:
    """`assign_round_robin` as Kafka 1.0 and 1.1."""
    return _dealt_out(threads_of, partitions_of, "{}-{}")


def _dealt_out(threads_of: Threads, partitions_of: Partitions, name: str) -> Assignment:
    """Deal in turn, passing over threads that lack the topic.

    The order of the partitions is that of the Java hash of their names, which spreads each topic
    over the members. Where two hashes are equal Kafka's order is an accident of a Scala map; ours
    is by topic and number.
    """
    subscribers = {topic: frozenset(threads) for topic, threads in threads_of.items()}
    ring = java_sorted(frozenset().union(*subscribers.values()))
    turn = 0
    assignment: Assignment = {}
    for partition in sorted(
        (TopicPartition(t, p) for t in subscribers for p in partitions_of.get(t, ())),
        key=lambda tp: (java_string_hash(name.format(*tp)), tp),
    ):
        if not (willing := subscribers[partition.topic]):
            continue
        while ring[turn % len(ring)] not in willing:
            turn += 1
        assignment[partition] = ring[turn % len(ring)]
        turn += 1
    return assignment


ASSIGNORS: dict[str, Callable[[Threads, Partitions, Leaders], Assignment]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "roundrobin-1.0": assign_round_robin_1_0,
    CLUSTERED: assign_clustered,
}


def java_sorted(texts: Iterable[str]) -> list[str]:
    """`texts` in the order of Java's String.compareTo, without repeats."""
    return sorted(set(texts), key=lambda text: text.encode("utf-16-be", "surrogatepass"))
