"""Znodes of brokers: their registrations, the counter of their ids, and the cluster's id."""

import re
from collections.abc import Iterable

import attrs

from protocol.frozen import frozen
from zk.znode_json import (
    Extra,
    JsonReader,
    array,
    decimal_string,
    integer,
    mapping,
    optional,
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
    return Endpoint(match[1], match[2], int(match[3]), security_protocol=match[1])


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
        """Return the ids among names of children; a name that is no number is not a broker."""
        return [int(name) for name in names if name.isdecimal()]

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
        """Read versions 1 to 5, and any later one that has the keys of version 4."""
        read = JsonReader(data, path)
        version = read.take("version", integer)
        host = read.take("host", optional(string), None)
        port = read.take("port", integer, -1)
        protocols = read.take("listener_security_protocol_map", mapping(string), {})

        # Version 1 has no endpoints, only the one address.
        if version == 1:
            endpoints: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", host or "", port),)
        else:
            endpoints = tuple(
                attrs.evolve(
                    endpoint,
                    security_protocol=protocols.get(endpoint.listener, endpoint.listener),
                )
                for endpoint in read.take(
                    "endpoints", array(lambda value: parse_endpoint(string(value)))
                )
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
