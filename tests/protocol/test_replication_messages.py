"""OffsetForLeaderEpoch and DeleteRecords, held to bytes written by Apache Kafka 2.8.2.

The bytes are what Kafka's own classes made of the values below.
"""

from __future__ import annotations

import pytest

from protocol.encoding import decode, encode
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)

BY_KAFKA = {
    (
        "OffsetForLeaderEpochRequest",
        0,
    ): "00000001000374c3a90000000200000000000000060000000100000006",
    ("OffsetForLeaderEpochResponse", 0): (
        "00000001000374c3a9000000020000000000000000000100000002004a00000001ffffffffffffffff"
    ),
    (
        "OffsetForLeaderEpochRequest",
        1,
    ): "00000001000374c3a90000000200000000000000060000000100000006",
    ("OffsetForLeaderEpochResponse", 1): (
        "00000001000374c3a900000002000000000000000000060000000100000002004a00000001ffffffffffffff"
        "ffffffffff"
    ),
    (
        "OffsetForLeaderEpochRequest",
        2,
    ): "00000001000374c3a900000002000000000000000700000006000000010000000700000006",
    ("OffsetForLeaderEpochResponse", 2): (
        "0000000500000001000374c3a900000002000000000000000000060000000100000002004a00000001ffffff"
        "ffffffffffffffffff"
    ),
    ("OffsetForLeaderEpochRequest", 3): (
        "0000000200000001000374c3a900000002000000000000000700000006000000010000000700000006"
    ),
    ("OffsetForLeaderEpochResponse", 3): (
        "0000000500000001000374c3a900000002000000000000000000060000000100000002004a00000001ffffff"
        "ffffffffffffffffff"
    ),
    ("DeleteRecordsRequest", 0): (
        "00000001000374c3a90000000200000000000000010000000200000001ffffffffffffffff000001f4"
    ),
    ("DeleteRecordsResponse", 0): "0000000500000001000374c3a9000000010000000100000001000000020007",
    ("DeleteRecordsRequest", 1): (
        "00000001000374c3a90000000200000000000000010000000200000001ffffffffffffffff000001f4"
    ),
    ("DeleteRecordsResponse", 1): "0000000500000001000374c3a9000000010000000100000001000000020007",
}
TOPIC = "té"


def epoch_request(version: int) -> OffsetForLeaderEpochRequest:
    partitions = [
        OffsetForLeaderEpochRequestPartition(
            partition=index, current_leader_epoch=7 if version >= 2 else -1, leader_epoch=6
        )
        for index in (0, 1)
    ]
    topic = OffsetForLeaderEpochRequestTopic(topic=TOPIC, partitions=tuple(partitions))
    return OffsetForLeaderEpochRequest(replica_id=2 if version >= 3 else -2, topics=(topic,))


def epoch_response(version: int) -> OffsetForLeaderEpochResponse:
    answered = OffsetForLeaderEpochResponsePartition(
        error_code=0,
        partition=0,
        leader_epoch=6 if version >= 1 else -1,
        end_offset=0x1_0000_0002,
    )
    fenced = OffsetForLeaderEpochResponsePartition(error_code=74, partition=1)
    topic = OffsetForLeaderEpochResponseTopic(topic=TOPIC, partitions=(answered, fenced))
    return OffsetForLeaderEpochResponse(throttle_time_ms=5 if version >= 2 else 0, topics=(topic,))


def deletion_request(version: int) -> DeleteRecordsRequest:
    partitions = (
        DeleteRecordsRequestPartition(partition_index=0, offset=0x1_0000_0002),
        DeleteRecordsRequestPartition(partition_index=1, offset=-1),
    )
    topic = DeleteRecordsRequestTopic(name=TOPIC, partitions=partitions)
    return DeleteRecordsRequest(topics=(topic,), timeout_ms=500)


def deletion_response(version: int) -> DeleteRecordsResponse:
    late = DeleteRecordsResponsePartition(
        partition_index=1, low_watermark=0x1_0000_0002, error_code=7
    )
    topic = DeleteRecordsResponseTopic(name=TOPIC, partitions=(late,))
    return DeleteRecordsResponse(throttle_time_ms=5, topics=(topic,))


MADE = {
    "OffsetForLeaderEpochRequest": epoch_request,
    "OffsetForLeaderEpochResponse": epoch_response,
    "DeleteRecordsRequest": deletion_request,
    "DeleteRecordsResponse": deletion_response,
}


@pytest.mark.parametrize(("name", "version"), BY_KAFKA)
def test_a_message_is_written_byte_for_byte_as_kafka_writes_it(name: str, version: int) -> None:
    assert encode(MADE[name](version), version).hex() == BY_KAFKA[name, version]


@pytest.mark.parametrize(("name", "version"), BY_KAFKA)
def test_a_message_of_kafka_is_read_whole(name: str, version: int) -> None:
    expected = MADE[name](version)
    data = bytes.fromhex(BY_KAFKA[name, version])
    assert decode(type(expected), version, data) == (expected, len(data))
