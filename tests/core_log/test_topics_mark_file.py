"""The file beside a log of `__consumer_offsets` that says which topics are younger."""

from __future__ import annotations

import pytest

from core_log.storage import Directory
from core_log.topics_mark_file import TOPICS_MARK, TopicsMark, read_mark, write_mark

MARK = TopicsMark(
    end_offset=1200,
    leader_epoch=7,
    topics_zxid=2**32 + 41,
    topics_czxid=2**32 + 7,
    cluster_czxid=2**32 + 6,
    cluster_ctime_ms=1_400_000_000_000,
)
LINES = (
    b"version: 0\nend_offset: 1200\nleader_epoch: 7\ntopics_zxid: 4294967337\n"
    b"topics_czxid: 4294967303\ncluster_czxid: 4294967302\ncluster_ctime_ms: 1400000000000\n"
)


def test_file_has_a_line_for_each_part_and_is_replaced(directory: Directory) -> None:
    assert read_mark(directory) is None
    write_mark(directory, TopicsMark(0, -1, 1, 1, 1, 1))
    write_mark(directory, MARK)
    assert directory.read(TOPICS_MARK) == LINES
    assert read_mark(directory) == MARK
    assert [name for name in directory.files() if name.startswith(TOPICS_MARK)] == [TOPICS_MARK]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"\xff\n", "it is not text"),
        (b"version: 1\n", "its version is 1, which is unknown"),
        (LINES[:60], "it is torn, its last line has no end"),
        (LINES[:-1], "it is torn, its last line has no end"),
        (LINES + b"\0\0", "it is torn, its last line has no end"),
        (LINES[: LINES.index(b"topics_zxid")], "it has no topics_zxid"),
        (LINES.replace(b"1200", b"many"), "its end_offset is 'many', which is no number"),
    ],
)
def test_file_that_cannot_be_read_counts_as_missing_and_is_said_to_be_what_it_is(
    directory: Directory, data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory.write_atomic(TOPICS_MARK, data)
    assert read_mark(directory) is None
    assert f"{TOPICS_MARK} is ignored: {reason}\n" in caplog.text
