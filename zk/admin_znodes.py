"""Znodes by which tools and brokers tell the controller, and all brokers, what to do.

Notifications are persistent sequential nodes: `prefix()` is what to create, `directory()` what to
watch, `sequence_number` their order. Configuration is read from EntityConfig; a ConfigChange only
says of whom.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import attrs

from zk.znode_json import (
    Extra,
    Reader,
    ZnodeError,
    array,
    decimal_string,
    integer,
    mapping,
    string,
    write_json,
)

PartitionName = tuple[str, int]
"""Topic and partition."""

DEFAULT_ENTITY = "<default>"


def sequence_number(name: str) -> int:
    """Of a sequential node: the last ten digits of its name or path."""
    if not name[-10:].isdecimal():
        raise ZnodeError(name, "no sequence number at the end")
    return int(name[-10:])


class DeleteTopic:
    """The wish that a topic be deleted; persistent, null data, until the controller has done it."""

    @staticmethod
    def directory() -> str:
        return "/admin/delete_topics"

    @staticmethod
    def path(topic: str) -> str:
        return f"/admin/delete_topics/{topic}"

    @staticmethod
    def encode() -> None:
        return None


@attrs.frozen
class ReassignPartitions:
    """Where replicas shall move, by topic and partition; persistent while they do."""

    replicas: Mapping[PartitionName, tuple[int, ...]]
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def path() -> str:
        return "/admin/reassign_partitions"

    def encode(self) -> bytes:
        partitions = [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in self.replicas.items()
        ]
        return write_json({"version": 1, "partitions": partitions, **self.extra})

    @staticmethod
    def decode(
        data: bytes | None, path: str = "/admin/reassign_partitions"
    ) -> "ReassignPartitions":
        def move(value: Any) -> tuple[PartitionName, tuple[int, ...]]:
            read = Reader.of_object(value, path)
            name = read.take("topic", string), read.take("partition", integer)
            return name, read.take("replicas", array(integer))

        read = Reader(data, path)
        read.take("version", integer, 1)
        return ReassignPartitions(
            dict(read.take("partitions", array(move))),
            extra=read.rest(),
        )


@attrs.frozen
class PreferredReplicaElection:
    """Partitions whose preferred leader shall lead again; persistent until it does."""

    partitions: tuple[PartitionName, ...]

    @staticmethod
    def path() -> str:
        return "/admin/preferred_replica_election"

    def encode(self) -> bytes:
        return _write_partitions(self.partitions)

    @staticmethod
    def decode(
        data: bytes | None, path: str = "/admin/preferred_replica_election"
    ) -> "PreferredReplicaElection":
        return PreferredReplicaElection(_read_partitions(data, path))


@attrs.frozen
class IsrChange:
    """A leader has changed these partitions' ISR; the controller reads and deletes it."""

    partitions: tuple[PartitionName, ...]

    @staticmethod
    def directory() -> str:
        return "/isr_change_notification"

    @staticmethod
    def prefix() -> str:
        return "/isr_change_notification/isr_change_"

    def encode(self) -> bytes:
        return _write_partitions(self.partitions)

    @staticmethod
    def decode(data: bytes | None, path: str = "/isr_change_notification/<change>") -> "IsrChange":
        return IsrChange(_read_partitions(data, path))


@attrs.frozen
class LogDirEvent:
    """A broker has lost a log directory (event 1); the controller reads and deletes it."""

    broker_id: int

    @staticmethod
    def directory() -> str:
        return "/log_dir_event_notification"

    @staticmethod
    def prefix() -> str:
        return "/log_dir_event_notification/log_dir_event_"

    def encode(self) -> bytes:
        return write_json({"version": 1, "broker": self.broker_id, "event": 1})

    @staticmethod
    def decode(
        data: bytes | None, path: str = "/log_dir_event_notification/<event>"
    ) -> "LogDirEvent":
        return LogDirEvent(Reader(data, path).take("broker", integer))


@attrs.frozen
class ProducerIdBlock:
    """The producer ids last given to a broker, both ends included; persistent, null at first."""

    broker_id: int
    first: int
    last: int

    @staticmethod
    def path() -> str:
        return "/latest_producer_id_block"

    def encode(self) -> bytes:
        block = {"block_start": str(self.first), "block_end": str(self.last)}
        return write_json({"version": 1, "broker": self.broker_id, **block})

    @staticmethod
    def decode(data: bytes | None, path: str = "/latest_producer_id_block") -> "ProducerIdBlock":
        read = Reader(data, path)
        first, last = (
            read.take("block_start", decimal_string),
            read.take("block_end", decimal_string),
        )
        return ProducerIdBlock(read.take("broker", integer), first, last)


@attrs.frozen
class EntityConfig:
    """What is configured for a topic, client, user or broker beyond its defaults; persistent."""

    config: Mapping[str, str]
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def directory(entity_type: str) -> str:
        """`entity_type` is topics, clients, users or brokers."""
        return f"/config/{entity_type}"

    @staticmethod
    def path(entity_type: str, name: str) -> str:
        return f"/config/{EntityConfig.entity_path(entity_type, name)}"

    @staticmethod
    def entity_path(entity_type: str, name: str) -> str:
        """What a ConfigChange calls it."""
        return f"{entity_type}/{_sanitized(name)}"

    def encode(self) -> bytes:
        return write_json({"version": 1, "config": dict(self.config), **self.extra})

    @staticmethod
    def decode(data: bytes | None, path: str = "/config/<type>/<name>") -> "EntityConfig":
        read = Reader(data, path)
        read.take("version", integer, 1)
        return EntityConfig(read.take("config", mapping(string), {}), extra=read.rest())


@attrs.frozen
class ConfigChange:
    """The configuration of `entity_path` (`topics/foo`) was changed before; kept for 15 minutes."""

    entity_path: str

    @staticmethod
    def directory() -> str:
        return "/config/changes"

    @staticmethod
    def prefix() -> str:
        return "/config/changes/config_change_"

    def encode(self) -> bytes:
        return write_json({"version": 2, "entity_path": self.entity_path})

    @staticmethod
    def decode(data: bytes | None, path: str = "/config/changes/<change>") -> "ConfigChange":
        """Version 2, and 1, which knew topics and clients only."""
        read = Reader(data, path)
        version = read.take("version", integer)
        if version == 1:
            entity_type = read.take("entity_type", string)
            return ConfigChange(f"{entity_type}/{read.take('entity_name', string)}")
        if version == 2:
            return ConfigChange(read.take("entity_path", string))
        raise ZnodeError(path, f"version {version}, not 1 or 2")


def _write_partitions(partitions: tuple[PartitionName, ...]) -> bytes:
    named = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return write_json({"version": 1, "partitions": named})


def _read_partitions(data: bytes | None, path: str) -> tuple[PartitionName, ...]:
    def partition(value: Any) -> PartitionName:
        read = Reader.of_object(value, path)
        return read.take("topic", string), read.take("partition", integer)

    return Reader(data, path).take("partitions", array(partition))


def _sanitized(name: str) -> str:
    """As Kafka's Sanitizer: percent-encoded but for letters, digits and `.-_`."""
    return name if name == DEFAULT_ENTITY else quote(name, safe="").replace("~", "%7E")
