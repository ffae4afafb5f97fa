"""The work of a broker on its logs: each workload is one story, small, with every kind of file.

They are small so that every byte of them can be a crash's: segments of a few batches, indexes of a
few entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition
from tests.core_log.transactional_batches import ABORT, COMMIT, marker, transactional
from tests.crash.story import T0, TICK_MS, Story

GATES = TopicPartition("gates", 1)


def appends(story: Story) -> None:
    """Three segments, two of them rolled by size, producers and two epochs."""
    story.append(2)
    story.append(2, producer=7)
    story.append(records=3, codec=Codec.GZIP)
    story.append(2, epoch=2, producer=8)
    story.flush()
    story.checkpoint()
    story.append(4, epoch=2, producer=7)
    story.wait()
    story.append(2, epoch=3)


def old_messages(story: Story) -> None:
    """Formats 0 and 1, plain and wrapped, in several segments."""
    story.append_messages(3, magic=0)
    story.append_messages(4, magic=1)
    story.append_messages(3, magic=1, codec=Codec.GZIP)
    story.flush()
    story.checkpoint()
    story.append_messages(5, magic=0)
    story.append_messages(3, magic=1)


def rolls(story: Story) -> None:
    """Begin segments right at the flushed end, by hand, and when time is over."""
    story.append(3)
    story.flush()
    story.checkpoint()
    story.roll()
    story.append(2, timestamp=T0 + 5)
    story.flush()
    story.checkpoint()
    story.append(2, timestamp=T0 + 10**9)
    story.roll()
    story.checkpoint()
    story.flush()
    story.append()


def transactions(story: Story) -> None:
    """Transactions of two producers, aborted and committed, in and over several segments."""
    first, second = partial(transactional, producer_id=1), partial(transactional, producer_id=2)
    story.follow(first, second, partial(marker, producer_id=1, kind=ABORT))
    story.flush()
    story.checkpoint()
    story.follow(first, partial(marker, producer_id=2, kind=ABORT))
    story.roll()
    story.follow(partial(marker, producer_id=1, kind=COMMIT), second, first)
    story.follow(partial(marker, producer_id=1, kind=ABORT))
    story.roll()
    story.follow(partial(marker, producer_id=2, kind=ABORT), first)
    story.flush()
    story.follow(partial(marker, producer_id=1, kind=ABORT))
    story.truncate_to(story.log().log_end_offset - 1)
    story.follow(partial(marker, producer_id=1, kind=ABORT))


def flushes(story: Story) -> None:
    """Flush whenever flush.messages and flush.ms ask for it, while the clock goes on."""
    for number in range(9):
        story.append(records=1 + number % 2, producer=1)
        story.wait()
    story.checkpoint()
    story.wait(3 * TICK_MS)
    story.append(2)


def appends_beside_a_flush(story: Story) -> None:
    """Appends and a roll between a flush's beginning and its end."""
    story.append(3, producer=1)
    begun = story.begin_flush()
    story.append(3, producer=1, flush=False)
    story.end_flush(*begun)
    story.checkpoint()
    story.append(2, flush=False)
    begun = story.begin_flush()
    story.roll()
    story.append(flush=False)
    story.end_flush(*begun)
    story.checkpoint()
    story.append()


def truncations(story: Story) -> None:
    """A follower's log cut within a segment, over segments, and at one's beginning; each time it
    goes on with what another leader wrote."""
    story.append(8, producer=1)
    story.append(records=3, producer=1)
    story.flush()
    story.checkpoint()
    story.truncate_to(9)
    story.append(2, epoch=1)
    story.truncate_to(3)
    story.append(3, epoch=2, producer=2)
    story.append(4, epoch=2)
    story.checkpoint()
    story.flush()
    base_offset = story.log().segments.active.base_offset
    story.truncate_to(base_offset)
    story.append(2, epoch=3)
    story.flush()
    story.checkpoint()


def truncation_of_what_is_flushed(story: Story) -> None:
    """The checkpoint says more is flushed than there is after a cut."""
    story.append(9)
    story.flush()
    story.checkpoint()
    story.write_meta_properties()
    story.truncate_to(2)
    story.append(7, epoch=1, flush=False)


def truncation_beside_a_flush(story: Story) -> None:
    """Truncate between a flush's beginning and its end."""
    story.append(3, flush=False)
    begun = story.begin_flush()
    story.truncate_to(1)
    story.append(2, epoch=1, flush=False)
    story.end_flush(*begun)
    story.checkpoint()
    story.flush()
    story.append(epoch=1)


def new_beginnings(story: Story) -> None:
    """Give up everything, to go on further ahead, and then further back."""
    story.append(6, producer=1)
    story.flush()
    story.checkpoint()
    story.truncate_fully(100)
    story.append(2, epoch=1)
    story.flush()
    story.truncate_fully(50)
    story.append(5, epoch=2)
    story.flush()
    story.checkpoint()


def retention(story: Story) -> None:
    """Delete old segments: one, several, all. Then remove their files."""
    story.append(14, producer=1)
    story.flush()
    story.checkpoint()
    for _ in range(2):
        story.set(retention_bytes=sum(segment.size for segment in list(story.log().segments)[1:]))
        assert story.retain() == 1
    story.checkpoint()
    story.append(2, epoch=1)
    story.set(retention_bytes=0)
    assert story.retain() >= 1
    story.wait(6000)
    story.tick()
    story.append(epoch=1)
    story.flush()
    story.checkpoint()


def several_segments_expire(story: Story) -> None:
    """Three segments go in one pass, and nothing is flushed afterwards."""
    story.append(14)
    story.flush()
    story.checkpoint()
    story.set(retention_bytes=sum(segment.size for segment in list(story.log().segments)[3:]))
    assert story.retain() == 3
    story.checkpoint()


def records_deleted(story: Story) -> None:
    """DeleteRecords within a segment and at one's beginning, and retention behind it."""
    story.append(9, epoch=1)
    story.flush()
    story.give_up_below(2)
    story.checkpoint()
    story.manager.sync_names()
    story.write_meta_properties()
    base_offset = list(story.log().segments)[1].base_offset
    story.give_up_below(base_offset)
    story.checkpoint()
    story.write_meta_properties()
    story.log(GATES)
    assert story.retain() == 1
    story.checkpoint()
    story.log(TopicPartition("gates", 2))
    story.append(epoch=1)


def partition_deleted(story: Story) -> None:
    """Delete a partition, use its name again, and remove the old files."""
    story.append(9)
    story.append(tp=GATES)
    story.flush()
    story.flush(GATES)
    story.checkpoint()
    story.log(TopicPartition("gates", 2))
    story.delete()
    story.tick()
    story.append(9, epoch=1, flush=False)
    story.wait(6000)
    story.tick()


def checkpoints(story: Story) -> None:
    """Write all that a log directory keeps, stop cleanly, start, and crash after it."""
    story.write_meta_properties()
    story.append(3, producer=1)
    story.append(2, tp=GATES)
    story.flush()
    story.checkpoint_high_watermark(2)
    story.give_up_below(1)
    story.checkpoint()
    story.checkpoint_high_watermark(3)
    story.stop()
    story.start()
    story.checkpoint_high_watermark(3)
    story.append(3, producer=1, epoch=1)
    story.append(2, tp=GATES)
    story.stop()
    story.start()
    story.append(producer=1, epoch=1)


def compaction(story: Story) -> None:
    """Copies take the place of one segment each, then of several, while the log is written to; and
    what they replaced is removed."""
    for number in range(10):
        story.append(key=b"%d" % (number % 3), value=b"%d" % number)
    story.append(2, key=b"4", value=None)
    story.flush()
    story.checkpoint()
    assert story.compact() == 2
    story.append(key=b"1", value=b"new")
    assert story.compact(beside=lambda: story.append(key=b"2", value=b"newer")) == 1
    story.checkpoint()
    story.wait(6000)
    story.tick()
    story.append(key=b"1", value=b"newest")
    story.flush()
    story.checkpoint()
    story.truncate_to(1)
    story.append(3, key=b"5", epoch=1)


@attrs.frozen
class Workload:
    """A workload and its settings."""

    run: Callable[[Story], None]
    settings: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        """A name for people."""
        given = "".join(f", {name} {value}" for name, value in self.settings.items())
        return self.run.__name__.replace("_", " ") + given.replace("_", ".")

    def story(self) -> Story:
        """Do it."""
        story = Story.of(**self.settings)
        self.run(story)
        return story


WORKLOADS = [
    Workload(appends),
    Workload(appends, {"flush_messages": 3}),
    Workload(old_messages, {"message_format_version": "0.10.2"}),
    Workload(rolls),
    Workload(transactions),
    *(Workload(flushes, {"flush_messages": count}) for count in (1, 3)),
    *(Workload(flushes, {"flush_ms": most}) for most in (1, 3000)),
    Workload(appends_beside_a_flush),
    Workload(truncations),
    Workload(truncation_of_what_is_flushed),
    Workload(truncation_beside_a_flush),
    Workload(new_beginnings),
    Workload(retention),
    Workload(several_segments_expire),
    Workload(records_deleted),
    Workload(partition_deleted),
    Workload(checkpoints),
    Workload(compaction, {"cleanup_policy": ("compact",), "segment_bytes": 400}),
]
