"""ZooKeeper: the session with it, the path and payload of every znode, an embedded server."""
