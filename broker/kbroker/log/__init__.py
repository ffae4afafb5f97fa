"""Look at log directories, verify and repair them: `kbroker log`."""
