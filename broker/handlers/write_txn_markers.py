"""WriteTxnMarkers: write the ends of transactions into partitions that are led here (KIP-98).

A coordinator of transactions sends them, and repeats what is refused with an error that passes. It
knows few errors: at any other a stock one leaves the transaction as it is, for good. So each part
gets one of ANSWERS. A marker is written whether or not its producer has a transaction open.

Markers for `__consumer_offsets` go through the coordinator of groups, whose state they change. They
wait while it loads their partition.
"""

from __future__ import annotations

import logging
from itertools import islice

import attrs

from broker.handlers.waiting_parts import WaitingParts
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.replication.partition_waits import WATERMARK
from broker.replication.replica_manager import ReplicaManager
from core_log.log import AppendLater
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.runtime import Pending
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.batch_header import MAGIC
from protocol.records.control_record import ABORT, COMMIT, encode_marker
from protocol.topic_partition import TopicPartition

MARKERS_A_TURN = 50
"""Markers that are written in one turn of the loop."""

ANSWERS = {
    ErrorCode.NONE,
    # The producer, or the coordinator, has been replaced.
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    # There can be no transaction.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    # Find the leader again, or repeat.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
"""The errors that coordinators of transactions understand."""

_NOT_SERVED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class _Part:
    """A marker for one partition. `error` is None until its result is known.

    It is written before `until`, or by the coordinator of groups, which ends `pending`.
    """

    topic_partition: TopicPartition
    marker: WritableTxnMarker
    error: ErrorCode | None = None
    until: int = -1
    pending: Pending | None = None


@frozen
class _Writer:
    """The parts of the broker that write markers."""

    replicas: ReplicaManager
    groups: GroupCoordinator
    now_ms: int

    def is_done(self, part: _Part) -> bool:
        """Write the marker of a part, unless it is written; return whether its result is known."""
        if part.error is None:
            try:
                part.error = self._try_to_end(part)
            except ApiError as error:
                part.error = _known_code(part, error.code)
        return part.error is not None

    def _try_to_end(self, part: _Part) -> ErrorCode | None:
        """Return the result, None while there is none. Raises ApiError."""
        topic_partition = part.topic_partition
        # Nobody has such an id.
        if part.marker.producer_id < 0 or part.marker.producer_epoch < 0:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if topic_partition not in self.replicas.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = self.replicas.log(topic_partition)
        # The format may have been lowered since it began (fault strangers-68, was: False).
        is_open = log.producers.has_open(part.marker.producer_id)
        if log.config.magic < MAGIC and not is_open:
            return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        if topic_partition.topic == OFFSETS_TOPIC:
            return self._end_in_group(part)

        if part.until < 0:
            if self.replicas.awaits_flush(topic_partition):
                return None
            try:
                appended = self.replicas.append_local(
                    topic_partition, self._encode(part), self.now_ms
                )
            except AppendLater:
                return None
            part.until = appended.last_offset + 1
        return self._find_result(part)

    def _find_result(self, part: _Part) -> ErrorCode | None:
        """Return the result of a marker that is in the log. Raises ApiError."""
        # A new leader, or a log that failed, will not replicate it for us.
        partition = self.replicas.partition(part.topic_partition)
        partition.require_leader()
        if partition.high_watermark < part.until:
            return None if partition.log.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
        # The ISR has shrunk since: the marker stays, on too few replicas.
        if not partition.is_enough_in_sync:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def _end_in_group(self, part: _Part) -> ErrorCode | None:
        """Have the coordinator of groups write the marker. Raises ApiError."""
        marker = part.marker
        if part.pending is None:
            try:
                part.pending = self.groups.end_transaction(
                    part.topic_partition.partition,
                    marker.producer_id,
                    marker.producer_epoch,
                    is_committed=marker.transaction_result,
                    coordinator_epoch=marker.coordinator_epoch,
                )
            except ApiError as error:
                if error.code in _NOT_SERVED:
                    return None
                raise
        done = part.pending.response
        return None if done is None else _known_code(part, done.error)

    def _encode(self, part: _Part) -> bytes:
        marker = part.marker
        return encode_marker(
            COMMIT if marker.transaction_result else ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self.now_ms,
        )


def handle(
    replicas: ReplicaManager,
    groups: GroupCoordinator,
    deferred: Deferred,
    timeout_ms: int,
    request: WriteTxnMarkersRequest,
    context: RequestContext,
) -> Outcome:
    """Write the markers, some in each turn of the loop; respond when all are replicated."""
    writer = _Writer(replicas, groups, context.now_ms)
    parts = [
        _Part(TopicPartition(topic.name, index), marker)
        for marker in request.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    beginning = iter(parts)
    undone: list[_Part] = []

    def respond() -> WriteTxnMarkersResponse:
        return _response(request, parts)

    def write_more() -> Outcome | None:
        count = 0
        for part in islice(beginning, MARKERS_A_TURN):
            count += 1
            if not writer.is_done(part):
                undone.append(part)
        if count == MARKERS_A_TURN:
            return None

        left = [part for part in undone if not writer.is_done(part)]
        if not left:
            return respond()
        # What could not be written yet is tried whenever its partition moves.
        waiting = WaitingParts.of(left, writer.is_done, _end_late, respond)
        keys = {(WATERMARK, part.topic_partition) for part in left if part.until < 0}
        return Wait(
            keys=tuple(keys),
            offsets=tuple(
                ((WATERMARK, part.topic_partition), part.until) for part in left if part.until >= 0
            ),
            timeout_ms=timeout_ms,
            try_complete=waiting.try_complete,
            note_moved=waiting.note_moved,
        )

    def late() -> WriteTxnMarkersResponse:
        for part in parts:
            # Nor is it written any more: the coordinator sends it again (fault strangers-48).
            _end_late(part)
        return respond()

    return deferred.respond_in_turns(write_more, timeout_ms, late)


def _known_code(part: _Part, code: ErrorCode) -> ErrorCode:
    """Return an error as one that a coordinator of transactions understands."""
    if code in ANSWERS:
        return code
    logger.warning(
        "%s: marker of producer %d was not written: %s",
        part.topic_partition,
        part.marker.producer_id,
        code.name,
    )
    if code == ErrorCode.NOT_COORDINATOR:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Such as a log whose settings allow no batch of its size: that may be mended.
    return ErrorCode.KAFKA_STORAGE_ERROR


def _end_late(part: _Part) -> None:
    if part.error is None:
        part.error = ErrorCode.REQUEST_TIMED_OUT


def _response(request: WriteTxnMarkersRequest, parts: list[_Part]) -> WriteTxnMarkersResponse:
    # The parts are in the order of the request.
    results = iter(parts)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=next(results).error or ErrorCode.NONE,
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
