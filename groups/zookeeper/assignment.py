"""Assignors: Kafka's `range` and `roundrobin`, and one of ours.

An assignor says which consumer thread gets which partition. It is a pure function of threads and
partitions of each topic, so every member that has read the same ZooKeeper state computes the same
assignment, in any language. Strings are ordered as Java orders them, by UTF-16 code unit. (The
coordinator's assignors of the same names follow other rules.)

Kafka's `roundrobin` is two rules. Both deal out partitions in the order of the hashes of their
names, and 1.0 changed the text of a name from `[topic,partition]` to `topic-partition`
(KAFKA-5822). Members of 1.0 and of an older release therefore cannot share a group. Ours can be in
either: `roundrobin` is the older rule, `roundrobin-1.0` the newer.

`clustered` is ours alone. It is `range` over partitions ordered by the broker that leads them, so
that a thread's share lies on few brokers and its member holds few connections. The broker is the
preferred leader (the first replica) and not the present leader: every member must sort alike, and
the preferred leader is in the topic's node, which all members watch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from protocol.java_hash import java_string_hash
from protocol.java_order import java_order
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
    """Give each thread a consecutive share of each topic.

    Of P partitions and C threads, the first P % C threads get one partition more.
    """
    return _assign_shares(
        threads_of, {topic: sorted(numbers) for topic, numbers in partitions_of.items()}
    )


def assign_clustered(
    threads_of: Threads, partitions_of: Partitions, leaders: Leaders = NO_LEADERS
) -> Assignment:
    """Do as `assign_range`, over partitions ordered by preferred leader, then by number."""
    # Partitions without a known leader come first, on every member alike.
    by_leader = {
        topic: sorted(numbers, key=lambda p: (leaders.get(TopicPartition(topic, p), -1), p))
        for topic, numbers in partitions_of.items()
    }
    return _assign_shares(threads_of, by_leader)


def _assign_shares(
    threads_of: Threads, ordered_partitions: Mapping[str, Sequence[int]]
) -> Assignment:
    assignment: Assignment = {}
    # Topics with the same consumers share one object of threads: put it in order once.
    orders: dict[int, list[str]] = {}

    for topic, threads in threads_of.items():
        if id(threads) not in orders:
            orders[id(threads)] = java_sorted(threads)
        ordered = orders[id(threads)]
        partitions = ordered_partitions.get(topic, ())
        # Without consumers a topic has nobody to share it out to.
        share, extra = divmod(len(partitions), len(ordered)) if ordered else (0, 0)

        # Threads beyond the number of partitions get none.
        for index, thread_id in enumerate(ordered[: len(partitions)]):
            start = share * index + min(index, extra)
            end = start + share + (index < extra)
            assignment |= {TopicPartition(topic, p): thread_id for p in partitions[start:end]}
    return assignment


def assign_round_robin(
    threads_of: Threads, partitions_of: Partitions, leaders: Leaders = NO_LEADERS
) -> Assignment:
    """Deal out all partitions of all topics in turn, as Kafka 0.8 to 0.11."""
    return _deal_out(threads_of, partitions_of, "[{},{}]")


def assign_round_robin_1_0(
    threads_of: Threads, partitions_of: Partitions, leaders: Leaders = NO_LEADERS
) -> Assignment:
    """Do as `assign_round_robin`, in the order of Kafka 1.0 and 1.1."""
    return _deal_out(threads_of, partitions_of, "{}-{}")


def _deal_out(threads_of: Threads, partitions_of: Partitions, name: str) -> Assignment:
    """Deal in turn, and skip threads that do not consume the topic.

    The partitions are ordered by the Java hash of their names, which spreads each topic over the
    members. If two hashes are equal Kafka's order is an accident of a Scala map; ours is by topic
    and number.
    """
    # All threads in a ring, and the places of each topic's consumers in it.
    ring = java_sorted(thread_id for threads in _distinct(threads_of) for thread_id in threads)
    place_of = {thread_id: place for place, thread_id in enumerate(ring)}
    places_of = {
        id(threads): sorted({place_of[thread_id] for thread_id in threads})
        for threads in _distinct(threads_of)
    }

    turn = 0
    assignment: Assignment = {}
    for partition in sorted(
        (TopicPartition(t, p) for t in threads_of for p in partitions_of.get(t, ())),
        key=lambda partition: (java_string_hash(name.format(*partition)), partition),
    ):
        if not (places := places_of[id(threads_of[partition.topic])]):
            continue
        # Take the next in the ring, from `turn` on, that consumes the topic. The first follows the
        # last.
        index = bisect_left(places, turn)
        place = places[index] if index < len(places) else places[0]
        assignment[partition] = ring[place]
        turn = (place + 1) % len(ring)
    return assignment


def _distinct(threads_of: Threads) -> list[Collection[str]]:
    """Return the threads of all topics; threads that several topics share come once."""
    return [*{id(threads): threads for threads in threads_of.values()}.values()]


ASSIGNORS: dict[str, Callable[[Threads, Partitions, Leaders], Assignment]] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "roundrobin-1.0": assign_round_robin_1_0,
    CLUSTERED: assign_clustered,
}


def java_sorted(texts: Iterable[str]) -> list[str]:
    """Sort `texts` as Java's String.compareTo does, and remove repeats."""
    return sorted(set(texts), key=java_order)
