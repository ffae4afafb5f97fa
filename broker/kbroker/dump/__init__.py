"""Print files of a log: `kbroker dump`."""
