"""Move partitions between brokers: `kbroker reassign`."""
