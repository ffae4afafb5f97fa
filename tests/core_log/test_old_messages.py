"""Messages of formats 0 and 1 in a log: found by offset and by time, and after a crash."""

from collections.abc import Callable

import pytest

from core_log.appending.replicated_run import UnexpectedAppendOffset
from core_log.storage import Directory
from protocol.records.batch import decode_records
from protocol.records.compression import Codec
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import encode_messages
from protocol.records.record_run import Row
from tests.core_log.conftest import T0, Writer

OpenLog = Callable[..., Writer]


def old(first: int, count: int, magic: int = 1, codec: Codec = Codec.NONE) -> bytes:
    """Messages that start with their offset, and are 10 ms apart."""
    rows: list[Row] = [
        (offset, T0 + 10 * offset, None, b"%d" % offset + b"." * 100, ())
        for offset in range(first, first + count)
    ]
    return encode_messages(rows, magic, codec=codec)


def mixed(writer: Writer) -> None:
    """Write offsets 0 to 15: plain, a wrapper, plain of format 0, a batch, a wrapper."""
    writer.log.append_follower(old(0, 3), now_ms=T0)
    writer.log.append_follower(old(3, 5, codec=Codec.GZIP), now_ms=T0)
    writer.log.append_follower(old(8, 2, magic=0), now_ms=T0)
    writer.append(b"10", b"11")
    writer.log.append_follower(old(12, 4, codec=Codec.LZ4), now_ms=T0)


def test_old_and_new_are_read_from_any_offset(directory: Directory, open_log: OpenLog) -> None:
    writer = open_log(directory)
    mixed(writer)

    assert writer.log.log_end_offset == 16
    for offset in range(16):
        assert writer.numbers(offset) == list(range(offset, 16))


def test_log_with_old_messages_survives_a_crash(directory: Directory, open_log: OpenLog) -> None:
    mixed(open_log(directory, index_interval_bytes=0))

    again = open_log(directory, clean=False)

    assert again.log.log_end_offset == 16
    assert again.numbers() == list(range(16))


def test_damaged_message_ends_the_log_at_recovery(directory: Directory, open_log: OpenLog) -> None:
    writer = open_log(directory)
    mixed(writer)
    file = writer.log.segments.active.log
    file.write(file.size - 1, b"!")

    assert open_log(directory, clean=False).numbers() == list(range(12))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_message_is_found_by_its_time(
    directory: Directory, open_log: OpenLog, codec: Codec
) -> None:
    writer = open_log(directory, index_interval_bytes=0)
    for first in (0, 5, 10):
        writer.log.append_follower(old(first, 5, codec=codec), now_ms=T0)

    for offset in range(15):
        record = (T0 + 10 * offset, offset)
        assert writer.log.offset_for_timestamp(T0 + 10 * offset) == record
        assert writer.log.offset_for_timestamp(T0 + 10 * offset - 9) == record
    assert writer.log.offset_for_timestamp(T0 + 141) is None


def test_segment_that_begins_with_a_wrapper_is_named_by_the_logs_end(
    directory: Directory, open_log: OpenLog
) -> None:
    """And not by the one offset that the wrapper tells, which is its last."""
    wrappers = [old(first, 10, codec=Codec.GZIP) for first in range(0, 60, 10)]
    writer = open_log(directory, segment_bytes=max(map(len, wrappers)))
    for wrapper in wrappers:
        writer.log.append_follower(wrapper, now_ms=T0)

    bases = [segment.base_offset for segment in writer.log.segments]
    assert bases == [0, 10, 20, 30, 40, 50]
    assert writer.numbers(34) == list(range(34, 60))


def test_truncation_takes_the_whole_wrapper(directory: Directory, open_log: OpenLog) -> None:
    writer = open_log(directory)
    mixed(writer)

    writer.log.truncate_to(5)

    assert writer.log.log_end_offset <= 5
    assert writer.numbers() == [0, 1, 2]


def test_messages_that_do_not_follow_the_logs_end_are_refused(
    directory: Directory, open_log: OpenLog
) -> None:
    writer = open_log(directory)
    mixed(writer)

    with pytest.raises(UnexpectedAppendOffset):
        writer.log.append_follower(old(15, 1), now_ms=T0)
    with pytest.raises(CorruptRecord):
        writer.log.append_follower(old(16, 1)[:-1] + b"!", now_ms=T0)


def test_reader_gets_bytes_that_begin_with_the_wrapper(
    directory: Directory, open_log: OpenLog
) -> None:
    writer = open_log(directory)
    mixed(writer)

    fetched = writer.log.read(5, 1, 16)

    assert fetched is not None
    assert [record.offset for record in decode_records(fetched.read())] == [3, 4, 5, 6, 7]
