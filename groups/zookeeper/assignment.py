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

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from protocol.java_hash import java_string_hash
from protocol.topic_partition import TopicPartition

Threads = Mapping[str, Collection[str]]
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
    orders: dict[int, list[str]] = {}  # topics with the same consumers share the very same threads
    for topic, threads in threads_of.items():
        if id(threads) not in orders:
            orders[id(threads)] = java_sorted(threads)
        ordered = orders[id(threads)]
        partitions = ordered_partitions.get(topic, ())
        share, extra = divmod(len(partitions), len(ordered)) if ordered else (0, 0)
        for index, thread in enumerate(ordered[: len(partitions)]):  # the others get none
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
    ring = java_sorted(thread for some in _distinct(threads_of) for thread in some)
    place_of = {thread: place for place, thread in enumerate(ring)}
    places_of = {
        id(threads): sorted({place_of[thread] for thread in threads})
        for threads in _distinct(threads_of)
    }

    turn = 0
    assignment: Assignment = {}
    for partition in sorted(
        (TopicPartition(t, p) for t in threads_of for p in partitions_of.get(t, ())),
        key=lambda tp: (java_string_hash(name.format(*tp)), tp),
    ):
        if not (places := places_of[id(threads_of[partition.topic])]):
            continue
        # The next in the ring, from `turn` on, that has the topic; behind the last comes the first.
        index = bisect_left(places, turn)
        place = places[index] if index < len(places) else places[0]
        assignment[partition] = ring[place]
        turn = (place + 1) % len(ring)
    return assignment


def _distinct(threads_of: Threads) -> list[Collection[str]]:
    """The threads of all topics; those that many topics share, once."""
    return [*{id(threads): threads for threads in threads_of.values()}.values()]


ASSIGNORS: dict[str, Callable[[Threads, Partitions, Leaders], Assignment]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "roundrobin-1.0": assign_round_robin_1_0,
    CLUSTERED: assign_clustered,
}


def java_sorted(texts: Iterable[str]) -> list[str]:
    """`texts` in the order of Java's String.compareTo, without repeats."""
    return sorted(set(texts), key=lambda text: text.encode("utf-16-be", "surrogatepass"))
