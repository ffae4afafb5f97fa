"""Create topics automatically when a client asks about them."""

from __future__ import annotations

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_creation import TopicCreator
from broker.controller.topic_names import check_name
from broker.settings.config import BrokerConfig
from offsets.topic import topic_properties
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC


@attrs.frozen
class AutomaticTopics:
    """Creates missing topics; with `auto.create.topics.enable` off, only the offsets topic."""

    creator: TopicCreator
    cache: MetadataCache
    config: BrokerConfig

    def create(self, name: str) -> int:
        """Start to create the topic; return the number of its partitions. Raises ApiError.

        It is 0 while the topic is being created.
        """
        if self.creator.is_creating(name):
            return 0

        # It is needed for any commit, so auto.create.topics.enable does not matter.
        if name == OFFSETS_TOPIC:
            offsets = self.config.offsets
            self.creator.create(
                name,
                offsets.topic_num_partitions,
                offsets.topic_replication_factor,
                topic_properties(offsets),
            )
            return offsets.topic_num_partitions

        # Transactions are not served, so their topic is not created either.
        if name in INTERNAL_TOPICS or not self.config.auto_create_topics_enable:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        check_name(name, self.cache.names)
        self.creator.create(
            name, self.config.num_partitions, self.config.default_replication_factor
        )
        return self.config.num_partitions
