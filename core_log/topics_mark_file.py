"""The file beside a log of `__consumer_offsets`: which topics are younger than its records.

    version: 0
    end_offset: 1200                       the records below it were there …
    leader_epoch: 7                        (the last of them is of this epoch)
    topics_zxid: 4294967337                … when this was the last change of /brokers/topics
    topics_czxid: 4294967303               the transaction that created /brokers/topics
    cluster_czxid: 4294967302              the transaction that created /cluster/id, and its time
    cluster_ctime_ms: 1400000000000

So a topic whose znode was created by a later transaction did not exist yet when they were written:
what they say of a topic of its name, they say of an earlier one. No clock is compared.

Each replica keeps its own. Kafka ignores the file, as all files of a log whose names it does not
know.
"""

from __future__ import annotations

import logging

import attrs

from core_log.storage import Directory
from core_log.value_lines import decode_values, get_number, require_version
from protocol.frozen import frozen

TOPICS_MARK = "topics-mark"
TEMPORARY = TOPICS_MARK + ".tmp"
VERSION = 0

logger = logging.getLogger(__name__)


@frozen
class TopicsMark:
    """The contents of the file, see there."""

    end_offset: int
    leader_epoch: int
    topics_zxid: int
    topics_czxid: int
    cluster_czxid: int
    cluster_ctime_ms: int


_FIELDS = tuple(field.name for field in attrs.fields(TopicsMark))


def read_mark(directory: Directory) -> TopicsMark | None:
    """Read the file beside a log; None without one, or if it cannot be read. Raises OSError."""
    data = directory.read(TOPICS_MARK)
    if data is None:
        return None
    try:
        values = decode_values(data)
        require_version(values, VERSION)
        return TopicsMark(*(get_number(values, field) for field in _FIELDS))
    except ValueError as error:
        logger.warning("%s/%s is ignored: %s", directory.path, TOPICS_MARK, error)
        return None


def write_mark(directory: Directory, mark: TopicsMark) -> None:
    """Write the file beside a log. Raises OSError.

    It is in force after a kill. It is not synced: a power loss may leave the old file, none or an
    empty one, and then nothing is known.
    """
    lines = [f"version: {VERSION}", *(f"{field}: {getattr(mark, field)}" for field in _FIELDS)]
    directory.remove(TEMPORARY)
    directory.open_segment(TEMPORARY).append(["".join(f"{line}\n" for line in lines).encode()])
    directory.rename(TEMPORARY, TOPICS_MARK)
