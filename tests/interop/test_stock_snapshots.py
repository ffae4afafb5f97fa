"""One log, in turn a stock broker's and ours: each knows the producers the other has served."""

import asyncio
import time
from pathlib import Path
from uuid import uuid4

from clients.transport.connection import Connection
from core_log.appending.appended import LogAppendInfo
from core_log.config import LogConfig
from core_log.directory import LogDirectory
from core_log.log import Log
from core_log.producers.producer_snapshots import SNAPSHOT, decode, encode
from core_log.recovery.loading import load_log
from core_log.segments.file_name import file_name
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.records.batch import encode_batch, read_header
from protocol.topic_partition import TopicPartition
from tests.interop.traffic import new_topic
from tests.stage.stock_kafka import run_tool, stock_broker

NOT_YET = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
PRODUCER_ID, EPOCH = 4000, 3
NOW_MS = time.time_ns() // 1_000_000  # a stock broker forgets who wrote long ago


def numbered(sequence: int) -> bytes:
    records = [(NOW_MS, None, b"%d" % sequence, ()), (NOW_MS, None, b"and one more", ())]
    return encode_batch(
        records, producer_id=PRODUCER_ID, producer_epoch=EPOCH, base_sequence=sequence
    )


async def produce(bootstrap: str, topic: str, *sequences: int) -> list[tuple[int, int]]:
    """(error, base offset) for each batch sent, once the broker leads the partition."""
    host, _, port = bootstrap.rpartition(":")
    connection = await Connection.open(host, int(port))
    answers: list[tuple[int, int]] = []
    while len(answers) < len(sequences):
        part = ProduceRequestPartition(index=0, records=numbered(sequences[len(answers)]))
        topics = [ProduceRequestTopic(name=topic, partition_data=[part])]
        response = await connection.call(
            ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
        )
        (found,) = response.responses[0].partition_responses
        if found.error_code not in NOT_YET:
            answers.append((found.error_code, found.base_offset))
    await connection.close()
    return answers


def append(log: Log, sequence: int) -> LogAppendInfo:
    batch = numbered(sequence)
    return log.append(
        batch, read_header(batch), leader_epoch=0, now_ms=NOW_MS, max_timestamp=NOW_MS
    )


def test_each_answers_a_batch_again_that_the_other_has_written(
    zookeeper: str, tmp_path: Path
) -> None:
    stock_zookeeper = f"{zookeeper}/stock-{uuid4().hex[:8]}"
    with stock_broker(stock_zookeeper, tmp_path) as bootstrap:
        topic = asyncio.run(new_topic(bootstrap))
        assert asyncio.run(produce(bootstrap, topic, 0, 2, 4)) == [(0, 0), (0, 2), (0, 4)]
    directory = LogDirectory(tmp_path / "log" / f"{topic}-0")
    snapshot = directory.read(file_name(6, SNAPSHOT))
    assert snapshot is not None
    assert encode(decode(snapshot)) == snapshot

    log = load_log(
        directory,
        TopicPartition(topic, 0),
        LogConfig(),
        recovery_point=6,
        clean_shutdown=True,
        monotonic_ms=lambda: NOW_MS,
    )
    assert append(log, 4).base_offset == 4
    assert append(log, 6).base_offset == log.log_end_offset - 2 == 6
    log.close()

    files = directory.path + "/" + file_name(8, SNAPSHOT)
    dumped = run_tool("kafka.tools.DumpLogSegments", "--files", files)
    assert f"producerId: {PRODUCER_ID} producerEpoch: {EPOCH}" in dumped
    assert "firstSequence: 6 lastSequence: 7 lastOffset: 7 offsetDelta: 1" in dumped

    with stock_broker(stock_zookeeper, tmp_path) as bootstrap:
        out_of_order = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        answers = asyncio.run(produce(bootstrap, topic, 6, 10, 8))
        assert answers == [(0, 6), out_of_order, (0, 8)]
