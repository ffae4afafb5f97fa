"""Committed offsets as text, to keep or to carry elsewhere: written by export, read by import.

Two formats: the JSON envelope of all our commands, and the lines of Kafka's ExportZkOffsets,
`/consumers/<group>/offsets/<topic>/<partition>:<offset>`. Nothing is guessed: what is not an offset
is a fault that names its place.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from clients.output import Column, Failure
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from zk.znodes import ConsumerOffset

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


@attrs.frozen
class ExportedOffset:
    """What one store holds of one group for one partition."""

    group: str
    partition: TopicPartition
    store: str
    committed: OffsetAndMetadata

    @property
    def item(self) -> dict[str, Any]:
        """Under the keys of the columns."""
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


class _Fault(ValueError):
    """Why something is no offset."""


def zk_lines(offsets: Iterable[ExportedOffset]) -> str:
    """As ExportZkOffsets writes them."""
    return "".join(
        f"{ConsumerOffset.path(e.group, *e.partition)}:{e.committed.offset}\n" for e in offsets
    )


def read_export(text: str, store: str | None = None) -> tuple[list[ExportedOffset], list[Failure]]:
    """The offsets in a text of either format, and its faults.

    `store` replaces what the text says. A partition that the text has twice, with different
    offsets, is a fault.
    """
    read = _json_items if text.lstrip().startswith("{") else _zk_items
    found: dict[tuple[str, TopicPartition, str], ExportedOffset] = {}
    faults = []
    try:
        for place, item in read(text):
            try:
                offset = _offset(item, store)
                known = found.setdefault((offset.group, offset.partition, offset.store), offset)
                if known.committed.offset != offset.committed.offset:
                    raise _Fault(
                        f"{offset.partition} of group {offset.group} is at "
                        f"{known.committed.offset} before, and {offset.committed.offset} here"
                    )
            except _Fault as fault:
                faults.append(Failure(place, "InvalidExport", str(fault)))
    except _Fault as fault:
        faults.append(Failure("file", "InvalidExport", str(fault)))
    return list(found.values()), faults


def _zk_items(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = _ZK_LINE.fullmatch(line.strip())
        if match is None:
            what = {"fault": f"{line!r} is not /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"}
            yield f"line {number}", what
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
    return int(text) if _NUMBER.fullmatch(text) and len(text) < 20 else text


def _json_items(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Fault(f"not JSON: {error}") from None
    items = read.get("items")
    if read.get("kind") != KIND or read.get("version") != 1 or not isinstance(items, list):
        raise _Fault("not what kgroup export writes")
    for number, item in enumerate(items):
        yield f"item {number}", item if isinstance(item, dict) else {"fault": "not an object"}


def _offset(item: Mapping[str, Any], store: str | None) -> ExportedOffset:
    """Raises _Fault."""
    if fault := item.get("fault"):
        raise _Fault(str(fault))
    for name in ("group", "topic"):
        value = item.get(name)
        if not isinstance(value, str) or not _is_node_name(value):
            raise _Fault(f"{name} {value!r} is no name")
    for name, most in (("partition", MAX_PARTITION), ("offset", MAX_OFFSET)):
        value = item.get(name)
        if type(value) is not int or not 0 <= value <= most:
            raise _Fault(f"{name} {value!r} is not a number from 0 to {most}")
    kept_in = store or item.get("store")
    if kept_in not in STORES:
        raise _Fault(f"store {kept_in!r} is neither zookeeper nor kafka")
    metadata, epoch = item.get("metadata"), item.get("leader_epoch")
    return ExportedOffset(
        item["group"],
        TopicPartition(item["topic"], item["partition"]),
        kept_in,
        OffsetAndMetadata(
            item["offset"],
            metadata if isinstance(metadata, str) else "",
            epoch if type(epoch) is int and -1 <= epoch <= MAX_PARTITION else -1,
        ),
    )


def _is_node_name(name: str) -> bool:
    return name.isprintable() and "/" not in name and name not in ("", ".", "..")
