"""Znodes of topics: the replicas of each partition, its leader and its in-sync replicas."""

import re
from collections.abc import Mapping
from typing import Any, Self

import attrs

from protocol.frozen import frozen
from protocol.topic_identity import decode_id, encode_id
from zk.znode_json import (
    Extra,
    JsonReader,
    ZnodeError,
    array,
    broker_id,
    epoch,
    integer,
    mapping,
    write_json,
)

Replicas = tuple[int, ...]

NO_LEADER = -1


@frozen
class TopicAssignment:
    """The replicas of a topic by partition, the preferred leader first; persistent.

    We write version 1, and keep the version that a later broker wrote (2 from 2.4, 3 from 2.8).
    From version 2 on, `adding` and `removing` hold the replicas that a reassignment adds and
    removes (KIP-455). From version 3 on there may be a topic id (KIP-516).
    """

    partitions: Mapping[int, Replicas]
    adding: Mapping[int, Replicas] = attrs.field(factory=dict, kw_only=True)
    removing: Mapping[int, Replicas] = attrs.field(factory=dict, kw_only=True)
    version: int = attrs.field(default=1, kw_only=True)
    extra: Extra = attrs.field(factory=dict, kw_only=True)

    @staticmethod
    def directory() -> str:
        """Return the parent of all topics; its children are their names."""
        return "/brokers/topics"

    @staticmethod
    def path(topic: str) -> str:
        return f"/brokers/topics/{topic}"

    @staticmethod
    def partitions_path(topic: str) -> str:
        """Return the parent of a topic's partitions: persistent, null data."""
        return f"/brokers/topics/{topic}/partitions"

    @staticmethod
    def partition_path(topic: str, partition: int) -> str:
        """Return the parent of a partition's state: persistent, null data."""
        return f"/brokers/topics/{topic}/partitions/{partition}"

    @property
    def topic_id(self) -> bytes | None:
        """The id of the topic; None if there is none, or if it is none."""
        return decode_id(self.extra.get("topic_id"))

    @staticmethod
    def read_topic_id(data: bytes | None, path: str = "/brokers/topics/<topic>") -> bytes | None:
        """Return the id of a topic without reading its partitions. Raises ZnodeError."""
        return decode_id(JsonReader(data, path).rest().get("topic_id"))

    def pin(self, topic_id: bytes) -> Self:
        """Return the assignment with a topic id, as Kafka 2.8 writes it. All releases read it."""
        extra = {**self.extra, "topic_id": encode_id(topic_id)}
        return attrs.evolve(self, version=max(self.version, 3), extra=extra)

    def reassign(self, moves: Mapping[int, tuple[Replicas, Replicas, Replicas]]) -> Self:
        """Return the assignment with other replicas for some partitions.

        `moves` holds, by partition, all replicas, those being added and those being removed.
        """
        partitions = dict(self.partitions)
        all_adding = dict(self.adding)
        all_removing = dict(self.removing)
        version = self.version

        # A move that has ended leaves empty entries, which are not written.
        for partition, (replicas, adding, removing) in moves.items():
            partitions[partition] = replicas
            all_adding[partition] = adding
            all_removing[partition] = removing

            # Version 2 is the first that can say so (KIP-455).
            if adding or removing:
                version = max(version, 2)

        return attrs.evolve(
            self,
            partitions=partitions,
            adding=all_adding,
            removing=all_removing,
            version=version,
        )

    def encode(self) -> bytes:
        keys = {"version": self.version, "partitions": _write_replicas(self.partitions)}
        moving = {}

        # From version 2 on Kafka writes both maps, also if they are empty.
        if self.version >= 2:
            moving = {
                "adding_replicas": _write_replicas(_without_empty(self.adding)),
                "removing_replicas": _write_replicas(_without_empty(self.removing)),
            }
        return write_json({**keys, **self.extra, **moving})

    @staticmethod
    def decode(data: bytes | None, path: str = "/brokers/topics/<topic>") -> "TopicAssignment":
        read = JsonReader(data, path)
        return TopicAssignment(
            partitions=_read_replicas(read, path, "partitions"),
            adding=_read_replicas(read, path, "adding_replicas", {}),
            removing=_read_replicas(read, path, "removing_replicas", {}),
            version=read.take("version", integer, 1),
            extra=read.rest(),
        )


def _read_replicas(
    read: JsonReader, path: str, key: str, default: Any = attrs.NOTHING
) -> dict[int, Replicas]:
    replicas = read.take(key, mapping(_broker_ids), default)
    for name in replicas:
        if not re.fullmatch("[0-9]{1,9}", name):
            raise ZnodeError(path, f"{key!r} has {name!r}: must be a partition")

    # The keys of JSON are text, and come in any order.
    return {int(name): replicas[name] for name in sorted(replicas, key=int)}


def _broker_ids(value: Any) -> Replicas:
    ids = array(broker_id)(value)
    if not ids or len(set(ids)) < len(ids):
        raise ValueError("must be different broker ids, one at least")
    return ids


def _without_empty(replicas: Mapping[int, Replicas]) -> dict[int, Replicas]:
    return {partition: ids for partition, ids in replicas.items() if ids}


def _write_replicas(replicas: Mapping[int, Replicas]) -> dict[str, list[int]]:
    return {str(partition): list(replicas[partition]) for partition in sorted(replicas)}


@frozen
class PartitionState:
    """The leader (-1: none) and in-sync replicas of a partition; persistent.

    The node's stat version is Kafka's zkVersion.
    """

    leader: int
    leader_epoch: int
    isr: Replicas
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
        read = JsonReader(data, path)
        read.take("version", integer, 1)
        return PartitionState(
            leader=read.take("leader", _leader),
            leader_epoch=read.take("leader_epoch", epoch),
            isr=read.take("isr", array(broker_id)),
            controller_epoch=read.take("controller_epoch", epoch),
            extra=read.rest(),
        )


def _leader(value: Any) -> int:
    return NO_LEADER if value == NO_LEADER else broker_id(value)
