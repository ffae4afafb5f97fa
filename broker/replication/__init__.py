"""Lead and follow partitions: appends, the in-sync replicas, fetching and truncation.

Doors: `replica_manager` owns the partitions, `replica_fetchers` follow leaders, `fetch_sessions`
serve readers that ask again and again.
"""
