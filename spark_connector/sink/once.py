"""Write each row once, though Spark may run a task, a batch or a query again. Pure.

A task's rows are numbered as an idempotent producer numbers records (KIP-98), but the producer is
not a process: its id is made of the query and the number of the task, its epoch is the batch, and
its sequence counts the task's records of that batch in a partition. So all attempts of a task are
the same producer, whoever runs them, and the log itself says what they have written:

- An attempt that is not the first reads what the ones before it wrote, from where the logs ended
  before the batch. It leaves out the rows that are there, by their content, and goes on with the
  next number.
- A broker takes a batch of records only at the next number. Of two attempts that run at the same
  time the later one fails, and when Spark runs it again it reads first. There is one exception: a
  batch with the numbers of one that is in the log, first to last, is acknowledged as that one and
  not written, and its rows may be others. So attempts make batches of different sizes
  (`batch_bytes`), and a task is done only when what the log has at the places of its batches is
  what it wrote (`require_written`).
- What an attempt before has written counts also where not all replicas have it yet, above the high
  watermark: it is waited for.
- A larger epoch shuts out what is left of earlier batches of the query.

Where the logs ended is committed in a group that is named for the query, with the number of the
batch, when the batch is done. A batch that is run again after that writes nothing.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import attrs

from clients.producer.sequences import MAX_SEQUENCE, Numbers, Sequences
from protocol.frozen import frozen
from protocol.records.batch import Record
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.sink.rows import Headers

EPOCHS = 2**15
"""Number of epochs of a producer id; after so many batches another id begins."""

_BATCH = "batch "
_FIRST = "begin"
"""Metadata of a group's first commit, before any batch is done."""

_IDS_FROM = 2**62
"""Brokers give producer ids from 0 on, so none of theirs is ever as large."""

Offsets = Mapping[TopicPartition, int]


class NotRepeatable(Exception):
    """A task that was run again has other rows than before, so that nothing can be promised."""


@frozen
class TaskIdentity:
    """The identity that all attempts of a task share."""

    query_id: str
    batch_id: int
    task: int

    @property
    def producer_id(self) -> int:
        """The id under which the task writes, also in the next batches."""
        era = self.batch_id // EPOCHS
        digest = hashlib.sha256(f"{self.query_id}/{self.task}/{era}".encode()).digest()
        return _IDS_FROM + int.from_bytes(digest[:8], "big") % _IDS_FROM

    @property
    def epoch(self) -> int:
        """The epoch of the batch."""
        return self.batch_id % EPOCHS


@attrs.define(eq=False)
class TaskNumbers(Sequences):
    """The numbers of a task's records: they go on where an earlier attempt has stopped.

    They never change to another epoch or id. After a batch that was given up the next one gets its
    number, so that the log never has a number twice; the task fails anyway.
    """

    epoch: int = 0
    next_by_partition: dict[TopicPartition, int] = attrs.field(factory=dict)

    def next_numbers(self, partition: TopicPartition) -> Numbers:
        """Return the numbers of the partition's next batch."""
        assert self.producer_id is not None
        return Numbers(self.producer_id, self.epoch, self.next_by_partition.get(partition, 0))

    def record_delivery(
        self, partition: TopicPartition, numbers: Numbers, count: int, base_offset: int
    ) -> None:
        """Count a batch that is in the log."""
        self.next_by_partition[partition] = (numbers.base_sequence + count) & MAX_SEQUENCE

    def begin_epoch(self, partition: TopicPartition, numbers: Numbers) -> None:
        """Stay in the epoch, which is the batch's."""

    def may_renumber(
        self, partition: TopicPartition, numbers: Numbers, attempts: int, log_start_offset: int
    ) -> bool:
        """Return False: numbers are for good."""
        return False


@attrs.define
class Content:
    """What records hold, in whatever order: their number, and the sum of their hashes.

    Hashes of texts differ between processes, so this is for one process.
    """

    count: int = 0
    hashes: int = 0

    def add(
        self,
        keys: Iterable[bytes | None],
        values: Iterable[bytes | None],
        headers: Iterable[Headers],
    ) -> None:
        """Add records by their columns; the shortest one ends them."""
        hashes = list(map(hash, zip(keys, values, headers, strict=False)))
        self.count += len(hashes)
        self.hashes = (self.hashes + sum(hashes)) % 2**64

    def __add__(self, other: "Content") -> "Content":
        return Content(self.count + other.count, (self.hashes + other.hashes) % 2**64)


@attrs.define(eq=False)
class Found:
    """The rows that earlier attempts of a task have written."""

    next_by_partition: dict[TopicPartition, int] = attrs.field(factory=dict)
    rows: Counter[int] = attrs.field(factory=Counter)
    """How often a record is there and not yet met again, by the hash of its content."""

    content: Content = attrs.field(factory=Content)
    """All of these rows, also those that were met."""
    cut: set[TopicPartition] = attrs.field(factory=set)
    """The partitions whose logs have lost their beginning, and of which nothing was found since."""

    def add(self, partition: TopicPartition, next_sequence: int, records: Iterable[Record]) -> None:
        """Take note of a batch."""
        self.next_by_partition[partition] = next_sequence
        for record in records:
            self.content += content_of([record])
            headers = tuple((key, value) for key, value in record.headers)
            self.rows[hash((record.key, record.value, headers))] += 1

    def take(self, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Return whether a row is there already; each record there stands for one row."""
        content = hash((key, value, headers))
        left = self.rows.get(content, 0)
        if left == 0:
            return False

        if left == 1:
            del self.rows[content]
        else:
            self.rows[content] = left - 1
        return True

    def require_all_met(self, task: TaskIdentity) -> None:
        """Raise NotRepeatable if there are records that the task has no rows for."""
        if self.rows:
            raise NotRepeatable(
                f"query {task.query_id}, batch {task.batch_id}, task {task.task}: an earlier "
                f"attempt wrote {self.rows.total()} records that are not among the rows of this "
                "one: delivery=once needs a query that gives the same rows again; to go on, run "
                "it with delivery=at-least-once"
            )


def content_of(records: Iterable[Record]) -> Content:
    """Return what records hold."""
    content = Content()
    for record in records:
        headers = tuple((key, value) for key, value in record.headers)
        content.add([record.key], [record.value], [headers])
    return content


def batch_bytes(most: int, attempt: int, part: float) -> int:
    """Return the size of the batches of an attempt; `part`, from 0 to 1, is the attempt's own.

    A broker tells batches of two attempts with the same numbers apart by their size alone. Whether
    an attempt is another one is not always in its number: a stage that is run again begins at 0.
    """
    # Multiples of the golden ratio lie far from each other.
    step = attempt * 0.618 % 1
    return max(1, round(most * (1 - step / 3 - part / 3)))


def group_of(query_id: str) -> str:
    """Return the group in which a query's sink keeps its place."""
    return f"spark-sink-{query_id}"


def done_metadata(batch_id: int) -> str:
    """Return the metadata of a commit after a batch."""
    return f"{_BATCH}{batch_id}"


def first_commit(ends: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the first commit of a query's group: its rows will be behind these offsets."""
    return {partition: OffsetAndMetadata(end, _FIRST) for partition, end in ends.items()}


def commit_of(batch_id: int, ends: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the commit of a batch that is done, with the ends of the logs."""
    metadata = done_metadata(batch_id)
    return {partition: OffsetAndMetadata(end, metadata) for partition, end in ends.items()}


def last_done(committed: Collection[OffsetAndMetadata]) -> int:
    """Return the last batch that is done according to a group; -1 if none is."""
    batches = [
        int(place.metadata.removeprefix(_BATCH))
        for place in committed
        if place.metadata.startswith(_BATCH)
    ]
    return max(batches, default=-1)


def require_fresh(
    delivered: Iterable[tuple[TopicPartition, int]], ends: Offsets, task: TaskIdentity
) -> None:
    """Raise NotRepeatable if a broker took a batch for one of an attempt before this one.

    A batch with the numbers of one that is in the log is acknowledged with the place of that one,
    and not written. `ends` are the logs' ends when the attempt began.
    """
    for partition, offset in delivered:
        if offset < ends.get(partition, 0):
            raise NotRepeatable(
                f"{partition}: an attempt of query {task.query_id}, batch {task.batch_id}, task "
                f"{task.task} before this one has written already; Spark runs the task again"
            )


def require_written(rows: Content, written: Content, task: TaskIdentity) -> None:
    """Raise NotRepeatable if the log has not the rows of the task.

    An attempt that ran at the same time may have written other rows with the same numbers, for
    which a broker took ours.
    """
    if rows != written:
        raise NotRepeatable(
            f"query {task.query_id}, batch {task.batch_id}, task {task.task}: another attempt has "
            f"written at the same time: the log has {written.count} other records where "
            f"{rows.count} of this one are to be; Spark runs the task again, and that says what "
            "is missing"
        )
