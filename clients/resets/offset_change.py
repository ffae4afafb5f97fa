"""A change of a committed offset in one store, and what is left of it later. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from clients.resets.offset_export import STORES
from protocol.frozen import frozen
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

Place = tuple[str, TopicPartition]
"""A store, and a partition whose offset it may hold."""

Held = Mapping[Place, OffsetAndMetadata]
"""The offsets that the stores hold; a place that is absent has none."""


@frozen
class OffsetChange:
    """The offset of a partition in one store before and after; None: none is committed."""

    partition: TopicPartition
    store: str
    old: OffsetAndMetadata | None
    new: OffsetAndMetadata | None

    @property
    def place(self) -> Place:
        """Return the store and the partition."""
        return self.store, self.partition

    @property
    def is_move(self) -> bool:
        """Return whether the offset is another one afterwards.

        If it is not, what the store holds does not tell whether it was written.
        """
        return offset_of(self.old) != offset_of(self.new)


@frozen
class Comparison:
    """Changes by where the offsets are now."""

    at_new: tuple[OffsetChange, ...]
    at_old: tuple[OffsetChange, ...]
    moved: tuple[OffsetChange, ...]
    """Neither: somebody has committed since."""


def compare(changes: Iterable[OffsetChange], held: Held) -> Comparison:
    """Sort changes by what the stores hold. Only the offsets count, not their metadata."""
    at_new: list[OffsetChange] = []
    at_old: list[OffsetChange] = []
    moved: list[OffsetChange] = []
    for change in changes:
        now = offset_of(held.get(change.place))
        if now == offset_of(change.new):
            at_new.append(change)
        elif now == offset_of(change.old):
            at_old.append(change)
        else:
            moved.append(change)

    return Comparison(tuple(at_new), tuple(at_old), tuple(moved))


def reverse(changes: Iterable[OffsetChange], held: Held) -> list[OffsetChange]:
    """Return the changes from what is held now back to what was there before."""
    return [attrs.evolve(change, old=held.get(change.place), new=change.old) for change in changes]


def by_store(
    changes: Iterable[OffsetChange],
) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
    """Return the new offsets of each store, without those that are to be deleted."""
    offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {store: {} for store in STORES}
    for change in changes:
        if change.new is not None:
            offsets[change.store][change.partition] = change.new
    return offsets


def deletions(changes: Iterable[OffsetChange]) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each store whose offsets are to be deleted."""
    deleted: dict[str, list[TopicPartition]] = {store: [] for store in STORES}
    for change in changes:
        if change.new is None and change.old is not None:
            deleted[change.store].append(change.partition)
    return deleted


def partitions_by_store(changes: Collection[OffsetChange]) -> dict[str, list[TopicPartition]]:
    """Return the partitions that each store is asked for."""
    partitions: dict[str, list[TopicPartition]] = {store: [] for store in STORES}
    for change in changes:
        partitions[change.store].append(change.partition)
    return partitions


def moved_text(change: OffsetChange, held: Held) -> str:
    """Say what somebody has committed since, and how far that is from what was written."""
    now = offset_of(held.get(change.place))
    wrote = offset_of(change.new)
    if now is None:
        return f"its offset in {change.store} was deleted since; {wrote} was written"
    if wrote is None:
        return f"offset {now} was committed in {change.store} since the deletion"
    return (
        f"it moved by {now - wrote:+d} in {change.store} since: {wrote} was written, {now} is held"
    )


def offset_of(committed: OffsetAndMetadata | None) -> int | None:
    """Return the offset; None where none is committed."""
    return None if committed is None else committed.offset


def stores_of_changes(changes: Sequence[OffsetChange]) -> list[str]:
    """Return the names of the stores that are changed."""
    return sorted({change.store for change in changes})
