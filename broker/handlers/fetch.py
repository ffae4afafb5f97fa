"""Fetch: ranges of log files, at once or when `min_bytes` of them are there.

Sessions (KIP-227) are not kept: every request is a full one and is answered with session id 0 and
an entry for each partition asked, in order, which is what a broker with a full session cache does.
Partitions are read in the order asked; the first one with data gives at least one batch whatever
the limits (KIP-74).

Versions 0-3 read older formats, and what is kept in a newer one is converted for them
(`down_conversion`); 0-2 take no byte more than they ask for, though it cut the first message.
"""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

import attrs

from broker.deferred import Deferred
from broker.dispatch import RequestContext
from broker.down_conversion import (
    AT_ONCE_BYTES,
    CONVERSION_TIMEOUT_MS,
    Conversion,
    for_old_reader,
)
from broker.metadata_cache import MetadataCache
from broker.purgatory import Wait
from broker.replica_manager import ReplicaManager
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
    error_response,
    partition_error,
)
from protocol.records.compression import CompressionUnavailable
from protocol.records.convert import NoOlderForm
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_partition import TopicPartition

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
FIRST_VERSION_OF_ZSTD = 10
FIRST_VERSION_OF_FORMAT_2 = 4
FIRST_VERSION_OF_FORMAT_1 = 2
FIRST_VERSION_OF_SOFT_LIMITS = 3
_EMPTY = b""


@attrs.frozen
class _OldReader:
    """What versions 0-3 are to be spared: formats above `magic`, more bytes than they asked for."""

    magic: int
    hard_limits: bool
    deferred: Deferred


@attrs.frozen
class _Reader:
    """What reading a request needs, kept while it waits."""

    replicas: ReplicaManager
    cache: MetadataCache
    request: FetchRequest
    max_bytes: int
    zstd_allowed: bool
    old: _OldReader | None


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    most_bytes: int,
    deferred: Deferred,
    request: FetchRequest,
    context: RequestContext,
) -> Any:
    """Read, or wait up to `max_wait_ms`. `most_bytes` is the broker's fetch.max.bytes."""
    if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    version = context.api_version
    reader = _Reader(
        replicas,
        cache,
        request,
        min(request.max_bytes, most_bytes),
        version >= FIRST_VERSION_OF_ZSTD,
        None if version >= FIRST_VERSION_OF_FORMAT_2 else _old_reader(version, deferred),
    )
    if request.max_wait_ms <= 0 or _enough(reader):
        return _answer(reader)
    keys = tuple(
        TopicPartition(topic.topic, p.partition)
        for topic in request.topics
        for p in topic.partitions
    )

    def try_complete(expired: bool) -> Any:
        return _answer(reader) if expired or _enough(reader) else None

    return Wait(keys=keys, timeout_ms=request.max_wait_ms, try_complete=try_complete)


def _answer(reader: _Reader) -> FetchResponse | Wait:
    response = _read(reader)
    return response if reader.old is None else _readable(reader.request, reader.old, response)


def _enough(reader: _Reader) -> bool:
    """Whether to answer now: enough bytes, nothing asked, or something to say at once."""
    wanted = reader.request.min_bytes
    if wanted <= 0 or not any(topic.partitions for topic in reader.request.topics):
        return True
    found = 0
    for topic in reader.request.topics:
        for p in topic.partitions:
            try:
                partition = reader.replicas.partition(TopicPartition(topic.topic, p.partition))
                partition.require_leader(p.current_leader_epoch)
            except ApiError:
                return True
            log = partition.log
            if not log.log_start_offset <= p.fetch_offset <= log.log_end_offset:
                return True
            available = log.bytes_between(p.fetch_offset, partition.high_watermark)
            found += min(available, p.partition_max_bytes)
            if found >= wanted:
                return True
    return False


def _read(reader: _Reader) -> FetchResponse:
    left, first = reader.max_bytes, True
    topics = []
    for topic in reader.request.topics:
        partitions = []
        for p in topic.partitions:
            part = _read_partition(reader, topic.topic, p, left, first)
            size = getattr(part.records, "size", 0)
            first = first and not size
            left = max(0, left - size)
            partitions.append(part)
        topics.append(FetchResponseTopic(topic=topic.topic, partitions=partitions))
    return FetchResponse(responses=topics)


def _read_partition(
    reader: _Reader, topic: str, p: FetchRequestPartition, left: int, first: bool
) -> FetchResponsePartition:
    tp, replicas, old = TopicPartition(topic, p.partition), reader.replicas, reader.old
    try:
        if reader.cache.partition_state(tp) is None and tp not in replicas.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
        found = replicas.read(
            tp,
            p.fetch_offset,
            min(p.partition_max_bytes, left),
            min_one=first or (old is not None and old.hard_limits),
            current_leader_epoch=p.current_leader_epoch,
        )
        if not reader.zstd_allowed and replicas.log(tp).config.compression_type == "zstd":
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{tp} is kept in zstd")
        records: Any = _EMPTY if found.range is None else found.range
        if old is not None and found.range is not None:
            records = for_old_reader(
                found.range,
                replicas.log(tp).config,
                magic=old.magic,
                fetch_offset=p.fetch_offset,
                limit=min(p.partition_max_bytes, left),
                hard=old.hard_limits,
            )
    except ApiError as error:
        return partition_error(p.partition, error.code)
    return FetchResponsePartition(
        partition_index=p.partition,
        error_code=ErrorCode.NONE,
        high_watermark=found.high_watermark,
        last_stable_offset=found.high_watermark,
        log_start_offset=found.log_start_offset,
        records=records,
    )


# ---- versions 0-3


def _old_reader(version: int, deferred: Deferred) -> _OldReader:
    magic = 1 if version >= FIRST_VERSION_OF_FORMAT_1 else 0
    return _OldReader(magic, version < FIRST_VERSION_OF_SOFT_LIMITS, deferred)


def _readable(
    request: FetchRequest, old: _OldReader, response: FetchResponse
) -> FetchResponse | Wait:
    """The response, after what must be converted in it is, or has begun to be."""
    conversions = [
        p.records
        for topic in response.responses
        for p in topic.partitions
        if isinstance(p.records, Conversion)
    ]
    if not conversions:
        return response

    def convert() -> FetchResponse:
        return FetchResponse(
            responses=[
                FetchResponseTopic(
                    topic=topic.topic,
                    partitions=[_converted(p, old.deferred.executor) for p in topic.partitions],
                )
                for topic in response.responses
            ]
        )

    size = sum(conversion.source.size for conversion in conversions)
    if size <= AT_ONCE_BYTES and all(conversion.at_once for conversion in conversions):
        return convert()
    return old.deferred.answer_from_thread(
        convert,
        CONVERSION_TIMEOUT_MS,
        lambda: error_response(request, ErrorCode.REQUEST_TIMED_OUT, 0),
    )


def _converted(p: FetchResponsePartition, executor: Executor) -> FetchResponsePartition:
    if not isinstance(p.records, Conversion):
        return p
    try:
        records = p.records.begin(executor)
    except (NoOlderForm, CompressionUnavailable):
        return partition_error(p.partition_index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    except CorruptRecord:
        return partition_error(p.partition_index, ErrorCode.CORRUPT_MESSAGE)
    return FetchResponsePartition(
        partition_index=p.partition_index,
        error_code=ErrorCode.NONE,
        high_watermark=p.high_watermark,
        records=records,
    )
