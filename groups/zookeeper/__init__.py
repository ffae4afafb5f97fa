"""Group membership kept in ZooKeeper: registration, assignment, ownership of partitions."""
