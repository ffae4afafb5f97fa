"""Signals between the parts of a broker: created first, before any part.

A part that has news calls a signal; parts that need the news subscribe. So no part has to exist
before another, and nothing is bound after construction. News of one partition that comes with every
request (a log has a new end, the high watermark moved) has no signal. It goes to those who wait for
that partition: `replication.partition_waits`, `ReplicaManager.on_high_watermark`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, ParamSpec

import attrs

from protocol.frozen import frozen

if TYPE_CHECKING:
    from broker.replication.isr import Isr
    from broker.replication.partition import IsrProposal, Partition
    from broker.settings.config import BrokerConfig
    from core_log.config import LogConfig
    from protocol.topic_partition import TopicPartition

P = ParamSpec("P")


class Signal(Generic[P]):
    """A list of subscribers, called in the order in which they subscribed."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, object]] = []

    def subscribe(self, subscriber: Callable[P, object]) -> None:
        """Call `subscriber` with every signal from now on."""
        self._subscribers.append(subscriber)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call all subscribers."""
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)


@frozen
class Signals:
    """The signals of one broker.

    | signal | called when | with |
    |---|---|---|
    | leadership | a control request changed who leads or follows | leaders, followers |
    | replicated | the log of a partition that follows has grown | the partition |
    | flushed | a log's recovery point moved, or its flush failed | the partition |
    | isr_written | ZooKeeper has a proposed ISR, or another one | change, ISR, version, time |
    | isr_superseded | another leader wrote the state node | the change |
    | topic_named | a notification names a topic whose settings changed | topic |
    | user_named | a notification names a user, or a client of one, whose settings changed | name |
    | client_named | a notification names a client whose settings changed | name |
    | ip_named | a notification names an address whose settings changed | name |
    | topic_settings | the settings of a topic changed | topic, its log config |
    | broker_settings | the settings of this broker changed | the config |
    | settings_unsure | a new session: notifications may have been missed | |
    | partitions_deleted | topics are being deleted | their partitions |
    """

    leadership: Signal[list[TopicPartition], list[TopicPartition]] = attrs.field(factory=Signal)
    replicated: Signal[Partition] = attrs.field(factory=Signal)
    flushed: Signal[Partition] = attrs.field(factory=Signal)
    isr_written: Signal[IsrProposal, Isr, int, int] = attrs.field(factory=Signal)
    isr_superseded: Signal[IsrProposal] = attrs.field(factory=Signal)
    topic_named: Signal[str] = attrs.field(factory=Signal)
    user_named: Signal[str] = attrs.field(factory=Signal)
    client_named: Signal[str] = attrs.field(factory=Signal)
    ip_named: Signal[str] = attrs.field(factory=Signal)
    topic_settings: Signal[str, LogConfig] = attrs.field(factory=Signal)
    broker_settings: Signal[BrokerConfig] = attrs.field(factory=Signal)
    settings_unsure: Signal[[]] = attrs.field(factory=Signal)
    partitions_deleted: Signal[list[TopicPartition]] = attrs.field(factory=Signal)
