"""Name the consumer whose offsets a transaction commits (KIP-447)."""

from collections.abc import Callable, Iterable, Mapping

import attrs

from protocol.frozen import frozen
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@frozen
class ConsumerGroupMetadata:
    """A member in its generation, or (by default) a group whose coordinator checks no member.

    `handed_out` has the partitions that the consumer owns, with the offset behind the last message
    that it has handed out of each; None if the consumer does not say it. `with_epochs` adds the
    leader epochs that it knows to offsets.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    handed_out: Mapping[TopicPartition, int | None] | None = attrs.field(
        default=None, repr=False, eq=False
    )
    with_epochs: Callable[[Offsets], Offsets] = attrs.field(
        default=lambda offsets: offsets, repr=False, eq=False
    )

    def foreign(self, offsets: Offsets) -> list[TopicPartition]:
        """Return the partitions whose messages cannot come from what the consumer owns now.

        A partition that went and came back begins at its committed offset: what was read of it
        before may be others' work by now.
        """
        if self.handed_out is None:
            return []
        return sorted(_foreign(self.handed_out, offsets))


def _foreign(
    handed_out: Mapping[TopicPartition, int | None],
    offsets: Offsets,
) -> Iterable[TopicPartition]:
    for partition, committed in offsets.items():
        behind = handed_out.get(partition)
        if behind is None or committed.offset > behind:
            yield partition
