"""Znodes of consumer groups that live in ZooKeeper, and of the offsets there.

One unreadable registration fails the rebalance of every JVM member. So we write strictly: small
integers, the timestamp as a string, the regex escaped by the JSON encoder.
"""

from collections.abc import Mapping

import attrs

from protocol.frozen import frozen
from zk.znode_json import (
    Extra,
    JsonReader,
    ZnodeError,
    decimal_string,
    integer,
    mapping,
    read_decimal,
    string,
    write_json,
)


class ConsumerGroup:
    """The directories of a group: persistent, created as parents; payloads are null or empty."""

    @staticmethod
    def directory() -> str:
        """Return the parent of all groups."""
        return "/consumers"

    @staticmethod
    def can_hold(name: str) -> bool:
        """Return whether `name`, of a group or topic, can be the name of one node."""
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


# --- members and what they own ----------------------------------------------------------------


@frozen
class ConsumerRegistration:
    """A member of a group; ephemeral.

    With the `pattern` "static", `subscription` maps each topic to its number of streams. With
    "white_list" and "black_list" it has one entry, a Java regex. `timestamp_ms` is -1 if the node
    has none that can be read.
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
        read = JsonReader(data, path)
        # JVM members read neither the version nor the timestamp, so these may be anything.
        read.take("version", lambda _: None, None)
        return ConsumerRegistration(
            pattern=read.take("pattern", string),
            subscription=read.take("subscription", mapping(integer)),
            timestamp_ms=read.take("timestamp", _time_or_none, -1),
            extra=read.rest(),
        )


def _time_or_none(value: object) -> int:
    """Read a time in ms; -1 for what is no time."""
    try:
        return decimal_string(value)
    except ValueError:
        return -1


@frozen
class PartitionOwner:
    """The stream that consumes a partition; ephemeral. Its id is `<consumer id>-<number>`."""

    consumer_thread_id: str

    @staticmethod
    def path(group: str, topic: str, partition: int) -> str:
        return f"/consumers/{group}/owners/{topic}/{partition}"

    @property
    def consumer_id(self) -> str:
        # Consumer ids have dashes of their own: the number follows the last one.
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


# --- offsets ----------------------------------------------------------------------------------


@frozen
class ConsumerOffset:
    """The next offset that the group consumes from a partition; persistent."""

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
