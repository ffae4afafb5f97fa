"""Decide who leads which partition, and carry that out over ZooKeeper and the wire."""
