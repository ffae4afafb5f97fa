"""Znodes of the controller: the broker that is the controller, and the controller epoch."""

import re

import attrs

from protocol.frozen import frozen
from zk.znode_json import (
    Extra,
    JsonReader,
    ZnodeError,
    broker_id,
    decimal_string,
    epoch,
    integer,
    read_decimal,
    write_json,
)


@frozen
class Controller:
    """The broker that is the controller; ephemeral. `timestamp_ms` is -1 if the node has none."""

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
        """Read JSON, or a bare broker id, which the first brokers with a controller wrote."""
        if data and re.fullmatch(rb"-?[0-9]+", data):
            try:
                return Controller(broker_id(int(data)), -1)
            except ValueError as error:
                raise ZnodeError(path, f"{data!r} {error}") from None

        read = JsonReader(data, path)
        read.take("version", integer, 1)
        return Controller(
            broker_id=read.take("brokerid", broker_id),
            timestamp_ms=read.take("timestamp", decimal_string, -1),
            extra=read.rest(),
        )


@frozen
class ControllerEpoch:
    """The number of controllers elected so far; persistent.

    A controller writes only while this node's stat version is the one of its own election.
    """

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
