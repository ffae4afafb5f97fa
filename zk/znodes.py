"""Every znode of Kafka's that we read or write: its path, its payload, its lifetime.

Brokers, topics and the controller are here; what tools and brokers tell the controller, and what
consumers keep, are in modules of their own and named here too.

Payloads are Kafka's (ZkData of 2.3, the consumer of 0.8.2 to 1.1): compact UTF-8 JSON, times and
other longs as decimal strings, because consumers up to 0.11 read every JSON number as 32 bits.
Readers ignore the order of keys. Keys that another version added are kept in `extra` and written
back, so that an update by us loses nothing.

A Java reader takes null for "absent" and empty for "there, but empty": `encode` of a znode without
payload says which it is. `decode` raises ZnodeError for what the path doesn't promise.
"""

import re
from collections.abc import Mapping
from typing import Any, Self

import attrs

from zk.admin_znodes import (
    ConfigChange,
    DeleteTopic,
    EntityConfig,
    IsrChange,
    LogDirEvent,
    PreferredReplicaElection,
    ProducerIdBlock,
    ReassignPartitions,
    sequence_number,
)
from zk.consumer_znodes import ConsumerGroup, ConsumerOffset, ConsumerRegistration, PartitionOwner
from zk.znode_json import (
    Extra,
    Reader,
    ZnodeError,
    array,
    broker_id,
    decimal_string,
    epoch,
    integer,
    mapping,
    optional,
    read_decimal,
    string,
    write_json,
)

__all__ = [
    "STARTUP_PATHS",
    "BrokerId",
    "BrokerSeqId",
    "ClusterId",
    "ConfigChange",
    "ConsumerGroup",
    "ConsumerOffset",
    "ConsumerRegistration",
    "Controller",
    "ControllerEpoch",
    "DeleteTopic",
    "Endpoint",
    "EntityConfig",
    "IsrChange",
    "LogDirEvent",
    "PartitionOwner",
    "PartitionState",
    "PreferredReplicaElection",
    "ProducerIdBlock",
    "ReassignPartitions",
    "TopicAssignment",
    "ZnodeError",
    "sequence_number",
]

STARTUP_PATHS = (
    "/consumers",
    "/brokers/ids",
    "/brokers/topics",
    "/config/changes",
    "/admin/delete_topics",
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
)
"""Made by every broker that starts, with parents and chroot: persistent, null data."""


@attrs.frozen
class Endpoint:
    """Written LISTENER://host:port."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


def _endpoint(value: Any) -> Endpoint:
    """The protocol is the listener's name, as it was before listeners had names (KIP-103)."""
    match = re.fullmatch(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)", string(value))
    if match is None:
        raise ValueError("must be LISTENER://host:port")
    return Endpoint(match[1], match[2], int(match[3]), security_protocol=match[1])


@attrs.frozen
class BrokerId:
    """A live broker; ephemeral. Its czxid is the broker epoch (KIP-380). Written as version 4.

    `host` and `port` serve old readers: the first PLAINTEXT endpoint's, else null and -1.
    """

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    jmx_port: int = -1
    rack: str | None = None
    host: str | None = attrs.field(kw_only=True)
    port: int = attrs.field(kw_only=True)
    version: int = attrs.field(default=4, kw_only=True)
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @host.default
    def _host_for_old_readers(self) -> str | None:
        return next((e.host for e in self.endpoints if e.security_protocol == "PLAINTEXT"), None)

    @port.default
    def _port_for_old_readers(self) -> int:
        return next((e.port for e in self.endpoints if e.security_protocol == "PLAINTEXT"), -1)

    @staticmethod
    def path(broker_id: int) -> str:
        return f"/brokers/ids/{broker_id}"

    def encode(self) -> bytes:
        rack = {} if self.rack is None else {"rack": self.rack}
        keys = {
            "version": max(self.version, 4),
            "host": self.host,
            "port": self.port,
            "endpoints": [str(e) for e in self.endpoints],
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "listener_security_protocol_map": {
                e.listener: e.security_protocol for e in self.endpoints
            },
        }
        return write_json({**keys, **rack, **self.extra})

    @staticmethod
    def decode(data: bytes | None, path: str = "/brokers/ids/<id>") -> "BrokerId":
        """Versions 1 to 5, and any later one that has what 4 has."""
        read = Reader(data, path)
        version = read.take("version", integer)
        host, port = read.take("host", optional(string), None), read.take("port", integer, -1)
        protocols = read.take("listener_security_protocol_map", mapping(string), {})
        if version == 1:
            endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", host or "", port),)
        else:
            endpoints = tuple(
                attrs.evolve(e, security_protocol=protocols.get(e.listener, e.listener))
                for e in read.take("endpoints", array(_endpoint))
            )
        return BrokerId(
            endpoints=endpoints,
            timestamp_ms=read.take("timestamp", decimal_string, -1),
            jmx_port=read.take("jmx_port", integer, -1),
            rack=read.take("rack", optional(string), None),
            host=host,
            port=port,
            version=version,
            extra=read.rest(),
        )


class BrokerSeqId:
    """Persistent. Each write of it raises its stat version, from which broker ids are made."""

    @staticmethod
    def path() -> str:
        return "/brokers/seqid"

    @staticmethod
    def encode() -> bytes:
        return b""


@attrs.frozen
class ClusterId:
    """Made by the first broker; persistent. Its version is a string, unlike all others."""

    id: str
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def path() -> str:
        return "/cluster/id"

    def encode(self) -> bytes:
        return write_json({"version": "1", "id": self.id, **self.extra})

    @staticmethod
    def decode(data: bytes | None, path: str = "/cluster/id") -> "ClusterId":
        read = Reader(data, path)
        read.take("version", decimal_string, 1)
        return ClusterId(read.take("id", string), extra=read.rest())


Replicas = tuple[int, ...]


@attrs.frozen
class TopicAssignment:
    """A topic's replicas by partition, the preferred leader first; persistent.

    Version 1; what later brokers wrote (2 from 2.4, 3 from 2.8) stays as it is. From version 2 on
    `adding` and `removing` say which of a partition's replicas come and go (KIP-455).
    """

    partitions: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict, kw_only=True)
    removing: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict, kw_only=True)
    version: int = attrs.field(default=1, kw_only=True)
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def path(topic: str) -> str:
        return f"/brokers/topics/{topic}"

    @staticmethod
    def partitions_path(topic: str) -> str:
        """Persistent, null data."""
        return f"/brokers/topics/{topic}/partitions"

    @staticmethod
    def partition_path(topic: str, partition: int) -> str:
        """Persistent, null data."""
        return f"/brokers/topics/{topic}/partitions/{partition}"

    def reassigned(self, moves: Mapping[int, tuple[Replicas, Replicas, Replicas]]) -> Self:
        """With other replicas for some partitions: all, those of them that come, that go."""
        is_moving = any(adding or removing for _, adding, removing in moves.values())
        return attrs.evolve(
            self,
            partitions={**self.partitions, **{each: move[0] for each, move in moves.items()}},
            adding={**self.adding, **{each: move[1] for each, move in moves.items()}},
            removing={**self.removing, **{each: move[2] for each, move in moves.items()}},
            version=max(self.version, 2) if is_moving else self.version,
        )

    def encode(self) -> bytes:
        keys = {"version": self.version, "partitions": _write_replicas(self.partitions)}
        moving = {
            "adding_replicas": _write_replicas({p: r for p, r in self.adding.items() if r}),
            "removing_replicas": _write_replicas({p: r for p, r in self.removing.items() if r}),
        }
        return write_json({**keys, **self.extra, **(moving if self.version >= 2 else {})})

    @staticmethod
    def decode(data: bytes | None, path: str = "/brokers/topics/<topic>") -> "TopicAssignment":
        read = Reader(data, path)
        return TopicAssignment(
            partitions=_read_replicas(read, path, "partitions"),
            adding=_read_replicas(read, path, "adding_replicas", {}),
            removing=_read_replicas(read, path, "removing_replicas", {}),
            version=read.take("version", integer, 1),
            extra=read.rest(),
        )


def _read_replicas(
    read: Reader, path: str, key: str, default: Any = attrs.NOTHING
) -> dict[int, tuple[int, ...]]:
    replicas = read.take(key, mapping(_broker_ids), default)
    if alien := [each for each in replicas if not re.fullmatch("[0-9]{1,9}", each)]:
        raise ZnodeError(path, f"{key!r} has {alien[0]!r}: must be a partition")
    return {int(each): replicas[each] for each in sorted(replicas, key=int)}


def _broker_ids(value: Any) -> tuple[int, ...]:
    ids = array(broker_id)(value)
    if not ids or len(set(ids)) < len(ids):
        raise ValueError("must be different broker ids, one at least")
    return ids


def _leader(value: Any) -> int:
    return NO_LEADER if value == NO_LEADER else broker_id(value)


def _write_replicas(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(each): list(replicas[each]) for each in sorted(replicas)}


NO_LEADER = -1


@attrs.frozen
class PartitionState:
    """Leader (-1: none) and ISR of a partition; persistent. Its stat version is the zkVersion."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def path(topic: str, partition: int) -> str:
        return f"{TopicAssignment.partition_path(topic, partition)}/state"

    def encode(self) -> bytes:
        keys = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
        }
        return write_json({**keys, **self.extra})

    @staticmethod
    def decode(
        data: bytes | None, path: str = "/brokers/topics/<topic>/partitions/<partition>/state"
    ) -> "PartitionState":
        read = Reader(data, path)
        read.take("version", integer, 1)
        return PartitionState(
            leader=read.take("leader", _leader),
            leader_epoch=read.take("leader_epoch", epoch),
            isr=read.take("isr", array(broker_id)),
            controller_epoch=read.take("controller_epoch", epoch),
            extra=read.rest(),
        )


@attrs.frozen
class Controller:
    """The broker that controls the cluster; ephemeral."""

    broker_id: int
    timestamp_ms: int
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def path() -> str:
        return "/controller"

    def encode(self) -> bytes:
        keys = {"version": 1, "brokerid": self.broker_id, "timestamp": str(self.timestamp_ms)}
        return write_json({**keys, **self.extra})

    @staticmethod
    def decode(data: bytes | None, path: str = "/controller") -> "Controller":
        """A bare number, as the first brokers with a controller wrote, has no time: -1."""
        if data and re.fullmatch(rb"-?[0-9]+", data):
            return Controller(int(data), -1)
        read = Reader(data, path)
        read.take("version", integer, 1)
        return Controller(
            broker_id=read.take("brokerid", integer),
            timestamp_ms=read.take("timestamp", decimal_string, -1),
            extra=read.rest(),
        )


@attrs.frozen
class ControllerEpoch:
    """How many controllers there were; persistent. Its stat version guards what they write."""

    epoch: int

    @staticmethod
    def path() -> str:
        return "/controller_epoch"

    def encode(self) -> bytes:
        return b"%d" % self.epoch

    @staticmethod
    def decode(data: bytes | None, path: str = "/controller_epoch") -> "ControllerEpoch":
        try:
            return ControllerEpoch(epoch(read_decimal(data, path)))
        except ValueError as error:
            raise ZnodeError(path, f"{data!r} {error}") from None
