"""Log compaction: of each key the newest record stays (Kafka's log cleaner)."""
