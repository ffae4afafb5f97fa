"""Create topics automatically when a client asks about them."""

from __future__ import annotations

from broker.cluster.internal_topics import internal_topics
from broker.cluster.metadata_cache import MetadataCache
from broker.cluster.topic_creation import TopicCreator
from broker.controller.topic_names import check_name
from broker.settings.config import BrokerConfig
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.internal_topics import INTERNAL_TOPICS


@frozen
class AutomaticTopics:
    """Creates missing topics; with `auto.create.topics.enable` off, only those of
    coordinators."""

    creator: TopicCreator
    cache: MetadataCache
    config: BrokerConfig

    def create(self, name: str) -> int:
        """Start to create the topic; return the number of its partitions. Raises ApiError.

        It is 0 while the topic is being created, or has to be asked for again.
        """
        if self.creator.is_creating(name):
            return 0

        # Coordinators need theirs, so auto.create.topics.enable does not matter.
        topic = internal_topics(self.config.offsets, self.config.transactions).get(name)
        if topic is not None:
            self.creator.create_internal(topic)
            return topic.partitions

        if name in INTERNAL_TOPICS or not self.config.auto_create_topics_enable:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        check_name(name, self.cache.names)
        # 1,900 names are 1,900,000 partitions if num.partitions is 1,000 (fault strangers-9).
        if self.creator.is_full:
            return 0
        self.creator.create(
            name, self.config.num_partitions, self.config.default_replication_factor
        )
        return self.config.num_partitions
