"""Log compaction: the newest record of each key stays (Kafka's log cleaner)."""
