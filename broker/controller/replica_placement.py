"""Place a new topic's replicas on brokers as Kafka does, without and with racks.

Leaders go round-robin over the brokers. The followers of the partitions that one broker leads are
spread over the others by a shift, which grows each time the leaders have gone round. With racks,
the brokers are first interleaved by rack, and a replica goes to a rack that has none yet while
there is one (KIP-36).

The two random numbers are parameters, so that the same call gives the same placement.
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
    """Return replicas for `partitions` partitions from `start_partition` on, leaders first.

    `racks` has every live broker's rack; racks count only if all brokers have one. `start_index`
    and `shift` are any numbers >= 0, drawn below the number of brokers. Raises ApiError:
    INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
    """
    _check_counts(len(racks), partitions, replication_factor)

    # Kafka's Safe mode: where a broker has no rack, the others' racks are ignored.
    known_racks = {broker_id: rack for broker_id, rack in racks.items() if rack is not None}
    is_rack_aware = len(known_racks) == len(racks)
    brokers = alternate_racks(known_racks) if is_rack_aware else sorted(racks)

    assignment = {}
    placed: dict[tuple[int, int], tuple[int, ...]] = {}
    for partition in range(start_partition, start_partition + partitions):
        if partition > 0 and partition % len(brokers) == 0:
            # The leaders have gone round: their next followers are other brokers.
            shift += 1
        first = (partition + start_index) % len(brokers)
        # A topic of 75,000 partitions has as many places, but few different ones.
        key = first, shift % max(len(brokers) - 1, 1)
        replicas = placed.get(key)
        if replicas is None:
            replicas = placed[key] = _choose(
                brokers, known_racks if is_rack_aware else None, first, shift, replication_factor
            )
        assignment[partition] = replicas
    return assignment


def alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Interleave the brokers by rack: racks by name, and brokers by id within a rack."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id], []).append(broker_id)

    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker_id for brokers in rounds for broker_id in brokers if broker_id is not None]


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


def _choose(
    brokers: Sequence[int], racks: Mapping[int, str] | None, first: int, shift: int, count: int
) -> tuple[int, ...]:
    if racks is None:
        places = _places(first, shift, count, len(brokers))
        replicas = tuple(brokers[place] for place in places)
    else:
        replicas = _across_racks(brokers, racks, first, shift, count)
    assert len(set(replicas)) == count
    return replicas


def _place(first: int, shift: int, nth: int, brokers: int) -> int:
    """Return the place of the `nth` candidate (from 0) to follow the leader at place `first`."""
    # One of the n - 1 places after the leader, so never its own.
    return (first + 1 + (shift + nth) % (brokers - 1)) % brokers


def _places(first: int, shift: int, count: int, brokers: int) -> list[int]:
    return [first, *(_place(first, shift, nth, brokers) for nth in range(count - 1))]


def _across_racks(
    brokers: Sequence[int], racks: Mapping[int, str], first: int, shift: int, count: int
) -> tuple[int, ...]:
    """Return the leader at `first`, then each next candidate on a rack without a replica.

    Once all racks have one, any broker without a replica will do.
    """
    rack_count = len(set(racks.values()))
    replicas = [brokers[first]]
    used_racks = {racks[brokers[first]]}

    nth = 0
    while len(replicas) < count:
        # As in Kafka, the shift goes by whole rounds of the racks.
        candidate = brokers[_place(first, shift * rack_count, nth, len(brokers))]
        nth += 1
        is_rack_free = racks[candidate] not in used_racks or len(used_racks) == rack_count
        if is_rack_free and candidate not in replicas:
            replicas.append(candidate)
            used_racks.add(racks[candidate])
    return tuple(replicas)
