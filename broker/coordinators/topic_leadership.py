"""Tell a coordinator which partitions of its internal topic this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import attrs

from broker.coordinators.coordinators_topic_policy import CoordinatorsTopicPolicy
from core_log.config import LogConfig
from protocol.topic_partition import TopicPartition


class LedCoordinator(Protocol):
    """The part that follows the leadership of a topic's partitions."""

    @property
    def leads_any(self) -> bool:
        """Return whether any partition is led here."""

    def on_leadership(self, leaders: Collection[int], followers: Collection[int]) -> None:
        """Load the partitions now led here, and unload those that are no longer."""


@attrs.define(eq=False)
class TopicLeadership:
    """Leadership of `topic`, for its coordinator.

    The topic's settings are checked too, while any partition of it is led here.
    """

    topic: str
    coordinator: LedCoordinator
    topic_config: Callable[[str], LogConfig]
    _policy: CoordinatorsTopicPolicy = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._policy = CoordinatorsTopicPolicy(self.topic)

    def leadership_changed(
        self, leaders: Iterable[TopicPartition], followers: Iterable[TopicPartition]
    ) -> None:
        """Follow a control request. A subscriber of `Signals.leadership`."""
        led = self._own(leaders)

        # The settings may have gone wrong while another broker led.
        if led:
            self._policy.check(self.topic_config(self.topic))
        self.coordinator.on_leadership(led, self._own(followers))

    def config_changed(self, topic: str, config: LogConfig) -> None:
        """Check changed settings, if they are of this topic. A subscriber of `topic_settings`."""
        # One warning from those that lead is enough, not one from every broker.
        if topic == self.topic and self.coordinator.leads_any:
            self._policy.check(config)

    def _own(self, partitions: Iterable[TopicPartition]) -> set[int]:
        return {
            topic_partition.partition
            for topic_partition in partitions
            if topic_partition.topic == self.topic
        }
