"""The broker: it keeps replicas of partitions, serves clients, and may be the controller."""
