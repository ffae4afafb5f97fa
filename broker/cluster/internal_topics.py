"""The topics whose partitions are led by coordinators, as they are created."""

from __future__ import annotations

from collections.abc import Mapping

from groups.transactions.config import TransactionsConfig
from groups.transactions.topic import transactions_topic_properties
from offsets.config import OffsetsConfig
from offsets.topic import topic_properties
from protocol.frozen import frozen
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC


@frozen
class InternalTopic:
    """A topic as it is created by the first who needs it.

    `replication_setting` is the setting of the broker that `replication_factor` is from.
    """

    name: str
    partitions: int
    replication_factor: int
    properties: Mapping[str, str]
    replication_setting: str


def internal_topics(
    offsets: OffsetsConfig, transactions: TransactionsConfig
) -> dict[str, InternalTopic]:
    """Return the topics of all coordinators, by name."""
    topics = (
        InternalTopic(
            OFFSETS_TOPIC,
            offsets.topic_num_partitions,
            offsets.topic_replication_factor,
            topic_properties(offsets),
            "offsets.topic.replication.factor",
        ),
        InternalTopic(
            TRANSACTIONS_TOPIC,
            transactions.topic_num_partitions,
            transactions.topic_replication_factor,
            transactions_topic_properties(transactions),
            "transaction.state.log.replication.factor",
        ),
    )
    return {topic.name: topic for topic in topics}
