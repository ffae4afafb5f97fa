"""Znodes of brokers: their registrations, the counter of their ids, and the cluster's id."""

import re
from collections.abc import Iterable
from typing import Any

import attrs

from protocol.frozen import frozen
from protocol.security_protocol import SecurityProtocol
from zk.znode_json import (
    LARGEST_INT,
    LONGEST_LONG,
    Extra,
    JsonReader,
    array,
    decimal_string,
    integer,
    mapping,
    optional,
    port,
    sendable_string,
    string,
    write_json,
)

WRITTEN_VERSION = 4
"""The version of a broker's registration that we write."""


@frozen
class Endpoint:
    """An address of a broker, written LISTENER://host:port."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        # An IPv6 address has colons itself.
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Read LISTENER://host:port, as Kafka's `EndPoint.createEndPoint` does. Raises ValueError.

    The security protocol is the listener's name, as it was before listeners had names (KIP-103).
    """
    match = re.fullmatch(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)", text)
    if match is None:
        raise ValueError("must be LISTENER://host:port")
    return Endpoint(match[1], match[2], port(int(match[3])), security_protocol=match[1])


def security_protocol(value: Any) -> str:
    """Read the name of a security protocol, as Kafka does in any case of letters."""
    name = string(value).upper()
    # It is a number on the wire (fault strangers-154).
    if name not in SecurityProtocol.__members__:
        raise ValueError(f"must be one of {', '.join(SecurityProtocol.__members__)}")
    return name


@frozen
class BrokerId:
    """A live broker; ephemeral. Its czxid is the broker epoch (KIP-380).

    `host` and `port` are for old readers. They are those of the first PLAINTEXT endpoint, else
    null and -1.
    """

    endpoints: tuple[Endpoint, ...]
    timestamp_ms: int
    jmx_port: int = -1
    rack: str | None = None
    host: str | None = attrs.field(kw_only=True)
    port: int = attrs.field(kw_only=True)
    version: int = attrs.field(default=WRITTEN_VERSION, kw_only=True)
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    # --- for old readers ----------------------------------------------------------------------

    @host.default
    def _host_for_old_readers(self) -> str | None:
        plaintext = self._first_plaintext_endpoint()
        return plaintext.host if plaintext else None

    @port.default
    def _port_for_old_readers(self) -> int:
        plaintext = self._first_plaintext_endpoint()
        return plaintext.port if plaintext else -1

    def _first_plaintext_endpoint(self) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.security_protocol == "PLAINTEXT":
                return endpoint
        return None

    @staticmethod
    def directory() -> str:
        """Return the parent of all registrations; its children are the ids of live brokers."""
        return "/brokers/ids"

    @staticmethod
    def ids_of(names: Iterable[str]) -> list[int]:
        """Return the ids among names of children; a name that is no INT32 is not a broker."""
        ids = (int(name) for name in names if name.isdecimal() and len(name) < LONGEST_LONG)
        return [broker_id for broker_id in ids if broker_id <= LARGEST_INT]

    @staticmethod
    def path(broker_id: int | str) -> str:
        """`broker_id` may also be a child's name as ZooKeeper lists it."""
        return f"/brokers/ids/{broker_id}"

    def encode(self) -> bytes:
        # Kafka leaves the rack out if there is none.
        rack = {} if self.rack is None else {"rack": self.rack}
        keys = {
            # We write the keys of version 4; those of a later one are in `extra`.
            "version": max(self.version, WRITTEN_VERSION),
            "host": self.host,
            "port": self.port,
            "endpoints": [str(endpoint) for endpoint in self.endpoints],
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "listener_security_protocol_map": {
                endpoint.listener: endpoint.security_protocol for endpoint in self.endpoints
            },
        }
        return write_json({**keys, **rack, **self.extra})

    @staticmethod
    def decode(data: bytes | None, path: str = "/brokers/ids/<id>") -> "BrokerId":
        """Read versions 1 to 5, and any later one that has the keys of version 4.

        Raises ZnodeError for what cannot be sent to other brokers, too: they would learn nothing
        any more, of no broker.
        """
        read = JsonReader(data, path)
        version = read.take("version", integer)
        host = read.take("host", optional(sendable_string), None)
        old_port = read.take("port", port, -1)
        protocols = read.take("listener_security_protocol_map", mapping(security_protocol), {})

        def protected_endpoint(value: Any) -> Endpoint:
            endpoint = parse_endpoint(sendable_string(value))
            name = endpoint.listener
            protocol = protocols[name] if name in protocols else security_protocol(name)
            return attrs.evolve(endpoint, security_protocol=protocol)

        # Version 1 has no endpoints, only the one address.
        if version == 1:
            endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", host or "", old_port),)
        else:
            endpoints = read.take("endpoints", array(protected_endpoint))

        return BrokerId(
            endpoints=endpoints,
            timestamp_ms=read.take("timestamp", decimal_string, -1),
            jmx_port=read.take("jmx_port", integer, -1),
            rack=read.take("rack", optional(sendable_string), None),
            host=host,
            port=old_port,
            version=version,
            extra=read.rest(),
        )


# --- ids --------------------------------------------------------------------------------------


class BrokerSeqId:
    """The counter of generated broker ids; persistent, empty.

    Each write raises its stat version, and a new broker's id is computed from that version.
    """

    @staticmethod
    def path() -> str:
        return "/brokers/seqid"

    @staticmethod
    def encode() -> bytes:
        return b""


@frozen
class ClusterId:
    """The cluster's id; persistent, created by the first broker.

    The version in it is a string, unlike that of all other znodes.
    """

    id: str
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def path() -> str:
        return "/cluster/id"

    def encode(self) -> bytes:
        return write_json({"version": "1", "id": self.id, **self.extra})

    @staticmethod
    def decode(data: bytes | None, path: str = "/cluster/id") -> "ClusterId":
        read = JsonReader(data, path)
        read.take("version", decimal_string, 1)
        return ClusterId(read.take("id", string), extra=read.rest())
