"""Membership kept in ZooKeeper: registration, ownership, range rebalance."""
