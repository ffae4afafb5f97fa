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
from typing import Any

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
    decimal_string,
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


@attrs.frozen
class TopicAssignment:
    """A topic's replicas by partition, the preferred leader first; persistent.

    Version 1; what later brokers wrote (2 from 2.4, 3 from 2.8) stays as it is.
    """

    partitions: Mapping[int, tuple[int, ...]]
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

    def encode(self) -> bytes:
        partitions = {str(p): list(self.partitions[p]) for p in sorted(self.partitions)}
        return write_json({"version": self.version, "partitions": partitions, **self.extra})

    @staticmethod
    def decode(data: bytes | None, path: str = "/brokers/topics/<topic>") -> "TopicAssignment":
        read = Reader(data, path)
        replicas = read.take("partitions", mapping(array(integer)))
        if alien := [key for key in replicas if not re.fullmatch("[0-9]+", key)]:
            raise ZnodeError(path, f"'partitions' has {alien[0]!r}: must be a partition")
        return TopicAssignment(
            partitions={int(key): replicas[key] for key in sorted(replicas, key=int)},
            version=read.take("version", integer, 1),
            extra=read.rest(),
        )


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
            leader=read.take("leader", integer),
            leader_epoch=read.take("leader_epoch", integer),
            isr=read.take("isr", array(integer)),
            controller_epoch=read.take("controller_epoch", integer),
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
        return ControllerEpoch(read_decimal(data, path))
