"""`__transaction_state`: the compacted topic that keeps transactional ids.

An id lives in one partition of it, chosen by Java's hash; the leader of that partition is the id's
coordinator. The topic is created with the settings of the Java broker.
"""

from __future__ import annotations

from groups.transactions.config import TransactionsConfig


def transactions_topic_properties(config: TransactionsConfig) -> dict[str, str]:
    """Return the settings for creating the topic."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config.topic_min_isr),
        "segment.bytes": str(config.topic_segment_bytes),
        "unclean.leader.election.enable": "false",
    }
