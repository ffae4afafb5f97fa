"""Which brokers keep a new topic's replicas: Kafka's placement, without and with racks.

Leaders go round-robin over the brokers; the followers of the partitions one broker leads are
spread over the others by a shift that grows each time the leaders have gone round. With racks,
the brokers are first interleaved by rack, and a replica goes to a rack that has none yet while
there is one (KIP-36).

Chance comes in as two numbers, so that the same call gives the same placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from protocol.errors import ApiError, ErrorCode

Assignment = dict[int, tuple[int, ...]]


def place_replicas(
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    start_partition: int = 0,
) -> Assignment:
    """Replicas for `partitions` partitions from `start_partition` on, preferred leader first.

    `racks` has every live broker's rack; unless all have one, racks are not looked at.
    `start_index` and `shift` are any numbers >= 0, drawn below the number of brokers.
    Raises ApiError: INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
    """
    _check_counts(len(racks), partitions, replication_factor)
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    rack_aware = len(known) == len(racks)
    brokers = alternate_racks(known) if rack_aware else sorted(racks)
    assignment = {}
    for partition in range(start_partition, start_partition + partitions):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start_index) % len(brokers)
        if rack_aware:
            replicas = _across_racks(brokers, known, first, shift, replication_factor)
        else:
            replicas = tuple(
                brokers[place] for place in _places(first, shift, replication_factor, len(brokers))
            )
        assignment[partition] = replicas
    return assignment


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """The brokers one rack after the other, racks by name and brokers by id inside each."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for each in rounds for broker in each if broker is not None]


def _check_counts(brokers: int, partitions: int, replication_factor: int) -> None:
    if partitions <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0.",
        )
    if replication_factor > brokers:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {brokers}.",
        )


def _place(first: int, shift: int, nth: int, brokers: int) -> int:
    """The place of the `nth` candidate (from 0) to follow the leader at place `first`."""
    return (first + 1 + (shift + nth) % (brokers - 1)) % brokers


def _places(first: int, shift: int, count: int, brokers: int) -> list[int]:
    return [first, *(_place(first, shift, nth, brokers) for nth in range(count - 1))]


def _across_racks(
    brokers: Sequence[int], racks: Mapping[int, str], first: int, shift: int, count: int
) -> tuple[int, ...]:
    """The leader at `first`, then each next candidate on a rack that is not yet used; once all
    racks are, any broker that is not."""
    rack_count = len(set(racks.values()))
    replicas = [brokers[first]]
    used_racks = {racks[brokers[first]]}
    nth = 0
    while len(replicas) < count:
        candidate = brokers[_place(first, shift * rack_count, nth, len(brokers))]
        nth += 1
        fresh_rack = racks[candidate] not in used_racks or len(used_racks) == rack_count
        if fresh_rack and candidate not in replicas:
            replicas.append(candidate)
            used_racks.add(racks[candidate])
    return tuple(replicas)
