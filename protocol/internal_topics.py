"""The topics that brokers keep for themselves; clients see them marked as internal."""

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
EVENTS_TOPIC = "__group_events"
"""Each rebalance of a group, as JSON: ours alone, a stock broker takes it for a usual topic."""
JOURNAL_TOPIC = "__kgroup_journal"
"""What `kgroup reset` has written, as JSON. A broker takes it for a usual topic."""
ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics, as Kafka's AdminUtils has it."""
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, EVENTS_TOPIC})
