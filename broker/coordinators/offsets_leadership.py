"""What a broker tells its group coordinator: which partitions of `__consumer_offsets` it leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from broker.coordinators.offsets_topic_policy import OffsetsTopicPolicy
from core_log.config import LogConfig
from groups.coordinator.coordinator import GroupCoordinator
from offsets.topic import OFFSETS_TOPIC
from protocol.topic_partition import TopicPartition


@attrs.define(eq=False)
class OffsetsLeadership:
    """Has an eye on the topic's settings too, while anything of it is led here."""

    coordinator: GroupCoordinator
    topic_config: Callable[[str], LogConfig]
    _policy: OffsetsTopicPolicy = attrs.field(factory=OffsetsTopicPolicy)

    def taken(self, leaders: Iterable[TopicPartition], followers: Iterable[TopicPartition]) -> None:
        """A control request has changed who leads what. A listener of leadership."""
        led = {tp.partition for tp in leaders if tp.topic == OFFSETS_TOPIC}
        if led:
            self._policy.check(self.topic_config(OFFSETS_TOPIC))
        self.coordinator.on_leadership(
            led, {tp.partition for tp in followers if tp.topic == OFFSETS_TOPIC}
        )

    def config_changed(self, topic: str, config: LogConfig) -> None:
        """A topic, perhaps another one, has other settings."""
        if topic == OFFSETS_TOPIC and self.coordinator.leads_any:
            self._policy.check(config)
