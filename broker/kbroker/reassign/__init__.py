"""`kbroker reassign` moves partitions between brokers, and replicas between log directories."""
