"""Znodes of consumer groups kept in ZooKeeper, and of offsets kept there.

A registration that one member can't read fails the rebalance of every JVM member, so we are strict
in what we write: small integers, the timestamp a string, the regex escaped by the JSON encoder.
"""

from collections.abc import Mapping

import attrs

from zk.znode_json import (
    Extra,
    Reader,
    ZnodeError,
    decimal_string,
    integer,
    mapping,
    read_decimal,
    string,
    write_json,
)


class ConsumerGroup:
    """The directories of a group: persistent, made as parents; payloads are null or empty."""

    @staticmethod
    def directory() -> str:
        """Of all groups."""
        return "/consumers"

    @staticmethod
    def can_hold(name: str) -> bool:
        """Whether a group or topic of that name can be here: it is the name of one node."""
        return name not in ("", ".", "..") and "/" not in name and name.isprintable()

    @staticmethod
    def path(group: str) -> str:
        return f"/consumers/{group}"

    @staticmethod
    def ids_path(group: str) -> str:
        return f"/consumers/{group}/ids"

    @staticmethod
    def owners_path(group: str) -> str:
        return f"/consumers/{group}/owners"

    @staticmethod
    def topic_owners_path(group: str, topic: str) -> str:
        return f"/consumers/{group}/owners/{topic}"

    @staticmethod
    def offsets_path(group: str) -> str:
        return f"/consumers/{group}/offsets"

    @staticmethod
    def topic_offsets_path(group: str, topic: str) -> str:
        return f"/consumers/{group}/offsets/{topic}"


@attrs.frozen
class ConsumerRegistration:
    """A member of a group; ephemeral.

    `subscription` maps topic to number of streams when `pattern` is "static"; with "white_list" and
    "black_list" it has one entry, a Java regex. `timestamp_ms` is -1 when a member gave none that
    can be read.
    """

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def path(group: str, consumer_id: str) -> str:
        return f"/consumers/{group}/ids/{consumer_id}"

    def encode(self) -> bytes:
        keys = {
            "version": 1,
            "subscription": dict(self.subscription),
            "pattern": self.pattern,
            "timestamp": str(self.timestamp_ms),
        }
        return write_json({**keys, **self.extra})

    @staticmethod
    def decode(
        data: bytes | None, path: str = "/consumers/<group>/ids/<consumer>"
    ) -> "ConsumerRegistration":
        read = Reader(data, path)
        read.take("version", lambda _: None, None)  # no JVM member looks at it, nor at the time
        return ConsumerRegistration(
            pattern=read.take("pattern", string),
            subscription=read.take("subscription", mapping(integer)),
            timestamp_ms=read.take("timestamp", _time_if_any, -1),
            extra=read.rest(),
        )


def _time_if_any(value: object) -> int:
    try:
        return decimal_string(value)
    except ValueError:
        return -1


@attrs.frozen
class PartitionOwner:
    """The stream that consumes a partition, named by consumer id, dash and number; ephemeral."""

    consumer_thread_id: str

    @staticmethod
    def path(group: str, topic: str, partition: int) -> str:
        return f"/consumers/{group}/owners/{topic}/{partition}"

    @property
    def consumer_id(self) -> str:
        """Before the last dash; consumer ids have dashes of their own."""
        return self.consumer_thread_id.rpartition("-")[0]

    def encode(self) -> bytes:
        return self.consumer_thread_id.encode()

    @staticmethod
    def decode(
        data: bytes | None, path: str = "/consumers/<group>/owners/<topic>/<partition>"
    ) -> "PartitionOwner":
        if not data:
            raise ZnodeError(path, "null" if data is None else "empty")
        try:
            return PartitionOwner(data.decode())
        except UnicodeDecodeError as error:
            raise ZnodeError(path, f"not UTF-8: {error}") from None


@attrs.frozen
class ConsumerOffset:
    """The next offset the group will consume; persistent."""

    offset: int

    @staticmethod
    def path(group: str, topic: str, partition: int) -> str:
        return f"/consumers/{group}/offsets/{topic}/{partition}"

    def encode(self) -> bytes:
        return b"%d" % self.offset

    @staticmethod
    def decode(
        data: bytes | None, path: str = "/consumers/<group>/offsets/<topic>/<partition>"
    ) -> "ConsumerOffset":
        return ConsumerOffset(read_decimal(data, path))
