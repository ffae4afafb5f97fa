"""ZooKeeper: the session, every znode's path and JSON, the embedded server."""
