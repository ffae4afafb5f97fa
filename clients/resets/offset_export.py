"""Committed offsets as text, written by export and read by import.

There are two formats: the JSON envelope of all our commands, and the lines of Kafka's
ExportZkOffsets, `/consumers/<group>/offsets/<topic>/<partition>:<offset>`. Nothing is guessed: text
that is not an offset is a failure with its place.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from clients.command_line.output import Column, Failure
from protocol.frozen import frozen
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.znodes import ConsumerGroup, ConsumerOffset

KIND = "export"
STORES = ("zookeeper", "kafka")
MAX_PARTITION = 2**31 - 1
MAX_OFFSET = 2**63 - 1
COLUMNS = (
    Column("GROUP"),
    Column("TOPIC"),
    Column("PARTITION"),
    Column("OFFSET"),
    Column("STORE"),
    Column("METADATA"),
    Column("LEADER-EPOCH"),
)

_ZK_LINE = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([^/:]+):(.*)")
_NUMBER = re.compile("[0-9]+")


@frozen
class ExportedOffset:
    """The offset of a group for one partition in one store."""

    group: str
    partition: TopicPartition
    store: str
    committed: OffsetAndMetadata

    @property
    def item(self) -> dict[str, Any]:
        """The offset under the keys of the columns."""
        in_kafka = self.store == "kafka"
        return {
            "group": self.group,
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "offset": self.committed.offset,
            "store": self.store,
            "metadata": self.committed.metadata if in_kafka else None,
            "leader_epoch": self.committed.leader_epoch if in_kafka else None,
        }


class _InvalidOffset(ValueError):
    """The reason why something is not an offset."""


def zk_lines(offsets: Iterable[ExportedOffset]) -> str:
    """Return the lines as ExportZkOffsets writes them."""
    return "".join(
        f"{ConsumerOffset.path(offset.group, *offset.partition)}:{offset.committed.offset}\n"
        for offset in offsets
    )


def read_export(
    text: str, store: str | None = None, name: str = "file"
) -> tuple[list[ExportedOffset], list[Failure]]:
    """Read a text of either format. Returns its offsets and failures.

    `store` replaces the store in the text. A partition that occurs twice with different offsets is
    a failure. One of the text as a whole has the `name` of its file.
    """
    # The first character tells the formats apart: lines begin with a slash.
    read_items = _json_items if text.lstrip().startswith("{") else _zk_items
    offsets: dict[tuple[str, TopicPartition, str], ExportedOffset] = {}
    failures = []
    try:
        for place, item in read_items(text):
            # A bad item is a failure of its own; the others are read.
            try:
                offset = _offset(item, store)
                first = offsets.setdefault((offset.group, offset.partition, offset.store), offset)
                if first.committed.offset != offset.committed.offset:
                    raise _InvalidOffset(
                        f"{offset.partition} of group {offset.group} is at "
                        f"{first.committed.offset} before, and {offset.committed.offset} here"
                    )
            except _InvalidOffset as error:
                failures.append(Failure(place, "InvalidExport", str(error)))
    except _InvalidOffset as error:
        # The text as a whole is of neither format.
        failures.append(Failure(name, "InvalidExport", str(error)))

    return list(offsets.values()), failures


def _zk_items(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue

        match = _ZK_LINE.fullmatch(line.strip())

        # The caller turns this item into a failure with its place.
        if match is None:
            item = {"fault": f"{line!r} is not /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"}
            yield f"line {number}", item
            continue

        group, topic, partition, offset = match.groups()
        yield (
            f"line {number}",
            {
                "group": group,
                "topic": topic,
                "partition": _number(partition),
                "offset": _number(offset),
                "store": "zookeeper",
            },
        )


def _number(text: str) -> int | str:
    # Nineteen digits hold every 64-bit offset; what is longer stays text and fails later.
    return int(text) if _NUMBER.fullmatch(text) and len(text) < 20 else text


def _json_items(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _InvalidOffset(f"not JSON: {error}") from None

    # The text begins with a brace, so the document is an object.
    items = document.get("items")
    if document.get("kind") != KIND or document.get("version") != 1 or not isinstance(items, list):
        raise _InvalidOffset("not a file of kgroup export")

    for number, item in enumerate(items):
        yield f"item {number}", item if isinstance(item, dict) else {"fault": "not an object"}


def _offset(item: Mapping[str, Any], store: str | None) -> ExportedOffset:
    """Read one item. Raises _InvalidOffset."""
    if reason := item.get("fault"):
        raise _InvalidOffset(str(reason))

    item_store = store or item.get("store")
    if item_store not in STORES:
        raise _InvalidOffset(f"store {item_store!r} is neither zookeeper nor kafka")

    for name in ("group", "topic"):
        value = item.get(name)
        # Kafka takes any text for a group: what is exported is read (fault tool-F11, was: False).
        is_free = name == "group" and item_store == "kafka"
        if not isinstance(value, str) or not (is_free or ConsumerGroup.can_hold(value)):
            raise _InvalidOffset(f"{name} {value!r} is not a name")

    # A partition and an offset that no store could hold are errors, too.
    for name, most in (("partition", MAX_PARTITION), ("offset", MAX_OFFSET)):
        value = item.get(name)

        # A bool is an int to Python, but not a number here.
        if type(value) is not int or not 0 <= value <= most:
            raise _InvalidOffset(f"{name} {value!r} is not a number from 0 to {most}")

    # Metadata may be left out; only the offset must be right. A leader epoch is of its cluster:
    # elsewhere it says of a log what is not so (fault strangers-46).
    metadata = item.get("metadata")
    return ExportedOffset(
        item["group"],
        TopicPartition(item["topic"], item["partition"]),
        item_store,
        OffsetAndMetadata(item["offset"], metadata if isinstance(metadata, str) else ""),
    )
