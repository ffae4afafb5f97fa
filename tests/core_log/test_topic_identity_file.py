"""The identity of a topic beside its log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from core_log.config import LogConfig
from core_log.log_manager import LogManager
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from core_log.topic_identity_file import (
    TOPIC_IDENTITY,
    decode_identity,
    encode_identity,
    read_identity,
    write_identity,
)
from protocol.topic_identity import TopicIdentity
from protocol.topic_partition import TopicPartition

Open = Callable[..., Any]
IDENTITY = TopicIdentity(
    topic_id=bytes(range(16)),
    is_pinned=True,
    topic_czxid=2**33,
    cluster_czxid=7,
    cluster_ctime_ms=1_400_000_000_000,
    topics_czxid=8,
)
T0 = TopicPartition("t", 0)


def test_file_has_a_line_for_each_part() -> None:
    assert encode_identity(IDENTITY) == (
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\npinned: true\ntopics_czxid: 8\n"
        b"topic_czxid: 8589934592\ncluster_czxid: 7\ncluster_ctime_ms: 1400000000000\n"
    )
    assert decode_identity(encode_identity(IDENTITY)) == IDENTITY


def test_file_of_an_earlier_version_does_not_know_the_directory_of_topics() -> None:
    data = encode_identity(IDENTITY).replace(b"topics_czxid: 8\n", b"")
    assert decode_identity(data) == attrs.evolve(IDENTITY, topics_czxid=0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"version: 1\n",
        encode_identity(IDENTITY)[:-20],
        encode_identity(IDENTITY).replace(b"8589934592", b"many"),
        encode_identity(IDENTITY).replace(b"AAEC", b"A"),
    ],
)
def test_file_that_cannot_be_read_counts_as_missing(
    directory: Directory, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    directory.write_atomic(TOPIC_IDENTITY, data)
    assert read_identity(directory) is None
    assert f"{TOPIC_IDENTITY} is ignored" in caplog.text


def test_log_is_loaded_with_its_identity(directory: Directory, open_log: Open) -> None:
    open_log(directory).log.close()
    write_identity(directory, IDENTITY)
    assert open_log(directory).log.identity == IDENTITY


def test_identity_is_replaced(directory: Directory) -> None:
    other = attrs.evolve(IDENTITY, topic_czxid=9)
    for identity in (IDENTITY, other):
        write_identity(directory, identity)
        assert read_identity(directory) == identity


@pytest.mark.fault("core-R1")
def test_records_that_outlive_a_power_loss_have_the_identity_of_their_topic(
    memory: MemoryDirectory,
) -> None:
    logs = LogManager([memory], LogConfig(), lambda: 0)
    logs.load()
    planned = [logs.plan(T0, LogConfig(), is_new=True, identity=IDENTITY)]
    logs.make(planned)
    logs.serve(planned)
    log = logs.logs[T0]
    assert (log.identity, read_identity(log.directory)) == (IDENTITY, IDENTITY)

    flush = log.begin_flush()
    flush.run()
    log.end_flush(flush)
    memory.lose_power()
    assert read_identity(memory.child("t-0")) == IDENTITY


def test_identity_is_synced_once(directory: Directory, open_log: Open) -> None:
    log = open_log(directory).log
    file = write_identity(directory, IDENTITY)
    log.note_identity(IDENTITY, file)
    for is_synced in (True, False):
        flush = log.begin_flush()
        flush.run()
        log.end_flush(flush)
        assert (file in flush.files) is is_synced


def test_log_that_was_moved_to_another_disk_keeps_its_identity() -> None:
    source, target = MemoryDirectory("a"), MemoryDirectory("b")
    logs = LogManager([source, target], LogConfig(), lambda: 0)
    logs.load()
    log = logs.get_or_create(T0, LogConfig())
    log_dir = logs.dir_of(T0)
    assert log_dir is not None
    log.note_identity(IDENTITY, write_identity(log.directory, IDENTITY))
    logs.set_target_directory(
        T0, next(d.path for d in (source, target) if d is not log_dir.directory)
    )
    logs.futures.create(T0, LogConfig(), lambda: 0)
    moved = logs.futures.replace_current(T0)
    assert moved.identity == IDENTITY
    assert read_identity(moved.directory) == IDENTITY
