"""Choose where a query begins and ends: a word, offsets or times; one outranks the others.

As in Spark's Kafka source, `startingTimestamp` outranks `startingOffsetsByTimestamp`, and that
outranks `startingOffsets`; the options of the end have the same order.
"""

import json
from collections.abc import Mapping

import attrs

from protocol.frozen import frozen
from protocol.settings import SettingError
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import TopicPartition
from spark_connector.stream_offset import Offsets, from_json
from spark_connector.subscription import Subscription

EARLIEST = "earliest"
LATEST = "latest"
GROUP = "group"
GROUP_OR_EARLIEST = "group-or-earliest"
GROUP_OR_LATEST = "group-or-latest"

WITHOUT_COMMIT: Mapping[str, int] = {
    GROUP: EARLIEST_TIME,
    GROUP_OR_EARLIEST: EARLIEST_TIME,
    GROUP_OR_LATEST: LATEST_TIME,
}
"""Word -> where partitions begin of which the group has no offset."""

WORDS: Mapping[str, int] = {EARLIEST: EARLIEST_TIME, LATEST: LATEST_TIME}


@frozen
class Position:
    """One end of a query, by the option that outranks the others."""

    option: str
    """The option's name."""
    word: str = ""
    """`earliest`, `latest`, or one of `WITHOUT_COMMIT`; "" if offsets or times are given."""
    offsets: Offsets = attrs.field(factory=dict)
    """Partition -> offset; -2 is the earliest, -1 the latest."""
    times: Offsets = attrs.field(factory=dict)
    """Partition -> timestamp in ms."""
    time_ms: int | None = None
    """Timestamp for all partitions."""

    @property
    def names_partitions(self) -> bool:
        """Return whether it is JSON, which has to name all partitions."""
        return not self.word and self.time_ms is None


def read_position(
    name: str, words: str, by_timestamp: str, time_ms: int | None, subscription: Subscription
) -> Position:
    """Return the position that `nameTimestamp`, `nameOffsetsByTimestamp` or `nameOffsets` gives.

    `name` is `starting` or `ending`. Raises SettingError for a text that cannot be, also in an
    option that another one outranks.
    """
    times = read_times(f"{name}OffsetsByTimestamp", by_timestamp, subscription)
    offsets = read_offsets(f"{name}Offsets", words, subscription)

    if time_ms is not None:
        return Position(f"{name}Timestamp", time_ms=time_ms)
    if by_timestamp:
        return Position(f"{name}OffsetsByTimestamp", times=times)
    if is_json(words):
        return Position(f"{name}Offsets", offsets=offsets)
    return Position(f"{name}Offsets", word=words)


def read_offsets(name: str, text: str, subscription: Subscription) -> Offsets:
    """Read offsets in JSON, where -2 is the earliest and -1 the latest; {} if it is a word.

    Raises SettingError for partitions that are not read, and for offsets below -2.
    """
    if not is_json(text):
        return {}
    offsets = _read_json(name, text, subscription)
    for partition, offset in offsets.items():
        if not EARLIEST_TIME <= offset < 2**63:
            raise SettingError(name, f"has {offset} for {partition}; give an offset, -2 or -1")
    return offsets


def read_times(name: str, text: str, subscription: Subscription) -> Offsets:
    """Read timestamps in JSON; {} if there is none. Raises SettingError as `read_offsets`."""
    if not text:
        return {}
    times = _read_json(name, text, subscription)
    for partition, time_ms in times.items():
        if not 0 <= time_ms < 2**63:
            raise SettingError(name, f"has {time_ms} for {partition}; give ms since 1970")
    return times


def is_json(text: str) -> bool:
    """Return whether an option has JSON, and not a word."""
    return text.lstrip().startswith("{")


def _read_json(name: str, text: str, subscription: Subscription) -> dict[TopicPartition, int]:
    try:
        numbers = from_json(json.loads(text))
    except ValueError as error:
        raise SettingError(name, f'is not like {{"topic": {{"0": 23}}}}: {error}') from error

    for partition in numbers:
        if not subscription.includes(partition):
            what = partition if subscription.partitions else partition.topic
            raise SettingError(name, f"names {what}, which {subscription.option} does not")
    return numbers
