"""Lead and follow partitions: appends, the in-sync replicas, fetching and truncation.

Doors: `replica_manager` owns the partitions, `replica_roles` has them lead and follow,
`replica_fetchers` fetches from leaders, `fetch_sessions` serves readers that fetch the same
partitions again and again.
"""
