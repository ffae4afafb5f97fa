"""The producer of a Python worker, which a task gives its packed batches to.

The task's thread packs, a loop's thread sends. Spark keeps its Python workers, and so the producer
of a worker's last task serves the next one if its settings are the same: its connections and what
it knows of the topics stay. A producer of a task that failed is not kept, because it may hold rows
that nobody waits for.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, cast

import attrs

from clients.errors import BrokerError, DeadlineExceeded, KgroupError
from clients.loop_thread import LoopThread
from clients.producer.deliveries import Delivery
from clients.producer.producer import Producer
from clients.producer.sequences import Sequences
from clients.producer.shared_delivery import SharedDelivery
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from spark_connector.sink.packing import Packed

ABORT_MS = 0
"""Time that a producer has to close when its task has failed: its rows are given up."""

_ADVICE: Mapping[ErrorCode, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a topic's name has 1 to 249 letters, digits, dots, underscores and hyphens"
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        "another attempt of this task has written meanwhile; the next one takes that into account"
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: "a later batch of this query has been written",
}
"""What to do about an error of a broker, or what it means for a task."""


class WriteFailed(Exception):
    """Rows were not written; the text names topic and partition, and says what to do."""


@attrs.define(eq=False)
class Sending:
    """A producer on a loop of its own. It serves one task at a time."""

    settings: Mapping[str, Any]
    producer: Producer = attrs.field(init=False)
    delivered: list[tuple[TopicPartition, int]] = attrs.field(init=False, factory=list)
    """The partition and the first offset of each batch that was acknowledged in this task."""
    _partition_counts: dict[str, int] = attrs.field(init=False, factory=dict)
    _loop: LoopThread = attrs.field(init=False)
    _unfinished: deque[tuple[TopicPartition, SharedDelivery]] = attrs.field(
        init=False, factory=deque
    )

    def __attrs_post_init__(self) -> None:
        async def make() -> Producer:
            return await Producer(self.settings).__aenter__()

        self._loop = LoopThread("kgroup-sink")
        try:
            self.producer = self._loop.call(make())
        except BaseException:
            self._loop.stop()
            raise

    def begin_task(self) -> None:
        """Forget the task before: partitions may have been added since."""
        self.delivered = []
        self._partition_counts = {}

    def use_numbers(self, numbers: Sequences) -> None:
        """Number the records as `numbers` says."""
        self.producer.use_numbers(numbers)

    def count_partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises WriteFailed."""
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._call_for(topic, self.producer.partitions(topic))
            self._partition_counts[topic] = count
        return count

    def send(self, packed: Iterable[Packed]) -> None:
        """Hand batches over, in order; wait only for room. Raises WriteFailed.

        That may be for a batch that was sent before.
        """
        for partition, builder in packed:
            delivery = SharedDelivery(builder.count)
            self._unfinished.append((partition, delivery))
            # The producer completes it as it would complete a future.
            sending = self.producer.send_batch(partition, builder, cast(Delivery, delivery))
            self._call_for(str(partition), sending)
            self._settle()

    def finish(self) -> None:
        """Wait until all batches are acknowledged. Raises WriteFailed."""
        self._call_for("the last rows", self.producer.flush())
        self._settle()
        assert not self._unfinished

    def close(self, timeout_ms: int | None = None) -> None:
        """Close the producer and its thread."""
        try:
            self._loop.call(self.producer.close(timeout_ms))
        finally:
            self._loop.stop()

    def _settle(self) -> None:
        """Take the results of batches, in the order in which they were sent."""
        while self._unfinished and (
            self._unfinished[0][1].done() or self._unfinished[0][1].error is not None
        ):
            partition, delivery = self._unfinished.popleft()
            if delivery.error is not None:
                raise WriteFailed(explain(str(partition), delivery.error)) from delivery.error
            assert delivery.first is not None
            self.delivered.append((partition, delivery.first.offset))

    def _call_for(self, where: str, work: Any) -> Any:
        try:
            return self._loop.call(work)
        except (KgroupError, ValueError) as error:
            raise WriteFailed(explain(where, error)) from error


def explain(where: str, error: BaseException) -> str:
    """Return a sentence on an error: where, what, and what to do."""
    text = str(error) if where in str(error) else f"{where}: {error}"
    if isinstance(error, BrokerError) and error.code in _ADVICE:
        return f"{text}: {_ADVICE[error.code]}"
    if isinstance(error, DeadlineExceeded):
        return f"{text}: see whether the brokers are there, and the topic exists"
    return text


_kept: Sending | None = None
"""The producer of this worker's last task; a worker runs one task at a time."""


def take_sending(settings: Mapping[str, Any]) -> Sending:
    """Return the worker's producer, or make it."""
    global _kept
    kept, _kept = _kept, None

    if kept is not None and kept.settings == settings:
        kept.begin_task()
        return kept
    if kept is not None:
        kept.close(ABORT_MS)
    return Sending(settings)


def close_kept() -> None:
    """Close the worker's producer, if it has one."""
    global _kept
    kept, _kept = _kept, None
    if kept is not None:
        kept.close(ABORT_MS)


def keep_sending(sending: Sending) -> None:
    """Keep a producer, all of whose batches are acknowledged, for the worker's next task."""
    global _kept
    assert _kept is None
    _kept = sending
