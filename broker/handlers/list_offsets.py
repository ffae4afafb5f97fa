"""ListOffsets: the offset at a time, for consumers never beyond the high watermark.

Version 0 knows no times of records. It asks where segments begin that were written by a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial

from broker.cluster.metadata_cache import MetadataCache
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.fair_line import Owner, owner_of
from broker.network.request_context import RequestContext, refused_topics
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from core_log.log import Log
from core_log.segments.segment_list import LongLookUp
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.special_values import EARLIEST_TIME, LATEST_TIME, READ_COMMITTED
from protocol.topic_partition import TopicPartition

CONSUMER = -1
FIRST_VERSION_OF_NOT_AVAILABLE = 5
"""From this version on a client knows OFFSET_NOT_AVAILABLE."""


LOOKED_UP_AT_ONCE = 32
"""Times that are looked up on the event loop for one request."""

LookUp = Callable[[Partition, int], tuple[int, int] | None]
"""Finds timestamp and offset of the first record of a partition at a time. Raises ApiError."""

Place = tuple[Log, int, int]
"""A log, the leader epoch in which it is looked at, and a time."""


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    timeout_ms: int,
    request: ListOffsetsRequest,
    context: RequestContext,
) -> Outcome:
    """Respond for each partition; one that the request names twice is refused.

    Times for which batches must be decompressed are looked up in a thread, for at most
    `timeout_ms`. Then what was found is told, and clients ask again for the rest.
    """
    names = (topic.name for topic in request.topics)
    refused = refused_topics(context, Operation.DESCRIBE, names)
    if context.api_version == 0:
        return _list_segments(replicas, cache, request, refused, context.now_ms)

    # A partition that is named twice has no right response: Kafka refuses it.
    counts = Counter(
        TopicPartition(topic.name, partition_request.partition_index)
        for topic in request.topics
        for partition_request in topic.partitions
    )
    twice = {topic_partition for topic_partition, count in counts.items() if count > 1}

    # Look few times up here, as far as that takes few small reads.
    times = list(_times(replicas, request, refused, twice))
    results: dict[Place, tuple[int, int] | ApiError | None] = {}
    left = times[LOOKED_UP_AT_ONCE:]
    for place in times[:LOOKED_UP_AT_ONCE]:
        log, _, time = place
        try:
            results[place] = log.offset_for_timestamp_at_once(time)
        except LongLookUp:
            left.append(place)
        except ApiError as error:
            # Raised when the partition's part of the response is built.
            results[place] = error

    def look_up(partition: Partition, time: int) -> tuple[int, int] | None:
        place = (partition.log, partition.leader_epoch, time)
        reason = f"{partition.topic_partition} has moved while records were looked up"
        moved = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
        # While threads were at work it went to another directory, or got another leader. That is
        # not to say that it has no such record (fault strangers-95, was: results.get(place)).
        result = results.get(place, moved)
        if isinstance(result, ApiError):
            raise result
        return result

    if not left:
        return _respond(replicas, cache, request, refused, twice, context, look_up)

    # Look the others up in threads, then respond.
    def respond() -> ListOffsetsResponse:
        return _respond(replicas, cache, request, refused, twice, context, look_up)

    async def look_up_and_respond() -> ListOffsetsResponse:
        for place in left:
            results[place] = await _look_up(place, deferred, owner_of(context))
        return respond()

    late = ApiError(ErrorCode.REQUEST_TIMED_OUT, "records of other partitions were looked up")
    # What is found until then is told, or a client would get nothing, however often it asked
    # (fault strangers-97).
    results |= dict.fromkeys(left, late)
    return deferred.respond(look_up_and_respond(), timeout_ms, respond, only_asks=True)


def _times(
    replicas: ReplicaManager,
    request: ListOffsetsRequest,
    refused: Collection[str],
    twice: Collection[TopicPartition],
) -> Iterator[Place]:
    """Go through the times to be looked up, with the logs that are here."""
    for topic in request.topics:
        if topic.name in refused:
            continue
        for partition_request in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition_request.partition_index)
            partition = replicas.partitions.get(topic_partition)
            # The ends of a log are at hand.
            if partition_request.timestamp in (LATEST_TIME, EARLIEST_TIME) or partition is None:
                continue

            is_led = partition.is_led_in(partition_request.current_leader_epoch)
            # A thread may be truncating a follower's log (fault core-R3).
            if not is_led:
                continue
            # One batch might be decompressed 2,000 times to refuse 2,000 names.
            if topic_partition in twice:
                continue
            yield partition.log, partition.leader_epoch, partition_request.timestamp


async def _look_up(
    place: Place, deferred: Deferred, owner: Owner
) -> tuple[int, int] | ApiError | None:
    log, _, time = place
    try:
        in_thread = partial(deferred.in_thread, owner=owner)
        return await log.offset_for_timestamp_in_thread(time, in_thread)
    except ApiError as error:
        return error


def _respond(
    replicas: ReplicaManager,
    cache: MetadataCache,
    request: ListOffsetsRequest,
    refused: Collection[str],
    twice: Collection[TopicPartition],
    context: RequestContext,
    look_up: LookUp,
) -> ListOffsetsResponse:
    def respond(
        topic: str, partition_request: ListOffsetsRequestPartition
    ) -> ListOffsetsResponsePartition:
        topic_partition = TopicPartition(topic, partition_request.partition_index)
        try:
            if topic in refused:
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)
            if topic_partition in twice:
                reason = f"{topic_partition} is named twice"
                raise ApiError(ErrorCode.INVALID_REQUEST, reason)
            if cache.partition_state(topic_partition) is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(topic_partition))

            timestamp, offset = _find(
                replicas, topic_partition, request, partition_request, look_up
            )
            # Where no record was found there is no epoch.
            epoch = -1
            if offset >= 0:
                epoch = replicas.log(topic_partition).leader_epochs.epoch_of(offset)
        except ApiError as error:
            return ListOffsetsResponsePartition(
                partition_index=partition_request.partition_index,
                error_code=_known_code(error.code, context.api_version),
            )
        return ListOffsetsResponsePartition(
            partition_index=partition_request.partition_index,
            error_code=ErrorCode.NONE,
            timestamp=timestamp,
            offset=offset,
            leader_epoch=epoch,
        )

    return _response(request, respond)


def _response(
    request: ListOffsetsRequest,
    respond: Callable[[str, ListOffsetsRequestPartition], ListOffsetsResponsePartition],
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopic(
                name=topic.name,
                partitions=[
                    respond(topic.name, partition_request) for partition_request in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _known_code(code: ErrorCode, api_version: int) -> ErrorCode:
    """Return the error under the code that a client of this version knows."""
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and api_version < FIRST_VERSION_OF_NOT_AVAILABLE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


def _find(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    request: ListOffsetsRequest,
    partition_request: ListOffsetsRequestPartition,
    look_up: LookUp,
) -> tuple[int, int]:
    """Return timestamp and offset; -1 and -1 if no record is that late. Raises ApiError."""
    replica_id = request.replica_id
    partition = replicas.partition(topic_partition)
    partition.require_leader(partition_request.current_leader_epoch)
    log = partition.log

    # A consumer sees nothing above the high watermark, or the last stable offset.
    end = log.log_end_offset
    if replica_id == CONSUMER:
        stable_only = request.isolation_level == READ_COMMITTED
        end = partition.last_stable_offset if stable_only else partition.high_watermark

    # The two ends of the log.
    if partition_request.timestamp == EARLIEST_TIME:
        return -1, log.log_start_offset
    if partition_request.timestamp == LATEST_TIME:
        _require_known_end(partition, replica_id)
        return -1, end

    # A time.
    if log.config.magic == 0:
        reason = f"{topic_partition} is kept without timestamps"
        raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, reason)
    record = look_up(partition, partition_request.timestamp)

    # A record that is not committed is not shown. Whether it is committed a new leader may
    # not know yet.
    if record is None or record[1] >= end:
        _require_known_end(partition, replica_id)
        return -1, -1
    return record


def _require_known_end(partition: Partition, replica_id: int) -> None:
    """Refuse a consumer while the high watermark may lag behind the last leader's (KIP-207)."""
    if replica_id == CONSUMER and not partition.is_watermark_known:
        raise ApiError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition.topic_partition}: the followers have not fetched yet",
        )


# ---- version 0


def _list_segments(
    replicas: ReplicaManager,
    cache: MetadataCache,
    request: ListOffsetsRequest,
    refused: Collection[str],
    now_ms: int,
) -> ListOffsetsResponse:
    def respond(
        topic: str, partition_request: ListOffsetsRequestPartition
    ) -> ListOffsetsResponsePartition:
        topic_partition = TopicPartition(topic, partition_request.partition_index)
        code = ErrorCode.NONE
        offsets: list[int] = []
        try:
            if topic in refused:
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)
            if cache.partition_state(topic_partition) is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(topic_partition))
            offsets = _segments_before(
                replicas, topic_partition, request.replica_id, partition_request, now_ms
            )
        except ApiError as error:
            code = _known_code(error.code, 0)
        return ListOffsetsResponsePartition(
            partition_index=partition_request.partition_index,
            error_code=code,
            old_style_offsets=offsets,
        )

    return _response(request, respond)


def _segments_before(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    replica_id: int,
    partition_request: ListOffsetsRequestPartition,
    now_ms: int,
) -> list[int]:
    """Return start offsets, newest first.

    For a consumer the high watermark stands in for all offsets above it.
    """
    partition = replicas.partition(topic_partition)
    partition.require_leader()

    # The log start needs no high watermark.
    if partition_request.timestamp != EARLIEST_TIME:
        _require_known_end(partition, replica_id)
    if partition_request.max_num_offsets < 0:
        reason = f"{partition_request.max_num_offsets} offsets of {topic_partition}"
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)

    offsets = partition.log.offsets_before(
        partition_request.timestamp, partition_request.max_num_offsets, now_ms
    )
    end = partition.high_watermark
    if replica_id != CONSUMER or not offsets or offsets[0] <= end:
        return offsets
    return [end, *(offset for offset in offsets if offset <= end)]
