"""Znodes of administration: requests and notifications to the controller, and configs.

A notification is a persistent sequential node. Its sender creates it at `prefix()`, its reader
watches `directory()`, and `parse_sequence_number` gives the order. Configs are in EntityConfig; a
ConfigChange only names the entity whose config has changed.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal
from urllib.parse import quote, unquote

import attrs

from protocol.frozen import frozen
from zk.znode_json import (
    Extra,
    JsonReader,
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
"""The name under which a type keeps the config of all entities without one of their own."""


def parse_sequence_number(name: str) -> int:
    """Return the last ten digits of a sequential node's name or path. Raises ZnodeError."""
    if not name[-10:].isdecimal():
        raise ZnodeError(name, "no sequence number at the end")
    return int(name[-10:])


# --- requests to the controller ---------------------------------------------------------------


class DeleteTopic:
    """A request to delete a topic; persistent, null data. The controller removes it when done."""

    @staticmethod
    def directory() -> str:
        return "/admin/delete_topics"

    @staticmethod
    def path(topic: str) -> str:
        return f"/admin/delete_topics/{topic}"

    @staticmethod
    def encode() -> None:
        return None


@frozen
class ReassignPartitions:
    """The target replicas of partitions being reassigned; persistent until all are done."""

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
            read = JsonReader.of_object(value, path)
            topic = read.take("topic", string)
            partition = read.take("partition", integer)
            return (topic, partition), read.take("replicas", array(integer))

        read = JsonReader(data, path)
        read.take("version", integer, 1)
        return ReassignPartitions(
            dict(read.take("partitions", array(move))),
            extra=read.rest(),
        )


@frozen
class PreferredReplicaElection:
    """A request to elect the preferred leaders of partitions; persistent until they lead."""

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


# --- notifications from brokers to the controller ---------------------------------------------


@frozen
class IsrChange:
    """A leader has changed the ISR of these partitions; the controller reads and deletes it."""

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


@frozen
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
        return LogDirEvent(JsonReader(data, path).take("broker", integer))


# --- producer ids -----------------------------------------------------------------------------


@frozen
class ProducerIdBlock:
    """The last block of producer ids that a broker took: `first` to `last`, both inclusive.

    The node is persistent, and its data is null until a broker has taken a block.
    """

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
        read = JsonReader(data, path)
        return ProducerIdBlock(
            first=read.take("block_start", decimal_string),
            last=read.take("block_end", decimal_string),
            broker_id=read.take("broker", integer),
        )


# --- configs ----------------------------------------------------------------------------------


@frozen
class EntityConfig:
    """The settings of a topic, client, user or broker that differ from its defaults; persistent."""

    config: Mapping[str, str]
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def directory(entity_type: str) -> str:
        """Return the parent of a type's configs: topics, clients, users or brokers."""
        return f"/config/{entity_type}"

    @staticmethod
    def path(entity_type: str, name: str) -> str:
        return EntityConfig.path_of(EntityConfig.entity_path(entity_type, name))

    @staticmethod
    def path_of(entity_path: str) -> str:
        """Return the path of the config that a ConfigChange names."""
        return f"/config/{entity_path}"

    @staticmethod
    def entity_path(entity_type: str, name: str) -> str:
        """Return the entity's name in a ConfigChange: its path below /config."""
        return f"{entity_type}/{_sanitize(name)}"

    def encode(self) -> bytes:
        return write_json({"version": 1, "config": dict(self.config), **self.extra})

    @staticmethod
    def decode(data: bytes | None, path: str = "/config/<type>/<name>") -> "EntityConfig":
        read = JsonReader(data, path)
        read.take("version", integer, 1)
        return EntityConfig(read.take("config", mapping(string), {}), extra=read.rest())


class Default(Enum):
    """The name that stands for all users, clients or addresses without a quota of their own."""

    DEFAULT = DEFAULT_ENTITY


DEFAULT = Default.DEFAULT

EntityName = str | Literal[Default.DEFAULT] | None
"""A name, DEFAULT, or None: this kind of name is no part of the entity."""


@frozen
class ClientEntity:
    """Whom the settings of an EntityConfig concern: a user, a client, both, or an address (KIP-55).

    A user who is called `<default>` is another than DEFAULT.
    """

    user: EntityName = None
    client_id: EntityName = None
    ip: EntityName = None

    def entity_path(self) -> str:
        """Return its path below /config, as a ConfigChange has it."""
        if self.ip is not None:
            return f"ips/{_entity_node(self.ip)}"
        if self.user is None:
            return f"clients/{_entity_node(self.client_id)}"
        if self.client_id is None:
            return f"users/{_entity_node(self.user)}"
        return f"users/{_entity_node(self.user)}/clients/{_entity_node(self.client_id)}"

    def path(self) -> str:
        return EntityConfig.path_of(self.entity_path())

    @staticmethod
    def clients_of(user: EntityName) -> str:
        """Return the parent of the clients with quotas of their own for one user."""
        return f"/config/users/{_entity_node(user)}/clients"

    @staticmethod
    def parse(entity_path: str) -> "ClientEntity":
        """Read the path below /config. Raises ZnodeError."""
        match entity_path.split("/"):
            case ["users", user]:
                return ClientEntity(user=_entity_name(user))
            case ["users", user, "clients", client_id]:
                return ClientEntity(user=_entity_name(user), client_id=_entity_name(client_id))
            case ["clients", client_id]:
                return ClientEntity(client_id=_entity_name(client_id))
            case ["ips", ip]:
                return ClientEntity(ip=_entity_name(ip))
        raise ZnodeError(entity_path, "no user, client or address")


@frozen
class ConfigChange:
    """The config of `entity_path` (`topics/foo`) was changed before; kept for 15 minutes."""

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
        """Read version 2, or version 1, which had topics and clients only."""
        read = JsonReader(data, path)
        version = read.take("version", integer)

        if version == 1:
            entity_type = read.take("entity_type", string)
            return ConfigChange(f"{entity_type}/{read.take('entity_name', string)}")

        if version == 2:
            return ConfigChange(read.take("entity_path", string))

        raise ZnodeError(path, f"version {version}, not 1 or 2")


def _write_partitions(partitions: tuple[PartitionName, ...]) -> bytes:
    entries = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return write_json({"version": 1, "partitions": entries})


def _read_partitions(data: bytes | None, path: str) -> tuple[PartitionName, ...]:
    def partition(value: Any) -> PartitionName:
        read = JsonReader.of_object(value, path)
        return read.take("topic", string), read.take("partition", integer)

    return JsonReader(data, path).take("partitions", array(partition))


def _sanitize(name: str) -> str:
    """Percent-encode what cannot be in a path, but for the name of all other entities."""
    return name if name == DEFAULT_ENTITY else _percent_encode(name)


def _percent_encode(name: str) -> str:
    """Encode all but letters, digits and `.-_`, as Kafka's Sanitizer does."""
    return quote(name, safe="").replace("~", "%7E")  # which `quote` leaves as it is


def _entity_node(name: EntityName) -> str:
    return DEFAULT_ENTITY if name is None or name is DEFAULT else _percent_encode(name)


def _entity_name(node: str) -> EntityName:
    return DEFAULT if node == DEFAULT_ENTITY else unquote(node)
